"""Changes: what differs between two states of a graph, and the feed of what every commit did.

Reads only; merges are built on the comparison of rows that lives here.
"""
