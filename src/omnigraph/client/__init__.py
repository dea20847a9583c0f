"""A graph over HTTP: the methods of an opened graph, blocking and asynchronous.

A surface: may import the ground, the shapes of the wire, and the values that an opened graph answers with.
"""

from omnigraph.client.graph import AsyncGraph, Graph, connect, connect_async, served_graphs

__all__ = ["AsyncGraph", "Graph", "connect", "connect_async", "served_graphs"]
