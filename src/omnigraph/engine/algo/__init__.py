"""Graph analytics: degrees, components, PageRank and communities of one snapshot, as numpy arrays.

May import `engine.session`, `engine.write` and everything below the engine; knows nothing of Spark.
"""
