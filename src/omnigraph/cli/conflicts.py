"""Conflicts of a merge: shown with both values, and resolved by `--ours`, `--theirs` and `--take`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from omnigraph.cli.output import short_json
from omnigraph.display import printable
from omnigraph.errors import UsageError
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import MERGE_CONFLICTS_SHOWN

SIDES: Final = ("ours", "theirs")
# Conflicts between schemas, which are settled before those between entities are known.
SCHEMA_KINDS: Final = frozenset({"DivergentSchema", "DropVsUpdate"})


def conflict_lines(conflicts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield conflicts by kind, with the first few of each and their values.

    >>> list(conflict_lines([{"kind": "OrphanEdge", "message": "`k1` of `Knows`: `ann` is gone"}]))
    ['1 OrphanEdge', '  `k1` of `Knows`: `ann` is gone']
    """
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for conflict in conflicts:
        by_kind.setdefault(conflict["kind"], []).append(conflict)
    for kind, members in by_kind.items():
        yield f"{len(members)} {kind}"
        for conflict in members[:MERGE_CONFLICTS_SHOWN]:
            yield f"  {printable(conflict['message'])}"
            yield from (f"    {line}" for line in value_lines(conflict))
        if len(members) > MERGE_CONFLICTS_SHOWN:
            yield f"  and {len(members) - MERGE_CONFLICTS_SHOWN} more"


def value_lines(conflict: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of both sides, property by property; nothing where a side has no such entity.

    >>> images = {"ours": {"team": "sky"}, "theirs": {"team": "land"}}
    >>> list(value_lines({"properties": ["team"], **images}))
    ['team: ours "sky", theirs "land"']
    """
    images = [conflict.get(side) for side in SIDES]
    if any(image is None for image in images):
        return
    for name in conflict.get("properties", ()):
        values = [_member(image, name) for image in images]
        shown = ", ".join(f"{side} {short_json(value)}" for side, value in zip(SIDES, values, strict=True))
        yield f"{name}: {shown}"


def _member(image: Any, name: str) -> object:
    return {**image, **image.get("properties", {}), **image.get("endpoints", {})}.get(name)


def resolve_conflicts(
    conflicts: Sequence[Mapping[str, Any]], side: str | None, takes: Sequence[str]
) -> list[dict[str, object]]:
    """Return resolutions: those of `--take`, and for all other conflicts `side`, if there is one."""
    chosen: dict[tuple[int, str | None], str] = {}
    for text in takes:
        subject, _, take = text.rpartition("=")
        if take not in SIDES:
            raise UsageError(
                f"`--take {text}` does not say which side to take; write `--take TYPE:ID.PROPERTY=ours`, or `=theirs`"
            )
        chosen[_find_conflict(conflicts, text, subject)] = take
    resolutions: list[dict[str, object]] = []
    for number, conflict in enumerate(conflicts):
        if conflict["kind"] in SCHEMA_KINDS:
            named: list[str | None] = list(conflict["properties"]) or [None]
            if (taken_side := chosen.get((number, named[0]), side)) is not None:
                of_schema = {"type_key": conflict["type_key"], "entity_id": None, "property": named[0]}
                resolutions.append({**of_schema, "take": taken_side})
            continue
        names: list[str | None] = [name for name in conflict["properties"] if (number, name) in chosen]
        if side is not None and names:
            # A resolution of the whole entity beside one of a property would contradict it.
            names = list(conflict["properties"])
        for name in names or [None]:
            if (taken_side := chosen.get((number, name), side)) is not None:
                entity_id = conflict.get("entity_id")
                resolution = {"type_key": conflict["type_key"], "entity_id": entity_id, "take": taken_side}
                resolutions.append(resolution if name is None else {**resolution, "property": name})
    return resolutions


def _find_conflict(conflicts: Sequence[Mapping[str, Any]], text: str, subject: str) -> tuple[int, str | None]:
    """Return the number of the conflict that a `--take` names, and its property unless it names the whole entity."""
    for number, conflict in enumerate(conflicts):
        entity = _subject(conflict)
        if subject == entity:
            return number, None
        for name in conflict["properties"]:
            if subject == f"{entity}.{name}":
                return number, name
    known = ", ".join(f"`{name}`" for conflict in conflicts[:MERGE_CONFLICTS_SHOWN] for name in _subjects(conflict))
    raise UsageError(f"`--take {text}` names no conflict of this merge; there are: {known or 'none'}")


def _subject(conflict: Mapping[str, Any]) -> str:
    """Return what a `--take` calls a conflict: an entity, or a type whose schema is contested."""
    name = TypeKey(conflict["type_key"]).name
    return name if conflict["kind"] in SCHEMA_KINDS else f"{name}:{conflict['entity_id']}"


def _subjects(conflict: Mapping[str, Any]) -> list[str]:
    entity = _subject(conflict)
    return [f"{entity}.{name}" for name in conflict["properties"]] or [entity]
