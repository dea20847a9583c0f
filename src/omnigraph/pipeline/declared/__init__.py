"""Declared pipelines: sources, SQL, a mapping to types and expectations in YAML, run on Spark and published once.

In the order of a run: `document` and `config` parse the declaration, `sources` reads what is new, `transform` runs the
SQL and maps columns, `check` judges the rows, and validates a pipeline without running it, `run` loads them, and
`load_branch` asks the queries on the branch of the load and merges it. `runs` reads earlier runs from their commits.
"""
