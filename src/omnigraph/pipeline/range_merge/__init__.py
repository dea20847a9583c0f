"""Merges on Spark, range of ids by range of ids."""
