"""Formats the dates in before and after images of changes and conflicts.

Images have the format of an export, in which a Date is days and a DateTime is milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from omnigraph.display import DATE_TYPES, iso_date
from omnigraph.errors import OmniGraphError

if TYPE_CHECKING:
    from omnigraph.client import Graph as ServedGraph
    from omnigraph.graph import Graph

# By kind and name of a type: its properties that hold dates, and whether those are of type Date or DateTime.
DateProperties: TypeAlias = Mapping[tuple[str, str], Mapping[str, str]]


def date_properties(graph: Graph | ServedGraph) -> DateProperties:
    """Return the properties of a graph that hold dates; none if its schema cannot be read."""
    try:
        catalog = graph.schema.catalog
    except OmniGraphError:
        # Only the look of values depends on it.
        return {}
    by_kind: Iterable[tuple[str, Iterable[Any]]] = (("node", catalog.nodes.values()), ("edge", catalog.edges.values()))
    return {
        (kind, type_.name): {
            name: item.type.scalar.value
            for name, item in type_.properties.items()
            if item.type.scalar.value in DATE_TYPES
        }
        for kind, types in by_kind
        for type_ in types
    }


def readable_change(change: Mapping[str, Any], dates: DateProperties) -> dict[str, Any]:
    """Return a change whose images have dates as text.

    >>> image = {"properties": {"born": 0, "name": "Ada"}}
    >>> change = {"kind": "node", "type": {"name": "Person"}, "after": image}
    >>> readable_change(change, {("node", "Person"): {"born": "Date"}})["after"]
    {'properties': {'born': '1970-01-01', 'name': 'Ada'}}
    """
    names = dates.get((change["kind"], change["type"]["name"]), {})
    images = {side: change[side] for side in ("before", "after") if change.get(side) is not None}
    return {**change, **{side: readable_image(image, names) for side, image in images.items()}}


def readable_conflict(conflict: Mapping[str, Any], dates: DateProperties) -> dict[str, Any]:
    """Return a conflict whose three images have dates as text."""
    from omnigraph.lang.catalog import TypeKey

    type_key = conflict.get("type_key")
    names = {} if type_key is None else dates.get((TypeKey(type_key).kind, TypeKey(type_key).name), {})
    images = {side: conflict[side] for side in ("base", "ours", "theirs") if conflict.get(side) is not None}
    return {**conflict, **{side: readable_image(image, names) for side, image in images.items()}}


def readable_image(image: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return an image with dates as text; its properties are members of it or of `properties`."""
    changed = {name: iso_date(image[name], scalar) for name, scalar in names.items() if name in image}
    if "properties" in image:
        changed["properties"] = readable_image(image["properties"], names)
    return {**image, **changed}
