"""Declared pipelines: sources, SQL, a mapping to types and expectations in YAML, run on Spark and published once.

In the order of a run: `document` and `config` parse the declaration, `sources` reads what is new, `transform` runs the
SQL and maps columns, `expectations` judges the rows, and `run` loads them to a branch, asks the queries there and
merges it. `progress` reads earlier runs from their commits, and `check` validates a pipeline without running it.
"""
