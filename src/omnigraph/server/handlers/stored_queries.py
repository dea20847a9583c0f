"""Routes of stored queries: the catalog, and calls by name.

A missing query and one that the caller may not call get the same error.
"""

from __future__ import annotations

from omnigraph import wire
from omnigraph.engine.session import GraphSession, View
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied, UsageError
from omnigraph.graph import session_of
from omnigraph.server.auth import deny_early
from omnigraph.server.handlers.reads import rows_response, run_query
from omnigraph.server.handlers.writes import reject_condition, required_commit
from omnigraph.server.responses import Call, Response, arguments, json_response, receipt_response, requested_state
from omnigraph.stored_queries import StoredQuery


def catalog(call: Call[wire.NoInput]) -> Response:
    """List the stored queries that the caller may call and whose types they may see.

    Broken queries are listed for callers who may see all types.
    """
    session, stored = session_of(call.graph), call.served.stored()
    queries = [query.to_json() for query in stored.list(session.view().catalog) if _is_callable(call, query)]
    broken = [query.to_json() for query in stored.broken] if _sees_all_types(session) else []
    return json_response({"queries": queries, "broken": broken})


def _is_callable(call: Call[wire.NoInput], stored: StoredQuery) -> bool:
    """Return True if the policy allows the caller to run a query on any branch."""
    try:
        for action in ("invoke_query", "change" if stored.mutation else "read"):
            deny_early(call.served.checker, call.actor, action)
    except PolicyDenied:
        return False
    return True


def unknown_query() -> GraphError:
    """Return the error for a stored query that does not exist, or that the caller may not call."""
    return GraphError(
        "the stored query does not exist, or the policy does not let you call it: that takes `invoke_query`, and `read`"
        " or `change` of its types. `GET /queries` lists those that you may call",
        code="query.not_found",
    )


def is_mutation(call: Call[wire.Invoke]) -> bool:
    """Return the kind of the stored query that a request names."""
    is_stored_mutation = call.served.queries.is_mutation(call.path["name"])
    if is_stored_mutation is None:
        raise unknown_query()
    return is_stored_mutation


def find_query(call: Call[wire.Invoke]) -> StoredQuery:
    """Return the stored query that a request names, compiled against the current schema."""
    name, stored = call.path["name"], call.served.stored()
    query = stored.get(name)
    if query is not None:
        return query
    broken = next((query for query in stored.broken if query.name == name), None)
    # What it touches is not known, and its text may name what is hidden from the caller.
    if broken is None or not _sees_all_types(session_of(call.graph)):
        raise unknown_query()
    raise GraphError(
        f"the stored query does not compile against the accepted schema: {broken.render()}. Nothing was done; ask the"
        " operator of the server to change it",
        code="query.broken",
        query=broken.to_json(),
    )


def _sees_all_types(session: GraphSession) -> bool:
    return not session.hidden(session.kernel.snapshot())


def invoke(call: Call[wire.Invoke]) -> Response:
    stored = _visible_query(call)
    reject_condition(call)
    return _run_stored(call, stored, None)


def invoke_if(call: Call[wire.Invoke]) -> Response:
    return _run_stored(call, _visible_query(call), required_commit(call))


def _run_stored(call: Call[wire.Invoke], stored: StoredQuery, if_commit: str | None) -> Response:
    request = call.input
    word = "a mutation" if stored.mutation else "a read"
    if request.expect_mutation is not None and request.expect_mutation != stored.mutation:
        raise UsageError(f"`{stored.name}` is {word}, but `expect_mutation` says otherwise")
    if not stored.mutation:
        if if_commit is not None or request.message is not None:
            raise UsageError(f"`{stored.name}` is a read; only a mutation can have a condition or a message")
        options = {name: getattr(request, name) for name in ("params", "branch", "at", "snapshot", "as_of", "names")}
        return rows_response(call, *run_query(call, wire.Query(query=stored.source, name=stored.name, **options)))
    if requested_state(request) is not None:
        raise UsageError(f"`{stored.name}` is a mutation; it needs a branch, not a past state")
    branch, message = request.branch or "main", request.message
    mutation = wire.Mutate(query=stored.source, name=stored.name, params=request.params, branch=branch, message=message)
    return receipt_response(call.graph.mutate(**arguments(mutation), if_commit=if_commit))


def _visible_query(call: Call[wire.Invoke]) -> StoredQuery:
    """Return the stored query that a request names, unless it uses types that the caller may not see.

    Checked before anything else about the request: other errors would reveal the query's kind or quote its text.
    """
    stored = find_query(call)
    session, action = session_of(call.graph), "change" if stored.mutation else "read"
    try:
        view = _requested_view(call, stored)
    except OmniGraphError:
        # If the requested state does not exist, main decides about visibility, as in the catalog.
        if stored.is_visible(session.visible_view(session.kernel.snapshot(), action).catalog):
            raise
        raise unknown_query() from None
    if not stored.is_visible(view.catalog):
        raise unknown_query()
    return stored


def _requested_view(call: Call[wire.Invoke], stored: StoredQuery) -> View:
    if stored.mutation:
        return session_of(call.graph).view(call.input.branch or "main", action="change")
    options = arguments(call.input)
    return session_of(call.graph).view(**{name: options[name] for name in ("branch", "at", "names") if name in options})
