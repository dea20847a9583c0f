"""What is Spark's: session, Java runtime, tasks on executors, the data source, and DataFrames of diffs and queries.

The only importer of `pyspark`, beside the declared pipelines.
"""
