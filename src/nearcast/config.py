"""Every default, limit and threshold of Nearcast, in one place.

Other modules refer to these names and hold no such number of their own. A number that comes from a paper says which
paper, and where in it.

The papers, by the name that the headings below use:

- AP-Tree: Wang, Zhang, Zhang, Lin and Wang, "AP-Tree: Efficiently Support Location-Aware Publish/Subscribe" (2015)
- MO-Tree: Dian, Qian, Cao, Xue, Zhu, Yu and Li, "MO-Tree: An Efficient Forwarding Engine for Spatiotemporal-aware
  Pub/Sub Systems" (2021)
- LFILTER: Yu, Li and Feng, "A Cost-based Method for Location-Aware Publish/Subscribe Services" (2015)
- Skype: Wang, Zhang, Zhang, Lin and Huang, "Top-k Spatial-keyword Publish/Subscribe Over Sliding Window" (2017)
- covering: Shen, Tirthapura and Aluru, "Indexing for Subscription Covering in Publish-Subscribe Systems" (2005)
"""

from __future__ import annotations

import sys
from typing import Final

# --- Geometry -------------------------------------------------------------------------------------------------------
# Mean radius of WGS84 (IUGG R1). Distances are great-circle distances on this sphere.
EARTH_RADIUS_M: Final = 6_371_008.8
# The longest straight piece of a polygon's edge when its distance to a circle is computed.
OUTLINE_STEP_DEG: Final = 0.1
# Two distances from nearby positions to the same outline are wrong by less than this, all in all: a piece of an edge is
# straight in longitude and latitude, and is measured as if it were straight on a map around the position.
OUTLINE_DOUBT_M: Final = 10.0
CIRCLE_PAD_DEG: Final = 1e-7  # margin of a circle's bounding box, in degrees (about a centimetre)
CIRCLE_PAD: Final = 1e-12  # the same on a plane, as a share of the size

# --- Limits on what a user may ask for; an error names the limit that was broken ------------------------------------
MAX_EXPRESSION_CHARS: Final = 65_536  # of a written expression; a longer one is refused before it is read
MAX_EXPRESSION_DEPTH: Final = 64  # nested parentheses and NOTs
MAX_CLAUSES: Final = 64  # conjunctions in the normal form of one expression
MAX_NORMAL_FORM_WORK: Final = 262_144  # keywords, tests and clauses visited while one normal form is made
MAX_RECORD_CHARS: Final = 8_388_608  # of a whole written message or subscription: fits the largest polygon
MAX_POLYGON_VERTICES: Final = 100_000  # of one region
MAX_KEYWORD_CHARS: Final = 256  # of one keyword, after normalisation

# --- Kernels --------------------------------------------------------------------------------------------------------
CACHE_LINE: Final = 64  # bytes
# A larger set of codes is searched by halving, a smaller one from front to back.
BINARY_SEARCH_FROM: Final = 32
INSERTION_SORT_UP_TO: Final = 32  # codes in a row; a longer row is sorted by NumPy
RADIX_SORT_FROM: Final = 128  # tokens of a message; more are sorted digit by digit
RADIX_SORT_BITS: Final = 10  # bits of such a digit
HASH_BLOCK: Final = 128  # strings hashed together, so that their cache misses overlap

# --- Compiled kernels on disk ---------------------------------------------------------------------------------------
KERNEL_CACHE_BYTES: Final = 1 << 30  # for all of them together; the least recently used are deleted first
KERNEL_UNUSED_S: Final = 90 * 86_400  # a kernel that was not used for this long is deleted
KERNEL_WAIT_S: Final = 60.0  # for another process that compiles the same kernel
KERNEL_TOUCH_S: Final = 86_400  # precision of the time of last use

# --- Storage --------------------------------------------------------------------------------------------------------
STORAGE_ALWAYS_READ: Final = 1 << 20  # float arrays up to this many bytes are verified at every opening
STORAGE_TIMEOUT: Final = "5 minutes"  # for one request to an object store
STORAGE_CONNECTIONS: Final = 64  # to object stores that a process keeps, the most recently used ones
STORAGE_BUFFER: Final = 1 << 16  # bytes that are read ahead in a remote file
STORAGE_PIECE: Final = 8 << 20  # bytes of a download that are written at a time
STORAGE_TRANSFERS: Final = 8  # files that are sent or fetched at the same time
# Files of a killed writer are removed by the next one when they are older.
STORAGE_ABANDONED_SECONDS: Final = 86_400.0
# Of fetched parts on this machine, unless NEARCAST_CACHE_BYTES says otherwise.
STORAGE_CACHE_BYTES: Final = 64 << 30

# --- Vocabulary, ids and tables -------------------------------------------------------------------------------------
HASH_LOAD: Final = 0.5  # the largest share of a hash table that is in use
# A larger table is prepared as soon as the present one is fuller than this share of what it may hold.
HASH_AHEAD: Final = 0.5
HASH_MOVES: Final = 3  # words that are put into it, or pages that are cleared, for each one that is added
HASH_MOVES_AT_ONCE: Final = 8  # words that come one by one need not wait for it each time
# A shorter list of strings is coded without an Arrow array in between, which costs as much as 30 words.
FEW_STRINGS: Final = 64
CODES_SEARCHED: Final = 4_096  # codes that are searched at a time for those that no word has
ID_MIN_DEAD: Final = 4096  # below this many stored ids, the unused ones are not removed
ID_WASTE: Final = 2  # unused ids are removed when there are this many times as many stored ids as used ones
ID_MOVES: Final = 2  # ids copied to the new vocabulary for each id that is added or removed meanwhile,
ID_MOVES_A_CALL: Final = 1  # and for each call
# Different expressions in a table. For fewer, the kernels that read expressions are not worth compiling.
EXPRESSIONS_IN_BULK: Final = 5_000

# --- Indexes in general ---------------------------------------------------------------------------------------------
DEFAULT_INDEX: Final = "auto"  # what the engine, the command line and the pipeline build
MATCH_CHUNK: Final = 2_048  # the most messages that one kernel call matches
MATCH_CHUNKS_A_THREAD: Final = 8  # several, so that no thread waits long for another
# Candidates per message that a search has room for at first; the room grows as needed.
MATCH_ROOM: Final = 1_024
# Where dropped rows linger in a structure, fewer do not make it worth building anew; more do once they are half of all.
COMPACT_MIN_DEAD: Final = 1_024
# Rows that come at once are bulk work if they are at least this share of all: one in eight.
BULK_SHARE: Final = 8
# A structure that was outgrown is laid out anew in the call that finds it so if it has at most this many rows.
RENEWED_AT_ONCE: Final = 16_384
SUCCESSION_ROWS: Final = 512  # rows that the successor of a larger structure takes in with each change,
SUCCESSION_SHARE: Final = 4  # and for each row that changes
ADDRESSES_ARE_FREE: Final = sys.platform != "win32"  # memory that nothing was written to takes none
# An array of this size that has to grow reserves this many bytes of addresses, so that it is never copied again.
RESERVE_FROM_BYTES: Final = 1 << 20
RESERVED_BYTES: Final = 1 << 30
PAGES_CAN_GO: Final = sys.platform == "linux"  # memory in the middle of an array can be given back
# An array of this size that grows at one end and is forgotten at the other reserves this many bytes of addresses: only
# one in hundreds of millions of messages finds them used up.
SLIDING_FROM_BYTES: Final = 1 << 16
SLIDING_BYTES: Final = 1 << 36
SLIDING_STEP: Final = 1 << 20  # such an array gives memory back in pieces of this many bytes,
SLIDING_MOST: Final = 1 << 24  # and no more than this many at a time, which takes a millisecond
SCAN_BLOCK: Final = 512  # clauses that a scan tests before it checks that there is room for as many again
UPDATE_AHEAD: Final = 16  # rows between prefetching the keywords of an updated clause and comparing them
POSTING_START: Final = 4  # capacity of a posting list at first; it doubles when the list is full,
POSTING_SHORT: Final = 4  # and shrinks when no more than 1/4 of it is filled
COMPACT_WASTE: Final = 0.5  # posting lists are compacted when more than this share of their pool is abandoned
GRID_LEVELS: Final = 10  # the most levels of a grid pyramid (finest: 2^9 × 2^9 cells)
# A box covers at most this share of a cell's side, so that rounding never puts its end two cells away.
GRID_FILL: Final = 0.999
GRID_SAMPLE: Final = 4_096  # clauses whose bounds become those of a successor's grid
# A grid is laid out anew when it holds this many times the clauses that it was laid out for.
GRID_GROWTH: Final = 16

# --- Stores of valid messages ---------------------------------------------------------------------------------------
DEFAULT_STORE: Final = "auto"  # what the engine keeps messages in
STORE_SCAN: Final = 2_048  # up to this many messages are scanned: a few microseconds per subscription
STORE_SAMPLE: Final = 4_096  # messages by which a structure for many of them is chosen
STORE_EXPIRED_NOTED: Final = 1_024  # the most expired messages that one step of a search notes for removal
PACKED_MESSAGES_CELL: Final = 2_048  # messages of a cell when the cells are chosen,
PACKED_MESSAGES_CELLS: Final = 32  # and the most columns and rows of cells
PACKED_MESSAGES_PATIENCE: Final = 64  # changes for each 64 messages, before they are laid out anew
CELL_LISTS_CELL: Final = 256  # the same where lists are not packed inside,
CELL_LISTS_CELLS: Final = 128  # and the most columns and rows
PACKED_MESSAGES_SAMPLE: Final = 65_536  # messages by which cells are chosen,
PACKED_MESSAGES_QUICK_SAMPLE: Final = 4_096  # the same for a successor, which somebody waits for
# The cells are chosen again when there are this many times as many messages,
PACKED_MESSAGES_GROWTH: Final = 4
PACKED_MESSAGES_FIRST: Final = 4_096  # and at least this many
EXPIRY_BUCKET_US: Final = 1_000_000  # engines that report expiries collect them in buckets of a second
# Rows checked for each published message. In a steady flow at most 4/3 of the valid messages are kept.
SWEEP_ROWS: Final = 4
# A queue in the order of time is tidied when most of its entries, and more than so many, no longer count; with each new
# entry, so many of the old ones are looked at.
QUEUE_MIN_DEAD: Final = 64
QUEUE_MOVES: Final = 4

# --- Safe regions ---------------------------------------------------------------------------------------------------
# Messages are looked for in circles of these multiples of a subscription's radius; the next one is for those who have
# nothing near them. A safe region has at most the last radius less the subscription's own.
SAFE_REACHES: Final = (2, 8)
SAFE_MARGIN_M: Final = 1e-3  # a safe region is smaller by this much than exact numbers would allow,
SAFE_MARGIN: Final = 1e-12  # and on a plane by this share of the distances
# Nothing is looked for beyond these distances: on the globe an eighth of the way round, on a plane one whose square
# is a number.
SAFE_FURTHEST_M: Final = 5e6
SAFE_FURTHEST: Final = 1e150
# For each message that begins to wait for reports, this many others are looked at: have they expired?
WAITING_LOOKS: Final = 4

# --- The index "packed-list" --------------------------------------------------------------------------------------
PACKED_BLOCK_BITS: Final = 5  # 2^5 postings in a block, and as many blocks in a super-block
PACKED_FILL: Final = 27  # postings in a block when a super-block that has changed is laid out anew
PACKED_PATIENCE: Final = 8  # which is done after this many changes for each 64 of its postings
PACKED_SHARE: Final = 262_144  # clauses that one thread describes at a time
# Prices of the cost model:
PACKED_LIST_NS: Final = 25.0  # a list,
PACKED_TEST_NS: Final = 1.0  # a box,
PACKED_HIT_NS: Final = 3.0  # a posting whose box the message touches,
PACKED_WORDS_NS: Final = 5.0  # and such a posting with further keywords to compare

# --- The index "auto" -----------------------------------------------------------------------------------------------
# A trie is considered when words are more than this share of the cost of packed lists.
AUTO_WORDS: Final = 0.4
AUTO_CHEAP_NS: Final = 2_000.0  # but not when packed lists cost less than this per message
AUTO_PROBES: Final = 256  # messages made from the subscriptions to estimate costs, where no sample is given;
AUTO_CLAUSES_A_PROBE: Final = 3  # each has the words of this many clauses
AUTO_FAR: Final = 1e30  # an unbounded region is cut off here when its centre is computed
AUTO_LOOK_NS: Final = 1.5  # price of an entry whose place or cells fit
AUTO_DECIDE_NS: Final = 100.0  # price of testing the clause itself, fetched from main memory
# A clause is found by its values if that costs less than this share of the other path.
AUTO_VALUES_SHARE: Final = 0.5
AUTO_VALUES_NS: Final = 1_000.0  # an MO-Tree beside the other structure must save at least this per message
AUTO_GROWTH: Final = 4  # the choice is made again when there are this many times as many clauses
# Up to this many clauses are scanned: 5 to 12 µs per message, about what a call takes by itself.
AUTO_SCAN: Final = 2_048

# --- AP-Tree: f, θ_p, θ_KL and the cover are from section 5.1 of the paper, the rest is measured --------------------
AP_TREE_FANOUT: Final = 200  # f
AP_TREE_LEAF: Final = 40  # θ_p
AP_TREE_DIVERGENCE: Final = 0.001  # θ_KL
AP_TREE_COVER: Final = 0.001  # a node with a smaller share of all clauses is not rebuilt for its divergence
AP_TREE_LOOK: Final = 4  # the divergence is computed when 1/4 of a node's clauses have come or gone
AP_TREE_TOMBSTONES: Final = 8  # a leaf is cleared of tombstones when they are more than 1/8 of it
AP_TREE_AHEAD: Final = 8  # clauses between prefetching the ranks of a clause's words and reading them
AP_TREE_ABREAST: Final = 1_024  # clauses that descend the tree side by side when they come or go
# A node with at most this many clauses is built in one call; a larger one is partitioned by a sample of as many.
AP_TREE_AT_ONCE: Final = 8_192
# Clauses over which nodes are rebuilt for each clause that changes, if any nodes wait for that.
AP_TREE_SHARE: Final = 32
AP_TREE_RANKED: Final = 1 << 18  # the most words that are ranked anew with the root, outside of build()
AP_TREE_VISIT: Final = 128.0  # visiting another node takes as long as reading this many postings
AP_TREE_PART: Final = 16  # the fewest clauses in a cut or cell, on average
AP_TREE_BUDGET: Final = 4.0  # the most postings of a clause, on average, when a tree is built
AP_TREE_LEAST_BUDGET: Final = 1.4  # a node with a smaller budget is not partitioned by space
AP_TREE_SPREAD: Final = 32  # a clause in more cells of one node goes into the dummy cell
AP_TREE_SAMPLE: Final = 1_024  # clauses from which the borders of a grid are chosen
AP_TREE_BORDERS: Final = 8  # candidates for a border among the places where boxes begin, and where they end
AP_TREE_LEAVES: Final = 64  # leaves that a search finds before it reads them
AP_TREE_PLACES: Final = 4_096  # places of sampled messages that are kept
AP_TREE_PRIOR: Final = 16.0  # assumptions made without a sample weigh as much as this many sampled messages
AP_TREE_MESSAGE_WORDS: Final = 9.0  # keywords of a message, where there is no sample (Table 2, TWEETS)
AP_TREE_DP_WORDS: Final = 10_000  # up to this many words are cut optimally; more are cut in groups

# --- AP+-Tree: where subscriptions move -----------------------------------------------------------------------------
AP_PLUS_COPIES: Final = 32  # the most lists that a message is attached to
AP_PLUS_VELOCITY: Final = 0.25  # the weight of the last move in the velocity of a clause
AP_PLUS_HORIZON: Final = 64  # T_max: reconstruction is predicted at most this many moves of each clause ahead
AP_PLUS_SAMPLE: Final = 256  # clauses from which it is predicted
AP_PLUS_STEP: Final = 8.0  # a step of Equations 9 and 13 takes as long as reading this many postings
AP_PLUS_OLDEST: Final = 16  # the oldest message is looked for when 1/16 of the messages have changed

# --- MO-Tree: L and η are from section 6.1.3 of the paper, the rest is measured -------------------------------------
MO_TREE_LAYERS: Final = 10  # the largest H: two layers in the directory, eight in a code of 64 bits
MO_TREE_LEVELS: Final = 4  # L
MO_TREE_THRESHOLD: Final = 6.5  # η
MO_TREE_FINENESS: Final = 3.0  # cells of the directory per width of an interval; η is multiplied by it, too
MO_TREE_CELLS: Final = 256  # the most on one level
MO_TREE_STEM: Final = 3  # a level has at most the square root of the number of clauses, divided by this
MO_TREE_SAMPLE: Final = 20_000  # clauses and messages by which layers are chosen
MO_TREE_QUICK_SAMPLE: Final = 2_048  # the same for a successor, which somebody waits for,
MO_TREE_QUICK_FINE: Final = 3  # and the sources that are considered for its directory
MO_TREE_POINTS: Final = 512  # of these, the points from which the widths of cells are computed,
MO_TREE_STEPS: Final = 64  # out of this many widths
MO_TREE_CANDIDATES: Final = 32  # attributes that are considered: those with the most tests
MO_TREE_USEFUL: Final = 0.98  # a layer is dropped if more than this share of the clauses remains after it
MO_TREE_GROWTH: Final = 4  # the layers are chosen again when there are this many times as many clauses,
MO_TREE_FIRST: Final = 1_024  # and at least this many
MO_TREE_SPARE: Final = 16  # a list is laid out with room for 1/16 more
MO_STORE_STEM: Final = 8  # cells of a layer of messages: the square root of their number, divided by this
SCALE_KNOT_BITS: Final = 6  # a scale has 2 to this power pieces, and is linear in each

# --- MBRTrie, PT-Quadtree and LFILTER -------------------------------------------------------------------------------
TRIE_BLOCK: Final = 32  # postings that share one bounding box, so that a long list is read in steps
FOLD_MIN: Final = 256  # fewer newcomers are not folded into the structure;
FOLD_SHARE: Final = 0.1  # more are when they are this share of all clauses
# Tokens are ordered anew when there are this many times the clauses that they were ordered for.
REORDER_GROWTH: Final = 2
TRIE_BINARY_NS: Final = 3.0  # price of one step of a binary search among the children of a node
TRIE_BIT_NS: Final = 1.0  # price of looking up one child in the bitmap of a message's tokens
TOKEN_BITS: Final = 65_536  # size of that bitmap, which stays in the first-level cache
QUADTREE_TAU_NUM: Final = 64  # τ_num: a region with at most this many clauses to hand down is a leaf
QUADTREE_TAU_AREA: Final = 4.0**-9  # τ_area: so is a region with less than this share of the whole area
# The tree is rebuilt when newcomers leave a leaf with more than this many times τ_num clauses to hand down.
QUADTREE_CROWDED: Final = 4
QUADTREE_SPAN: Final = 2  # cells that a box may be wide and high on its deepest level
QUADTREE_CARD: Final = 8  # integers on the card of a clause: its row and up to seven tokens
QUADTREE_LEVELS: Final = 16  # the finest level on which cells are compared
LFILTER_LEVEL: Final = 5  # k: the level of the quadtree on which the candidates of an area are estimated
# Prices of the cost model, in nanoseconds, for the AP-Tree recipe with messages of 6 to 1,000 tokens, points and areas.
# Those of the trie are a least-squares fit to a million subscriptions. Those of the quadtree are chosen between the
# fits to 200,000 and to a million subscriptions; each message was timed with both filters in a stream of others. Only
# the ratios of the prices matter.
LFILTER_CHEAP_NS: Final = 25_000.0  # a trie expected to cost less is used without estimating the quadtree
LFILTER_TOP_NS: Final = 875.0  # a child of the trie's root that the message reaches, with all that follows
LFILTER_NODE_NS: Final = 34.0  # a clause below it whose next token is expected in the message
LFILTER_POSTING_NS: Final = 0.22  # a posting in the list of such a child
LFILTER_TOKEN_NS: Final = 35.0  # a token of the message, when the quadtree is used
LFILTER_REGION_NS: Final = 700.0  # a node of the quadtree
LFILTER_ENTRY_NS: Final = 0.1  # an entry of its list
LFILTER_SEEN_NS: Final = 11.0  # an entry whose first token is expected in the message
# Prices of verification. These are estimates, not fits.
LFILTER_LOOK_NS: Final = 1.2  # an entry whose first token is compared
LFILTER_HIT_NS: Final = 8.0  # an entry whose first token the message has
LFILTER_HALVING_NS: Final = 4.0  # one step of narrowing a list to a range of ids

# --- Rival indexes: IQ-Tree, RQ-Tree, R^t++-Tree --------------------------------------------------------------------
CELL_COST: Final = 1e-5  # cost of keeping a clause in one more cell, in verifications per message
COVER_CELLS: Final = 64  # the most cells that a clause is listed in
COVER_SAMPLE: Final = 100_000  # messages of a sample whose places are kept
RQ_QUADTREE_FROM: Final = 64  # clauses in a posting list from which it gets a quadtree
RT_FANOUT: Final = 32  # a node of the R-tree is split when it has this many entries
RT_FILL: Final = 0.75  # share of a node that is used when the tree is packed
RT_REPRESENTATIVES: Final = 2  # the most keywords that represent a clause in the filters of nodes
RT_FILTER_START: Final = 2  # a filter begins with 2 to this power slots
RT_FILTER_ROOM: Final = 65_536  # the fewest slots that the pool of filters grows by while the tree is packed

# --- Rivals for moving subscriptions: SS-Index, KK-Index, IQ+-Tree, RQ+-Tree ----------------------------------------
GRID_FILE_SIDE: Final = 40  # columns and rows of a grid file (section 5.2.1 of the AP-Tree paper),
GRID_FILE_MOST: Final = 1_024  # and the most that can be chosen
GRID_FILE_SPREAD: Final = 256  # what touches more cells is listed once, for all cells
# Lists are laid out anew when there are this many times as many as have postings, and a few more.
LISTS_WASTE: Final = 1.5
LISTS_FEW: Final = 1_024
LISTS_SPARE: Final = 8  # a list is laid out with room for 1/8 more
LOOKED_UP: Final = 64  # words that a search looks up side by side
IQ_MESSAGES_CELL: Final = 1_024  # messages of a quadtree cell before it is divided,
RQ_MESSAGES_CELL: Final = 64  # the same for one word in the cell
QUADTREE_MESSAGES_READ: Final = 64  # a list of this many messages is read even if the cell is divided

# --- Rival store: BEQ-Tree, all measured ----------------------------------------------------------------------------
BEQ_LEAF: Final = 1_024  # E_max: messages of a leaf before it is split
BEQ_DEPTH: Final = 24  # a leaf at this depth is not split: its messages are all in one place
BEQ_COUNTED: Final = 64  # the most tests of a clause that are counted (a count fits into a byte)
BEQ_SEARCH_COST: Final = 100  # finding a range takes as long as counting this many messages,
BEQ_VERIFY_COST: Final = 100  # and verifying a message as long as counting this many
BEQ_GROWTH: Final = 4  # the cells are laid out anew when there are this many times as many messages,
BEQ_FIRST: Final = 1_024  # and at least this many
BLOCK_ROOM: Final = 1.25  # capacity of a block when it moves, as a multiple of its size

# --- Rival indexes that match attributes: TAMA, OpIndex, R*-Tree ----------------------------------------------------
# The most predicates of a clause: two operators each, and some to spare, fit into a byte.
COUNTED_PREDICATES: Final = 100
COUNTING_CHUNK: Final = 65_536  # clauses that are posted at a time
COUNTING_SLACK: Final = 0.125  # room for newcomers in a list when it is laid out, as a share of the list
RIVAL_GROWTH: Final = 4  # domains are measured anew when there are this many times the clauses,
RIVAL_FIRST: Final = 64  # and at least this many
TAMA_LEVEL: Final = 8  # the finest level: 2^8 cells per domain
OP_TAIL: Final = 32  # newcomers in a list of OpIndex that may always stay unsorted;
OP_TAIL_SHARE: Final = 0.125  # more may, up to this share of the sorted part
# The most dimensions of an R*-Tree beside x and y: the most frequent attributes.
R_STAR_ATTRIBUTES: Final = 30
R_STAR_STEPS: Final = 2.0**40  # steps of a domain: the library takes boxes smaller than 2^-52 for points
R_STAR_CAPACITY: Final = 32  # entries of a node
R_STAR_FEW: Final = 64  # this many changes at once are always made one by one,
R_STAR_FEW_SHARE: Final = 0.02  # and this share of the clauses; for more, the tree is packed anew
R_STAR_BLOCK: Final = 64  # messages that are searched for at a time
R_STAR_ROOM: Final = 1_048_576  # candidates that a search has room for at first
R_STAR_TOLD: Final = 10_000  # inserts between two reports of progress while a tree is built by inserts

# --- Ranking: top-k over a window -----------------------------------------------------------------------------------
RANKING_BLOCK: Final = 32  # postings that share one box
RANKING_GROUP: Final = 16  # blocks that are skipped together
# Levels of the weight of a message's words, for each of which a block knows its reach.
RANKING_LEVELS: Final = 16
RANKING_LEAST_ALPHA: Final = 1 / 256  # a smaller α counts as this one in the reach of a block
RANKING_TUNED: Final = 4_096  # messages by whose weights the levels are chosen
RANKING_SLACK: Final = 4e-6  # margin of bounds in single precision; scores are at most 1
# The largest error of a distance in single precision, in units of the largest coordinate.
RANKING_ROUNDING: Final = 5e-7
RANKING_BULK: Final = 4_096  # from this many new subscriptions on, all are laid out anew; fewer are inserted
RANKING_SEGMENT_BLOCK: Final = 64  # messages of a word in the message index that share one box
RANKING_SEGMENT: Final = 256  # the fewest messages in a segment that was never merged
RANKING_MERGE: Final = 4  # segments of a level that are merged into one
RANKING_MERGED: Final = 4  # each merge moves on by this many times the size of a new segment
RANKING_SPARE: Final = 8  # entries by which any buffer may grow before it is cut
RANKING_SPARE_ROOM: Final = 0.125  # share of tables kept free for subscriptions that follow a large batch
RANKING_TOUCH: Final = 200.0  # opening a buffer costs as much as reading this many of its entries,
RANKING_REEVALUATION: Final = 80_000.0  # and finding the best messages of the window as much as this many
RANKING_CHUNK: Final = 1_024  # the most messages that arrive before the old ones leave
RANKING_PIECE: Final = 128  # messages that a thread searches for at once
RANKING_EVALUATED: Final = 32_768  # subscriptions whose first results are searched for at once
# Changes of results in one call. When there are more, the changes of each row are combined.
RANKING_EVENTS: Final = 1_048_576
# The number by which replaced messages, and ids without a message, may exceed the others.
RANKING_GAPS: Final = 1_024
RANKING_PAIRS: Final = 262_144  # subscriptions affected by messages, found at once; one message may exceed it
RANKING_MAX_K: Final = 10_000  # the most results of a subscription
RANKING_KMAX: Final = 3.0  # kmax, in units of k: the best in Figure 10a of the Skype paper
RANKING_SKYBAND: Final = 0.95  # θ of Skyband, in units of the k-th score: the best in Figure 10b
RANKING_SKYBAND_WANTED: Final = 6  # messages that Skyband asks for, in units of k
RANKING_WAITING: Final = 1_024  # newcomers that a static index may always scan beside what it has laid out
RANKING_GROUPS: Final = 10  # α-partitions of IGPT (section 8.1.1)
RANKING_LEAF: Final = 1_000  # subscriptions in a leaf of IGPT (section 8.1.1)
# Levels of the cells that cover the space for a CIQ subscription: 13 in the plane.
RANKING_CIQ_LEVELS: Final = 4

# --- Covering -------------------------------------------------------------------------------------------------------
# The margin by which a circle on the globe must contain another region: distances are inexact near the antipode.
COVERING_PAD_M: Final = 1.0
COVERING_BUCKET: Final = 32  # points in a bucket of an index before it is split (overflow)
COVERING_UNDERFLOW: Final = 8  # a bucket with fewer points is merged with its neighbour
# Pairs of dimensions for tests. If there are more attributes than the largest number, they share dimensions.
COVERING_SLOTS: Final = (2, 4, 8, 16)
COVERING_KEY_BITS: Final = 62  # of a cell on the Z-curve, without the leading 1
COVERING_EDGES_FROM: Final = 256  # rectangles from which the cells of the Z-curve follow the data
COVERING_CHUNK: Final = 4_096  # commands that a kernel takes at once
COVERING_DEPTH: Final = 3.0  # a k-d tree deeper than this many times its ideal depth is rebuilt
COVERING_AT_ONCE: Final = 4_096  # points of a subtree that is rebuilt in one call;
COVERING_DRAWN: Final = 1_024  # of a larger one only this many are,
COVERING_MOVES: Final = 4  # and this many of the others follow with each insertion

# --- Engine ---------------------------------------------------------------------------------------------------------
ENGINE_COMPACT_WORDS: Final = 100_000  # an engine with fewer words does not search for unused ones
ENGINE_CENSUS_ROWS: Final = 128  # rows of which a call notes the words,
ENGINE_CENSUS_SHARE: Final = 2  # and for each row and word that the call itself brings
ENGINE_COPIED_SHARE: Final = 8  # for each of these rows, codes whose words a call copies, if they are in use
ENGINE_CENSUS_SLOTS: Final = 32_768  # slots of a new hash table that a call clears

# --- Distribution over shards ---------------------------------------------------------------------------------------
SHARDS_MOST: Final = 1_024  # of one distribution
SHARD_SAMPLE: Final = 20_000  # the most messages that a distribution is fitted to
SHARD_MESSAGE_NS: Final = 3_000.0  # price of sending a message to a shard and starting on it there
SHARD_DELIVERY_NS: Final = 800.0  # price of finding a delivery and returning it
SHARD_COPIES: Final = 4.0  # `auto` does not choose a distribution that stores more copies of a subscription
SHARD_SUBSCRIPTIONS: Final = 100_000  # of more subscriptions, a distribution is fitted to about as many
SHARD_ROW_GROUP: Final = 8_192  # subscriptions of a version that are read to find one by its id
SHARD_OPEN_DELTAS: Final = 16  # deltas that a process keeps after reading them, for the other shards
# Parts of builds that were not finished are removed after this time.
SHARD_ABANDONED_SECONDS: Final = 86_400.0
# Two cuts of a cell are equally good if both divide the cost as wanted, give or take this share.
SHARD_EVEN: Final = 0.02
# Costs are measured over all subscriptions of the data, and over one in this many of them.
PLAN_PART: Final = 8
PLAN_BATCH: Final = 1_000  # messages that are matched at a time
PLAN_REPEAT: Final = 3  # runs of each measurement; the best counts
PLAN_SHARE: Final = 0.7  # of a host's memory, cores and network that may be used
PLAN_SHARDS: Final = 1 << 20  # a plan for more shards than this is none
PLAN_CORES: Final = 16  # of a host, by default
PLAN_MEMORY_GB: Final = 64.0
PLAN_NETWORK_GBIT: Final = 10.0

# --- Spark ----------------------------------------------------------------------------------------------------------
SPARK_OUTPUT_ROWS: Final = 65_536  # deliveries in one Arrow batch that a worker returns
# A worker chooses how many messages to match at once so that it finds about this many matches:
SPARK_MATCHES: Final = 1_048_576
# about this many messages of a batch are matched first, to see how many matches they have;
SPARK_PROBED: Final = 64
SPARK_MOST_MESSAGES: Final = 16_384  # they stand for no more than this many
SPARK_DRIVER_ROWS: Final = 100_000  # subscriptions that the driver reads and builds itself; tasks build more
SPARK_SUSPECTS: Final = 1_000  # equal hashes of ids that are compared by the ids themselves
SPARK_READERS: Final = 200  # tasks that read the files of one DataFrame, at most
SPARK_READ_ROWS: Final = 65_536  # rows that such a task reads at a time
# nearcast_matches compares this many rows at a time with the expressions of all, so that the pairs fit in memory.
SQL_ROWS: Final = 1_024
SQL_EXPRESSIONS: Final = 4_096  # expressions that it keeps parsed
SPARK_OPEN_INDEXES: Final = 4  # index versions that a worker keeps open, the most recently used ones
# Memory of a worker for shards that have changed; beyond it, they are reopened.
SPARK_REPLICA_BYTES: Final = 1 << 30
# A new version is made when the deltas have this many rows, and this share of all subscriptions;
LIVE_DELTA_ROWS: Final = 1_000
LIVE_DELTA_SHARE: Final = 0.1
LIVE_DELTA_FILES: Final = 64  # or when there are more files than this,
LIVE_DELTA_BATCHES: Final = 1_000_000  # or when they are from more micro-batches than this
LIVE_TIER: Final = 8  # deltas of about the same size that are merged into one,
LIVE_MERGED_ROWS: Final = 65_536  # unless they have more rows: no micro-batch waits for more than that
LIVE_CACHED_BYTES: Final = 256 << 20  # deltas that the driver keeps in memory, the most recently used ones
LIVE_LATE_SECONDS: Final = 86_400.0  # how long an unsubscribed id is safe from older records that come late
LIVE_REFUSED: Final = 1_000  # refused records that can be read; all are counted
LIVE_ORPHAN_SECONDS: Final = 3_600.0  # files that an interrupted driver left are removed when they are older
LIVE_BACKOFF_SECONDS: Final = (10.0, 3_600.0)  # the first and the longest pause after failed compactions
# Messages kept for future subscriptions. Of more, those that expire last are kept;
LIVE_VALID_MESSAGES: Final = 1_000_000
LIVE_VALID_SLACK: Final = 0.25  # the others are removed when the rows exceed the limit by this share
LIVE_VALID_SEGMENTS: Final = 8  # segments of valid messages; when there are more, the newest are merged
LIVE_VALID_WRITERS: Final = 8  # files in which a micro-batch adds messages, at most
# If newcomers find up to this many messages, only these are looked for when earlier publications are left out.
LIVE_VALID_FOUND: Final = 10_000
LIVE_VALID_FILE_ROWS: Final = 65_536  # messages in a file of a merged segment
# Rows and columns, as a power of two, of the grid by which messages are ordered in files.
LIVE_VALID_CELL_BITS: Final = 8
LIVE_VALID_BOXES: Final = 32  # boxes that represent the regions of newcomers in a search for nearby messages
SINK_BATCHES: Final = 10_000  # batches in one directory from which on the log advises against so many
SPARK_FOOTERS: Final = 32  # files of which the GeoParquet metadata are read, spread over all
SPARK_FOOTER_THREADS: Final = 8  # that read them
SPARK_OLDEST: Final = (4, 1)  # the oldest Spark that the tests run on; it has repartitionById
SPARK_JAVA_VERSIONS: Final = (17, 21, 25)  # as the documentation of Spark 4.3 lists them
SPARK_SCALA: Final = "2.13"  # the Scala version of PySpark's JARs: part of the names of its Maven artifacts
JAVA_PROBE_SECONDS: Final = 20.0  # a Java that does not print its version within this time is skipped

# --- Profiles -------------------------------------------------------------------------------------------------------
PROFILE_CELLS: Final = 256  # rows of the grid in which places are counted; there are twice as many columns
PROFILE_SAMPLE: Final = 20_000  # messages that a profile keeps

# --- Files and the command line -------------------------------------------------------------------------------------
FILE_ROWS: Final = 1_048_576  # rows of a table that are written as text, or as one row group, at a time
CLI_SHARDS: Final = "4,16,64,256,1024"  # simulated by default
CLI_SHARD_SUBSCRIPTIONS: Final = 200_000  # generated where no file is given
CLI_PROFILE_WORDS: Final = 10  # most frequent words in the summary of a profile
CLI_POLL_SECONDS: Final = 0.05  # between two checks of a running stream
CLI_DRAIN_SECONDS: Final = 60.0  # for a stream to finish its micro-batch when it is told to stop
CLI_CHUNK: Final = 32_768  # messages between two updates of the progress bar, and two writes of deliveries
CLI_TABLE_ROWS: Final = 100  # deliveries that `--format table` shows
DEMO_FILES: Final = 10  # files that the sample messages arrive in, one per micro-batch
DEMO_POLL_SECONDS: Final = 1  # between two checks of the progress of the stream
DEMO_SEED: Final = 7  # of the moving subscribers
# From the centre of the city to the farthest messages that moving subscribers meet.
DEMO_CITY_METRES: Final = 12_000

# --- Benchmarks: sizes and durations --------------------------------------------------------------------------------
BENCH_SUBSCRIPTIONS: Final = 1_000_000
BENCH_MESSAGES: Final = 20_000
BENCH_ENGINE_SINGLES: Final = 2_000  # messages and subscriptions that go through an engine one at a time
WALKERS: Final = 10_000  # subscribers who walk in the benchmark of safe regions,
WALK_SECONDS: Final = 1_800  # and for how long,
WALK_RADIUS_M: Final = 1_000.0  # the radius of their regions,
WALK_VALID: Final = 1_000  # the messages that are valid at a time,
WALK_FITTING: Final = 5  # and how many of them fit somebody's words
WALK_SPOTS: Final = 100_000  # places of messages
WALK_CITY_KM: Final = 20.0  # without data: the size of the city,
WALK_STEP_S: Final = 60  # the time between two measured positions,
WALK_STEP_KM: Final = 0.8  # the longest way in that time,
WALK_TURNS: Final = 0.1  # and the share of the steps after which somebody turns
BENCH_REPEAT: Final = 3  # runs over all messages; the best one counts
BENCH_SCAN_SECONDS: Final = 10.0  # the naive scan gets as many messages as it can match in this time
BENCH_SINGLES: Final = 500  # messages matched one by one, for the latency percentiles
# Rows on which everything is compiled before it is timed: too many for a scan.
BENCH_WARM_UP: Final = AUTO_SCAN + 1_000
BENCH_BATCH: Final = 1_000  # subscriptions in one insert or removal
BENCH_BATCHES: Final = 20  # such inserts, and as many such removals
BENCH_OPERATIONS: Final = 1_000_000  # inserts and removals in the turnover benchmark
BENCH_WORDS: Final = 200_000  # size of the vocabulary that is looked up
BENCH_KEYWORDS: Final = 5_000_000  # keywords looked up in one run

# --- Benchmarks: the pipeline on Spark ------------------------------------------------------------------------------
BENCH_SPARK_MESSAGES: Final = 1_000_000
# Area of a region, as a share of the space: about ten deliveries per message.
BENCH_SPARK_AREA: Final = (0.00001, 0.0004)
BENCH_SPARK_FILES: Final = 40  # files that hold the messages
BENCH_SPARK_BATCHES: Final = 10  # micro-batches in which a stream reads them
BENCH_STREAM_SECONDS: Final = 20.0  # for which messages arrive at a given rate
BENCH_STREAM_RATE: Final = 10_000  # messages per second
BENCH_STREAM_STEP: Final = 0.1  # seconds between two files of arriving messages

# --- Benchmarks: the workload of the AP-Tree paper (section 5.1.1); places are tuned to about 160 matches in a million
AP_VOCABULARY: Final = 1_700_000  # Table 2, TWEETS
AP_EXPONENT: Final = 1.0  # of the Zipf law of the words
AP_MESSAGE_KEYWORDS: Final = 9  # Table 2, TWEETS
AP_KEYWORDS: Final = (1, 5)  # keywords of a subscription
AP_AREA: Final = (0.0001, 0.01)  # area of a region, as a share of the data space
AP_CITIES: Final = 500  # centres that places cluster around, the r-th with a weight of 1/r
AP_CITY_SPREAD: Final = 0.02  # standard deviation of a place around its centre, in widths of the data space
AP_BACKGROUND: Final = 0.25  # share of the places that lie anywhere

# --- Benchmarks: the workload of the MO-Tree paper (Table 4); places are tuned to about 4.7 matches in a million ----
MO_ATTRIBUTES: Final = 20  # M
MO_EVENT_ATTRIBUTES: Final = (15, 20)  # K_e
MO_PREDICATES: Final = 6  # K_s
MO_EXPONENT: Final = 1.0  # α, of the Zipf law by which attributes are chosen
MO_RADIUS_KM: Final = (0.5, 2.0)  # r: the distance from the centre of a region to its border
MO_CITY_KM: Final = 100.0  # side of the city
MO_HOT_SPOTS: Final = 150
MO_HOT_SPOT_SPREAD: Final = 0.02
MO_BACKGROUND: Final = 0.2

# --- Benchmarks: the experiments of the AP-Tree, MO-Tree and LFILTER papers -----------------------------------------
EXPERIMENT_SUBSCRIPTIONS: Final = 200_000  # the papers have 5 and 10 million
EXPERIMENT_MESSAGES: Final = 10_000
EXPERIMENT_SECONDS: Final = 0.5  # an index gets as many messages as it can match in this time
EXPERIMENT_CHECKED: Final = 20  # messages on which every index must agree with the scan
EXPERIMENT_HISTORY_WORDS: Final = 100_000  # words in the messages that cost models learn from
EXPERIMENT_CHANGES: Final = 10_000  # inserts, updates and removals of each kind, where these are measured,
EXPERIMENT_CHANGE_SHARE: Final = 0.05  # but no more than this share of what is stored
EXPERIMENT_CHANGE_SECONDS: Final = 10.0  # for each kind of change; a slow structure makes fewer
EXPERIMENT_NUDGE: Final = 0.01  # the most that an updated region moves, as a share of its size
# Table 2 of the AP-Tree paper: words, words per message; our guesses: cities, their spread, background.
AP_DATASETS: Final = {
    "tweets": (AP_VOCABULARY, AP_MESSAGE_KEYWORDS, AP_CITIES, AP_CITY_SPREAD, AP_BACKGROUND),
    "gn": (208_000, 7, 500, 0.02, 0.8),
    "cars": (81_000, 30, 20, 0.05, 0.05),
    "ais": (81_000, 50, 100, 0.01, 0.25),
}
MO_QUERIES: Final = 10_000  # of either kind, as in the MO-Tree paper
MO_HISTORY: Final = 10_000  # messages before them, from which cost models learn
# In the table of all structures, each gets as many queries as it can answer in this time.
MO_SECONDS: Final = 5.0

# --- Benchmarks: the experiments of the Skype paper (section 8.1.1) -------------------------------------------------
TOPK_SUBSCRIPTIONS: Final = 20_000  # a million in the paper
TOPK_WINDOW: Final = 20_000  # a million in the paper
TOPK_MESSAGES: Final = 5_000  # that arrive; 100,000 in the paper
TOPK_K: Final = 20
TOPK_BATCH: Final = 1_000  # messages in one publish
TOPK_CALLS: Final = "1000,10000"  # sizes of calls that are compared
TOPK_SUBSCRIBED: Final = 20_000  # subscriptions in one subscribe, which bounds the memory of an evaluation
TOPK_SECONDS: Final = 30.0  # a trial publishes as many batches as it can in this time, and at least one
# The distance at which nearness ends: from one end of the contiguous United States to the other.
TOPK_FAR_M: Final = 6_000_000.0
DSKYPE_SHARDS: Final = (4, 8, 16, 32, 64, 256, 1_024)  # 4 to 32 in the paper (Figure 22)
DSKYPE_COMPARED: Final = 32  # shards for which all datasets are compared (Table 5)
TOPK_ZIPF_EXPONENT: Final = 1.0  # of the words of subscriptions (Figure 19)

# --- Benchmarks: the experiments of the covering paper (section V) --------------------------------------------------
COVERING_COMMANDS: Final = 100_000
COVERING_SUBSCRIPTIONS: Final = 100_000  # full ones, with regions, keywords and tests
COVERING_NEWCOMERS: Final = 20_000  # the most of these that are searched for
COVERING_TRIED: Final = (3, 6, 8)  # numbers of attributes (Figures 10 to 12)
COVERING_LEAVING: Final = 0.15  # p, the share of unsubscriptions
COVERING_ATTRIBUTES: Final = 6  # of full subscriptions
COVERING_TESTS: Final = (0, 3)  # tests of a full subscription
COVERING_SECONDS: Final = 5.0  # a trial that takes longer is not repeated
COVERING_SCANNED: Final = 20  # newcomers for which all subscriptions are scanned
COVERING_SINGLE: Final = 200  # calls with one subscription each

# --- Benchmarks: subscriptions that move (AP-Tree, section 5.2.1 and Table 3) ---------------------------------------
MOVING_SUBSCRIPTIONS: Final = 1_000_000
MOVING_MESSAGES: Final = 1_000_000  # valid at the beginning
MOVING_LIFE_STEPS: Final = 10  # the mean life of a message; so a tenth of the messages arrive in each step
MOVING_STEPS: Final = 100
MOVING_STEP_S: Final = 30  # seconds of a step
MOVING_MOBILITY: Final = 0.1  # share of the subscriptions that move in a step
MOVING_AREA: Final = 0.0001  # of a region, as a share of the data space
# Roads and vehicles are classed by us. Speeds are widths of the map per step. The fastest is 1/50 of width and height
# together: what papers call medium speed in Brinkhoff's generator.
MOVING_ROAD_SPEEDS: Final = (0.01, 0.02, 0.04)  # limits on side roads, main roads and fast roads
# Main roads, and fast roads: paths between this many random pairs of nodes.
MOVING_ROAD_PATHS: Final = (40, 6)
# Top speeds of vehicles; the classes are equally frequent.
MOVING_VEHICLE_SPEEDS: Final = (0.005, 0.01, 0.02, 0.04)
MOVING_DESTINATIONS: Final = 256  # nodes that trips end at; each has a tree of shortest paths
MOVING_UNDER_WAY: Final = 20  # the most steps that a vehicle has travelled when a workload begins
# Invented maps: nodes on a side of the grid; about as many in all as Oldenburg and San Joaquin have.
MOVING_GRIDS: Final = {"town": 78, "county": 135}
MOVING_GRID_JITTER: Final = 0.35  # the most that a node is moved, in widths of a cell
TAXI_SUBSCRIBERS: Final = 10_000
TAXI_STEP_S: Final = 60  # seconds between two positions of a taxi
# If the receiver jumps farther than this speed allows, the jump is spread over several steps.
TAXI_MAX_KMH: Final = 150.0
MOVING_CALL: Final = 1_000  # moves in one call
MOVING_SECONDS: Final = 300.0  # an index replays as many steps as it can in this time, and at least one
MOVING_SETTLED: Final = 20  # the step after which memory should not grow any more
# Steps by which the side of the subscriptions, and what does not move, are measured.
MOVING_PART_STEPS: Final = 5
# Steps in which a few moves and messages are compared with naive answers; by the last, most messages are new.
MOVING_CHECKED_STEPS: Final = (1, 2, 12)
MOVING_CHECKED: Final = 50  # moves and messages of such a step
MOVING_FIGURE_SUBSCRIPTIONS: Final = 50_000  # in the figures of the paper, which has a million
MOVING_FIGURE_MESSAGES: Final = 50_000
MOVING_FIGURE_STEPS: Final = 4
MOVING_FIGURE_SECONDS: Final = 20.0
MOVING_ENGINE_BATCH: Final = 10_000  # messages that an engine publishes at a time before subscriptions move
