"""Random values of properties, and how they are written in a mutation."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from tests.world.schema_model import Property, Type, nearest_single

WORDS = ("sea", "calm wind", "harbour", "sea wind", "", "é", 'say "hi"', "C:\\dir\\", "a,b")
POOLS: dict[str, list[Any]] = {
    "String": list(WORDS),
    "I32": [-3, 0, 1, 2, 3, 7, 1000],
    "I64": [-3, 0, 1, 2, 2**40, 2**53 + 1],
    "U32": [0, 1, 5, 2**32 - 1],
    "U64": [0, 1, 5, 2**40],
    "F32": [0.5, 1.5, -2.0, nearest_single(0.1)],
    "F64": [0.1, 0.5, -2.0, 1e39, 0.35],
    "Bool": [True, False],
    "Date": [0, 19_723, -1],
    "DateTime": [0, 1_704_067_200_123],
    "Duration": [0, -1, 5_400_000, 86_400_001],
    "[String]": [[], ["x"], ["x", "y"], ["z", "x"]],
    "[I32]": [[], [1], [2, 1], [7]],
    "[I64]": [[], [1], [2**40, 1]],
    "[F64]": [[], [0.5], [0.1, 2.0]],
    "Vector(3)": [[0.0, 1.0, 0.5], [1.0, 0.0, 0.0], [0.25, 0.25, 2.0], [0.0, 0.0, 0.0]],
}
NEW_BASES = (
    "String",
    "String",
    "I32",
    "I32",
    "F32",
    "I64",
    "F64",
    "Bool",
    "Date",
    "DateTime",
    "[I32]",
    "U32",
    "Duration",
)
WRITTEN_AS_PARAMETERS = ("Date", "DateTime", "Duration", "Blob", "Vector(3)")
BLOB_SIZES = (0, 3, 50, 50, 66_000)
# How many different keys nodes of a type have.
KEYS = 7


def random_value(random: Random, one: Property) -> Any:
    """Return a value of a property, null now and then if it may be."""
    if not one.is_required and random.random() < 0.15:
        return None
    if one.base == "Blob":
        content = random.randbytes(random.choice(BLOB_SIZES))
        return f"base64:{base64.b64encode(content).decode()}"
    if one.is_enum:
        return random.choice(one.words)
    return random.choice(POOLS[one.base])


def random_key(random: Random, type_: Type, one: Property) -> Any:
    """Return a value of a key, out of few."""
    number = random.randrange(KEYS)
    return f"{type_.id}k{number}" if one.base == "String" else number


class Texts:
    """Literals of a mutation; values that have no literal become parameters."""

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}
        self.declared: list[str] = []

    def write(self, value: Any, base: str) -> str:
        if value is None:
            return "null"
        if base.startswith("[") or base in WRITTEN_AS_PARAMETERS:
            name = f"v{len(self.declared)}"
            self.declared.append(f"${name}: {base}")
            self.parameters[name] = _parameter(value, base)
            return f"${name}"
        if isinstance(value, float):
            # Numbers have no exponent.
            return f"{Decimal(value):f}.0" if value >= 1e16 else json.dumps(value)
        return json.dumps(value, ensure_ascii=False)

    def query(self, body: str, *, is_mixed: bool = False) -> str:
        return f"query q({', '.join(self.declared)}) {'@mixed ' if is_mixed else ''}{{ {body} }}"


def _parameter(value: Any, base: str) -> Any:
    if base == "Date":
        return (date(1970, 1, 1) + timedelta(value)).isoformat()
    if base == "DateTime":
        return datetime.fromtimestamp(value / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return duration_text(value) if base == "Duration" else value


def duration_text(milliseconds: int) -> str:
    """Return a duration in seconds; the product writes it in larger units, too."""
    return f"{'-' if milliseconds < 0 else ''}PT{abs(milliseconds) // 1_000}.{abs(milliseconds) % 1_000:03}S"
