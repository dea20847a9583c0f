"""The Spark pipeline: load, export, DataFrames, streams and queries; the only importer of `pyspark`.

May import the facade and everything below it.
"""
