"""Routes that change a graph: mutations, loads, schema, branches, merges and tags; each is at most one commit.

Thin: the graph does the work and enforces its policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from omnigraph import wire
from omnigraph.engine.authorization import on_target
from omnigraph.engine.load.ingest import load as load_any_size
from omnigraph.engine.load.ingest import without_path
from omnigraph.engine.schema import apply, plan
from omnigraph.errors import GraphError, UsageError
from omnigraph.graph import session_of
from omnigraph.lang.diagnostic import Source
from omnigraph.public_values import IngestReceipt, MergeReceipt, MutationReceipt
from omnigraph.server.responses import Call, Response, json_response, receipt_response, requested_state

COMMIT_ID: Final = re.compile(r"[0-9A-Za-z]{1,64}")


def mutate(call: Call[wire.Mutate]) -> Response:
    reject_condition(call)
    return receipt_response(_mutate(call, None))


def mutate_if(call: Call[wire.Mutate]) -> Response:
    return receipt_response(_mutate(call, required_commit(call)))


def _mutate(call: Call[wire.Mutate], if_commit: str | None) -> MutationReceipt:
    request = call.input
    return call.graph.mutate(
        Source("query.gq", request.query),
        request.params,
        name=request.name,
        branch=request.branch,
        if_commit=if_commit,
        message=request.message,
        dry_run=request.dry_run,
    )


def reject_condition(call: Call[Any]) -> None:
    """Reject a condition on routes that would ignore it."""
    if call.headers.get(wire.IF_COMMIT.lower()):
        raise UsageError(f"`{wire.IF_COMMIT}` is not supported here; send the request to the route `…/if-graph-commit`")


def required_commit(call: Call[Any]) -> str:
    """Return the expected head of the branch."""
    values = call.headers.get(wire.IF_COMMIT.lower(), ())
    if len(values) != 1 or not COMMIT_ID.fullmatch(values[0].strip()):
        raise UsageError(f"this route needs the header `{wire.IF_COMMIT}` once, with the id of one commit")
    return values[0].strip()


def load(call: Call[wire.Load]) -> Response:
    request = call.input
    return receipt_response(_load(call, request.data.encode(), request), uri=call.uri)


def load_lines(call: Call[wire.LoadLines]) -> Response:
    return receipt_response(_load(call, call.body, call.input))


def _load(call: Call[Any], data: bytes | Path, request: wire.Load | wire.LoadLines) -> IngestReceipt:
    """Load in this process, whatever the size: a server starts no Spark."""
    with without_path(str(data)) if isinstance(data, Path) else nullcontext():
        return load_any_size(
            session_of(call.graph).with_message(request.message),
            data,
            None,
            None,
            mode=request.mode,
            on_duplicate=request.on_duplicate,
            branch=request.branch,
            from_branch=request.from_,
        )


# A schema in a request is always source text: `Graph` would treat some strings as paths of files on the server.


def schema_plan(call: Call[wire.NewSchema]) -> Response:
    request = call.input
    return json_response(
        plan(
            session_of(call.graph), Source("schema.pg", request.schema_source), request.allow_data_loss, request.branch
        ).to_json()
    )


def schema_apply(call: Call[wire.ApplySchema]) -> Response:
    request = call.input
    session = session_of(call.graph).with_message(request.message)
    if call.served.is_managed:
        session.require("schema_apply", on_target(request.branch))
        raise GraphError(
            "this graph belongs to a cluster; change its folder and run `omnigraph cluster apply`",
            code="cluster.managed",
        )
    source = Source("schema.pg", request.schema_source)
    receipt = apply(session, source, request.allow_data_loss, branch=request.branch, allow_drops=request.allow_drops)
    return receipt_response(receipt, uri=call.uri)


def create_branch(call: Call[wire.NewBranch]) -> Response:
    request = call.input
    at = requested_state(request.at, request.snapshot, request.as_of)
    branch = call.graph.branches.create(request.name, request.from_, at=at)
    return json_response({"uri": call.uri, "from": request.from_, "name": branch.name, "actor_id": call.actor})


def rename_branch(call: Call[wire.Rename]) -> Response:
    request = call.input
    branch = call.graph.branches.rename(request.name, request.new_name)
    return json_response({"uri": call.uri, "from": request.name.strip(), "name": branch.name, "actor_id": call.actor})


def delete_branch(call: Call[wire.NoInput]) -> Response:
    name = call.path["branch"]
    call.graph.branches.delete(name)
    return json_response({"uri": call.uri, "name": name.strip(), "actor_id": call.actor})


def merge(call: Call[wire.Merge]) -> Response:
    request = call.input
    receipt = call.graph.branches.merge(
        request.source,
        request.target,
        delete_branch=request.delete_branch,
        dry_run=request.dry_run,
        resolutions=request.resolutions,
        message=request.message,
    )
    return receipt_response(receipt)


def revert(call: Call[wire.Replay]) -> Response:
    return _replay(call, call.graph.revert)


def cherry_pick(call: Call[wire.Replay]) -> Response:
    return _replay(call, call.graph.cherry_pick)


def _replay(call: Call[wire.Replay], replay: Callable[..., MergeReceipt]) -> Response:
    request = call.input
    receipt = replay(
        request.commit,
        request.branch,
        dry_run=request.dry_run,
        resolutions=request.resolutions,
        message=request.message,
    )
    return receipt_response(receipt)


def create_tag(call: Call[wire.NewTag]) -> Response:
    request = call.input
    at = requested_state(request.at, None, request.as_of)
    tag = call.graph.tags.create(request.name, at, branch=request.branch)
    return json_response({"uri": call.uri, **tag.to_json()})


def delete_tag(call: Call[wire.NoInput]) -> Response:
    name = call.path["tag"]
    call.graph.tags.delete(name)
    return json_response({"uri": call.uri, "name": name.strip(), "actor_id": call.actor})
