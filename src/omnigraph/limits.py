"""Every named limit, in one place. `#:` says what it bounds; the documentation lists all of them from here.

Ground layer: standard library only. Names end in their unit; sizes are bytes unless the name says otherwise.
"""

from __future__ import annotations

from typing import Final

# Languages
SOURCE_BYTES_MAX: Final = 4 * 1024 * 1024  #: bytes of one schema or query source
SOURCE_NESTING_MAX: Final = 64  #: depth of brackets in a source
DIAGNOSTICS_MAX: Final = 100  #: diagnostics reported for one source
QUERY_VARIABLES_MAX: Final = 1_000  #: variables that one query binds
QUERY_CLAUSES_MAX: Final = 1_000  #: bindings, walks and blocks of one query
#: traversals of a pattern that is counted without materialising its rows; with more, the rows are materialised
QUERY_WEIGHED_WALKS_MAX: Final = 200
QUERY_TOKENS_MAX: Final = 200_000  #: tokens of one query source
EXPRESSION_DEPTH_MAX: Final = 100  #: operations nested in one expression of a query
SUGGESTION_NAMES_MAX: Final = 2_000  #: known names that are searched for a "did you mean" hint
SHOWN_CHARACTERS_MAX: Final = 160  #: characters of a source line that a diagnostic shows
VECTOR_DIMENSION_MAX: Final = 16_384  #: dimension of a `Vector` property
#: characters of a regular expression, in `@check` or after `matches`; what RE2 compiles it to is bounded, too
REGEX_CHARACTERS_MAX: Final = 4_000

# Publishing
PUBLISH_DEADLINE_SECONDS: Final = 30  #: seconds an attempt may rely on the branch head it has observed
TURN_SECONDS_MAX: Final = 45  #: seconds a write waits for its turn among the writers of its process and branch
REPREPARE_MAX: Final = 32  #: times a write that lost a race is prepared again
RETRY_WAIT_SECONDS: Final = 0.02  #: longest backoff in seconds after the first lost race
RETRY_WAIT_SECONDS_MAX: Final = 0.3  #: longest backoff in seconds after any number of lost races
UNKNOWN_OUTCOME_RETRIES_MAX: Final = 3  #: times a publish of unknown outcome is looked up and retried

# Fairness between writers
CLAIM_LOSSES: Final = 2  #: lost races after which an insert claims the branch; costlier work does so after one
CLAIM_LOOK_COMMITS: Final = 4  #: commits that a process makes in a row before it checks for claims of others
CLAIM_WATCH_SECONDS: Final = 5  #: seconds for which it checks at every commit, once it has met other writers
#: shortest time in seconds that a claim may stay first in the queue; otherwise three times its last attempt
CLAIM_HOLD_SECONDS_MIN: Final = 2
#: longest time in seconds that a claim may stay first; also its expiry, and the longest wait for others
CLAIM_SECONDS_MAX: Final = 60
#: shortest pause in seconds of a claimant that waits; pauses follow the measured duration of turns
CLAIM_POLL_SECONDS: Final = 0.01
CLAIM_POLL_SECONDS_MAX: Final = 2  #: longest pause in seconds of a claimant that waits
LONG_REPREPARE_MAX: Final = 8  #: times a merge, revert or cherry-pick that lost a race is prepared again

# The catalog and its history
#: times a conditional put is sent while the store reports that another one is in flight
CONDITIONAL_PUT_ATTEMPTS_MAX: Final = 8
COMMIT_WINDOW_ROWS: Final = 64  #: commits kept in the manifest before older ones move to the commit log
FORK_NAMES_MAX: Final = 8  #: names that are tried for a fork, to skip those that a crashed process left unfinished
CONTROL_VERSIONS_MAX: Final = 256  #: newest versions of the catalog that are searched for an operation without a commit
#: manifest versions of the commit log that a walk reads at first; then twice as many each time
COMMIT_LOG_CHUNK_VERSIONS: Final = 256
COMMIT_LOG_IDS_MAX: Final = 1_000  #: commits that one scan of the commit log looks for by id
#: scans of the commit log by one walk through history, before it reads the whole log once
COMMIT_LOG_SCANS_MAX: Final = 16
NAME_CHARACTERS_MAX: Final = 200  #: characters of the name of a branch or tag
COMMIT_MESSAGE_CHARACTERS_MAX: Final = 2_000  #: characters of a commit message

# Storage caches
HANDLE_CACHE_MAX: Final = 512  #: open datasets kept by one process
HEAD_CACHE_MAX: Final = 1_024  #: branches whose newest state an opened graph keeps in memory
LINK_CACHE_MAX: Final = 16_384  #: published versions that an opened graph knows to be linked
FILE_CACHE_BYTES_MAX: Final = 134_217_728  #: bytes of Lance's cache of files and versions, for one opened graph
INDEX_CACHE_BYTES_MAX: Final = 2_147_483_648  #: bytes of Lance's cache of indexes, for one opened graph
PASSING_CACHE_BYTES_MAX: Final = 16_777_216  #: bytes of each of these caches while verify and cleanup read all versions
STORAGE_THREADS: Final = 8  #: concurrent storage requests
OPEN_SECONDS_MAX: Final = 30  #: seconds in which a store has to respond when a graph on it is first opened

# Checks of files
PROOF_THREADS: Final = 16  #: staged or stored files that are checked concurrently
PROOF_CACHE_MAX: Final = 16_384  #: files that a handle remembers as intact
VERIFY_BATCH_BRANCHES: Final = 64  #: branches that verify opens at a time
#: entities that verify reads of several branches at a time; a single branch may have more
VERIFY_BATCH_ROWS: Final = 1_000_000
VERIFY_BATCH_FILES: Final = 32  #: files that one thread of a verify compares with their checksums at a time

# Recovery and cleanup
HEARTBEAT_SECONDS: Final = 20  #: seconds between two heartbeats of long work
HEARTBEAT_LOST_SECONDS: Final = 300  #: seconds without a heartbeat after which an owner on another host counts as dead
RESIDUE_AGE_SECONDS: Final = 3_600  #: age in seconds at which an orphan file may be removed
#: seconds after which a write that declared no intent may no longer publish what it staged
STAGED_SECONDS_MAX: Final = 1_800
#: pairs of branches of which a cleanup checks once more that they can be merged afterwards
CLEANUP_PAIRS_MAX: Final = 20_000
#: bytes of a local disk that a graph reserves, so that cleanup can start when the disk is full
RESERVE_BYTES: Final = 16_384

# Caches of compiled sources
CATALOG_CACHE_MAX: Final = 16  #: compiled schemas cached by one process
QUERY_CACHE_MAX: Final = 512  #: compiled queries cached by one process
#: bytes of compiled queries that a graph caches, estimated from their sources
QUERY_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024
QUERY_LONG_BYTES: Final = 32 * 1024  #: bytes of a source from which on queries are compiled one at a time

# Reads
QUERY_ROWS_MAX: Final = 50_000_000  #: rows that one query may hold at once; more is `query.budget_exceeded`
QUERY_BYTES_MAX: Final = 2_147_483_648  #: bytes that one query may hold at once; more is `query.budget_exceeded`
QUERY_SECONDS_MAX: Final = 300  #: seconds that one query may run; longer is `query.budget_exceeded`
ARROW_TEXT_BYTES_MAX: Final = 2_147_483_647  #: bytes of text that one column of a query can hold
READ_CACHE_BYTES_MAX: Final = 2_147_483_648  #: bytes of columns and adjacency that an opened graph caches
READ_CACHE_VERSIONS_MAX: Final = 8  #: versions of one type in that cache; the least recently used goes first
PLAN_CACHE_MAX: Final = 512  #: physical plans cached by an opened graph
PLAN_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024  #: bytes of cached plans, estimated from their sources
RESULT_BATCH_ROWS: Final = 65_536  #: rows in one batch of a streamed result
ANSWER_PIECE_BYTES: Final = 4 * 1024 * 1024  #: average bytes of rows that are encoded at a time for a response
ANSWER_PIECE_CELLS: Final = 131_072  #: values that are encoded at a time for a response

# Drawings
DRAWN_NODES: Final = 40  #: nodes that `graph.show` draws by default
DRAWN_NODES_MAX: Final = 200  #: nodes that one picture may have
DRAWN_EDGES_MAX: Final = 400  #: edges that one picture may have
DRAWN_HOPS_MAX: Final = 4  #: hops around a node that one picture may show

# Writes
#: entities of one type that a mutation, or a small write that appends or merges, may write
WRITE_ENTITIES_MAX: Final = 8_192
#: bytes of one type, as Arrow, that one write may hold; blobs that updated entities keep do not count
WRITE_BYTES_MAX: Final = 32 * 1024 * 1024
RENAMED_EDGES_MAX: Final = 1_000_000  #: edges of one type that a mutation with a `rename` may write
#: bytes of edges of one type, as Arrow, that a mutation with a `rename` may hold
RENAMED_EDGE_BYTES_MAX: Final = 512 * 1024 * 1024
#: bytes of stored blobs that a write holds at a time when it copies them; a single larger blob is held alone
BLOB_COPY_BYTES: Final = 32 * 1024 * 1024
#: bytes of a blob that a merge compares by content; a larger one is compared by its location
BLOB_VALUE_BYTES_MAX: Final = 64 * 1024
VIOLATIONS_MAX: Final = 100  #: broken rules reported for one write
INGEST_LINE_BYTES_MAX: Final = 32 * 1024 * 1024  #: bytes of one line of NDJSON in a small write
INGEST_LINE_TOKENS_MAX: Final = 131_072  #: brackets, braces, commas and colons in one line of NDJSON
FRAME_BATCH_ROWS: Final = 8_192  #: rows of a data frame that an ingest encodes at a time
INGEST_CHUNK_RECORDS: Final = 32_768  #: records that are converted to columns at a time
DECODE_BLOCK_BYTES: Final = 8 * 1024 * 1024  #: bytes of NDJSON that are decoded at a time
DECODE_HEADS_MAX: Final = 64  #: distinct line prefixes of a block that the fast path decodes
DECODE_BATCH_LINES: Final = 65_536  #: lines of NDJSON that are decoded at a time
#: lines below which decoding in bulk does not pay; a wrong line among them is searched one by one
DECODE_ODD_LINES: Final = 128
#: bytes of the in-memory index from values (ids, endpoints, `@unique`) to entities
POSITION_CACHE_BYTES_MAX: Final = 536_870_912
#: entities that are read to build that index at once; larger types use filters until building pays
POSITION_BUILD_ROWS_MAX: Final = 100_000
TAIL_FRAGMENTS_MAX: Final = 16  #: small fragments at the end of a dataset that a write leaves uncompacted
#: the same in object stores, for fragments that have up to 1 MiB together: there requests cost more than bytes
REMOTE_TAIL_FRAGMENTS_MAX: Final = 4
FINDINGS_SHOWN_MAX: Final = 10  #: findings that the command line shows one by one; the others are counted by code

# External blobs
EXTERNAL_BLOBS_MAX: Final = 8_192  #: external blobs that one write names
EXTERNAL_BLOB_BYTES_MAX: Final = 32 * 1024 * 1024  #: bytes that one write copies from external blobs
EXTERNAL_BLOB_URI_BYTES_MAX: Final = 64 * 1024  #: bytes of the address of an external blob
EXTERNAL_BLOB_READS: Final = 8  #: external blobs that a write reads at a time

# Maintenance
OPTIMIZE_ATTEMPTS_MAX: Final = 3  #: attempts of one run to optimize a type that concurrent writers change
CLEANUP_DEADLINES_MIN: Final = 10  #: publish deadlines for which cleanup keeps every version that was current
REACH_BATCH_VERSIONS: Final = 64  #: versions that one thread of cleanup reads at a time, to find the files they need
RECONCILE_FRAGMENTS_MAX: Final = 64  #: small fragments that a type may have before a reconciler compacts it
RECONCILE_UNCOVERED_ROWS_MAX: Final = 100_000  #: unindexed entities of a type before a reconciler indexes them
#: entities that a reconciler rewrites or indexes for one type; more waits for `optimize`
RECONCILE_ROWS_MAX: Final = 5_000_000
RECONCILE_TYPES_MAX: Final = 4  #: types that one round of a reconciler processes

# Merges
#: net change in entities of a type at which main adopts a branch's dataset instead of copying the change
MERGE_ADOPT_ENTITIES_MIN: Final = 100_000
#: commits that a virtual base is made of; of crossings before them only differences count, see branching
MERGE_BASE_COMMITS_MAX: Final = 64
MERGE_CONFLICTS_SHOWN: Final = 3  #: conflicts that the message of a failed merge names; its context has all
#: bytes of rows that may differ, as they are in memory, up to which a merge is done in one piece
MERGE_HELD_BYTES_MAX: Final = 256 * 1024 * 1024
#: estimated CPU seconds of a merge above which it runs on Spark, if that is installed
MERGE_LOCAL_SECONDS_MAX: Final = 60
MERGE_RANGE_ENTITIES: Final = 200_000  #: changed entities of a type that one task of a large merge holds
MERGE_RANGE_BYTES: Final = 64 * 1024 * 1024  #: bytes of rows that one task of a large merge reads or holds
MERGE_BUCKET_KEYS: Final = 1_000_000  #: changed entities whose keys one task of a large merge compares
MERGE_RANGES_MAX: Final = 4_096  #: ranges into which a large merge splits a type, or the keys of all types
MERGE_CONFLICTS_MAX: Final = 20_000  #: conflicts that a merge reports; of more it reports the first
#: seconds by which the clocks of two writers may differ when history is searched by time
CLOCK_SKEW_SECONDS: Final = 3_600

# Search
FUZZY_EDITS_MAX: Final = 8  #: largest edit distance that `fuzzy` accepts
FUZZY_WORDS_MAX: Final = 64  #: distinct words of a `fuzzy` search
SEARCH_WORDS_MAX: Final = 1_024  #: distinct words of a `search`, `match_text` or `bm25` search
#: best entities of each ranking that `rrf` fuses, unless its fourth argument says otherwise
RANK_WINDOW_DEFAULT: Final = 1_000
#: letters of a word that text search compares; longer words with the same prefix are equal
WORD_LETTERS_MAX: Final = 1_024
SEARCH_CACHE_MAX: Final = 8  #: searched columns whose text index or vectors an opened graph keeps in memory
TEXT_CACHE_BYTES_MAX: Final = 268_435_456  #: bytes of analysed texts that an opened graph keeps for later versions
ANALYSED_BYTES_MAX: Final = 33_554_432  #: bytes of texts that are analysed at once while a full-text index is built
VECTOR_PARTITION_ROWS: Final = 512  #: vectors in one partition of a vector index, on average
#: partitions of one segment of a vector index; larger segments have larger partitions
VECTOR_PARTITIONS_MAX: Final = 4_096
VECTOR_UNPARTITIONED_ROWS_MAX: Final = 20_000  #: entities up to which a vector index has one partition and is not used
#: bytes of partitions of vector indexes that an opened graph keeps in memory
VECTOR_CACHE_BYTES_MAX: Final = 268_435_456
#: bytes of one column's vectors that are kept in memory; more are read as a stream
VECTOR_MATRIX_BYTES_MAX: Final = 134_217_728

# Embeddings
EMBED_TEXTS_MAX: Final = 128  #: texts in one request to an embedding provider
EMBED_RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024  #: bytes of one response of an embedding provider
#: longest `Retry-After` of a provider, in seconds, that is honoured without a deadline
EMBED_RETRY_AFTER_SECONDS_MAX: Final = 300
EMBED_WINDOW_TEXTS: Final = 1_024  #: texts that are embedded, and kept in the cache, at a time
#: bytes of text in one request for stored vectors; a single longer text is sent alone
EMBED_REQUEST_BYTES_MAX: Final = 512 * 1024
EMBED_REQUESTS_MAX: Final = 4  #: concurrent requests of one task of an embedding
EMBED_STAGE_BYTES: Final = 64 * 1024 * 1024  #: bytes of entities that one task of an embedding writes at a time
EMBED_CACHE_FILES_MAX: Final = 64  #: small files of the vector cache before they are compacted
#: stored bytes of the types up to which an embedding runs in process, without Spark
EMBED_LOCAL_BYTES_MAX: Final = 1024 * 1024 * 1024

# Schema changes
SCHEMA_REWRITE_BATCH_ROWS: Final = 8_192  #: entities that a schema change reads at a time to write them again
SCHEMA_REWRITE_BYTES: Final = 64 * 1024 * 1024  #: bytes of entities that a schema change writes at a time

# Changes and blobs
CHANGE_PAGE_CHANGES: Final = 1_000  #: changes in one page of a commit or of the feed, by default
CHANGE_PAGE_CHANGES_MAX: Final = 8_192  #: changes in one page, at most
#: bytes of JSON in one page of changes, by default; a single larger change is sent alone
CHANGE_PAGE_BYTES: Final = 4 * 1024 * 1024
CHANGE_PAGE_BYTES_MAX: Final = 32 * 1024 * 1024  #: bytes of JSON in one page, at most
CHANGE_WINDOW_ROWS: Final = 1_024  #: entities whose images are read at a time for a page of changes
DIFF_BYTES_MAX: Final = 512 * 1024 * 1024  #: bytes of the changes between two states that one diff returns
CHANGE_WINDOW_BLOB_ROWS: Final = 16  #: entities with blobs whose images are read at a time
CHANGE_CACHE_MAX: Final = 4  #: comparisons of two versions of a type that an opened graph keeps for the next page
FEED_COMMITS: Final = 128  #: commits that one poll of the feed returns, by default
FEED_COMMITS_MAX: Final = 512  #: commits that one poll returns, at most
CHANGE_TOKEN_BYTES_MAX: Final = 4_096  #: characters of a cursor or page token
#: bytes of an id that a token holds in full; a longer one is held as prefix and digest
CHANGE_ID_BYTES_MAX: Final = 256
CHANGE_ID_PREFIX_BYTES: Final = 64  #: bytes of the prefix of such an id
BLOB_READ_BYTES_MAX: Final = 4 * 1024 * 1024  #: bytes that one read of a blob returns

# Export and display
#: stored bytes up to which an export sorts a type in memory; larger types are read in windows
SORTED_BYTES_MAX: Final = 268_435_456
#: stored bytes in one chunk of an export; a single larger entity is sent alone
EXPORT_CHUNK_BYTES: Final = 4 * 1024 * 1024
TABLE_CELL_CHARACTERS_MAX: Final = 80  #: characters of a value that a table of the command line shows
COLUMN_CHARACTERS_MIN: Final = 3  #: characters that a column keeps when a table is cut to the width of the terminal
DIFF_VALUES_SHOWN: Final = 1_000  #: changes that `omnigraph diff` shows with their values

# The history of an entity, and names of states
ENTITY_LOG_COMMITS: Final = 50  #: commits that the log of an entity lists unless a limit is given
ENTITY_LOG_STATES_MAX: Final = 2_000  #: states that the log or blame of an entity reads before it ends
ENTITY_LOG_RUN_COMMITS: Final = 65_536  #: commits that one bisection of an entity's history spans
COMMIT_ID_CHARACTERS_MIN: Final = 8  #: characters of a commit id that are taken for the whole
REVISION_CHARACTERS_MAX: Final = 256  #: characters of a text that names a state
AMBIGUOUS_COMMITS_SHOWN: Final = 5  #: commits that the error of an ambiguous id lists

# Loads
LOAD_SPLIT_BYTES: Final = 32 * 1024 * 1024  #: bytes of an input that one task of a load reads
#: bytes of one line of NDJSON that a load reads: an entity with blobs of up to 380 MiB
LOAD_LINE_BYTES_MAX: Final = 512 * 1024 * 1024
LOAD_CSV_ROW_BYTES_MAX: Final = 16 * 1024 * 1024  #: bytes of one row of a CSV file
#: bytes of each type up to which a load is held in memory, in any number of entities
LOAD_MEMORY_BYTES_MAX: Final = 8 * 1024 * 1024
LOAD_LOCAL_BYTES_MAX: Final = 1024 * 1024 * 1024  #: bytes of input up to which a load runs in process, without Spark
LOAD_ERRORS_MAX: Final = 1_000  #: entities that a load quarantines, by default (`max_errors`)
#: characters that a quarantine keeps of a rejected line; the rest is in the input
LOAD_REJECTED_CHARACTERS: Final = 65_536
LOAD_ROUNDS_MAX: Final = 16  #: rounds of checks by a load with quarantine after it rejected entities
#: keys that one task compares when a load is checked; more are split into ranges of hashes
LOAD_BUCKET_KEYS: Final = 16_000_000
LOAD_BUCKETS_MAX: Final = 1_024  #: ranges of hashes into which the keys of a load are split
LOAD_SUSPECTS_MAX: Final = 100_000  #: suspect entities that one rule of a load checks again
LOAD_WAVE_TASKS: Final = 1_000  #: tasks that a load submits to Spark at a time

# Inference of schemas
INFER_SKETCH_VALUES: Final = 65_536  #: distinct values of a column that an inference of a schema keeps, as hashes
INFER_PASS_VALUES: Final = 16_000_000  #: rows whose keys one pass of an inference compares
INFER_ENUM_VALUES_MAX: Final = 12  #: values of an enum that an inference proposes
INFER_KEY_COLUMNS_MAX: Final = 12  #: columns among which an inference looks for keys of several properties

# Analytics
ALGO_ROUNDS_MAX: Final = 1_000  #: rounds that one measure of graph analytics may take
ALGO_LOCAL_EDGES_MAX: Final = 100_000_000  #: edges up to which graph analytics run in process, without Spark
ALGO_BLOCK_NODES: Final = 4_000_000  #: nodes per task of graph analytics on Spark

# Spark
SPARK_MASTER_SECONDS_MAX: Final = 10  #: seconds in which a standalone Spark master must accept a connection
SPARK_BROADCAST_ROWS_MAX: Final = 100_000  #: entities up to which a query on Spark broadcasts a type
#: entities that one task of a DataFrame reads at most, unless `numPartitions` is set
SPARK_PARTITION_ROWS: Final = 262_144
SPARK_PARTITIONS_MAX: Final = 100_000  #: tasks that `numPartitions` may ask for

# Streams
STREAM_COMMITS: Final = 256  #: commits in one batch of a change feed on Spark, by default (`maxCommitsPerTrigger`)
STREAM_TASK_ROWS: Final = 1_000_000  #: entities added by one commit that one task of such a batch reads
STREAM_WINDOW_ROWS: Final = 8_192  #: entities whose images such a task reads at a time

# Server
SERVER_BODY_BYTES_MAX: Final = 1024 * 1024  #: bytes of the body of a request
#: bytes of the body of `POST /load`, and of a streamed load that is kept in memory
SERVER_LOAD_BODY_BYTES_MAX: Final = 32 * 1024 * 1024
#: bytes of a streamed load (`POST /load/ndjson`), beyond memory in a temporary file
SERVER_LOAD_STREAM_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
SERVER_LOAD_SECONDS_MAX: Final = 3_600  #: seconds that such a load from a file may take
#: seconds in which the body of a request has to arrive; of a streamed load, without a pause as long as this
SERVER_BODY_SECONDS_MAX: Final = 60
#: bytes a second at which the rest of a streamed load has to arrive
SERVER_BODY_BYTES_PER_SECOND_MIN: Final = 64 * 1024
SERVER_SPOOL_CHUNK_BYTES: Final = 1024 * 1024  #: bytes of it that are written to its file at a time
SERVER_HEADER_BYTES_MAX: Final = 65_536  #: bytes of the headers of a request
SERVER_HEADER_SECONDS_MAX: Final = 30  #: seconds in which they have to arrive
SERVER_CONNECTIONS_MAX: Final = 1_024  #: connections that a server holds; more get 503
SERVER_CONNECTIONS_PER_PEER_MAX: Final = 256  #: of these, connections from one address, by default
SERVER_SPARE_CONNECTIONS: Final = 32  #: connections beyond these that get one response; `/healthz` works on them
SERVER_FILES_MAX: Final = 1_024  #: files that a server may have open beside its connections
SERVER_IDLE_SECONDS_MAX: Final = 60  #: seconds that a connection may be idle between requests
SERVER_LINGER_SECONDS_MAX: Final = 5  #: seconds that a client may go on sending after its response
SERVER_QUEUE_MAX: Final = 128  #: requests of one actor that wait for a thread
SERVER_QUEUE_SECONDS_MAX: Final = 60  #: seconds that a request waits for a thread
SERVER_RETRY_AFTER_SECONDS: Final = 60  #: seconds after which an actor with too many requests may retry
SERVER_SMALL_WRITE_BYTES: Final = 256  #: bytes that a write without a large body counts for its actor
SERVER_STREAM_CHUNK_BYTES: Final = 65_536  #: bytes that a stream sends at a time
SERVER_STREAM_BYTES: Final = 262_144  #: bytes of transport that one stream reserves
SERVER_STREAMS_BYTES_MAX: Final = 2 * 1024 * 1024  #: bytes of transport that all streams of a server reserve
SERVER_STREAM_WAIT_SECONDS: Final = 0.25  #: seconds that a stream waits for its share of them
SERVER_STALL_SECONDS_MAX: Final = 60  #: seconds without progress after which the reader of a response is disconnected
#: average bytes per second that the reader of a response has to take, once it has stalled the server that long
SERVER_ANSWER_BYTES_PER_SECOND_MIN: Final = 16 * 1024
SERVER_EXPORTS_MAX: Final = 4  #: exports and baselines of one graph at a time
SERVER_EXPORTS_PER_ACTOR_MAX: Final = 1  #: of these, those of one actor
SERVER_FRONT_THREADS: Final = 4  #: threads that read the bodies of large writes before those are admitted
SERVER_RELOAD_SECONDS: Final = 5  #: seconds between checks of the token and policy files, or of the ledger of a cluster
#: checks after which a revision or graph that storage did not deliver is tried again, at the latest
SERVER_RELOAD_LOOKS_MAX: Final = 12
SERVER_HALF_CLOSED_SECONDS: Final = 0.2  #: seconds between checks whether a half-closed client has disconnected
SERVER_WRITE_SECONDS_MAX: Final = 90  #: seconds after which a write gets a response: not published, or unknown
SERVER_SHUTDOWN_SECONDS_MAX: Final = 30  #: seconds from the stop signal to the exit of a server
SERVER_ANSWER_SECONDS_MAX: Final = 20  #: of these, seconds for requests in flight to finish
SERVER_CANCEL_SECONDS_MAX: Final = 1  #: of these, seconds for cancelled work to stop
SERVER_CLOSE_SECONDS_MAX: Final = 4  #: of these, seconds for threads to end
#: threads for requests about the server itself, such as `/readyz`, which respond under load
SERVER_OWN_THREADS: Final = 2
SERVER_RECONCILE_SECONDS: Final = 60  #: seconds between background rounds of a server with `--reconcile`

# Policies, stored queries and configuration files
STORED_BREAKAGES_SHOWN_MAX: Final = 3  #: broken stored queries that the message of a rejected schema names
YAML_NESTING_MAX: Final = 64  #: depth of mappings and lists in a policy, cluster, pipeline or configuration file
POLICY_BYTES_MAX: Final = 1024 * 1024  #: bytes of a policy bundle, or of its tests
TOKENS_BYTES_MAX: Final = 4 * 1024 * 1024  #: bytes of a file of bearer tokens
POLICY_PROBLEMS_SHOWN: Final = 20  #: problems of a bundle that a message shows; its context has all
POLICY_ANSWERS_MAX: Final = 16_384  #: cached decisions of a policy
BRANCH_NAMES_CACHED_MAX: Final = 16_384  #: deleted branches whose names an opened graph caches
CLUSTER_CONFIG_BYTES_MAX: Final = 1024 * 1024  #: bytes of a `cluster.yaml`
PIPELINE_CONFIG_BYTES_MAX: Final = 1024 * 1024  #: bytes of a file of pipelines

# Declared pipelines
PIPELINE_DELETED_KEYS_MAX: Final = 10_000  #: entities that one commit of a pipeline's deletes removes
#: rows of a Parquet file in an object store that a task of a pipeline reads at once
PIPELINE_S3_BATCH_ROWS: Final = 65_536
PIPELINE_SNAPSHOT_KEYS_MAX: Final = 16_777_216  #: entities of a type that `mode: snapshot` compares in the driver
#: how far in the future a watermark of a pipeline may be before its report warns of it
PIPELINE_AHEAD_SECONDS_MAX: Final = 86_400
PIPELINE_LEDGER_FILES_MAX: Final = 1_000_000  #: files of a pipeline's incremental sources that are remembered as read
PIPELINE_PENDING_ROWS_MAX: Final = 10_000  #: edges of a pipeline that wait for a missing end
PIPELINE_REJECTED_RUNS_MAX: Final = 100  #: runs of a pipeline whose rejected rows are kept

# Schedules
SCHEDULE_POLL_SECONDS: Final = 1  #: seconds between checks of the clock and its runs by `pipeline schedule`
SCHEDULE_FOLLOW_SECONDS: Final = 10  #: seconds between its checks for changed declarations
SCHEDULE_RUNS_MAX: Final = 4  #: pipelines that it runs at once, without `--parallel`
#: missed runs of a pipeline that `catch_up: all` makes up for; older ones are skipped
SCHEDULE_CATCH_UP_MAX: Final = 1_000
SCHEDULE_GRACE_SECONDS: Final = 60  #: lateness up to which a run counts as on time for `catch_up: none`
SCHEDULE_AHEAD_SECONDS_MAX: Final = 3_600  #: how far in the future `--scheduled-for` may be, for clocks that differ
SCHEDULE_RETRIES_MAX: Final = 100  #: largest `retries` of a schedule
SCHEDULE_RETRY_SECONDS_MAX: Final = 3_600  #: longest pause between retries, which doubles each time
SCHEDULE_STOP_SECONDS: Final = 25  #: seconds that its runs have to finish when it is stopped
METRICS_CLIENT_SECONDS_MAX: Final = 10  #: seconds without a byte after which `--metrics-port` disconnects a client
LINEAGE_TIMEOUT_SECONDS: Final = 5  #: timeout of sending a lineage event

# Clusters
CLUSTER_WATCH_SECONDS: Final = 30  #: seconds between checks by `cluster refresh --watch`
LOCK_ATTEMPTS: Final = 8  #: attempts to take the free lock of a cluster or schedule before others count as faster
#: objects of a graph that `cluster apply` deletes before it checks again that it holds the lock
CLUSTER_DELETE_OBJECTS: Final = 500
SERVER_OPENING_GRAPHS: Final = 4  #: graphs of a cluster that a server opens at once

# Maintenance on Spark
#: stored bytes of a type up to which `optimize` works on it in process, without Spark
MAINTAIN_LOCAL_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
#: entities of a branch up to which `verify` checks it in process, without Spark
MAINTAIN_LOCAL_ROWS_MAX: Final = 50_000_000
#: entities that one task of an optimize on Spark indexes, or that one of a verify compares
MAINTAIN_TASK_ROWS: Final = 4_194_304

# Client
CLIENT_ATTEMPTS_MAX: Final = 4  #: attempts of a client per request
CLIENT_BACKOFF_MILLISECONDS: Final = 100  #: milliseconds before its first retry; doubles with each
CLIENT_WAIT_SECONDS_MAX: Final = 10  #: longest backoff in seconds; a longer `Retry-After` of a server is honoured
CLIENT_TIMEOUT_SECONDS: Final = 120  #: seconds that it waits for a response, by default
CLIENT_PART_BYTES: Final = 256 * 1024  #: bytes of a file that it sends at a time

# Clones and copies
CLONE_BATCH_FILES: Final = 1_000  #: files that a clone copies in one batch
CLONE_ATTEMPTS_MAX: Final = 5  #: attempts of a clone when a cleanup of the source removes files meanwhile
COPY_CHUNK_BYTES: Final = 8 * 1024 * 1024  #: bytes of a file that a copy holds in memory

# Checks of a store
DOCTOR_RACE_WRITERS: Final = 8  #: writers that `omnigraph doctor` lets create the same object at once
DOCTOR_RACE_ROUNDS: Final = 3  #: how often `omnigraph doctor` repeats that race
#: seconds by which the clocks of machine and store may differ before `omnigraph doctor` warns
DOCTOR_CLOCK_SECONDS: Final = 60

# Hard drops
PURGE_BATCH_BYTES: Final = 64 * 1024 * 1024  #: bytes of files that a cleanup rewrites at a time after a hard drop
