"""Routes that stream or page: export, baseline, the feed of a branch, and the changes of one commit.

Streams are made as their reader takes them; nothing runs ahead of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from omnigraph.errors import GraphError, PolicyDenied
from omnigraph.limits import CHANGE_PAGE_CHANGES, FEED_COMMITS
from omnigraph.server import wire
from omnigraph.server.responses import Call, Response, json_response, read_target


def export(call: Call[wire.Export]) -> Response:
    branch, at = read_target(call.input)
    return _stream(call, lambda: call.graph.export(branch, at, call.input.type_names, names=call.input.names))


def baseline(call: Call[wire.Baseline]) -> Response:
    request = call.input
    return _stream(call, lambda: call.graph.baseline(request.branch, **request.filters))


def _stream(call: Call[Any], start: Callable[[], Iterator[bytes]]) -> Response:
    """Return a stream that holds a cut of its graph until it ends."""
    give_back = call.served.exports.take(call.caller)
    try:
        chunks = start()
    except BaseException:
        give_back()
        raise
    return Response(chunks, wire.NDJSON, end=give_back)


def changes(call: Call[wire.Changes]) -> Response:
    request = call.input
    page = call.graph.changes(
        request.branch,
        start=request.start,
        cursor=request.cursor,
        page_token=request.page_token,
        **request.filters,
        limit=CHANGE_PAGE_CHANGES if request.limit is None else request.limit,
        commits_max=FEED_COMMITS if request.max_commits is None else request.max_commits,
    )
    return json_response(page.to_json())


def commit_changes(call: Call[wire.CommitChanges]) -> Response:
    request, commit_id = call.input, call.path["commit_id"]
    try:
        page = call.graph.commit_changes(
            commit_id,
            **request.filters,
            limit=CHANGE_PAGE_CHANGES if request.limit is None else request.limit,
            page_token=request.page_token,
            names=request.names,
        )
    except PolicyDenied:
        # Do not reveal that the commit exists to actors that may not read its branch.
        raise unknown_commit(commit_id) from None
    return json_response(page.to_json())


def unknown_commit(commit_id: str) -> GraphError:
    """Return the error of a commit that is not there, in the words of the library."""
    return GraphError(
        f"there is no commit {commit_id}; list them with `omnigraph commit list`",
        code="commit.not_found",
        commit_id=commit_id,
    )
