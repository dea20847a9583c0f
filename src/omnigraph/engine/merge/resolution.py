"""Resolutions: what a caller decided about the conflicts of a dry run.

A resolution names an entity, or one property of it, and says whose state to take, or which. Here they are only read;
`settle` applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from omnigraph.errors import GraphError, UsageError
from omnigraph.limits import FINDINGS_SHOWN_MAX

# A path, bytes, or dictionaries: what was decided, as a JSON array or one object a line.
Given: TypeAlias = str | Path | bytes | Iterable[Mapping[str, object]] | None

_SIDES: Final = ("ours", "theirs", "base")
IMAGES: Final = ("base", "ours", "theirs")
_MEMBERS: Final = frozenset(
    {"type_key", "entity_id", "property", "take", "row", "value", "kind", "message", "properties", *IMAGES}
)


@dataclass(frozen=True, slots=True)
class Resolution:
    """One decision. `seen` holds the images that the caller looked at, as far as they were passed back."""

    type_key: str
    entity_id: str
    property: str | None
    take: str | None
    given: object
    seen: Mapping[str, object]


def read_resolutions(given: Given) -> list[Resolution]:
    """Return resolutions from a file of JSON or NDJSON, its bytes, or dictionaries."""
    return [_parse(one, number) for number, one in enumerate(resolution_objects(given), start=1)]


def resolution_objects(given: Given) -> list[Any]:
    """Return the JSON objects that resolutions are given as; what they say is not looked at."""
    if given is None:
        return []
    if isinstance(given, str | Path):
        path = Path(given)
        try:
            given = path.read_bytes()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot read `{path}`: {reason}; check the path", path=str(path)) from error
    return _objects(given)


def _objects(given: bytes | Iterable[Mapping[str, object]]) -> list[Any]:
    if not isinstance(given, bytes):
        return list(given)
    text = given.strip()
    try:
        if text.startswith(b"["):
            found: list[Any] = orjson.loads(text)
            return found
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise refuse(f"the resolutions are not JSON: {error}; write an array, or one object a line") from error


def _parse(value: Any, number: int) -> Resolution:
    where = f"resolution {number}"
    if not isinstance(value, Mapping):
        raise refuse(f"{where} is no object")
    unknown = sorted(value.keys() - _MEMBERS)
    if unknown:
        raise refuse(f"{where} has the unknown member `{unknown[0]}`; it takes {', '.join(sorted(_MEMBERS))}")
    for name in ("type_key", "entity_id"):
        if not isinstance(value.get(name), str):
            raise refuse(f"{where} needs a `{name}`, as the conflict has it")
    picks = [name for name in ("take", "row", "value") if name in value]
    if len(picks) != 1:
        raise refuse(f"{where} needs exactly one of `take`, `row` and `value`, and has {len(picks)}")
    property_ = value.get("property")
    if picks[0] == "take" and value["take"] not in _SIDES:
        raise refuse(f"{where} takes `{value['take']}`; it can take {', '.join(_SIDES)}")
    if picks[0] == "row" and (property_ is not None or not isinstance(value["row"], Mapping)):
        raise refuse(f"{where} gives a `row`, which is an object and stands for the whole entity")
    if (picks[0] == "value") and property_ is None:
        raise refuse(f"{where} gives a `value`, but no `property` that it is for")
    seen = {name: value[name] for name in IMAGES if name in value}
    take = value["take"] if picks[0] == "take" else None
    return Resolution(value["type_key"], value["entity_id"], property_, take, value[picks[0]], seen)


def refuse(message: str, **context: str) -> GraphError:
    """Return the error of a resolution that cannot be applied."""
    error = GraphError(message, code="merge.resolution")
    error.context.update(context)
    return error


def refuse_unsettled(places: Sequence[tuple[str, str]]) -> None:
    """Raise if there are resolutions that settle no conflict, given by type key and entity, and name them."""
    if not places:
        return
    shown = ", ".join(f"`{entity_id}` of `{key}`" for key, entity_id in places[:FINDINGS_SHOWN_MAX])
    more = f" and {len(places) - FINDINGS_SHOWN_MAX} more" if len(places) > FINDINGS_SHOWN_MAX else ""
    is_plain = any(not key.startswith(("node:", "edge:")) for key, _ in places)
    keys = "; a `type_key` is `node:TYPE` or `edge:TYPE`" if is_plain else ""
    error = refuse(
        f"there is no conflict about {shown}{more}{keys}; run the merge dry again and leave the resolution out",
        type_key=places[0][0],
        entity_id=places[0][1],
    )
    error.context["resolutions"] = [{"type_key": key, "entity_id": entity_id} for key, entity_id in places]
    raise error
