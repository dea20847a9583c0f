"""Temporary files of keys in hash buckets: the distributed join of a load and of a merge on ranges.

Tasks hash keys and write them by bucket; one task per bucket then reads its part of all files. Equal keys have equal
hashes, so every pair of rows that may break a rule together meets in one bucket, and no process holds all keys.

- `hashes`: 64-bit hashes of columns, and set operations on sorted arrays of them.
- `files`: slices of files (tables and numbers), key segments, which a reader cuts into ranges of any size, the keys of
  a type that rules across rows compare, and the addresses of committed rows that are replaced.
"""
