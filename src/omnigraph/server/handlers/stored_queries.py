"""Routes of stored queries: the catalog, and calls by name.

A query that is not there and one that the caller may not call look the same.
"""

from __future__ import annotations

from omnigraph.engine.query.budget import Budget
from omnigraph.engine.session import GraphSession, View
from omnigraph.errors import GraphError, PolicyDenied, UsageError
from omnigraph.server import wire
from omnigraph.server.auth import refuse_hopeless
from omnigraph.server.handlers.reads import rows_answer, target_of
from omnigraph.server.handlers.writes import condition, refuse_condition
from omnigraph.server.responses import Answer, Call, json_answer, moment_of, receipt_answer
from omnigraph.stored_queries import StoredQuery


def catalog(call: Call[wire.Nothing]) -> Answer:
    """List the stored queries that the caller may call and whose types they may see.

    Broken ones are listed for those who may see all types.
    """
    session, stored = call.graph.session, call.hosted.stored()
    listed = [one.to_json() for one in stored.list(session.view().catalog) if _is_callable(call, one)]
    broken = [one.to_json() for one in stored.broken] if _sees_all(session) else []
    return json_answer({"queries": listed, "broken": broken})


def _is_callable(call: Call[wire.Nothing], stored: StoredQuery) -> bool:
    """Tell whether the policy lets the caller call a query on any branch at all."""
    try:
        for action in ("invoke_query", "change" if stored.mutation else "read"):
            refuse_hopeless(call.hosted.checker, call.actor, action)
    except PolicyDenied:
        return False
    return True


def unknown() -> GraphError:
    """Return the one error for a stored query that is not there, or that the caller may not call."""
    return GraphError(
        "stored query not found, or you may not call it: that needs `invoke_query` in the policy of the graph;"
        " `GET /queries` lists those that you may call",
        code="query.not_found",
    )


def is_mutation(call: Call[wire.Invoke]) -> bool:
    """Return the kind of the stored query that a request names."""
    found = call.hosted.queries.is_mutation(call.path["name"])
    if found is None:
        raise unknown()
    return found


def find(call: Call[wire.Invoke]) -> StoredQuery:
    """Return the stored query that a request names, as the accepted schema has it now."""
    name, stored = call.path["name"], call.hosted.stored()
    found = stored.get(name)
    if found is not None:
        return found
    broken = next((one for one in stored.broken if one.name == name), None)
    # What it touches is not known, and its text may name what is hidden from the caller.
    if broken is None or not _sees_all(call.graph.session):
        raise unknown()
    raise GraphError(
        f"the stored query does not compile against the accepted schema: {broken.render()}. Nothing was done; ask the"
        " operator of the server to change it",
        code="query.broken",
        query=broken.to_json(),
    )


def _sees_all(session: GraphSession) -> bool:
    return not session.hidden(session.kernel.snapshot())


def invoke(call: Call[wire.Invoke]) -> Answer:
    refuse_condition(call)
    return _run(call, None)


def invoke_if(call: Call[wire.Invoke]) -> Answer:
    return _run(call, condition(call))


def _run(call: Call[wire.Invoke], if_commit: str | None) -> Answer:
    stored, given = find(call), call.given
    word = "a mutation" if stored.mutation else "a read"
    if given.expect_mutation is not None and given.expect_mutation != stored.mutation:
        raise UsageError(f"`{stored.name}` is {word}, which is not what the caller expects")
    if not stored.mutation:
        if if_commit is not None:
            raise UsageError(f"`{stored.name}` is a read, and only a mutation takes a condition")
        branch, at = moment_of(given)
        _refuse_hidden(stored, call.graph.session.view(branch, at, names=given.names))
        result = call.graph.query(
            stored.source,
            stored.name,
            given.params,
            branch,
            at,
            names=given.names,
            budget=Budget(cancel=call.cancel),
        )
        return rows_answer(call, result, target_of(given, branch))
    if given.snapshot is not None or given.as_of is not None:
        raise UsageError(f"`{stored.name}` is a mutation, which works on a branch and not on a snapshot")
    _refuse_hidden(stored, call.graph.session.view(given.branch or "main", action="change"))
    receipt = call.graph.mutate(stored.source, stored.name, given.params, given.branch or "main", if_commit)
    return receipt_answer(receipt)


def _refuse_hidden(stored: StoredQuery, seen: View) -> None:
    """Hide a query of types that the caller may not see; the compiler would quote its text."""
    if not stored.is_visible(seen.catalog):
        raise unknown()
