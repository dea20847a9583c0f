"""Property types, as both languages see them.

Pure, and free of Arrow: `lang.schema.arrow` maps these to Arrow for those who need it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scalar(StrEnum):
    """The base types, by their spelling in a schema."""

    STRING = "String"
    BLOB = "Blob"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    VECTOR = "Vector"


INTEGERS = frozenset({Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64})
FLOATS = frozenset({Scalar.F32, Scalar.F64})
NUMBERS = INTEGERS | FLOATS


@dataclass(frozen=True, slots=True)
class PropertyType:
    """The type of a property or parameter.

    >>> str(PropertyType(Scalar.STRING, is_list=True, nullable=True)), str(PropertyType(Scalar.VECTOR, dimension=3))
    ('[String]?', 'Vector(3)')
    """

    scalar: Scalar
    is_list: bool = False
    nullable: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None

    @property
    def is_number(self) -> bool:
        return self.scalar in NUMBERS and not self.is_list

    @property
    def is_text(self) -> bool:
        """Tell whether values are single strings, enum values included."""
        return self.scalar is Scalar.STRING and not self.is_list

    def __str__(self) -> str:
        if self.enum_values is not None:
            base = f"enum({', '.join(self.enum_values)})"
        elif self.scalar is Scalar.VECTOR:
            base = f"Vector({self.dimension})"
        else:
            base = self.scalar.value
        return (f"[{base}]" if self.is_list else base) + ("?" if self.nullable else "")
