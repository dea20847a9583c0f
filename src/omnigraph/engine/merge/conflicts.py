"""Merge conflicts and resolutions in their public form.

Pure. Images are JSON objects with the columns of the entity, formatted as in an export.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson
import pyarrow as pa

from omnigraph.engine.changes.blob_values import BlobValues
from omnigraph.engine.json_text import json_text
from omnigraph.engine.merge.row_merge import Clash
from omnigraph.errors import GraphError, MergeConflict, UsageError
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.schema.merge import BOTH_SIDES, Side
from omnigraph.limits import FINDINGS_SHOWN_MAX, MERGE_CONFLICTS_SHOWN
from omnigraph.public_values import Conflict, ConflictKind, Image
from omnigraph.rules.delta import Violation, one_array

_KINDS: Final = {
    "E5": ConflictKind.UNIQUE_VIOLATION,
    "E6": ConflictKind.UNIQUE_VIOLATION,
    "E9": ConflictKind.ORPHAN_EDGE,
    "E10": ConflictKind.CARDINALITY_VIOLATION,
}


def conflict_of(type_key: TypeKey, clash: Clash, blobs: BlobValues) -> Conflict:
    """Return a clash as a conflict; `blobs` has the bytes of the blobs in its rows."""
    name = f"`{clash.entity_id}` of `{type_key.name}`"
    if clash.kind is ConflictKind.DELETE_VS_UPDATE:
        did, other = ("we deleted", "they changed") if clash.ours is None else ("they deleted", "we changed")
        message = f"{name}: {did} what {other}"
    else:
        did = "inserted" if clash.kind is ConflictKind.DIVERGENT_INSERT else "changed"
        columns = ", ".join(f"`{column}`" for column in clash.columns)
        message = f"{name}: both sides {did} it, with different {columns}"
    images = [image_of(blobs.with_bytes(row)) for row in (clash.base, clash.ours, clash.theirs)]
    return Conflict(type_key, clash.entity_id, clash.kind, message, clash.columns, *images)


def conflict_from(violation: Violation, *images: Image | None) -> Conflict:
    """Return what is wrong with the merged graph as a conflict."""
    kind = _KINDS.get(violation.rule, ConflictKind.VALUE_CONSTRAINT_VIOLATION)
    named = tuple(violation.property.split(", ")) if violation.property else ()
    assert violation.type_key is not None, "only violations of an input lack a type"
    return Conflict(violation.type_key, violation.entity_id, kind, violation.message, named, *images)


def image_of(row: pa.Table | None) -> Image | None:
    """Return a one-row table as a JSON object; None for no row."""
    if row is None:
        return None
    return {name: _value(one_array(row.column(name))) for name in row.column_names}


def _value(values: Any) -> object:
    if pa.types.is_large_binary(values.type):
        payload = values[0].as_py()
        return None if payload is None else f"base64:{b64encode(payload).decode()}"
    return orjson.loads(json_text(values)[0].as_py())


_RESOLVE: Final = "Resolve them with `resolutions`, or change one of the sides"


def conflict_error(
    conflicts: Sequence[Conflict], subject: str, *, is_cut: bool = False, advice: str = _RESOLVE
) -> MergeConflict:
    """Return the error of a merge with conflicts: a few in the message, all of them in its context."""
    messages = "; ".join(conflict.message for conflict in conflicts[:MERGE_CONFLICTS_SHOWN])
    more = len(conflicts) - MERGE_CONFLICTS_SHOWN
    count = f"{'at least ' if is_cut else ''}{len(conflicts)} conflict{'s' if len(conflicts) > 1 else ''}"
    return MergeConflict(
        f"{subject} has {count}, and nothing was changed: {messages}"
        f"{f'; and {more} more' if more > 0 else ''}. {advice}",
        conflicts=[conflict.to_json() for conflict in conflicts],
    )


# A path, bytes, or dictionaries; files and bytes hold a JSON array or NDJSON.
ResolutionsInput: TypeAlias = str | Path | bytes | Iterable[Mapping[str, object]] | None

_SCHEMA_KINDS: Final = (ConflictKind.DIVERGENT_SCHEMA, ConflictKind.DROP_VS_UPDATE)
_SIDES: Final = ("ours", "theirs", "base")
IMAGES: Final = ("base", "ours", "theirs")
_MEMBERS: Final = frozenset(
    {"type_key", "entity_id", "property", "take", "row", "value", "kind", "message", "properties", *IMAGES}
)


@dataclass(frozen=True, slots=True)
class Resolution:
    """One resolution. `images` are those that the caller saw, if passed back, to detect stale decisions."""

    type_key: TypeKey
    entity_id: str
    property: str | None
    take: str | None
    # What `take`, `row` or `value` holds.
    payload: object
    images: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SchemaResolution:
    """The side to take for a conflict between schemas: about a property, or else the type itself."""

    type_key: TypeKey
    property_name: str | None
    take: Side

    @property
    def subject(self) -> str:
        name = self.type_key.name
        return name if self.property_name is None else f"{name}.{self.property_name}"


@dataclass(frozen=True, slots=True)
class Decisions:
    """All resolutions of a merge."""

    entities: tuple[Resolution, ...] = ()
    schema: tuple[SchemaResolution, ...] = ()


def read_resolutions(resolutions: ResolutionsInput) -> Decisions:
    """Return resolutions from a file of JSON or NDJSON, its bytes, or dictionaries."""
    parsed = [_parse(item, number) for number, item in enumerate(resolution_objects(resolutions), start=1)]
    return Decisions(
        tuple(item for item in parsed if isinstance(item, Resolution)),
        tuple(item for item in parsed if isinstance(item, SchemaResolution)),
    )


def resolution_objects(resolutions: ResolutionsInput) -> list[Any]:
    """Return resolutions as unparsed JSON objects."""
    if resolutions is None:
        return []
    if isinstance(resolutions, str | Path):
        path = Path(resolutions)
        try:
            resolutions = path.read_bytes()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot read `{path}`: {reason}; check the path", path=str(path)) from error
    return _objects(resolutions)


def _objects(resolutions: bytes | Iterable[Mapping[str, object]]) -> list[Any]:
    if not isinstance(resolutions, bytes):
        return list(resolutions)
    text = resolutions.strip()
    try:
        if text.startswith(b"["):
            objects: list[Any] = orjson.loads(text)
            return objects
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise refuse(f"the resolutions are not valid JSON: {error}; expected an array or NDJSON") from error


def _parse_schema(value: Mapping[str, Any], where: str) -> SchemaResolution:
    """Return a resolution of a conflict between schemas, which has no entity."""
    named: Sequence[Any] = value.get("properties") or ()
    property_ = value.get("property", named[0] if len(named) == 1 else None)
    if value.get("take") not in BOTH_SIDES or "row" in value or "value" in value:
        raise refuse(f"{where} is about the schema, so it needs a `take` of `ours` or `theirs` and nothing else")
    if not isinstance(property_, str | None):
        raise refuse(f"{where} has a `property` that is not a name")
    return SchemaResolution(_type_key(value, where), property_, value["take"])


def _type_key(value: Mapping[str, Any], where: str) -> TypeKey:
    try:
        return TypeKey(value["type_key"])
    except ValueError as error:
        context = {"entity_id": value["entity_id"]} if isinstance(value.get("entity_id"), str) else {}
        raise refuse(f"{where}: {error}", type_key=value["type_key"], **context) from None


def _parse(value: Any, number: int) -> Resolution | SchemaResolution:
    where = f"resolution {number}"
    if not isinstance(value, Mapping):
        raise refuse(f"{where} is not an object")
    unknown = sorted(value.keys() - _MEMBERS)
    if unknown:
        raise refuse(f"{where} has the unknown member `{unknown[0]}`; it takes {', '.join(sorted(_MEMBERS))}")
    is_schema = value.get("entity_id", "") is None or ("entity_id" not in value and value.get("kind") in _SCHEMA_KINDS)
    for name in ("type_key",) if is_schema else ("type_key", "entity_id"):
        if not isinstance(value.get(name), str):
            raise refuse(f"{where} needs a `{name}`, as the conflict has it")
    if is_schema:
        return _parse_schema(value, where)
    key = _type_key(value, where)
    picks = [name for name in ("take", "row", "value") if name in value]
    if len(picks) != 1:
        raise refuse(f"{where} needs exactly one of `take`, `row` and `value`, and has {len(picks)}")
    property_ = value.get("property")
    if picks[0] == "take" and value["take"] not in _SIDES:
        raise refuse(f"{where} takes `{value['take']}`; it can take {', '.join(_SIDES)}")
    if picks[0] == "row" and (property_ is not None or not isinstance(value["row"], Mapping)):
        raise refuse(f"{where} has a `row` that is not an object; a row is the whole entity")
    if (picks[0] == "value") and property_ is None:
        raise refuse(f"{where} gives a `value`, but no `property` that it is for")
    images = {name: value[name] for name in IMAGES if name in value}
    take = value["take"] if picks[0] == "take" else None
    return Resolution(key, value["entity_id"], property_, take, value[picks[0]], images)


def refuse(message: str, **context: str) -> GraphError:
    """Return the error of a resolution that cannot be applied."""
    error = GraphError(message, code="merge.resolution")
    error.context.update(context)
    return error


def reject_without_conflict(entities: Sequence[tuple[str, str]]) -> None:
    """Raise if there are resolutions that settle no conflict, given by type key and entity, and name them."""
    if not entities:
        return
    subjects = ", ".join(f"`{entity_id}` of `{key}`" for key, entity_id in entities[:FINDINGS_SHOWN_MAX])
    more = f" and {len(entities) - FINDINGS_SHOWN_MAX} more" if len(entities) > FINDINGS_SHOWN_MAX else ""
    error = refuse(
        f"there is no conflict about {subjects}{more}; repeat the dry run and leave the resolution out",
        type_key=entities[0][0],
        entity_id=entities[0][1],
    )
    error.context["resolutions"] = [{"type_key": key, "entity_id": entity_id} for key, entity_id in entities]
    raise error
