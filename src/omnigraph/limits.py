"""Every named limit, in one place; a test compares it with `docs/limits.md`.

Ground layer: standard library only. Names end in their unit; sizes are bytes unless the name says otherwise.
"""

from __future__ import annotations

from typing import Final

# Languages: larger or deeper sources are rejected before parsing.
SOURCE_BYTES_MAX: Final = 4 * 1024 * 1024
SOURCE_NESTING_MAX: Final = 64
DIAGNOSTICS_MAX: Final = 100
QUERY_VARIABLES_MAX: Final = 1_000
QUERY_CLAUSES_MAX: Final = 1_000
QUERY_WEIGHED_WALKS_MAX: Final = 200
QUERY_TOKENS_MAX: Final = 200_000
EXPRESSION_DEPTH_MAX: Final = 100
SUGGESTION_NAMES_MAX: Final = 2_000
SHOWN_CHARACTERS_MAX: Final = 160
VECTOR_DIMENSION_MAX: Final = 16_384
REGEX_CHARACTERS_MAX: Final = 4_000

# Publishing: how long an attempt may rely on an observed head, and how often it is retried.
PUBLISH_DEADLINE_SECONDS: Final = 30
TURN_SECONDS_MAX: Final = 45
REPREPARE_MAX: Final = 32
RETRY_WAIT_SECONDS: Final = 0.02
RETRY_WAIT_SECONDS_MAX: Final = 0.3
UNKNOWN_OUTCOME_RETRIES_MAX: Final = 3

# Fairness: lost races before a writer claims the branch, commits in a row before a process checks for claims of others,
# how long it checks every time after it has met another writer, the duration and expiry of a claim, its polling
# interval, and retries of long operations.
CLAIM_LOSSES: Final = 2
CLAIM_LOOK_COMMITS: Final = 4
CLAIM_WATCH_SECONDS: Final = 5
CLAIM_HOLD_SECONDS_MIN: Final = 2
CLAIM_SECONDS_MAX: Final = 60
CLAIM_POLL_SECONDS: Final = 0.01
CLAIM_POLL_SECONDS_MAX: Final = 2
LONG_REPREPARE_MAX: Final = 8
CONDITIONAL_PUT_ATTEMPTS_MAX: Final = 8
COMMIT_WINDOW_ROWS: Final = 64
FORK_NAMES_MAX: Final = 8
CONTROL_VERSIONS_MAX: Final = 256
COMMIT_LOG_CHUNK_VERSIONS: Final = 256
COMMIT_LOG_IDS_MAX: Final = 1_000
COMMIT_LOG_SCANS_MAX: Final = 16
NAME_CHARACTERS_MAX: Final = 200
# Every publish writes the commits of its window again, with their messages.
COMMIT_MESSAGE_CHARACTERS_MAX: Final = 2_000
HANDLE_CACHE_MAX: Final = 512
HEAD_CACHE_MAX: Final = 1_024
LINK_CACHE_MAX: Final = 16_384
FILE_CACHE_BYTES_MAX: Final = 134_217_728
INDEX_CACHE_BYTES_MAX: Final = 2_147_483_648
PASSING_CACHE_BYTES_MAX: Final = 16_777_216
STORAGE_THREADS: Final = 8
OPEN_SECONDS_MAX: Final = 30

# Checksums of staged files: files that are read concurrently, and checksums that a handle caches.
PROOF_THREADS: Final = 16
PROOF_CACHE_MAX: Final = 16_384
VERIFY_BATCH_BRANCHES: Final = 64
VERIFY_BATCH_ROWS: Final = 1_000_000
VERIFY_BATCH_FILES: Final = 32

# Recovery: when an owner on another host counts as dead, and the age at which an orphan file is removed.
HEARTBEAT_SECONDS: Final = 20
HEARTBEAT_LOST_SECONDS: Final = 300
RESIDUE_AGE_SECONDS: Final = 3_600
STAGED_SECONDS_MAX: Final = 1_800
# Pairs of branches of which a cleanup checks once more that they can be merged afterwards.
CLEANUP_PAIRS_MAX: Final = 20_000

# Space on a local disk that a graph reserves for the intent of a cleanup.
RESERVE_BYTES: Final = 16_384

# Engine: compiled schemas and queries that one process caches.
CATALOG_CACHE_MAX: Final = 16
QUERY_CACHE_MAX: Final = 512
QUERY_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
QUERY_LONG_BYTES: Final = 32 * 1024

# Reads: rows, bytes and seconds of one query, and the caches of an opened graph.
QUERY_ROWS_MAX: Final = 50_000_000
QUERY_BYTES_MAX: Final = 2_147_483_648
QUERY_SECONDS_MAX: Final = 300
ARROW_TEXT_BYTES_MAX: Final = 2_147_483_647
READ_CACHE_BYTES_MAX: Final = 2_147_483_648
READ_CACHE_VERSIONS_MAX: Final = 8
PLAN_CACHE_MAX: Final = 512
PLAN_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
RESULT_BATCH_ROWS: Final = 65_536
# Results are encoded in pieces; the budget of the query is checked before each.
ANSWER_PIECE_BYTES: Final = 4 * 1024 * 1024
ANSWER_PIECE_CELLS: Final = 131_072
# Pictures of a part of a graph.
DRAWN_NODES: Final = 40
DRAWN_NODES_MAX: Final = 200
DRAWN_EDGES_MAX: Final = 400
DRAWN_HOPS_MAX: Final = 4

# Writes: entities and bytes of one mutation or ingest, and how many violations are reported.
WRITE_ENTITIES_MAX: Final = 8_192
WRITE_BYTES_MAX: Final = 32 * 1024 * 1024
# Edges that follow renamed nodes: a node may have more of them than one write may otherwise hold.
RENAMED_EDGES_MAX: Final = 1_000_000
RENAMED_EDGE_BYTES_MAX: Final = 512 * 1024 * 1024
BLOB_COPY_BYTES: Final = 32 * 1024 * 1024
BLOB_VALUE_BYTES_MAX: Final = 64 * 1024
# External blobs of a write: how many, their bytes, the length of an address, and how many are read at once.
EXTERNAL_BLOBS_MAX: Final = 8_192
EXTERNAL_BLOB_BYTES_MAX: Final = 32 * 1024 * 1024
EXTERNAL_BLOB_URI_BYTES_MAX: Final = 64 * 1024
EXTERNAL_BLOB_READS: Final = 8
# Findings that are shown one by one; the others are counted by code.
FINDINGS_SHOWN_MAX: Final = 10
VIOLATIONS_MAX: Final = 100
INGEST_LINE_BYTES_MAX: Final = 32 * 1024 * 1024
INGEST_LINE_TOKENS_MAX: Final = 131_072
FRAME_BATCH_ROWS: Final = 8_192
INGEST_CHUNK_RECORDS: Final = 32_768
DECODE_BLOCK_BYTES: Final = 8 * 1024 * 1024
DECODE_HEADS_MAX: Final = 64
DECODE_BATCH_LINES: Final = 65_536
DECODE_ODD_LINES: Final = 128
POSITION_CACHE_BYTES_MAX: Final = 536_870_912
POSITION_BUILD_ROWS_MAX: Final = 100_000
TAIL_FRAGMENTS_MAX: Final = 16
REMOTE_TAIL_FRAGMENTS_MAX: Final = 4

# Maintenance: attempts to optimize a type that concurrent writers change, how long versions of the catalog are safe
# from cleanup (in publish deadlines), and versions that one thread of cleanup reads before it reports.
OPTIMIZE_ATTEMPTS_MAX: Final = 3
CLEANUP_DEADLINES_MIN: Final = 10
REACH_BATCH_VERSIONS: Final = 64

# Reconciling: small fragments and unindexed rows at which a background round optimizes a type, the largest type that it
# optimizes, and types per round.
RECONCILE_FRAGMENTS_MAX: Final = 64
RECONCILE_UNCOVERED_ROWS_MAX: Final = 100_000
RECONCILE_ROWS_MAX: Final = 5_000_000
RECONCILE_TYPES_MAX: Final = 4

# Merges: the change at which main adopts a branch's dataset instead of copying, commits of a virtual base, clock skew,
# changed entities that are merged without Spark, entities and keys per task, ranges per type, and reported conflicts.
MERGE_ADOPT_ENTITIES_MIN: Final = 100_000
MERGE_BASE_COMMITS_MAX: Final = 64
MERGE_CONFLICTS_SHOWN: Final = 3
MERGE_LOCAL_ENTITIES_MAX: Final = 2_000_000
MERGE_RANGE_ENTITIES: Final = 200_000
MERGE_BUCKET_KEYS: Final = 4_000_000
MERGE_RANGES_MAX: Final = 4_096
MERGE_CONFLICTS_MAX: Final = 1_000
CLOCK_SKEW_SECONDS: Final = 3_600

# Search: edit distances, cached texts and vectors of a version, and requests to embedding providers.
FUZZY_EDITS_MAX: Final = 8
FUZZY_WORDS_MAX: Final = 64
SEARCH_WORDS_MAX: Final = 1_024
RANK_WINDOW_DEFAULT: Final = 1_000
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

# Embedding stored entities: texts and bytes per request, concurrent requests per task, bytes staged at a time, small
# files of the cache before they are compacted, and the size that needs no Spark.
EMBED_WINDOW_TEXTS: Final = 1_024
EMBED_REQUEST_BYTES_MAX: Final = 512 * 1024
EMBED_REQUESTS_MAX: Final = 4
EMBED_STAGE_BYTES: Final = 64 * 1024 * 1024
EMBED_CACHE_FILES_MAX: Final = 64
EMBED_LOCAL_BYTES_MAX: Final = 1024 * 1024 * 1024

# Schema changes that write stored rows again.
SCHEMA_REWRITE_BATCH_ROWS: Final = 8_192
SCHEMA_REWRITE_BYTES: Final = 64 * 1024 * 1024

# Changes: the size of a page of a commit or of the feed, commits per poll, and the size of a cursor token.
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

# Export and display: bytes sorted in memory, bytes per chunk of output, and the width of a table cell.
SORTED_BYTES_MAX: Final = 268_435_456
EXPORT_CHUNK_BYTES: Final = 4 * 1024 * 1024
TABLE_CELL_CHARACTERS_MAX: Final = 80
COLUMN_CHARACTERS_MIN: Final = 3
DIFF_VALUES_SHOWN: Final = 1_000
# The history of one entity: entries by default, states that a walk may read, and commits that one bisection spans.
ENTITY_LOG_COMMITS: Final = 50
ENTITY_LOG_STATES_MAX: Final = 2_000
ENTITY_LOG_RUN_COMMITS: Final = 65_536
COMMIT_ID_CHARACTERS_MIN: Final = 8
REVISION_CHARACTERS_MAX: Final = 256
AMBIGUOUS_COMMITS_SHOWN: Final = 5

# Loads: bytes per split, line and CSV row, the sizes that are held in memory and that need no Spark, rejected lines
# that are reported and how much of each, rounds of checks after rejections, keys per task and buckets, suspects that
# are checked again, and tasks per Spark job.
LOAD_SPLIT_BYTES: Final = 32 * 1024 * 1024
LOAD_LINE_BYTES_MAX: Final = 512 * 1024 * 1024
LOAD_CSV_ROW_BYTES_MAX: Final = 16 * 1024 * 1024
LOAD_MEMORY_BYTES_MAX: Final = 8 * 1024 * 1024
LOAD_LOCAL_BYTES_MAX: Final = 64 * 1024 * 1024
LOAD_ERRORS_MAX: Final = 1_000
LOAD_REJECTED_CHARACTERS: Final = 65_536
LOAD_ROUNDS_MAX: Final = 16
LOAD_BUCKET_KEYS: Final = 16_000_000
LOAD_BUCKETS_MAX: Final = 1_024
LOAD_SUSPECTS_MAX: Final = 100_000
LOAD_WAVE_TASKS: Final = 1_000
INFER_SKETCH_VALUES: Final = 65_536
INFER_PASS_VALUES: Final = 16_000_000
INFER_ENUM_VALUES_MAX: Final = 12
INFER_KEY_COLUMNS_MAX: Final = 12

# Analytics: rounds of one measure, edges that need no Spark, and nodes per task.
ALGO_ROUNDS_MAX: Final = 1_000
ALGO_LOCAL_EDGES_MAX: Final = 100_000_000
ALGO_BLOCK_NODES: Final = 4_000_000

# Spark: timeout of the master, entities of a type up to which a query broadcasts it instead of shuffling, and those
# that one task of a DataFrame reads, with the number of tasks.
SPARK_MASTER_SECONDS_MAX: Final = 10
SPARK_BROADCAST_ROWS_MAX: Final = 100_000
SPARK_PARTITION_ROWS: Final = 262_144
SPARK_PARTITIONS_MAX: Final = 100_000

# Streams: commits per batch of a change feed, new entities of one commit per task, and rows read at a time.
STREAM_COMMITS: Final = 256
STREAM_TASK_ROWS: Final = 1_000_000
STREAM_WINDOW_ROWS: Final = 8_192

# Server: sizes and durations of requests, streams and connections, queues, threads, and the phases of a shutdown.
SERVER_BODY_BYTES_MAX: Final = 1024 * 1024
SERVER_LOAD_BODY_BYTES_MAX: Final = 32 * 1024 * 1024
SERVER_LOAD_STREAM_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
SERVER_LOAD_SECONDS_MAX: Final = 3_600
SERVER_BODY_SECONDS_MAX: Final = 60
SERVER_BODY_BYTES_PER_SECOND_MIN: Final = 64 * 1024
SERVER_SPOOL_CHUNK_BYTES: Final = 1024 * 1024
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
# A revision or graph that storage did not deliver is tried again after 2, 4, 8 … looks, and at most after these.
SERVER_RELOAD_LOOKS_MAX: Final = 12
SERVER_HALF_CLOSED_SECONDS: Final = 0.2
SERVER_WRITE_SECONDS_MAX: Final = 90
SERVER_SHUTDOWN_SECONDS_MAX: Final = 30
SERVER_ANSWER_SECONDS_MAX: Final = 20
SERVER_CANCEL_SECONDS_MAX: Final = 1
SERVER_CLOSE_SECONDS_MAX: Final = 4
SERVER_OWN_THREADS: Final = 2
SERVER_RECONCILE_SECONDS: Final = 60

# Stored queries: broken ones that the message of a rejected schema names; the error's context names all.
STORED_BREAKAGES_SHOWN_MAX: Final = 3

# YAML: the depth of mappings and lists in policies, clusters, pipelines and configurations.
YAML_NESTING_MAX: Final = 64

# Policy: the size of a bundle and of a tokens file, problems that are shown, and cached decisions.
POLICY_BYTES_MAX: Final = 1024 * 1024
TOKENS_BYTES_MAX: Final = 4 * 1024 * 1024
POLICY_PROBLEMS_SHOWN: Final = 20
CLUSTER_CONFIG_BYTES_MAX: Final = 1024 * 1024
PIPELINE_CONFIG_BYTES_MAX: Final = 1024 * 1024
PIPELINE_DELETED_KEYS_MAX: Final = 10_000
PIPELINE_S3_BATCH_ROWS: Final = 65_536
PIPELINE_SNAPSHOT_KEYS_MAX: Final = 16_777_216
PIPELINE_AHEAD_SECONDS_MAX: Final = 86_400
PIPELINE_LEDGER_FILES_MAX: Final = 1_000_000
PIPELINE_PENDING_ROWS_MAX: Final = 10_000
PIPELINE_REJECTED_RUNS_MAX: Final = 100
# Seconds between the looks of `cluster refresh --watch`.
CLUSTER_WATCH_SECONDS: Final = 30
LOCK_ATTEMPTS: Final = 8
# Schedules: seconds between looks at the clock and at the declarations, runs at once, missed runs that are caught up,
# lateness of a run that still counts as on time, retries and their longest pause, the time to finish when stopped,
# and the timeout of a lineage event.
SCHEDULE_POLL_SECONDS: Final = 1
SCHEDULE_FOLLOW_SECONDS: Final = 10
SCHEDULE_RUNS_MAX: Final = 4
SCHEDULE_CATCH_UP_MAX: Final = 1_000
SCHEDULE_GRACE_SECONDS: Final = 60
SCHEDULE_AHEAD_SECONDS_MAX: Final = 3_600
SCHEDULE_RETRIES_MAX: Final = 100
SCHEDULE_RETRY_SECONDS_MAX: Final = 3_600
SCHEDULE_STOP_SECONDS: Final = 25
METRICS_CLIENT_SECONDS_MAX: Final = 10
CLUSTER_DELETE_OBJECTS: Final = 500
LINEAGE_TIMEOUT_SECONDS: Final = 5
# Graphs of a cluster that a server opens at once.
SERVER_OPENING_GRAPHS: Final = 4
POLICY_ANSWERS_MAX: Final = 16_384
BRANCH_NAMES_CACHED_MAX: Final = 16_384

# Maintenance on Spark: the size that needs no Spark, and rows per task.
MAINTAIN_LOCAL_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
MAINTAIN_LOCAL_ROWS_MAX: Final = 50_000_000
MAINTAIN_TASK_ROWS: Final = 4_194_304

# Client: attempts, first and longest backoff, and timeout of a request.
CLIENT_ATTEMPTS_MAX: Final = 4
CLIENT_BACKOFF_MILLISECONDS: Final = 100
CLIENT_WAIT_SECONDS_MAX: Final = 10
CLIENT_TIMEOUT_SECONDS: Final = 120
CLIENT_PART_BYTES: Final = 256 * 1024

# Clones: files per batch, attempts when a concurrent cleanup removes files, and bytes per copied chunk.
CLONE_BATCH_FILES: Final = 1_000
CLONE_ATTEMPTS_MAX: Final = 5
COPY_CHUNK_BYTES: Final = 8 * 1024 * 1024

# Checks of a store: concurrent writers and rounds of the race, and how far the clocks may be apart.
DOCTOR_RACE_WRITERS: Final = 8
DOCTOR_RACE_ROUNDS: Final = 3
DOCTOR_CLOCK_SECONDS: Final = 60

# Hard drops: bytes of rewritten files that a cleanup holds in memory.
PURGE_BATCH_BYTES: Final = 64 * 1024 * 1024
