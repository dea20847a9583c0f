"""Read past snapshots under today's schema, or under their own.

Pure. Types and properties are matched by identity: a renamed type shows its older rows under the new name, a type
created later has no rows, and a property added later is null in queries. Hard drops are left out of every schema.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa

from omnigraph.engine.authorization import restrict_snapshot
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog, Property, PropertyType, Type, TypeKey
from omnigraph.lang.migrate.plan import is_wider
from omnigraph.lang.schema import SchemaIR
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.lang.schema.ast import KINDS
from omnigraph.lang.schema.render import restrict_ir, with_property_types, with_their_edges, without_properties
from omnigraph.limits import CATALOG_CACHE_MAX
from omnigraph.manifest.model import AcceptedSchema, Pin, Purge, Snapshot, TypeIdentity
from omnigraph.rules.coerce import default_column
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.read.dataset import Shape, shape_of


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns of a dataset change. Names are those before the change, except for added fields."""

    added: tuple[pa.Field[Any], ...]
    dropped: tuple[str, ...]
    renamed: Mapping[str, str]

    @property
    def changed(self) -> bool:
        return bool(self.added or self.dropped or self.renamed)


@dataclass(frozen=True, slots=True)
class Reshaping:
    """Types grouped by their change, each in name order; `kept` pairs every old type with its successor."""

    added: tuple[Type, ...]
    kept: tuple[tuple[Type, Type], ...]
    dropped: tuple[Type, ...]


def compare(old: Catalog, new: Catalog) -> Reshaping:
    """Pair the types of two catalogs by identity."""
    before, after = _by_identity(old), _by_identity(new)
    return Reshaping(
        tuple(type_ for identity, type_ in after.items() if identity not in before),
        tuple((before[identity], type_) for identity, type_ in after.items() if identity in before),
        tuple(type_ for identity, type_ in before.items() if identity not in after),
    )


def compare_columns(old: Type, new: Type) -> Columns:
    """Pair the properties of two versions of a type by identity."""
    before = {property_.property_id: property_.name for property_ in old.properties.values()}
    after = {property_.property_id: property_.name for property_ in new.properties.values()}
    fields = physical_schema(arrow_schema(new))
    return Columns(
        tuple(fields.field(name) for identity, name in after.items() if identity not in before),
        tuple(name for identity, name in before.items() if identity not in after),
        {name: after[identity] for identity, name in before.items() if after.get(identity, name) != name},
    )


# Metadata of a column that a shape adds: one row with the value that stored entities get when the property is added.
ADDED_VALUE: Final = b"omnigraph:added-value"


def shape_under(stored: Type, type_: Type) -> Shape:
    """Return how rows that were stored for one version of a type read under another.

    Queries read an added property as null. Comparisons take the constant default of a required one instead, so that
    adding it changes no entity; see `row_diff.fill_added`.
    """
    columns = compare_columns(stored, type_)
    added = [_with_added_value(field, type_.properties[field.name]) for field in columns.added]
    return shape_of(columns.renamed, columns.dropped, added)


def _with_added_value(field: pa.Field[Any], property_: Property) -> pa.Field[Any]:
    # What `now()` and `uuid()` gave is not known, so these do change entities.
    if property_.type.nullable or property_.default is None or property_.default.kind != "value":
        return field
    row = pa.record_batch([default_column(property_, 1, 0)], names=[field.name])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    metadata: Mapping[Any, Any] = field.metadata or {}
    return field.with_metadata({**metadata, ADDED_VALUE: b64encode(sink.getvalue().to_pybytes())})


def _by_identity(catalog: Catalog) -> dict[TypeIdentity, Type]:
    return {TypeIdentity.of(type_): type_ for type_ in catalog.types}


Naming: TypeAlias = Literal["now", "then"]
NOW: Final[Naming] = "now"
THEN: Final[Naming] = "then"


def check_names(names: str) -> Naming:
    if names not in get_args(Naming):
        raise UsageError(f"`names` must be `now` or `then`, got `{names}`", value=str(names))
    return names  # type: ignore[return-value]  # just checked


def read_with(snapshot: Snapshot, then: Catalog, today: Snapshot, now: Catalog) -> Snapshot:
    """Return a past snapshot under the names of today; `then` and `now` are the catalogs of the two.

    A property that has a wider type there, such as one that only another branch widened, is read in that type.
    """
    stored = {pin.identity: pin for pin in snapshot.state.pins.values()}
    pins: dict[TypeKey, Pin] = {}
    for key, pin in today.state.pins.items():
        old = stored.get(pin.identity)
        if old is None:
            # The type did not exist yet: use today's version for its columns, without rows.
            pins[key] = replace(pin, row_count=0, shape=replace(pin.shape, is_empty=True))
            continue
        shape = shape_under(then.type_of(old.table_key), now.type_of(key))
        pins[key] = replace(old, table_key=key, shape=shape)
    schema = _wide_enough(today.state.schema, snapshot.state.schema)
    state = replace(snapshot.state, schema=schema, pins=pins, tombstones=())
    return replace(snapshot, state=state)


@lru_cache(maxsize=CATALOG_CACHE_MAX)
def _wide_enough(now: AcceptedSchema, then: AcceptedSchema) -> AcceptedSchema:
    """Return a schema in which every property has a type that holds what the other schema let it hold."""
    ir, types = now.parse(), _property_types(then.parse())
    retyped = {
        property_id: merged
        for property_id, type_ in _property_types(ir).items()
        if (merged := _wide_type(type_, types.get(property_id, type_))) != type_
    }
    return AcceptedSchema.of(now.source, with_property_types(ir, retyped)) if retyped else now


def _property_types(ir: SchemaIR) -> dict[int, PropertyType]:
    return {
        ir.identities.of(kind)[type_.name].property_ids[item.name]: item.type
        for kind in KINDS
        for type_ in ir.shape.of(kind)
        for item in type_.properties
    }


def _wide_type(now: PropertyType, then: PropertyType) -> PropertyType:
    """Return the type of today if it holds all values of the other one, otherwise one that does."""
    then = replace(then, nullable=now.nullable)
    if now.enum_values and then.enum_values:
        return replace(now, enum_values=tuple(dict.fromkeys([*now.enum_values, *then.enum_values])))
    return now if now == then or is_wider(then, now) else then


def without_purged(snapshot: Snapshot, catalog: Catalog, purges: Collection[Purge]) -> Snapshot:
    """Return a snapshot without the types, their edges, and properties that were hard-dropped since."""
    if not purges:
        return snapshot
    types = {purge.identity for purge in purges if purge.property_id is None}
    hidden = with_their_edges(catalog, {key.name for key, pin in snapshot.state.pins.items() if pin.identity in types})
    purged_ids = {(purge.identity, purge.property_id) for purge in purges}
    pins: dict[TypeKey, Pin] = {}
    dropped: set[int] = set()
    for key, pin in snapshot.state.pins.items():
        purged = [
            property_
            for property_ in catalog.type_of(key).properties.values()
            if (pin.identity, property_.property_id) in purged_ids
        ]
        dropped |= {property_.property_id for property_ in purged}
        pins[key] = replace(pin, shape=shape_of({}, [property_.name for property_ in purged], [])) if purged else pin
    if not hidden and not dropped:
        return snapshot
    ir = without_properties(restrict_ir(snapshot.state.schema.parse(), hidden), frozenset(dropped))
    # The source text is kept as written: it names what was dropped, but contains no values.
    schema = AcceptedSchema.of(snapshot.state.schema.source, ir)
    state = replace(snapshot.state, pins=pins)
    return restrict_snapshot(replace(snapshot, state=state), hidden, schema)


def names_today(then: Catalog, now: Catalog) -> dict[str, str | None]:
    """Map each type of an older schema to its name of today; None if it was dropped."""
    today = {identity: type_.name for identity, type_ in _by_identity(now).items()}
    return {type_.name: today.get(identity) for identity, type_ in _by_identity(then).items()}
