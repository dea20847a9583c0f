"""The catalog: snapshots, branches, the commit DAG, and `publish`, the only way to change a graph.

May import the ground, `lang` and `store`.
"""
