"""Naming in the past: an older state read with the schema of today, or with its own.

Pure. Types and properties are matched by identity, so a name always means what it means in the schema that is asked
with: a renamed type shows its older rows, one that was created since then has no rows, and a property that was added
since then is null. What was dropped for good is left out of every schema.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final, Literal, TypeAlias, get_args

import orjson

from omnigraph.engine.authorization import restrict_snapshot
from omnigraph.engine.catalog_diff import compare_columns
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.schema import SchemaIR
from omnigraph.lang.schema.codec import shape_hash
from omnigraph.lang.schema.restrict import restrict_ir, with_their_edges, without_properties
from omnigraph.manifest.model import AcceptedSchema, Pin, Purge, Snapshot, TypeIdentity
from omnigraph.store.read.column_projection import shape_of

Naming: TypeAlias = Literal["now", "then"]
NOW: Final[Naming] = "now"
THEN: Final[Naming] = "then"


def check_names(names: str) -> Naming:
    """Return which names a read uses; refuses anything but `now` and `then`."""
    if names not in get_args(Naming):
        raise UsageError(f"`names` is `now` or `then`, not `{names}`", value=str(names))
    return names  # type: ignore[return-value]  # just checked


def read_with(snapshot: Snapshot, then: Catalog, today: Snapshot, now: Catalog) -> Snapshot:
    """Return a state of the past as one of the schema of today; `then` and `now` are the catalogs of both."""
    stored = {pin.identity: pin for pin in snapshot.state.pins.values()}
    pins: dict[str, Pin] = {}
    for key, pin in today.state.pins.items():
        old = stored.get(pin.identity)
        if old is None:
            # It did not exist, so it has no rows; today's version lends its columns.
            pins[key] = replace(pin, row_count=0, shape=replace(pin.shape, is_empty=True))
            continue
        columns = compare_columns(then.type_of(old.table_key), now.type_of(key))
        pins[key] = replace(old, table_key=key, shape=shape_of(columns.renamed, columns.dropped, columns.added))
    state = replace(snapshot.state, schema=today.state.schema, pins=pins, tombstones=())
    return replace(snapshot, state=state)


def without_purged(snapshot: Snapshot, catalog: Catalog, purges: Collection[Purge]) -> Snapshot:
    """Return a state without what was dropped for good since: types, with their edges, and properties."""
    if not purges:
        return snapshot
    types = {purge.identity for purge in purges if purge.property_id is None}
    hidden = with_their_edges(
        catalog, {_name(key) for key, pin in snapshot.state.pins.items() if pin.identity in types}
    )
    gone = {(purge.identity, purge.property_id) for purge in purges}
    pins: dict[str, Pin] = {}
    dropped: set[int] = set()
    for key, pin in snapshot.state.pins.items():
        purged = [
            property_
            for property_ in catalog.type_of(key).properties.values()
            if (pin.identity, property_.property_id) in gone
        ]
        dropped |= {property_.property_id for property_ in purged}
        pins[key] = replace(pin, shape=shape_of({}, [property_.name for property_ in purged], [])) if purged else pin
    if not hidden and not dropped:
        return snapshot
    schema = _restricted(snapshot.state.schema, hidden, dropped)
    state = replace(snapshot.state, pins=pins)
    return restrict_snapshot(replace(snapshot, state=state), hidden, schema)


def names_today(then: Catalog, now: Catalog) -> dict[str, str | None]:
    """Return what each type of an older schema is called today; None for one that is gone."""
    today = {_identity(type_): type_.name for type_ in _types(now)}
    return {type_.name: today.get(_identity(type_)) for type_ in _types(then)}


def _types(catalog: Catalog) -> list[NodeType | EdgeType]:
    return [*catalog.nodes.values(), *catalog.edges.values()]


def _identity(type_: NodeType | EdgeType) -> TypeIdentity:
    return TypeIdentity(type_.type_id, type_.incarnation_id)


def _restricted(schema: AcceptedSchema, hidden: Collection[str], dropped: Collection[int]) -> AcceptedSchema:
    ir = restrict_ir(SchemaIR.from_json(orjson.loads(schema.ir)), frozenset(hidden))
    ir = without_properties(ir, frozenset(dropped))
    text = orjson.dumps(ir.to_json(), option=orjson.OPT_SORT_KEYS).decode()
    # The text is what people wrote then; it names what was dropped, and shows none of its values.
    return AcceptedSchema(schema.source, text, ir.hash, shape_hash(ir.shape))


def _name(table_key: str) -> str:
    return table_key.partition(":")[2]
