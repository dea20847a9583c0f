"""Maintenance: optimize, cleanup, repair, verify and reconcile.

May import the ground, the languages, the store, the kernel and indexes. Nothing here changes the content of a graph.
"""
