"""Routes that change a graph: mutations, loads, schema, branches, merges and tags; each is at most one commit.

Thin: the graph knows how, and its policy who may.
"""

from __future__ import annotations

import re
from typing import Any, Final

from omnigraph.engine.history import describe_tag
from omnigraph.engine.schema_apply import apply, plan
from omnigraph.engine.write.write_receipts import IngestReceipt, MutationReceipt
from omnigraph.errors import UsageError
from omnigraph.lang.source import Source
from omnigraph.server import wire
from omnigraph.server.responses import Answer, Call, instant_of, json_answer, receipt_answer

COMMIT_ID: Final = re.compile(r"[0-9A-Za-z]{1,64}")


def mutate(call: Call[wire.Mutate]) -> Answer:
    refuse_condition(call)
    return receipt_answer(_mutate(call, None))


def mutate_if(call: Call[wire.Mutate]) -> Answer:
    return receipt_answer(_mutate(call, condition(call)))


def _mutate(call: Call[wire.Mutate], if_commit: str | None) -> MutationReceipt:
    given = call.given
    return call.graph.mutate(given.query, given.name, given.params, given.branch, if_commit)


def refuse_condition(call: Call[Any]) -> None:
    """Refuse a condition where it would not be looked at, because a caller relies on it."""
    if call.headers.get(wire.IF_COMMIT.lower()):
        raise UsageError(f"`{wire.IF_COMMIT}` is not taken here; send the request to the route `…/if-graph-commit`")


def condition(call: Call[Any]) -> str:
    """Return the commit that the branch has to be at."""
    values = call.headers.get(wire.IF_COMMIT.lower(), ())
    if len(values) != 1 or not COMMIT_ID.fullmatch(values[0].strip()):
        raise UsageError(
            f"this route takes the header `{wire.IF_COMMIT}` once, with the id of one commit and nothing else"
        )
    return values[0].strip()


def load(call: Call[wire.Load]) -> Answer:
    given = call.given
    return receipt_answer(_ingest(call, given.data.encode(), given), uri=call.uri)


def load_lines(call: Call[wire.LoadLines]) -> Answer:
    return receipt_answer(_ingest(call, call.body, call.given))


def _ingest(call: Call[Any], data: bytes, given: wire.Load | wire.LoadLines) -> IngestReceipt:
    return call.graph.ingest(data, given.mode, given.branch, given.from_)


# A schema in a request is always a text: the facade would take some texts for paths of the server's own files.


def schema_plan(call: Call[wire.NewSchema]) -> Answer:
    given = call.given
    return json_answer(
        plan(call.graph.session, Source("schema.pg", given.schema_source), given.allow_data_loss).to_json()
    )


def schema_apply(call: Call[wire.NewSchema]) -> Answer:
    given, session = call.given, call.graph.session
    check = call.hosted.queries.reject_breakage
    receipt = apply(session, Source("schema.pg", given.schema_source), given.allow_data_loss, call.actor, check)
    return receipt_answer(receipt, uri=call.uri)


def create_branch(call: Call[wire.NewBranch]) -> Answer:
    given = call.given
    at = given.snapshot if given.as_of is None else instant_of(given.as_of)
    made = call.graph.branches.create(given.name, given.from_, at)
    return json_answer({"uri": call.uri, "from": given.from_, "name": made.name, "actor_id": call.actor})


def rename_branch(call: Call[wire.Rename]) -> Answer:
    given = call.given
    made = call.graph.branches.rename(given.name, given.new_name)
    return json_answer({"uri": call.uri, "from": given.name.strip(), "name": made.name, "actor_id": call.actor})


def delete_branch(call: Call[wire.Nothing]) -> Answer:
    name = call.path["branch"]
    call.graph.branches.delete(name)
    return json_answer({"uri": call.uri, "name": name.strip(), "actor_id": call.actor})


def merge(call: Call[wire.Merge]) -> Answer:
    given = call.given
    receipt = call.graph.branches.merge(
        given.source, given.target, given.delete_branch, given.dry_run, given.resolutions
    )
    return receipt_answer(receipt)


def revert(call: Call[wire.Replay]) -> Answer:
    given = call.given
    receipt = call.graph.revert(given.commit, given.branch, dry_run=given.dry_run, resolutions=given.resolutions)
    return receipt_answer(receipt)


def cherry_pick(call: Call[wire.Replay]) -> Answer:
    given = call.given
    receipt = call.graph.cherry_pick(given.commit, given.branch, dry_run=given.dry_run, resolutions=given.resolutions)
    return receipt_answer(receipt)


def create_tag(call: Call[wire.NewTag]) -> Answer:
    given = call.given
    at = given.at if given.as_of is None else instant_of(given.as_of)
    made = call.graph.tags.create(given.name, at, given.branch)
    return json_answer({"uri": call.uri, **describe_tag(made)})


def delete_tag(call: Call[wire.Nothing]) -> Answer:
    name = call.path["tag"]
    call.graph.tags.delete(name)
    return json_answer({"uri": call.uri, "name": name.strip(), "actor_id": call.actor})
