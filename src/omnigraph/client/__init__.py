"""A graph over HTTP: the methods of an opened graph, blocking and asynchronous.

Imports no engine code until a response needs it.
"""

from omnigraph.client.graph import AsyncGraph, Graph, connect, connect_async, served_graphs

__all__ = ["AsyncGraph", "Graph", "connect", "connect_async", "served_graphs"]
