"""How history looks on a terminal: the commit graph, dates in images of changes, and conflicts of a merge.

Images have the format of an export, in which a Date is days and a DateTime is milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from omnigraph.cli.output import short_json
from omnigraph.display import printable
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.scalars import TIMES, Scalar, readable
from omnigraph.limits import COMMIT_ID_CHARACTERS_MIN, MERGE_CONFLICTS_SHOWN

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph


def shorten_ids(commit_ids: Sequence[str]) -> dict[str, str]:
    """Return ids by their full form, cut to the shortest common length at which they differ.

    >>> shorten_ids(["01M7M8T66NZHZEDHK2YWZS1BBQ", "01M7M8T66NZ0000000000000ZZ"])["01M7M8T66NZ0000000000000ZZ"]
    '01M7M8T66NZ0'
    """
    unique = set(commit_ids)
    length = COMMIT_ID_CHARACTERS_MIN + 2
    while len({commit_id[:length] for commit_id in unique}) < len(unique):
        length += 1
    return {commit_id: commit_id[:length] for commit_id in unique}


def draw_history(commits: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    r"""Yield lines of a drawn history, as `git log --graph` does, each with its commit unless it only joins lines.

    The commits come newest first, children before parents.

    >>> ids = [("d", "c", "b"), ("c", "a", None), ("b", "a", None), ("a", None, None)]
    >>> names = ("graph_commit_id", "parent_commit_id", "merged_parent_commit_id")
    >>> print("\n".join(line for line, _ in draw_history([dict(zip(names, row)) for row in ids])))
    *
    |\
    * |
    | *
    |/
    *
    """
    columns: list[str] = []
    for commit in commits:
        commit_id = commit["graph_commit_id"]
        if commit_id not in columns:
            columns.append(commit_id)
        column = columns.index(commit_id)
        while columns.count(commit_id) > 1:
            last = len(columns) - 1 - columns[::-1].index(commit_id)
            yield _join_line(len(columns), column, last), None
            del columns[last]
        yield " ".join("*" if index == column else "|" for index in range(len(columns))), commit
        parent, merged = commit["parent_commit_id"], commit["merged_parent_commit_id"]
        if parent is None:
            if column < len(columns) - 1:
                yield _join_line(len(columns), column, column), None
            del columns[column]
            continue
        columns[column] = parent
        if merged is not None:
            yield _split_line(len(columns), column), None
            columns.insert(column + 1, merged)


def _join_line(count: int, column: int, last: int) -> str:
    """Draw column `last` going into column `column`, and those to its right moving up."""
    line = [" "] * (2 * count)
    for index in range(count):
        if index < last:
            line[2 * index] = "|"
        elif index > 0 and (index > last or last != column):
            line[2 * index - 1] = "/"
        if column <= index < last - 1:
            line[2 * index + 1] = "_"
    return "".join(line).rstrip()


def _split_line(count: int, column: int) -> str:
    """Draw a new column to the right of a merge, and those further right making room."""
    line = [" "] * (2 * count + 1)
    for index in range(count):
        if index <= column:
            line[2 * index] = "|"
        if index >= column:
            line[2 * index + 1] = "\\"
    return "".join(line).rstrip()


# By kind and name of a type: its properties that hold dates or times, and the types of those.
DateProperties: TypeAlias = Mapping[tuple[str, str], Mapping[str, Scalar]]


def date_properties(graph: Graph | ServedGraph) -> DateProperties:
    """Return the properties of a graph that hold dates; none if its schema cannot be read."""
    try:
        catalog = graph.schema.catalog
    except OmniGraphError:
        # Only the look of values depends on it.
        return {}
    return {
        (type_.kind, type_.name): {
            name: item.type.scalar for name, item in type_.properties.items() if item.type.scalar in TIMES
        }
        for type_ in catalog.types
    }


def readable_change(change: Mapping[str, Any], dates: DateProperties) -> dict[str, Any]:
    """Return a change whose images have dates as text.

    >>> image = {"properties": {"born": 0, "name": "Ada"}}
    >>> change = {"kind": "node", "type": {"name": "Person"}, "after": image}
    >>> readable_change(change, {("node", "Person"): {"born": Scalar.DATE}})["after"]
    {'properties': {'born': '1970-01-01', 'name': 'Ada'}}
    """
    return _with_readable_images(change, ("before", "after"), dates.get((change["kind"], change["type"]["name"]), {}))


def readable_conflict(conflict: Mapping[str, Any], dates: DateProperties) -> dict[str, Any]:
    """Return a conflict whose three images have dates as text."""
    type_key = conflict.get("type_key")
    names = {} if type_key is None else dates.get((TypeKey(type_key).kind, TypeKey(type_key).name), {})
    return _with_readable_images(conflict, ("base", "ours", "theirs"), names)


def _with_readable_images(
    document: Mapping[str, Any], sides: Sequence[str], names: Mapping[str, Scalar]
) -> dict[str, Any]:
    images = {side: document[side] for side in sides if document.get(side) is not None}
    return {**document, **{side: readable_image(image, names) for side, image in images.items()}}


def readable_image(image: Mapping[str, Any], names: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return an image with dates as text; its properties are members of it or of `properties`."""
    changed = {name: readable(image[name], scalar) for name, scalar in names.items() if name in image}
    if "properties" in image:
        changed["properties"] = readable_image(image["properties"], names)
    return {**image, **changed}


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
    images = [conflict[side] for side in SIDES if conflict.get(side) is not None]
    if len(images) < len(SIDES):
        return
    for name in conflict.get("properties", ()):
        values = [{**image, **image.get("properties", {}), **image.get("endpoints", {})}.get(name) for image in images]
        shown = ", ".join(f"{side} {short_json(value)}" for side, value in zip(SIDES, values, strict=True))
        yield f"{name}: {shown}"


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
