"""Routes that change a graph: mutations, loads, schema, branches, merges and tags; each is at most one commit.

Thin: the graph does the work and enforces its policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from omnigraph import wire
from omnigraph.engine.authorization import on_target
from omnigraph.engine.load.load import load as load_input
from omnigraph.errors import GraphError, OmniGraphError, UsageError
from omnigraph.graph import session_of
from omnigraph.public_values import IngestReceipt
from omnigraph.server.responses import Call, Handler, Response, arguments, json_response, receipt_response

COMMIT_ID: Final = re.compile(r"[0-9A-Za-z]{1,64}")


def mutate(call: Call[wire.Mutate]) -> Response:
    reject_condition(call)
    return receipt_response(call.graph.mutate(**arguments(call.input)))


def mutate_if(call: Call[wire.Mutate]) -> Response:
    return receipt_response(call.graph.mutate(**arguments(call.input), if_commit=required_commit(call)))


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
    return receipt_response(_load(call, call.input.data.encode()), uri=call.uri)


def load_lines(call: Call[wire.LoadLines]) -> Response:
    return receipt_response(_load(call, call.body))


def _load(call: Call[Any], data: bytes | Path) -> IngestReceipt:
    """Load in this process, whatever the size: a server starts no Spark."""
    options = {**arguments(call.input), "data": data}
    session = session_of(call.graph).with_message(options.pop("message", None))
    with _without_path(str(data)) if isinstance(data, Path) else nullcontext():
        return load_input(session, **options).receipt


@contextmanager
def _without_path(path: str) -> Iterator[None]:
    """Call the file of a body `the input` in errors, because the client never saw it."""
    try:
        yield
    except OmniGraphError as error:
        error.message = error.message.replace(f"`{path}`", "the input").replace(path, "the input")
        if error.context.get("path") == path:
            del error.context["path"]
        raise


def schema_apply(call: Call[wire.ApplySchema]) -> Response:
    if call.served.is_managed:
        session_of(call.graph).require("schema_apply", on_target(call.input.branch))
        raise GraphError(
            "this graph belongs to a cluster; change its folder and run `omnigraph cluster apply`",
            code="cluster.managed",
        )
    return receipt_response(call.graph.schema.apply(**arguments(call.input)), uri=call.uri)


def create_branch(call: Call[wire.NewBranch]) -> Response:
    branch = call.graph.branches.create(**arguments(call.input))
    return json_response({"uri": call.uri, "from": call.input.from_, "name": branch.name, "actor_id": call.actor})


def rename_branch(call: Call[wire.Rename]) -> Response:
    request = call.input
    branch = call.graph.branches.rename(request.name, request.new_name)
    return json_response({"uri": call.uri, "from": request.name.strip(), "name": branch.name, "actor_id": call.actor})


def delete_branch(call: Call[wire.NoInput]) -> Response:
    name = call.path["branch"]
    call.graph.branches.delete(name)
    return json_response({"uri": call.uri, "name": name.strip(), "actor_id": call.actor})


def receipt_of(method: str) -> Handler:
    """Return the handler of a route that runs a method of the graph which may commit."""
    return lambda call: receipt_response(attrgetter(method)(call.graph)(**arguments(call.input)))


def create_tag(call: Call[wire.NewTag]) -> Response:
    tag = call.graph.tags.create(**arguments(call.input))
    return json_response({"uri": call.uri, **tag.to_json()})


def delete_tag(call: Call[wire.NoInput]) -> Response:
    name = call.path["tag"]
    call.graph.tags.delete(name)
    return json_response({"uri": call.uri, "name": name.strip(), "actor_id": call.actor})
