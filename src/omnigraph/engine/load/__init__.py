"""Load an input of any size as one commit. Start reading at `load.load`.

The driver plans, compares and publishes; tasks, where the session's runners choose, do everything that grows with the
input. In the order of a load:

1. `load`: validate the arguments (`job.LoadOptions`), authorize the write, choose where tasks run by what is known of
   the input, and look for an earlier run of the job, by the `digest` of the input. `ingest` is the same with bounds.
2. `plan_input`: any source as splits, one per task; what is no file is in memory or spooled (`engine.input.spool`).
3. `kept_rows`: which rows of a split (`engine.input.read_split`) are loaded: make missing vectors, check row rules.
4. `memory`: an input that is small enough is read in this thread; its rows are staged like those of a mutation.
5. `buckets`: tasks stage a larger one (`stage_split`): data fragments, and the hashes of ids, edge endpoints and unique
   values as sorted key segments (`engine.key_buckets`). An intent lets a sweep remove the files of a killed driver.
6. `key_matcher`, `matching`: one task per range of hashes finds superseded rows of the input, committed rows that it
   replaces, and candidates of violations across rows; `set_checks` fetches these for the ordinary rules.
7. `transaction`: ask the `staged_input` what is wrong with it, raise or reject (`quarantine`), publish one commit.
8. `report`: the result for the caller, `report.json`, and the rejected lines.
"""
