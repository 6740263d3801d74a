"""Every default, limit and threshold, in one place.

Code elsewhere names these; it holds no such number of its own. Where a number comes from a paper, the comment says
which.
"""

from __future__ import annotations

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

# --- Indexes -------------------------------------------------------------------------------------------------------
DEFAULT_INDEX: Final = "ranked-list"  # what the engine, the command line and the pipeline build
MATCH_CHUNK: Final = 2_048  # the most messages that one kernel call matches
MATCH_ROOM: Final = 1_024  # candidates a message that a search starts with room for; it grows as needed
COMPACT_MIN_DEAD: Final = (
    1_024  # fewer dead clause rows are not worth a compaction; more are when they are half of all
)
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

# --- AP-Tree: f, θ_p, θ_KL and the cover from section 5.1 of its paper; the rest is measured -------------------------
AP_TREE_FANOUT: Final = 200  # f
AP_TREE_LEAF: Final = 40  # θ_p
AP_TREE_DIVERGENCE: Final = 0.001  # θ_KL
AP_TREE_COVER: Final = (
    0.001  # a node that holds a smaller share of all clauses is not built anew for its divergence
)
AP_TREE_LOOK: Final = 4  # the divergence is looked at when 1/4 of a node's clauses have come or gone
AP_TREE_TOMBSTONES: Final = 8  # a leaf is freed of them when they are more than 1/8 of it
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

# --- Kernels -------------------------------------------------------------------------------------------------------
BINARY_SEARCH_FROM: Final = 32  # a set of more codes is searched by halving, a shorter one from front to back
INSERTION_SORT_UP_TO: Final = 32  # codes in a row; longer rows are sorted by NumPy
HASH_BLOCK: Final = 128  # strings whose cache misses overlap

# --- Vocabulary ----------------------------------------------------------------------------------------------------
HASH_LOAD: Final = 0.5  # the fullest that a vocabulary's hash table becomes

# --- Spark ---------------------------------------------------------------------------------------------------------
SPARK_OUTPUT_ROWS: Final = 65_536  # deliveries in one Arrow batch that a worker hands back
SPARK_OPEN_INDEXES: Final = 4  # index versions that a worker keeps open, the latest used ones
SPARK_JAVA_VERSIONS: Final = (17, 21, 25)  # what the documentation of Spark 4.3 names
JAVA_PROBE_SECONDS: Final = 20.0  # a Java that does not tell its version within this time is passed over

# --- Command line --------------------------------------------------------------------------------------------------
CLI_CHUNK: Final = 32_768  # messages between two movements of the progress bar, and two writes of deliveries
CLI_TABLE_ROWS: Final = 100  # deliveries that `--format table` shows
DEMO_FILES: Final = 10  # files that the sample messages come in, one a micro-batch
DEMO_POLL_SECONDS: Final = 1  # how often the progress of the stream is looked at

# --- Benchmarks: how long to measure -------------------------------------------------------------------------------
BENCH_SUBSCRIPTIONS: Final = 1_000_000
BENCH_MESSAGES: Final = 20_000
BENCH_REPEAT: Final = 3  # runs over all messages; the best counts
BENCH_SCAN_SECONDS: Final = 10.0  # the naive scan gets as many of the messages as it can match in this time
BENCH_SINGLES: Final = 500  # messages matched one by one, for the latency percentiles
BENCH_BATCH: Final = 1_000  # subscriptions in one insert or removal
BENCH_BATCHES: Final = 20  # of such inserts, and of such removals
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
