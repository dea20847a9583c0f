"""What is left of a snapshot when some types are hidden: everything in it that would tell of them is taken out.

Pure; which types are hidden is the policy's to say.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import orjson

from omnigraph.lang.schema import SchemaIR
from omnigraph.lang.schema.encode import shape_hash
from omnigraph.lang.schema.restrict import restrict_ir, restrict_source
from omnigraph.manifest.model import ADOPTED, HARD_DROPS, AcceptedSchema, Commit, Snapshot


def restrict_snapshot(snapshot: Snapshot, hidden: Set[str], schema: AcceptedSchema) -> Snapshot:
    """Return a snapshot as of a graph that never had the hidden types; `schema` is what is left of its schema."""
    state = snapshot.state
    pins = {key: pin for key, pin in state.pins.items() if key.partition(":")[2] not in hidden}
    kept = {pin.ref.stored for pin in pins.values()}
    return replace(
        snapshot,
        state=replace(
            state,
            schema=schema,
            pins=pins,
            # A type that is gone has no rule any more that could allow to read its name.
            tombstones=(),
            commits=tuple(redact_commit(one) for one in state.commits),
        ),
        links=tuple(link for link in snapshot.links if link.ref in kept),
    )


# Properties of a commit that tell of types: which it dropped, and the forks of how many it took over.
_UNTOLD = frozenset({HARD_DROPS, ADOPTED})


def redact_commit(commit: Commit) -> Commit:
    """Return a commit without what it tells of types that may be hidden."""
    if _UNTOLD.isdisjoint(commit.properties):
        return commit
    return replace(commit, properties={key: value for key, value in commit.properties.items() if key not in _UNTOLD})


def restrict_schema(schema: AcceptedSchema, hidden: Set[str]) -> AcceptedSchema:
    """Return a schema without the hidden types."""
    ir = restrict_ir(SchemaIR.from_json(orjson.loads(schema.ir)), hidden)
    text = orjson.dumps(ir.to_json(), option=orjson.OPT_SORT_KEYS).decode()
    return AcceptedSchema(restrict_source(schema.source, hidden), text, ir.hash, shape_hash(ir.shape))
