"""Maintenance: compaction, removal of old versions, repair after foreign tools, and checks of health.

May import the ground, the languages, the store, the kernel and indexes. Nothing here changes what the graph says.
"""
