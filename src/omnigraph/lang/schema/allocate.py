"""Hands out identities: the accepted one where a name was resolved to one, else the next of the graph's counter.

Pure. New identities come in three passes: types, then properties, then tables.
"""

from __future__ import annotations

from itertools import count

from omnigraph.lang.diagnostic import Diagnostic, LanguageError
from omnigraph.lang.schema.encode import Identities, TypeIds
from omnigraph.lang.schema.identity import Resolution
from omnigraph.lang.schema.integrity import IDENTITY_MAX
from omnigraph.lang.schema.ir import SchemaIR
from omnigraph.lang.schema.shape import SchemaShape, TypeShape
from omnigraph.lang.schema.syntax import Kind

Key = tuple[Kind, str]


def allocate_identities(shape: SchemaShape, resolution: Resolution, domain: str) -> SchemaIR:
    """Return the IR of a resolved schema; raises I7 when the counter has run out."""
    counter = count(resolution.accepted.next_identity_id if resolution.accepted is not None else 1)
    types: dict[Key, TypeShape] = {("interface", item.name): item for item in shape.interfaces}
    types |= {("node", item.name): item for item in shape.nodes}
    types |= {("edge", item.name): item for item in shape.edges}
    kept = {key: _accepted_ids(resolution, key) for key in types}
    type_ids = {key: old.type_id if old is not None else next(counter) for key, old in kept.items()}
    by_id = sorted(types, key=type_ids.__getitem__)
    property_ids: dict[Key, dict[str, int]] = {}
    for key in by_id:
        old_ids = _accepted_property_ids(resolution, key, kept[key])
        names = [item.name for item in types[key].properties]
        property_ids[key] = {name: old_ids[name] if name in old_ids else next(counter) for name in names}
    made: dict[Kind, dict[str, TypeIds]] = {"interface": {}, "node": {}, "edge": {}}
    for key in by_id:
        kind, name = key
        old = kept[key]
        incarnation_id = old.incarnation_id if old is not None else next(counter) if kind != "interface" else None
        made[kind][name] = TypeIds(type_ids[key], incarnation_id, property_ids[key])
    next_identity_id = next(counter)
    if next_identity_id > IDENTITY_MAX:
        raise _exhausted(resolution)
    return SchemaIR(domain, next_identity_id, shape, Identities(made["interface"], made["node"], made["edge"]))


def _accepted_ids(resolution: Resolution, key: Key) -> TypeIds | None:
    old_name = resolution.types.get(key)
    if resolution.accepted is None or old_name is None:
        return None
    return resolution.accepted.ids(key[0])[old_name]


def _accepted_property_ids(resolution: Resolution, key: Key, old: TypeIds | None) -> dict[str, int]:
    if old is None:
        return {}
    names = ((name, resolution.properties.get((*key, name))) for name in resolution.origins[key].properties)
    return {name: old.property_ids[old_name] for name, old_name in names if old_name is not None}


def _exhausted(resolution: Resolution) -> LanguageError:
    fresh = [origin.span for key, origin in resolution.origins.items() if key not in resolution.types]
    spans = fresh or [origin.span for origin in resolution.origins.values()]
    span = max(spans, key=lambda item: item.start)
    hint = "export the graph and load it into a new one"
    message = "the graph has no identities left to give"
    return LanguageError(diagnostics=(Diagnostic("I7", message, resolution.source, span, hint),))
