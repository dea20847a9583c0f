"""The kernel: catalog rows, snapshots, the commit DAG, and `publish`, the one door to a graph-visible change.

May import the ground, `lang` and `store`.
"""
