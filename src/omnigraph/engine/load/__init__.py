"""Load an input of any size as one commit. Start reading at `load.load`.

The driver plans, compares and publishes; tasks, where the session's runners choose, do everything that grows with the
input. In the order of a load:

1. `ingest`: a small input is read, checked and written in memory, as a mutation is; what is larger goes on below.
2. `load`: validate the arguments (`job.LoadOptions`), authorize the write, choose where tasks run, and look for an
   earlier run of the job, by the `digest` of the input.
3. `engine.input.splits`: find the files and cut them into splits, one per task; frames are written to files first.
4. `transaction`: declare an intent, so that a sweep can remove the files of a killed driver, and plan the `job`: the
   values that every task gets.
5. `stage_split`: per split, read rows (`engine.input.read_split`), make missing vectors, check row rules, write data
   fragments, and write the hashes of ids, edge endpoints and unique values as sorted key segments
   (`engine.key_buckets`, which a merge on ranges uses too).
6. `staged_input`: what was staged, seen from the driver; `KeyMatcher` runs one task per range of hashes.
7. `matching`: per range of hashes, find superseded rows of the input, committed rows that the input replaces, and the
   candidates of violations across rows.
8. `set_checks`: fetch the candidates and run the ordinary rules on them, so that errors are those of an ingest.
9. `transaction` again: reject or raise, mark replaced rows as deleted, publish one commit, remove temporary files.
10. `job.LoadReport`: the result for the caller, `report.json`, and the rejected lines.
"""
