"""Declared pipelines: sources, SQL, a mapping to types and expectations in YAML, run on Spark and published once.

In the order of a run: `declaration` parses the file, `sources` reads what is new, `transform` runs the SQL and maps
columns, `check` judges the rows, and validates a pipeline without running it, `run` loads them, and `load_branch` asks
the queries on the branch of the load and merges it. `history` reads earlier runs from their commits, and `scheduler`
starts runs when they are due.
"""
