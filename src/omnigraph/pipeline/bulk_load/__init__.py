"""Bulk load: an input of any size as one commit. Start reading at `api.load`.

The driver plans, compares and publishes; tasks, in threads or on Spark executors, do everything that grows with the
input. In the order of a load:

1. `api`: validate the arguments (`job.LoadOptions`), authorize the write, choose threads or Spark, and look for an
   earlier run of the job, by the digest of the input.
2. `splits`: find the input files and cut them into splits, one per task; DataFrames are written to files first.
3. `transaction`: declare an intent, so that a sweep can remove the files of a killed driver, and plan the `job`: the
   values that every task gets.
4. `stage_split`: per split, read rows (`read_split`, with `column_mapping`), make missing vectors, check row rules,
   write data fragments, and write the hashes of ids, edge endpoints and unique values as sorted key segments
   (`pipeline.key_buckets`, which a merge on ranges uses too).
5. `staged_input`: what was staged, seen from the driver; `KeyMatcher` runs one task per range of hashes.
6. `matching`: per range of hashes, find superseded rows of the input, committed rows that the input replaces, and the
   candidates of violations across rows.
7. `set_checks`: fetch the candidates and run the ordinary rules on them, so that errors are those of an ingest.
8. `transaction` again: reject or raise, mark replaced rows as deleted, publish one commit, remove temporary files.
9. `job.LoadReport`: the result for the caller, `report.json`, and the rejected lines.
"""
