"""The HTTP server: routes over the graph API, with authentication, limits, admission control, metrics and logs.

Makes no decisions about data: the graph and its policy do.
"""
