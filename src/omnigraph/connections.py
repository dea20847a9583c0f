"""`connect`: open a graph wherever it is, on storage or on a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omnigraph.errors import UsageError
from omnigraph.limits import CLIENT_TIMEOUT_SECONDS


def connect(
    address: str | Path,
    *,
    token: str | None = None,
    graph: str | None = None,
    timeout: float | None = CLIENT_TIMEOUT_SECONDS,
    actor: str | None = None,
) -> Any:
    """Open a graph wherever it is: at a path, in an object store, or on a server.

    Args:
        address: A path or address, as for `og.open`, or the `http://` or `https://` address of a server or of
            one of its graphs.
        token: The bearer token for a server.
        graph: The id of a graph, if `address` is that of a server; omit it if that lists a single graph.
        timeout: Seconds to wait for a response of a server.
        actor: Who uses a graph that is opened here; a server knows the actor by the token.

    Returns:
        A `GraphProtocol`: an `og.Graph`, or a served graph, which has `queries` and `invoke` as well.

    Raises:
        GraphNotFound: There is no graph at this address.
        UsageError: An argument does not fit the address.

    Example:
        >>> with og.connect(path) as opened:
        ...     opened.get("Person", "Ada")["age"]
        36
    """
    if str(address).startswith(("http://", "https://")):
        from omnigraph import client

        if actor is not None:
            raise _misplaced("actor", "a server knows the actor by the token")
        return client.connect(str(address), token=token, graph=graph, timeout=timeout)
    from omnigraph.graph import open as open_graph

    for argument, value in (("token", token), ("graph", graph)):
        if value is not None:
            raise _misplaced(argument, "it is for servers, whose addresses look like `http://localhost:8080`")
    return open_graph(address, actor=actor)


def _misplaced(argument: str, reason: str) -> UsageError:
    return UsageError(f"`{argument}` does not fit this address: {reason}; omit it", argument=argument)
