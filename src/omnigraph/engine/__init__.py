"""The engine: reads, writes, branches, merges, changes, schema, indexes, maintenance and blobs.

May import everything below it: the ground, `lang`, `store`, `manifest` and `rules`.
"""
