"""What a person of the soak holds beside its counter: a text, a vector and perhaps a photo, all derived from its name.

So a reader can check any person of any state without a record of what was written.
"""

from __future__ import annotations

import base64
import hashlib

from omnigraph.graph import Graph

DIMENSIONS = 4
# Below and above the size from which Lance keeps a blob outside of the data file; most persons have no photo.
PHOTO_BYTES = {0: 300, 1: 70_000}
PHOTO_CLASSES = 8
WORD = "made"
SEARCH = f'query q() {{ match {{ $p: Person  search($p.note, "{WORD}") }} return {{ $p.name as name }} }}'
HITS = f'query q() {{ match {{ $p: Person  search($p.note, "{WORD}") }} return {{ count($p) as n }} }}'


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def person_data(name: str) -> dict[str, object]:
    """Return the properties that a new person gets."""
    data: dict[str, object] = {"name": name, "n": 0, "note": f"{WORD} as {name}", "vec": person_vector(name)}
    photo = person_photo(name)
    return data if photo is None else data | {"photo": "base64:" + base64.b64encode(photo).decode()}


def person_vector(name: str) -> list[float]:
    return [byte / 256 for byte in _digest(name)[:DIMENSIONS]]


def person_photo(name: str) -> bytes | None:
    size = PHOTO_BYTES.get(_digest(name)[-1] % PHOTO_CLASSES)
    return None if size is None else (_digest(name) * (size // 32 + 1))[:size]


def distance(one: list[float], other: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def nearest_names(graph: Graph, vector: list[float], limit: int, **state: str) -> list[str]:
    """Return the persons nearest to a vector at a state (`branch=` or `at=`), nearest first."""
    source = (
        f"query q() {{ match {{ $p: Person }} return {{ $p.name as name }}"
        f" order {{ nearest($p.vec, {vector}) }} limit {limit} }}"
    )
    return [str(row["name"]) for row in graph.query(source, **state).rows()]  # type: ignore[arg-type]


def photo_errors(graph: Graph, names: list[str], **state: str) -> list[str]:
    """Read the photos of some persons and return what is wrong with them."""
    errors = []
    for name in names:
        photo = person_photo(name)
        if photo is not None and graph.blob("Person", name, "photo", **state).read() != photo:  # type: ignore[arg-type]
            errors.append(f"the photo of {name} is not the one it was given")
    return errors


def order_errors(names: list[str], vector: list[float]) -> list[str]:
    """Return what is wrong with the order of a vector search."""
    distances = [distance(person_vector(name), vector) for name in names]
    return [] if distances == sorted(distances) else [f"{names} are not in the order of their distance to {vector}"]
