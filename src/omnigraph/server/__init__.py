"""The HTTP server: routes over the facade, and what stands before them: tokens, limits, admission, metrics, logs.

A surface: it decides nothing that the graph or its policy does not.
"""
