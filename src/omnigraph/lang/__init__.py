"""The languages: `.pg` schemas, migrations between them, and `.gq` queries.

Pure: no I/O, no clock, no randomness. May import the ground modules only.
"""
