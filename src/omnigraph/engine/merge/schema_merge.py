"""The schema side of a merge: the merged schema, resolutions of its conflicts, and every state read under it.

Reads only. Types and properties are the same thing on two sides exactly if they have the same identity.

A decision may bring other conflicts to light, such as values of a property that it drops; the same resolution
then settles these as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import orjson

from omnigraph.engine.merge.ancestry import MergeBase
from omnigraph.engine.merge.conflicts import SchemaResolution, refuse
from omnigraph.engine.past_schemas import Reshaping, compare, shape_under
from omnigraph.engine.schema_data import TypeChange
from omnigraph.engine.session import View
from omnigraph.lang.catalog import Catalog, Type, TypeKey
from omnigraph.lang.diagnostic import LanguageError
from omnigraph.lang.migrate import list_steps
from omnigraph.lang.schema import SchemaIR, catalog_of
from omnigraph.lang.schema.merge import (
    Key,
    Records,
    SchemaConflict,
    Side,
    is_same_schema,
    join_bases,
    merge_schemas,
    records_of,
)
from omnigraph.lang.schema.render import write_source
from omnigraph.limits import CATALOG_CACHE_MAX
from omnigraph.manifest.model import AcceptedSchema, Pin, TypeIdentity
from omnigraph.public_values import Conflict, ConflictKind


@dataclass(frozen=True)
class MergedSchema:
    """The schema of a merge, and the views of its sides under their own schemas."""

    schema: AcceptedSchema
    catalog: Catalog
    base: MergeBase[View]
    ours: View
    theirs: View

    @property
    def changes_target(self) -> bool:
        """True if the target gets another schema."""
        return self.schema is not self.ours.snapshot.state.schema

    def describe_changes(self) -> tuple[str, ...] | None:
        """Return the steps from the schema of the target to the merged one, as lines; None if it stays."""
        if not self.changes_target:
            return None
        return tuple(step.render() for step in list_steps(schema_ir(self.ours), _ir_of(self.schema.ir)))

    @property
    def reshaping(self) -> Reshaping:
        """What becomes of the types of the target."""
        return compare(self.ours.catalog, self.catalog)

    def read(self, view: View) -> View:
        """Return a state under the merged schema: types and properties that it does not have are empty or null."""
        if view.catalog.ir_hash == self.catalog.ir_hash:
            return view
        # A type that a state does not have is read from any dataset of it, as empty: the columns must come from
        # somewhere.
        holders = [view, self.ours, self.theirs, *self.base.states()]
        pins: dict[TypeKey, Pin] = {}
        links = list(view.snapshot.links)
        for type_ in self.catalog.types:
            holder, pin = next(pins_of(holders, type_))
            is_empty = holder is not view
            if is_empty:
                pin = replace(pin, row_count=0)
                links += [link for link in holder.snapshot.links if link.ref == pin.ref.stored]
            shape = shape_under(holder.catalog.type_of(pin.table_key), type_)
            pins[type_.table_key] = replace(pin, table_key=type_.table_key, shape=replace(shape, is_empty=is_empty))
        state = replace(view.snapshot.state, schema=self.schema, pins=pins)
        return View(view.kernel, replace(view.snapshot, state=state, links=tuple(links)), self.catalog)

    def new_names(self, view: View, names: Collection[str]) -> set[str]:
        """Return the names in the merged schema of types that have some names in a state under its own schema."""
        return {new.name for old, new in compare(view.catalog, self.catalog).kept if old.name in names}

    def key_in(self, view: View, type_: Type) -> TypeKey | None:
        """Return the key that a type of the merged schema has in a state under its own schema."""
        return next((pin.table_key for holder, pin in pins_of([view], type_)), None)


def pins_of(views: list[View], type_: Type) -> Iterator[tuple[View, Pin]]:
    identity = TypeIdentity.of(type_)
    for view in views:
        for pin in view.snapshot.state.pins.values():
            if pin.identity == identity:
                yield view, pin


@lru_cache(maxsize=CATALOG_CACHE_MAX)
def _ir_of(text: str) -> SchemaIR:
    return SchemaIR.from_json(orjson.loads(text))


def schema_ir(view: View) -> SchemaIR:
    return _ir_of(view.snapshot.state.schema.ir)


@dataclass(frozen=True, slots=True)
class OpenConflict:
    """A conflict between schemas, what it is about, and the sides that may settle it."""

    conflict: Conflict
    key: Key | None = None
    sides: tuple[Side, ...] = ()


def merge_view_schemas(
    base: MergeBase[View], ours: View, theirs: View, takes: Mapping[Key, Side]
) -> MergedSchema | list[OpenConflict]:
    """Merge the schemas of three states; returns the conflicts if they cannot be merged.

    `takes` has the side that settles a conflict, by what it is about.
    """
    ours_ir, theirs_ir = schema_ir(ours), schema_ir(theirs)
    merged = merge_schemas(_base_records(base), ours_ir, theirs_ir, takes)
    if merged.ir is None:
        return [OpenConflict(_conflict_of(item), item.key, item.sides) for item in merged.conflicts]
    schema = ours.snapshot.state.schema
    if not is_same_schema(merged.ir, ours_ir):
        try:
            source = _source_of(merged.ir, ours, theirs)
        except LanguageError as error:
            return [OpenConflict(_invalid(ours, error))]
        schema = AcceptedSchema.of(source, merged.ir)
    return MergedSchema(schema, catalog_of(merged.ir), base, ours, theirs)


def _base_records(base: MergeBase[View]) -> Records:
    """Return the schema of a base; of a virtual one, the join of its states."""
    records = records_of(schema_ir(base.first))
    for joined in base.joined:
        # The recursive strategy of git, for schemas: a virtual base is the merge of the common ancestors over their own
        # base.
        below = {} if joined.base is None else _base_records(joined.base)
        records = join_bases(below, records, records_of(schema_ir(joined.state)))
    return records


def _source_of(merged: SchemaIR, ours: View, theirs: View) -> str:
    sides = [(view.snapshot.state.schema.source, schema_ir(view)) for view in (ours, theirs)]
    # A text that someone wrote is kept, with its comments and order, if its schema is the merged one.
    exact = next((source for source, ir in sides if ir.shape == merged.shape), None)
    return write_source(merged, sides) if exact is None else exact


def _conflict_of(conflict: SchemaConflict) -> Conflict:
    # An interface has no dataset, so no key of its own.
    key = TypeKey.of("edge" if conflict.kind == "edge" else "node", conflict.type_name)
    named = () if conflict.property_name is None else (conflict.property_name,)
    return Conflict(key, None, ConflictKind.DIVERGENT_SCHEMA, conflict.message, named)


def _invalid(ours: View, error: LanguageError) -> Conflict:
    key = next(iter(sorted(ours.snapshot.state.pins)), TypeKey("node:Schema"))
    return Conflict(key, None, ConflictKind.DIVERGENT_SCHEMA, f"the merged schema is not valid: {error.message}")


def is_tightened(old: Type, new: Type) -> bool:
    """Return True if entities that are valid under an older version of a type may break rules of the new one."""
    change = TypeChange(old, new)
    kept = [(before.type.enum_values or (), after.type.enum_values or ()) for before, after in change.kept.values()]
    return change.is_checked or any(after and set(before) - set(after) for before, after in kept)


# -- decisions ---------------------------------------------------------------------------------------------------------


class SchemaDecisions:
    """The resolutions of one merge, and the sides that they have decided on so far."""

    def __init__(self, resolutions: Sequence[SchemaResolution], hidden: Collection[str]) -> None:
        self.takes: dict[Key, Side] = {}
        self._by_subject: dict[tuple[str, str | None], SchemaResolution] = {}
        for item in resolutions:
            if self._by_subject.setdefault((item.type_key, item.property_name), item) is not item:
                raise refuse(f"the schema of `{item.subject}` is resolved twice; keep one resolution of it")
        self._unused = dict(self._by_subject)
        self._hidden = hidden

    def decide(self, conflicts: Sequence[OpenConflict]) -> bool:
        """Take a side for each conflict that a resolution is about; return whether that decided anything new."""
        before = len(self.takes)
        for item in conflicts:
            resolution = None if item.conflict.type_key.name in self._hidden else self._find(item.conflict)
            if resolution is None:
                continue
            if item.key is None or resolution.take not in item.sides:
                raise refuse(_refusal(item, resolution), type_key=resolution.type_key)
            self.takes[item.key] = resolution.take
        return len(self.takes) > before

    def reject_unused(self) -> None:
        reject_unused(tuple(self._unused.values()))

    def _find(self, conflict: Conflict) -> SchemaResolution | None:
        subject = (conflict.type_key, conflict.properties[0] if conflict.properties else None)
        self._unused.pop(subject, None)
        return self._by_subject.get(subject)


def reject_unused(resolutions: Sequence[SchemaResolution]) -> None:
    if resolutions:
        first = resolutions[0]
        raise refuse(
            f"there is no conflict about the schema of `{first.subject}`; run the merge dry again and leave the"
            " resolution out",
            type_key=first.type_key,
        )


def _refusal(item: OpenConflict, resolution: SchemaResolution) -> str:
    if item.sides:
        return (
            f"{item.conflict.message}; taking `{resolution.take}` would bring back what was dropped, without its data."
            f" Take `{item.sides[0]}`, or revert the drop on its branch first"
        )
    return f"{item.conflict.message}; no side settles this, change the schema of one of them with `schema apply`"
