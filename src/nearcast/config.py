"""Every default, limit and threshold, in one place.

Code elsewhere names these; it holds no such number of its own. Where a number comes from a paper, the comment says
which.
"""

from __future__ import annotations

import sys
from typing import Final

# --- Meaning -----------------------------------------------------------------------------------------------------
EARTH_RADIUS_M: Final = (
    6_371_008.8  # mean radius of WGS84 (IUGG R1): distances are great-circle distances on this sphere
)
OUTLINE_STEP_DEG: Final = (
    0.1  # the longest straight piece of a polygon's edge when its distance to a circle is taken
)
CIRCLE_PAD_DEG: Final = 1e-7  # how much wider than a circle its boxes are, in degrees (about a centimetre)
CIRCLE_PAD: Final = 1e-12  # the same, as a share of the size, where there are no degrees

# --- Limits on what a user may ask, each reported by name when it is broken ----------------------------------------
MAX_EXPRESSION_CHARS: Final = 65_536  # a written expression; longer ones are refused before they are read
MAX_EXPRESSION_DEPTH: Final = 64  # nested parentheses and NOTs
MAX_CLAUSES: Final = 64  # conjunctions in the normal form of one expression
MAX_NORMAL_FORM_WORK: Final = 262_144  # keywords, tests and clauses looked at on the way to one normal form
MAX_RECORD_CHARS: Final = 8_388_608  # a whole written message or subscription: room for the largest polygon
MAX_POLYGON_VERTICES: Final = 100_000  # of one region
MAX_KEYWORD_CHARS: Final = 256  # of one keyword, after normalisation

# --- Expressions in tables -----------------------------------------------------------------------------------------
EXPRESSIONS_IN_BULK: Final = (
    5_000  # different ones; for fewer the kernels that read them are not worth compiling
)

# --- Indexes -------------------------------------------------------------------------------------------------------
DEFAULT_INDEX: Final = "auto"  # what the engine, the command line and the pipeline build
MATCH_CHUNK: Final = 2_048  # the most messages that one kernel call matches
MATCH_CHUNKS_A_THREAD: Final = 8  # several, so that no thread waits long for another
MATCH_ROOM: Final = 1_024  # candidates a message that a search starts with room for; it grows as needed
COMPACT_MIN_DEAD: Final = (
    1_024  # fewer dead clause rows are not worth a compaction; more are when they are half of all
)
SCAN_BLOCK: Final = 512  # clauses that a scan looks at before it sees whether there is still room for as many
ADDRESSES_ARE_FREE: Final = sys.platform != "win32"  # room that nothing was written to takes no memory
RESERVE_FROM_BYTES: Final = (
    1 << 20
)  # an array of this size that has to grow gets much more room than it needs:
RESERVED_BYTES: Final = 1 << 32  # this much, so that it never has to be copied again
UPDATE_AHEAD: Final = 16  # rows between asking for what an updated clause asks for and comparing it
POSTING_START: Final = 4  # room of a posting list when it is first used; it doubles when full
COMPACT_WASTE: Final = (
    0.5  # posting lists are compacted when more than this share of their pool is abandoned room
)
GRID_LEVELS: Final = 10  # the most levels of a grid pyramid (finest: 2^9 × 2^9 cells)
GRID_FILL: Final = (
    0.999  # of a cell's side, at most, is a box: rounding then never puts its end two cells away
)
GRID_GROWTH: Final = (
    16  # a grid is laid out anew when it holds this many times the clauses that it was laid out for
)

# --- Stores of valid messages --------------------------------------------------------------------------------------
DEFAULT_STORE: Final = "auto"  # what the engine keeps messages in
STORE_SCAN: Final = 2_048  # up to so many messages are scanned: a few microseconds a subscription
STORE_EXPIRED_NOTED: Final = 1_024  # expired messages that one step of a search notes for removal, at most
SWEEP_ROWS: Final = (
    4  # looked at for each message published: in a steady flow, what is kept is at most 4/3 of what is valid
)

# --- The index "packed-list" --------------------------------------------------------------------------------------
PACKED_BLOCK_BITS: Final = 5  # 2^5 postings in a block, and as many blocks in a super-block
PACKED_FILL: Final = 27  # postings in a block when a list that has changed is packed anew
PACKED_WEAR: Final = 0.125  # a list is packed anew after changes to this share of its postings
PACKED_SHARE: Final = 262_144  # clauses that one thread describes at a time
PACKED_LIST_NS: Final = 25.0  # prices of the cost model: a list,
PACKED_TEST_NS: Final = 1.0  # a box,
PACKED_HIT_NS: Final = 3.0  # a posting whose box the message touches,
PACKED_WORDS_NS: Final = 5.0  # and the same with further keywords to look at

# --- The index "auto" ---------------------------------------------------------------------------------------------
AUTO_WORDS: Final = 0.4  # a trie is considered when words take more than this share of what packed lists cost
AUTO_CHEAP_NS: Final = 2_000.0  # but not when they cost less than this a message
AUTO_PROBES: Final = (
    256  # messages that are made from the subscriptions to estimate costs, where none are given
)
AUTO_CLAUSES_A_PROBE: Final = 3  # each with the words of so many clauses
AUTO_FAR: Final = 1e30  # regions without end reach so far when their centre is taken
AUTO_LOOK_NS: Final = 1.5  # a look at an entry whose place fits, or whose cells do
AUTO_DECIDE_NS: Final = 100.0  # a decision on the clause itself, out of memory
AUTO_VALUES_SHARE: Final = (
    0.5  # a clause goes by its values if that costs less than this share of the other path
)
AUTO_VALUES_NS: Final = 1_000.0  # what an MO-Tree beside the other structure must spare a message, at least
AUTO_GROWTH: Final = 4  # the choice is made again when the clauses have become so many times as many
AUTO_SCAN: Final = (
    2_048  # up to so many clauses are scanned: 5 to 12 µs a message, about what a call takes by itself
)

# --- AP-Tree: f, θ_p, θ_KL and the cover from section 5.1 of its paper; the rest is measured -------------------------
AP_TREE_FANOUT: Final = 200  # f
AP_TREE_LEAF: Final = 40  # θ_p
AP_TREE_DIVERGENCE: Final = 0.001  # θ_KL
AP_TREE_COVER: Final = (
    0.001  # a node that holds a smaller share of all clauses is not built anew for its divergence
)
AP_TREE_LOOK: Final = 4  # the divergence is looked at when 1/4 of a node's clauses have come or gone
AP_TREE_TOMBSTONES: Final = 8  # a leaf is freed of them when they are more than 1/8 of it
AP_TREE_AHEAD: Final = 8  # clauses between asking for the ranks of a clause's words and reading them
AP_TREE_ABREAST: Final = 1_024  # clauses that go down the tree side by side when they come or go
AP_TREE_WASTE: Final = 0.25  # the tree is laid out anew when more of its postings belong to no leaf
AP_TREE_VISIT: Final = 128.0  # looking into another node takes as long as looking at so many postings
AP_TREE_PART: Final = 16  # clauses in a cut or cell, at least, on average
AP_TREE_BUDGET: Final = 4.0  # postings of a clause, at most, on average, when a tree is built
AP_TREE_LEAST_BUDGET: Final = 1.4  # a node with less is not partitioned by space
AP_TREE_SPREAD: Final = 32  # a clause in more cells of one node is put into the dummy cell
AP_TREE_SAMPLE: Final = 1_024  # clauses from which the borders of a grid are chosen
AP_TREE_BORDERS: Final = 8  # places that are tried for a border where boxes begin, and as many where they end
AP_TREE_LEAVES: Final = 64  # leaves that a search finds before it reads them
AP_TREE_PLACES: Final = 4_096  # places of sampled messages that are kept
AP_TREE_PRIOR: Final = 16.0  # sampled messages that what is assumed without a sample counts for
AP_TREE_MESSAGE_WORDS: Final = 9.0  # keywords of a message, where no sample tells (Table 2, TWEETS)
AP_TREE_DP_WORDS: Final = 10_000  # words that are cut optimally; of more, groups are

# --- MO-Tree: L and η from section 6.1.3 of its paper; the rest is measured -------------------------------------------
MO_TREE_LAYERS: Final = 10  # H, at most: two in the directory, eight in a code of 64 bits
MO_TREE_LEVELS: Final = 4  # L
MO_TREE_THRESHOLD: Final = 6.5  # η
MO_TREE_FINENESS: Final = 3.0  # cells of the directory to the width of intervals; η is as many times as large
MO_TREE_CELLS: Final = 256  # the most on one level
MO_TREE_STEM: Final = 3  # a level has no more than the root of the clauses divided by this
MO_TREE_SAMPLE: Final = 20_000  # clauses and messages that layers are chosen by
MO_TREE_POINTS: Final = 512  # of them that the widths of cells are computed from,
MO_TREE_STEPS: Final = 64  # out of so many widths
MO_TREE_CANDIDATES: Final = 32  # attributes that are considered, the most tested ones
MO_TREE_USEFUL: Final = 0.98  # a layer that leaves a larger share of the clauses is left out
MO_TREE_GROWTH: Final = 4  # the layers are chosen again when the clauses have become so many times as many,
MO_TREE_FIRST: Final = 1_024  # and at least so many
MO_TREE_SPARE: Final = 16  # a list is laid out with room for 1/16 more
MO_STORE_STEM: Final = 8  # cells of a layer of messages: the root of their number divided by this
SCALE_KNOT_BITS: Final = 6  # a scale has 2 to this power of pieces; it is linear in each

# --- Rival indexes: IQ-Tree, RQ-Tree, R^t++-Tree --------------------------------------------------------------------
CELL_COST: Final = 1e-5  # what it takes to keep a clause in one more cell, in verifications a message
COVER_CELLS: Final = 64  # the most cells that a clause stands in
COVER_SAMPLE: Final = 100_000  # messages of a sample whose places are kept
RQ_QUADTREE_FROM: Final = 64  # clauses in a posting list from which it gets a quadtree
RT_FANOUT: Final = 32  # entries of a node of the R-tree, which is split when it has so many
RT_FILL: Final = 0.75  # of a node's places are taken when the tree is packed
RT_REPRESENTATIVES: Final = 2  # the most keywords that stand for a clause in the filters of nodes
RT_FILTER_START: Final = 2  # a filter begins with 2 to this power of slots
RT_FILTER_ROOM: Final = 65_536  # slots by which the pool of filters grows at least while the tree is packed

# --- BEQ-Tree, a rival store: all measured ---------------------------------------------------------------------------
BEQ_LEAF: Final = 1_024  # E_max: messages of a leaf before it is split
BEQ_DEPTH: Final = 24  # a leaf so deep is not split: its messages are all in one place
BEQ_COUNTED: Final = 64  # tests of a clause that are counted, at most (a count fits into a byte)
BEQ_SEARCH_COST: Final = 100  # finding a range takes as long as counting so many messages,
BEQ_VERIFY_COST: Final = 100  # and verifying one as long as so many
BEQ_GROWTH: Final = 4  # the cells are laid out anew when the messages have become so many times as many,
BEQ_FIRST: Final = 1_024  # and at least so many
BLOCK_ROOM: Final = 1.25  # room of a block when it moves, in sizes

# --- Rival indexes that match attributes: TAMA, OpIndex, R*-Tree ----------------------------------------------------
COUNTED_PREDICATES: Final = 100  # of a clause, at most: two operators each, and some to spare, fit a byte
COUNTING_CHUNK: Final = 65_536  # clauses that are posted at a time
COUNTING_SLACK: Final = 0.125  # room for newcomers in a list that is laid out, as a share of it
RIVAL_GROWTH: Final = 4  # domains are measured anew when there are this many times the clauses,
RIVAL_FIRST: Final = 64  # and at least so many
TAMA_LEVEL: Final = 8  # the finest level: 2^8 cells a domain
OP_TAIL: Final = 32  # newcomers of a list of OpIndex that are always left unsorted;
OP_TAIL_SHARE: Final = 0.125  # and as a share of what is sorted
R_STAR_ATTRIBUTES: Final = (
    30  # dimensions of an R*-Tree beside x and y, at most: the most frequent attributes
)
R_STAR_STEPS: Final = 2.0**40  # of a domain: it takes boxes of less extent than 2^-52 for points
R_STAR_CAPACITY: Final = 32  # entries of its nodes
R_STAR_FEW: Final = 64  # so many changes at once are always made one by one,
R_STAR_FEW_SHARE: Final = 0.02  # and this share of the clauses; for more the tree is packed anew
R_STAR_BLOCK: Final = 64  # messages that it is asked for at a time
R_STAR_ROOM: Final = 1_048_576  # candidates that a search starts with room for
R_STAR_TOLD: Final = 10_000  # inserts between two words about the progress of a tree that is built by them

# --- Kernels -------------------------------------------------------------------------------------------------------
BINARY_SEARCH_FROM: Final = 32  # a set of more codes is searched by halving, a shorter one from front to back
INSERTION_SORT_UP_TO: Final = 32  # codes in a row; longer rows are sorted by NumPy
RADIX_SORT_FROM: Final = 128  # tokens of a message; more are sorted digit by digit
RADIX_SORT_BITS: Final = 10  # of such a digit
HASH_BLOCK: Final = 128  # strings whose cache misses overlap

# --- Compiled kernels on disk --------------------------------------------------------------------------------------
KERNEL_CACHE_BYTES: Final = 1 << 30  # all of them; the ones that were not used for longest go first
KERNEL_UNUSED_S: Final = 90 * 86_400  # a kernel that nobody used for so long goes
KERNEL_TOUCH_S: Final = 86_400  # how fine the time of last use is known

# --- Arrays at rest ------------------------------------------------------------------------------------------------
STORAGE_ALWAYS_READ: Final = 1 << 20  # bytes of floats that are compared with their checksum at every opening

# --- Vocabulary ----------------------------------------------------------------------------------------------------
HASH_LOAD: Final = 0.5  # the fullest that a vocabulary's hash table becomes
FEW_STRINGS: Final = (
    64  # a list of fewer is coded without an Arrow array between, which costs as much as 30 words
)

# --- Engine --------------------------------------------------------------------------------------------------------
ENGINE_COMPACT_WORDS: Final = 100_000  # an engine with fewer words does not look for those that nobody uses

# --- Ids -----------------------------------------------------------------------------------------------------------
ID_MIN_DEAD: Final = 4096  # so many words of ids, at least, before those that name nothing are left behind
ID_WASTE: Final = 2  # that many times as many words as ids are too many
ID_MOVES: Final = 4  # ids that are moved to new words for each one that comes or goes meanwhile
ID_MOVES_A_CALL: Final = 64  # and for each call

# --- Spark ---------------------------------------------------------------------------------------------------------
SPARK_OUTPUT_ROWS: Final = 65_536  # deliveries in one Arrow batch that a worker hands back
SPARK_MATCHES: Final = (
    1_048_576  # about so many a worker finds at once, by the number of messages that it matches:
)
SPARK_FIRST_MESSAGES: Final = 1_024  # it begins with these,
SPARK_GROWTH: Final = 4  # and takes at most so many times more with the next step
SPARK_OPEN_INDEXES: Final = 4  # index versions that a worker keeps open, the latest used ones
LIVE_DELTA_ROWS: Final = 1_000  # fewer changed subscriptions are not worth a new version
LIVE_DELTA_SHARE: Final = 0.1  # nor are fewer than this share of all
LIVE_VALID_MESSAGES: Final = (
    1_000_000  # that are kept for subscriptions to come; of more, those that expire last,
)
LIVE_VALID_SLACK: Final = 0.25  # which is put right when there are so many times more rows
LIVE_VALID_SEGMENTS: Final = 8  # directories of valid messages; of more, the newest are merged
LIVE_VALID_FILE_ROWS: Final = 65_536  # messages in a file of a merged one
LIVE_VALID_CELL_BITS: Final = (
    8  # rows and columns, as a power of two, of the grid that orders messages in files
)
LIVE_VALID_BOXES: Final = 32  # that stand for the regions of newcomers when near messages are looked for
SPARK_JAVA_VERSIONS: Final = (17, 21, 25)  # what the documentation of Spark 4.3 names
SPARK_SCALA: Final = "2.13"  # that PySpark's Java side is made with: part of the names of its Maven artifacts
JAVA_PROBE_SECONDS: Final = 20.0  # a Java that does not tell its version within this time is passed over

# --- Distribution over shards ----------------------------------------------------------------------------------------
SHARDS_MOST: Final = 1_024  # of one distribution
SHARD_SAMPLE: Final = 20_000  # messages that a distribution is fitted to, at most
SHARD_MESSAGE_NS: Final = 3_000.0  # to send a message to a shard and to begin with it there
SHARD_DELIVERY_NS: Final = 800.0  # to find a delivery and to hand it back
SHARD_COPIES: Final = 4.0  # a distribution that stores subscriptions more often is not picked by itself
SHARD_ROW_GROUP: Final = 65_536  # subscriptions that one task reads at a time when shards are built
SHARD_EVEN: Final = (
    0.02  # two cuts of a cell that divide the cost as wanted but for this share are equally good
)

# --- Profiles --------------------------------------------------------------------------------------------------------
PROFILE_CELLS: Final = 256  # rows of the grid in which places are counted; there are twice as many columns
PROFILE_SAMPLE: Final = 20_000  # messages that a profile keeps

# --- Command line --------------------------------------------------------------------------------------------------
CLI_SHARDS: Final = "4,16,64,256,1024"  # simulated unless asked otherwise
CLI_SHARD_SUBSCRIPTIONS: Final = 200_000  # made up where no file is given
CLI_PROFILE_WORDS: Final = 10  # most frequent words that a profile's summary shows
CLI_POLL_SECONDS: Final = 0.05  # between two looks at a stream that runs
CLI_DRAIN_SECONDS: Final = 60.0  # that a stream which is told to stop has to finish its micro-batch
FILE_ROWS: Final = 1_048_576  # of a table that are made into text, or a row group, at once
CLI_CHUNK: Final = 32_768  # messages between two movements of the progress bar, and two writes of deliveries
CLI_TABLE_ROWS: Final = 100  # deliveries that `--format table` shows
DEMO_FILES: Final = 10  # files that the sample messages come in, one a micro-batch
DEMO_POLL_SECONDS: Final = 1  # how often the progress of the stream is looked at

# --- Benchmarks: how long to measure -------------------------------------------------------------------------------
BENCH_SUBSCRIPTIONS: Final = 1_000_000
BENCH_MESSAGES: Final = 20_000
BENCH_ENGINE_SINGLES: Final = 2_000  # messages and subscriptions that go through an engine one at a time
BENCH_REPEAT: Final = 3  # runs over all messages; the best counts
BENCH_SCAN_SECONDS: Final = 10.0  # the naive scan gets as many of the messages as it can match in this time
BENCH_SINGLES: Final = 500  # messages matched one by one, for the latency percentiles
BENCH_WARM_UP: Final = (
    AUTO_SCAN + 1_000
)  # rows that everything is compiled on before it is timed: too many for a scan
BENCH_BATCH: Final = 1_000  # subscriptions in one insert or removal
BENCH_BATCHES: Final = 20  # of such inserts, and of such removals
BENCH_OPERATIONS: Final = 1_000_000  # inserts and removals of a turnover
BENCH_WORDS: Final = 200_000  # size of the vocabulary that is looked up
BENCH_KEYWORDS: Final = 5_000_000  # keywords looked up in one run

# --- Benchmarks: the AP-Tree paper's workload (section 5.1.1), places tuned to about 160 matches in a million --------
AP_VOCABULARY: Final = 1_700_000  # Table 2, TWEETS
AP_EXPONENT: Final = 1.0  # of the Zipf law of the words
AP_MESSAGE_KEYWORDS: Final = 9  # Table 2, TWEETS
AP_KEYWORDS: Final = (1, 5)  # keywords of a subscription
AP_AREA: Final = (0.0001, 0.01)  # area of a region, as a share of the data space
AP_CITIES: Final = 500  # places cluster around so many centres, the r-th with a weight of 1/r
AP_CITY_SPREAD: Final = 0.02  # standard deviation of a place around its centre, in widths of the data space
AP_BACKGROUND: Final = 0.25  # share of the places that lie anywhere

# --- Benchmarks: the MO-Tree paper's workload (Table 4), places tuned to about 4.7 matches in a million ---------------
MO_ATTRIBUTES: Final = 20  # M
MO_EVENT_ATTRIBUTES: Final = (15, 20)  # K_e
MO_PREDICATES: Final = 6  # K_s
MO_EXPONENT: Final = 1.0  # α, of the Zipf law by which attributes are chosen
MO_RADIUS_KM: Final = (0.5, 2.0)  # r: a region reaches so far from its centre
MO_CITY_KM: Final = 100.0  # side of the city
MO_HOT_SPOTS: Final = 150
MO_HOT_SPOT_SPREAD: Final = 0.02
MO_BACKGROUND: Final = 0.2

# --- Benchmarks: the experiments of the papers -----------------------------------------------------------------------
EXPERIMENT_SUBSCRIPTIONS: Final = 200_000  # the papers have 5 and 10 million
EXPERIMENT_MESSAGES: Final = 10_000
EXPERIMENT_SECONDS: Final = 0.5  # an index gets as many of the messages as it can match in this time
EXPERIMENT_CHECKED: Final = 20  # messages on which every index must equal the scan
EXPERIMENT_HISTORY_WORDS: Final = 100_000  # in the messages that cost models learn from
EXPERIMENT_CHANGES: Final = 10_000  # inserts, updates and removals of each kind, where these are measured,
EXPERIMENT_CHANGE_SHARE: Final = 0.05  # but no more than this share of what is stored
EXPERIMENT_CHANGE_SECONDS: Final = 10.0  # for each kind of change; a slow structure makes fewer
EXPERIMENT_NUDGE: Final = 0.01  # by how much of its size an updated region moves at most
AP_DATASETS: Final = {  # AP-Tree, Table 2: words, words of a message; guessed: cities, their spread, background
    "tweets": (AP_VOCABULARY, AP_MESSAGE_KEYWORDS, AP_CITIES, AP_CITY_SPREAD, AP_BACKGROUND),
    "gn": (208_000, 7, 500, 0.02, 0.8),
    "cars": (81_000, 30, 20, 0.05, 0.05),
    "ais": (81_000, 50, 100, 0.01, 0.25),
}
MO_QUERIES: Final = 10_000  # of either kind; the paper's number
MO_HISTORY: Final = 10_000  # before them, that cost models learn from
MO_SECONDS: Final = 5.0  # in the table of all, a structure gets as many queries as it can answer in this time

# --- Benchmarks: the experiments of the Skype paper, top-k over a window (section 8.1.1) ------------------------------
TOPK_SUBSCRIPTIONS: Final = 20_000  # the paper has a million,
TOPK_WINDOW: Final = 20_000  # a million,
TOPK_MESSAGES: Final = 5_000  # and 100,000 that arrive
TOPK_K: Final = 20
TOPK_BATCH: Final = 1_000  # messages in one publish
TOPK_SUBSCRIBED: Final = 20_000  # subscriptions in one subscribe, which bounds the memory of an evaluation
TOPK_SECONDS: Final = 30.0  # a trial publishes as many batches as it can in this time, and at least one
TOPK_FAR_M: Final = (
    6_000_000.0  # where nearness ends in the contiguous United States: from one end to the other
)
TOPK_ZIPF_EXPONENT: Final = 1.0  # Fig. 19, of the words of subscriptions

# --- Benchmarks: the experiments of the covering paper (section V) ----------------------------------------------------
COVERING_COMMANDS: Final = 100_000
COVERING_SUBSCRIPTIONS: Final = 100_000  # full ones
COVERING_NEWCOMERS: Final = 20_000  # among these, at the most
COVERING_TRIED: Final = (3, 6, 8)  # attributes, Figs. 10 to 12
COVERING_LEAVING: Final = 0.15  # p, the share of unsubscriptions
COVERING_ATTRIBUTES: Final = 6  # of full subscriptions
COVERING_TESTS: Final = (0, 3)  # of one of them
COVERING_SECONDS: Final = 5.0  # a trial that took longer has one turn
COVERING_SCANNED: Final = 20  # newcomers for which all are scanned
COVERING_SINGLE: Final = 200  # calls with one subscription each

# --- Benchmark of the pipeline ------------------------------------------------------------------------------------
BENCH_SPARK_MESSAGES: Final = 1_000_000
BENCH_SPARK_AREA: Final = (
    0.00001,
    0.0004,
)  # of a region, as a share of the space: about ten deliveries a message
BENCH_SPARK_FILES: Final = 40  # that hold the messages
BENCH_SPARK_BATCHES: Final = 10  # micro-batches in which a stream reads them
BENCH_STREAM_SECONDS: Final = 20.0  # that messages arrive at a given rate
BENCH_STREAM_RATE: Final = 10_000  # messages a second
BENCH_STREAM_STEP: Final = 0.1  # seconds between two files of arriving messages

# --- MBRTrie, PT-Quadtree, LFILTER ---------------------------------------------------------------------------------
TRIE_BLOCK: Final = 32  # postings that share one bounding box, so that a long list is read in steps
FOLD_MIN: Final = 256  # fewer newcomers are not worth folding into the structure
FOLD_SHARE: Final = 0.1  # more are when they are this share of all clauses
REORDER_GROWTH: Final = (
    2  # the order of tokens is made anew when there are this many times the clauses it was made for
)
TRIE_BINARY_NS: Final = 3.0  # of one step of a binary search among the children of a node
TRIE_BIT_NS: Final = 1.0  # of one look of a child at the bitmap of a message's tokens
TOKEN_BITS: Final = 65_536  # size of that bitmap, which stays in the first-level cache
QUADTREE_TAU_NUM: Final = 64  # τ_num: a region with so many clauses to hand down, or fewer, is a leaf
QUADTREE_TAU_AREA: Final = 4.0**-9  # τ_area: so is one with less than this share of the whole area
QUADTREE_CROWDED: Final = (
    4  # times τ_num clauses to hand down, that newcomers brought: the tree is built anew
)
QUADTREE_SPAN: Final = 2  # cells that a box may be wide and high on its deepest level
QUADTREE_CARD: Final = 8  # integers on the card of a clause: its row and up to seven tokens
QUADTREE_LEVELS: Final = 16  # the finest level on which cells are compared
LFILTER_LEVEL: Final = 5  # k: the level of the quadtree on which candidates of an area are estimated
# The prices of the cost model, in nanoseconds, on the AP-Tree recipe, messages of 6 to 1,000 tokens, points and areas.
# Those of the trie are a least-squares fit to a million subscriptions; those of the quadtree are chosen between the
# fits to 200,000 and to a million, each message timed with either filter in a stream of others. Only their proportions
# count.
LFILTER_CHEAP_NS: Final = (
    25_000.0  # a trie that is expected to cost less is taken without a look at the quadtree
)
LFILTER_TOP_NS: Final = 875.0  # a child of the trie's root that the message meets, with what follows
LFILTER_NODE_NS: Final = 34.0  # a clause below it whose next token is expected in the message
LFILTER_POSTING_NS: Final = 0.22  # a posting of such a child's own list
LFILTER_TOKEN_NS: Final = 35.0  # a token of the message, when the quadtree is taken
LFILTER_REGION_NS: Final = 700.0  # a node of the quadtree
LFILTER_ENTRY_NS: Final = 0.1  # an entry of its list
LFILTER_SEEN_NS: Final = 11.0  # an entry whose first token is expected in the message
# The prices of verification, by estimate: not fitted.
LFILTER_LOOK_NS: Final = 1.2  # an entry of which the first token is asked
LFILTER_HIT_NS: Final = 8.0  # an entry whose first token the message has
LFILTER_HALVING_NS: Final = 4.0  # one step of narrowing a list to a range of ids

# --- Ranking -------------------------------------------------------------------------------------------------------
CACHE_LINE: Final = 64  # bytes
RANKING_BLOCK: Final = 32  # postings that share one box
RANKING_GROUP: Final = 16  # blocks that are skipped together
RANKING_LEVELS: Final = 16  # of the weight of a message's words, for which a block knows its reach
RANKING_LEAST_ALPHA: Final = 1 / 256  # below which α counts as this in the reach of a block
RANKING_SLACK: Final = 4e-6  # by which bounds in single precision are widened; scores are at most 1
RANKING_ROUNDING: Final = (
    5e-7  # error of a distance in single precision, in units of the largest coordinate, at most
)
RANKING_BULK: Final = 4_096  # as many new subscriptions are laid out with the others anew, fewer are inserted
RANKING_SEGMENT_BLOCK: Final = 64  # messages of a word in the message index that share one box
RANKING_SEGMENT: Final = 256  # messages in a segment that was never merged, at least
RANKING_MERGE: Final = 8  # segments of a level that are merged into one
RANKING_SPARE: Final = 8  # entries by which a buffer may grow before it is cut, at least
RANKING_SPARE_ROOM: Final = 0.125  # of tables, for those who subscribe after many did at once
RANKING_TOUCH: Final = 200.0  # looking into a buffer costs as much as so many entries of it
RANKING_REEVALUATION: Final = 80_000.0  # as much as so many entries: finding the best messages of the window
RANKING_CHUNK: Final = 1_024  # messages that arrive before the old ones leave, at most
RANKING_PIECE: Final = 128  # messages that a thread looks for at once
RANKING_EVALUATED: Final = 32_768  # subscriptions whose first results are looked for at once
RANKING_EVENTS: Final = (
    1_048_576  # changes of results in a call; with more, those of one row are put together
)
RANKING_GAPS: Final = (
    1_024  # by which messages that were replaced, and ids without one, may outnumber the others
)
RANKING_PAIRS: Final = 262_144  # subscriptions that messages concern, found at once; one message may pass it
RANKING_MAX_K: Final = 10_000  # results of a subscription
RANKING_KMAX: Final = 3.0  # kmax, in units of k: the best in the paper's Figure 10a
RANKING_SKYBAND: Final = 0.95  # θ of Skyband, in units of the k-th score: the best in Figure 10b
RANKING_SKYBAND_WANTED: Final = 6  # messages that Skyband asks for, in units of k
RANKING_WAITING: Final = 1_024  # newcomers that an index which is laid out once scans, at least
RANKING_GROUPS: Final = 10  # α-partitions of IGPT (section 8.1.1)
RANKING_LEAF: Final = 1_000  # subscriptions in a leaf of IGPT (section 8.1.1)
RANKING_CIQ_LEVELS: Final = 4  # of the cells that cover the space for a subscription of CIQ: 13 in the plane

# --- Covering ---------------------------------------------------------------------------------------------------------

COVERING_PAD_M: Final = (
    1.0  # by which a circle on the globe must contain another region: distances err near the antipode
)
COVERING_BUCKET: Final = 32  # points in a bucket of an index before it is split (overflow)
COVERING_UNDERFLOW: Final = 8  # points in a bucket below which it is merged with its neighbour
COVERING_SLOTS: Final = (
    2,
    4,
    8,
    16,
)  # pairs of dimensions for tests; more attributes than the most share them
COVERING_KEY_BITS: Final = 62  # of a cell on the Z-curve, without the leading 1
COVERING_EDGES_FROM: Final = 256  # rectangles from which the cells of the Z-curve follow the data
COVERING_CHUNK: Final = 4_096  # commands that a kernel takes at once
COVERING_DEPTH: Final = 3.0  # times its ideal depth: a subtree of a k-d tree that is deeper is built anew
