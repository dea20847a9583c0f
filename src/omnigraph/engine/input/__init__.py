"""Readers of inputs: NDJSON, CSV, Parquet and frames, as files in splits or as data in memory.

What a value, a null, a quote or a line number means is decided here, in whatever process the bytes are read.
"""
