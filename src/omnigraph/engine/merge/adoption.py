"""Datasets of the other side that a merge takes over whole, and stored rows that it cannot write again itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from omnigraph.engine.merge.ancestry import MergeBase
from omnigraph.engine.merge.conflicts import refuse
from omnigraph.engine.merge.schema_merge import MergedSchema, pins_of
from omnigraph.engine.merge.three_way import ThreeWayState
from omnigraph.engine.past_schemas import compare, compare_columns
from omnigraph.engine.session import View
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_type
from omnigraph.manifest.model import Pin, fork_owner
from omnigraph.public_values import Conflict, ConflictKind


def taken_over(three: ThreeWayState) -> set[TypeKey]:
    """Return the types whose datasets have to be taken over: new ones, and those that the target cannot rewrite."""
    adopted = [] if three.merged is None else adopted_types(three.merged)
    return {type_.table_key for type_ in (*three.new_types(), *adopted)}


def reject_new_types(three: ThreeWayState, keys: Iterable[TypeKey]) -> None:
    """Raise if a resolution changes entities of a type whose dataset has to be taken over whole."""
    adopted = taken_over(three)
    for key in keys:
        if key in adopted:
            raise refuse(
                f"`{key.name}` is taken over as the other side has it; change its entities there instead, and merge"
                " again",
                type_key=key,
            )


def forks_of(view: View, pin: Pin, target: View) -> list[str]:
    """Return the forks of other branches that an adopted pin depends on: its own and those it inherits."""
    bases = view.sound_dataset(pin.table_key).base_directories()
    folder = f"/{pin.path}/tree/"
    inherited = [base.rstrip("/").rpartition(folder)[2] for base in bases if folder in base]
    forks = {*inherited, *([pin.fork] if pin.fork else [])}
    return sorted(fork for fork in forks if fork_owner(fork) != target.snapshot.state.branch_id)


def rewrites_needed(merged: MergedSchema) -> list[Conflict]:
    """Return a conflict for everything that the merged schema asks of stored rows and a merge does not do.

    A merge changes columns by metadata, or takes the dataset of a type over as a whole. Otherwise values of another
    type, values of required properties and ids of another key have to be written by a `schema apply` on the target.
    """
    adopted = {type_.table_key for type_ in adopted_types(merged)}
    conflicts = [
        conflict
        for old, new in merged.reshaping.kept
        if new.table_key not in adopted
        for conflict in _target_rewrites(old, new)
    ]
    for old, new in compare(merged.theirs.catalog, merged.catalog).kept:
        if _key_ids(old) != _key_ids(new) and not _has_base_entities(merged.base, merged.theirs, old):
            message = f"`{new.name}`: we changed its key; apply the change to the other side first"
            conflicts.append(Conflict(new.table_key, None, ConflictKind.DIVERGENT_SCHEMA, message))
    return conflicts


def adopted_types(merged: MergedSchema) -> list[Type]:
    """Return the types whose rows have to be rewritten on the target, and were there already on the other side.

    The target has not changed them since the base, so the dataset of the other side is what the merge makes of them.
    """
    theirs = {new.table_key: old for old, new in compare(merged.theirs.catalog, merged.catalog).kept}
    owner = merged.ours.snapshot.state.branch_id
    return [
        new
        for old, new in merged.reshaping.kept
        if any(_target_rewrites(old, new))
        and new.table_key in theirs
        and not any(_target_rewrites(theirs[new.table_key], new))
        and not compare_columns(theirs[new.table_key], new).changed
        and next(pins_of([merged.theirs], new))[1].owner != owner
        and _has_base_entities(merged.base, merged.ours, old)
    ]


def _has_base_entities(base: MergeBase[View], side: View, type_: Type) -> bool:
    """Return True if a side has the entities of a type that the base has, in the same dataset or in another version.

    A version that only indexes or compacts the dataset, or takes changes back, leaves the entities as they were. Of
    several ancestors, those that are older than the type have none of its entities.
    """
    if not any(pins_of(list(base.states()), type_)):
        return False
    state = ThreeWayState.under(MergedSchema(side.snapshot.state.schema, side.catalog, base, side, side))
    return state.is_ours_unchanged(type_) or not state.our_changes(type_)[0].count


def _target_rewrites(old: Type, new: Type) -> Iterator[Conflict]:
    before = {item.property_id: item for item in old.properties.values()}
    if _key_ids(old) != _key_ids(new):
        message = f"`{new.name}`: they changed its key; apply the change to the target first"
        yield Conflict(new.table_key, None, ConflictKind.DIVERGENT_SCHEMA, message)
    for item in new.properties.values():
        known = before.get(item.property_id)
        if known is None and not item.type.nullable:
            reason = "they added it as a required property, and stored entities have no value for it"
        elif known is not None and arrow_type(known.type) != arrow_type(item.type):
            reason = f"they changed its type to `{item.type}`; apply the change to the target first"
        else:
            continue
        message = f"`{new.name}.{item.name}`: {reason}"
        yield Conflict(new.table_key, None, ConflictKind.DIVERGENT_SCHEMA, message, (item.name,))


def _key_ids(type_: Type) -> tuple[int | str, ...]:
    # The ends of an edge have no identity.
    properties = type_.properties
    return tuple(properties[name].property_id if name in properties else name for name in getattr(type_, "key", ()))
