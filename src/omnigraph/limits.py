"""Every named bound of the product, in one place; `docs/limits.md` lists them all and a test says so.

Ground layer: standard library only. Names end in their unit; sizes are bytes unless the name says otherwise.
"""

from __future__ import annotations

from typing import Final

# Languages: a source larger or deeper than this is refused before it is parsed.
SOURCE_BYTES_MAX: Final = 4 * 1024 * 1024
SOURCE_NESTING_MAX: Final = 64
DIAGNOSTICS_MAX: Final = 100
QUERY_VARIABLES_MAX: Final = 1_000
QUERY_CLAUSES_MAX: Final = 1_000
QUERY_WEIGHED_WALKS_MAX: Final = 200
QUERY_TOKENS_MAX: Final = 200_000
SUGGESTION_NAMES_MAX: Final = 2_000
SHOWN_CHARACTERS_MAX: Final = 160
VECTOR_DIMENSION_MAX: Final = 2_147_483_647

# Publishing: how long an attempt may rely on a head it has seen, and how often it may try again.
PUBLISH_DEADLINE_SECONDS: Final = 30
TURN_SECONDS_MAX: Final = 45
REPREPARE_MAX: Final = 32
RETRY_WAIT_SECONDS: Final = 0.02
RETRY_WAIT_SECONDS_MAX: Final = 0.3
UNKNOWN_OUTCOME_RETRIES_MAX: Final = 3

# Fairness: after how many losses a writer claims the branch, how many commits in a row a process makes before it looks
# for claims of others, and how long it looks each time once it has met other writers; how long a claim asks others to
# wait, how long it counts at all, and how often its owner asks for its turn. How often long work is prepared again.
CLAIM_LOSSES: Final = 2
CLAIM_LOOK_COMMITS: Final = 4
CLAIM_WATCH_SECONDS: Final = 5
CLAIM_HOLD_SECONDS_MIN: Final = 2
CLAIM_SECONDS_MAX: Final = 60
CLAIM_POLL_SECONDS: Final = 0.01
CLAIM_POLL_SECONDS_MAX: Final = 1
LONG_REPREPARE_MAX: Final = 8
CONDITIONAL_PUT_ATTEMPTS_MAX: Final = 8
COMMIT_WINDOW_ROWS: Final = 64
FORK_NAMES_MAX: Final = 8
CONTROL_VERSIONS_MAX: Final = 256
COMMIT_LOG_CHUNK_VERSIONS: Final = 256
COMMIT_LOG_IDS_MAX: Final = 1_000
COMMIT_LOG_SCANS_MAX: Final = 16
NAME_CHARACTERS_MAX: Final = 200
HANDLE_CACHE_MAX: Final = 512
HEAD_CACHE_MAX: Final = 1_024
LINK_CACHE_MAX: Final = 16_384
FILE_CACHE_BYTES_MAX: Final = 134_217_728
INDEX_CACHE_BYTES_MAX: Final = 2_147_483_648
PASSING_CACHE_BYTES_MAX: Final = 16_777_216
STORAGE_THREADS: Final = 8
OPEN_SECONDS_MAX: Final = 30

# Proving staged files: how many are looked at side by side, and how many proofs a handle remembers.
PROOF_THREADS: Final = 16
PROOF_CACHE_MAX: Final = 16_384
VERIFY_BATCH_BRANCHES: Final = 64
VERIFY_BATCH_ROWS: Final = 1_000_000
VERIFY_BATCH_FILES: Final = 32

# Leftovers: when an owner elsewhere counts as gone, and how old a file that nothing names must be to be removed.
HEARTBEAT_SECONDS: Final = 20
HEARTBEAT_LOST_SECONDS: Final = 300
RESIDUE_AGE_SECONDS: Final = 3_600
STAGED_SECONDS_MAX: Final = 1_800

# How much of a local disk a graph sets aside for the intent of a cleanup.
RESERVE_BYTES: Final = 16_384

# Engine: what one process keeps at hand.
CATALOG_CACHE_MAX: Final = 16
QUERY_CACHE_MAX: Final = 512
QUERY_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
QUERY_LONG_BYTES: Final = 32 * 1024

# Reads: what one query may materialise and how long it may run, and how much a graph keeps in memory for the next one.
QUERY_ROWS_MAX: Final = 50_000_000
QUERY_BYTES_MAX: Final = 2_147_483_648
QUERY_SECONDS_MAX: Final = 300
ARROW_TEXT_BYTES_MAX: Final = 2_147_483_647
READ_CACHE_BYTES_MAX: Final = 2_147_483_648
READ_CACHE_VERSIONS_MAX: Final = 8
PLAN_CACHE_MAX: Final = 512
PLAN_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
RESULT_BATCH_ROWS: Final = 65_536
# What of an answer is made at a time; the budget of its query is asked before each piece.
ANSWER_PIECE_BYTES: Final = 4 * 1024 * 1024
ANSWER_PIECE_CELLS: Final = 131_072

# Writes: what one mutation or ingest may hold per type, and how many of its violations are reported.
WRITE_ENTITIES_MAX: Final = 8_192
WRITE_BYTES_MAX: Final = 32 * 1024 * 1024
BLOB_COPY_BYTES: Final = 32 * 1024 * 1024
BLOB_VALUE_BYTES_MAX: Final = 64 * 1024
# Findings that a person is shown one by one; of the others, how many of each code.
FINDINGS_SHOWN_MAX: Final = 10
VIOLATIONS_MAX: Final = 100
INGEST_LINE_BYTES_MAX: Final = 32 * 1024 * 1024
INGEST_LINE_TOKENS_MAX: Final = 131_072
INGEST_CHUNK_RECORDS: Final = 32_768
DECODE_BLOCK_BYTES: Final = 8 * 1024 * 1024
DECODE_HEADS_MAX: Final = 64
DECODE_BATCH_LINES: Final = 65_536
DECODE_ODD_LINES: Final = 128
POSITION_CACHE_BYTES_MAX: Final = 536_870_912
POSITION_BUILD_ROWS_MAX: Final = 100_000
TAIL_FRAGMENTS_MAX: Final = 16

# Maintenance: how often a type is optimized because writers replaced it meanwhile, and how long versions of the catalog
# are safe from cleanup, in deadlines of a publish; how many versions one thread of cleanup reads before it reports.
OPTIMIZE_ATTEMPTS_MAX: Final = 3
CLEANUP_DEADLINES_MIN: Final = 10
REACH_BATCH_VERSIONS: Final = 64

# Reconciling: how many small fragments, and rows that an index misses, a type may have before a background round looks
# after it; how large it may be for that, and how many types one round takes on.
RECONCILE_FRAGMENTS_MAX: Final = 64
RECONCILE_UNCOVERED_ROWS_MAX: Final = 100_000
RECONCILE_ROWS_MAX: Final = 5_000_000
RECONCILE_TYPES_MAX: Final = 4

# Merges: when main takes over a branch's dataset instead of copying the change, of how many commits a virtual base is
# made, how far clocks may differ; how many changed entities need no Spark, how many one task merges and of how many it
# compares the keys, into how many parts a type is cut at most, and how many conflicts tasks tell.
MERGE_ADOPT_ENTITIES_MIN: Final = 100_000
MERGE_BASE_COMMITS_MAX: Final = 64
MERGE_CONFLICTS_SHOWN: Final = 3
MERGE_LOCAL_ENTITIES_MAX: Final = 2_000_000
MERGE_RANGE_ENTITIES: Final = 200_000
MERGE_BUCKET_KEYS: Final = 4_000_000
MERGE_RANGES_MAX: Final = 4_096
MERGE_CONFLICTS_MAX: Final = 1_000
CLOCK_SKEW_SECONDS: Final = 3_600

# Search: how far a typing error may go, what is kept of a version's texts and vectors, and what a provider may answer.
FUZZY_EDITS_MAX: Final = 8
FUZZY_WORDS_MAX: Final = 64
SEARCH_WORDS_MAX: Final = 1_024
WORD_LETTERS_MAX: Final = 1_024
SEARCH_CACHE_MAX: Final = 8
TEXT_CACHE_BYTES_MAX: Final = 268_435_456
ANALYSED_BYTES_MAX: Final = 33_554_432
VECTOR_PARTITION_ROWS: Final = 512
VECTOR_PARTITIONS_MAX: Final = 4_096
VECTOR_UNPARTITIONED_ROWS_MAX: Final = 20_000
VECTOR_CACHE_BYTES_MAX: Final = 268_435_456
VECTOR_MATRIX_BYTES_MAX: Final = 134_217_728
EMBED_TEXTS_MAX: Final = 128
EMBED_RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
EMBED_RETRY_AFTER_SECONDS_MAX: Final = 300

# Embedding what is stored: what is asked and kept at a time, how many requests one task makes side by side, what it
# stages at a time, how many small files of the cache are left unfolded, and what needs no Spark.
EMBED_WINDOW_TEXTS: Final = 1_024
EMBED_REQUEST_BYTES_MAX: Final = 512 * 1024
EMBED_REQUESTS_MAX: Final = 4
EMBED_STAGE_BYTES: Final = 64 * 1024 * 1024
EMBED_CACHE_FILES_MAX: Final = 64
EMBED_LOCAL_BYTES_MAX: Final = 1024 * 1024 * 1024

# Changes: what one page of a commit or of the feed holds, how many commits one poll walks, and what a token may be.
CHANGE_PAGE_CHANGES: Final = 1_000
CHANGE_PAGE_CHANGES_MAX: Final = 8_192
CHANGE_PAGE_BYTES: Final = 4 * 1024 * 1024
CHANGE_PAGE_BYTES_MAX: Final = 32 * 1024 * 1024
CHANGE_WINDOW_ROWS: Final = 1_024
DIFF_BYTES_MAX: Final = 512 * 1024 * 1024
CHANGE_WINDOW_BLOB_ROWS: Final = 16
CHANGE_CACHE_MAX: Final = 4
FEED_COMMITS: Final = 128
FEED_COMMITS_MAX: Final = 512
CHANGE_TOKEN_BYTES_MAX: Final = 4_096
CHANGE_ID_BYTES_MAX: Final = 256
CHANGE_ID_PREFIX_BYTES: Final = 64
BLOB_READ_BYTES_MAX: Final = 4 * 1024 * 1024

# Export and display: what is sorted whole, what one chunk of output holds, how wide a cell of a table gets.
SORTED_BYTES_MAX: Final = 268_435_456
EXPORT_CHUNK_BYTES: Final = 4 * 1024 * 1024
TABLE_CELL_CHARACTERS_MAX: Final = 80

# Loads: what one task reads, how long a row of CSV may be, what runs without Spark, how many rejected lines are told
# and kept, and how much of each, how often checks are repeated after lines were rejected; how many keys one task
# compares, into how many ranges they are cut at most, how many entities are looked at again, and how many tasks one job
# of Spark has.
LOAD_SPLIT_BYTES: Final = 32 * 1024 * 1024
LOAD_LINE_BYTES_MAX: Final = 512 * 1024 * 1024
LOAD_CSV_ROW_BYTES_MAX: Final = 16 * 1024 * 1024
LOAD_LOCAL_BYTES_MAX: Final = 64 * 1024 * 1024
LOAD_ERRORS_MAX: Final = 1_000
LOAD_REJECTED_CHARACTERS: Final = 65_536
LOAD_ROUNDS_MAX: Final = 16
LOAD_BUCKET_KEYS: Final = 16_000_000
LOAD_BUCKETS_MAX: Final = 1_024
LOAD_SUSPECTS_MAX: Final = 100_000
LOAD_WAVE_TASKS: Final = 1_000

# Analytics: how many rounds one measure may take, how many edges need no Spark, how many nodes one task has.
ALGO_ROUNDS_MAX: Final = 1_000
ALGO_LOCAL_EDGES_MAX: Final = 100_000_000
ALGO_BLOCK_NODES: Final = 4_000_000

# Spark: how long a master may take to answer, and up to how many entities a query sends a type to every task instead of
# shuffling it.
SPARK_MASTER_SECONDS_MAX: Final = 10
SPARK_BROADCAST_ROWS_MAX: Final = 100_000

# Streams: how many commits one batch of a change feed takes, how many new entities of one commit one task has, and how
# many of them are read at once.
STREAM_COMMITS: Final = 256
STREAM_TASK_ROWS: Final = 1_000_000
STREAM_WINDOW_ROWS: Final = 8_192

# Server: what a request may send and how long it may take, what goes out in streams at a time, how long a stop waits.
SERVER_BODY_BYTES_MAX: Final = 1024 * 1024
SERVER_LOAD_BODY_BYTES_MAX: Final = 32 * 1024 * 1024
SERVER_BODY_SECONDS_MAX: Final = 60
SERVER_HEADER_BYTES_MAX: Final = 65_536
SERVER_HEADER_SECONDS_MAX: Final = 30
SERVER_CONNECTIONS_MAX: Final = 1_024
SERVER_CONNECTIONS_PER_PEER_MAX: Final = 256
SERVER_SPARE_CONNECTIONS: Final = 32
SERVER_FILES_MAX: Final = 1_024
SERVER_IDLE_SECONDS_MAX: Final = 60
SERVER_LINGER_SECONDS_MAX: Final = 5
SERVER_QUEUE_MAX: Final = 128
SERVER_QUEUE_SECONDS_MAX: Final = 60
SERVER_RETRY_AFTER_SECONDS: Final = 60
SERVER_SMALL_WRITE_BYTES: Final = 256
SERVER_STREAM_CHUNK_BYTES: Final = 65_536
SERVER_STREAM_BYTES: Final = 262_144
SERVER_STREAMS_BYTES_MAX: Final = 2 * 1024 * 1024
SERVER_STREAM_WAIT_SECONDS: Final = 0.25
SERVER_STALL_SECONDS_MAX: Final = 60
SERVER_ANSWER_BYTES_PER_SECOND_MIN: Final = 16 * 1024
SERVER_EXPORTS_MAX: Final = 4
SERVER_EXPORTS_PER_ACTOR_MAX: Final = 1
SERVER_FRONT_THREADS: Final = 4
SERVER_RELOAD_SECONDS: Final = 5
SERVER_HALF_CLOSED_SECONDS: Final = 0.2
SERVER_WRITE_SECONDS_MAX: Final = 90
SERVER_SHUTDOWN_SECONDS_MAX: Final = 30
SERVER_ANSWER_SECONDS_MAX: Final = 20
SERVER_CANCEL_SECONDS_MAX: Final = 1
SERVER_CLOSE_SECONDS_MAX: Final = 4
SERVER_OWN_THREADS: Final = 2
SERVER_RECONCILE_SECONDS: Final = 60

# Stored queries: how many broken ones the message of a refused schema names; its context names all of them.
STORED_BREAKAGES_SHOWN_MAX: Final = 3

# Policy: how large a bundle may be, how much of what is wrong with it is shown, how many answers are kept at hand.
POLICY_BYTES_MAX: Final = 1024 * 1024
TOKENS_BYTES_MAX: Final = 4 * 1024 * 1024
POLICY_PROBLEMS_SHOWN: Final = 20
POLICY_ANSWERS_MAX: Final = 16_384
BRANCH_NAMES_CACHED_MAX: Final = 16_384

# Maintenance on Spark: what one process does alone, and how many rows one task indexes or one bucket compares.
MAINTAIN_LOCAL_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
MAINTAIN_LOCAL_ROWS_MAX: Final = 50_000_000
MAINTAIN_TASK_ROWS: Final = 4_194_304

# The client: how often a request is sent in all, the first wait before the next time, and the longest.
CLIENT_ATTEMPTS_MAX: Final = 4
CLIENT_BACKOFF_MILLISECONDS: Final = 100
CLIENT_WAIT_SECONDS_MAX: Final = 10
CLIENT_TIMEOUT_SECONDS: Final = 120

# Clones: files that are copied side by side before the next ones begin, bytes in memory for each, and how often what a
# cleanup removed meanwhile makes a clone look again.
CLONE_BATCH_FILES: Final = 1_000
CLONE_ATTEMPTS_MAX: Final = 5
COPY_CHUNK_BYTES: Final = 8 * 1024 * 1024

# Hard drops: bytes of overwritten files that a cleanup holds in memory.
PURGE_BATCH_BYTES: Final = 64 * 1024 * 1024
