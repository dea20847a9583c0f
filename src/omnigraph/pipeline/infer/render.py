"""The `.pg` source of inferred types, with the evidence for each property as a comment.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph.lang.catalog import Scalar, TypeKey
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.format import format_source
from omnigraph.limits import VECTOR_DIMENSION_MAX
from omnigraph.pipeline.infer.profile import ColumnProfile, TableProfile
from omnigraph.pipeline.infer.relations import Relations

_ENUM_VALUE: Final = re.compile(r"[A-Za-z0-9_-]+")
# A text is an enum if it has few values that come back often.
_ENUM_ROWS_MIN: Final = 20
_ENUM_ROWS_PER_VALUE: Final = 5


@dataclass(frozen=True, slots=True)
class Table:
    """A table as a type: its profile, and the property of each column."""

    key: TypeKey
    profile: TableProfile
    properties: Mapping[str, str]


def render_schema(tables: Sequence[Table], relations: Relations, header: Sequence[str]) -> str:
    """Return the formatted source of all types."""
    lines = [f"// {_one_line(text)}" for text in header]
    for table in tables:
        lines += ["", *_render_type(table, relations)]
    return format_source(Source("inferred.pg", "\n".join(lines)), "pg")


def _render_type(table: Table, relations: Relations) -> Iterator[str]:
    key, edge = table.key, relations.edges.get(table.key)
    for note in relations.notes.get(key, ()):
        yield f"// {_one_line(note)}"
    if edge is not None:
        ends = f"{edge.ends[0].name} -> {edge.ends[1].name}"
        for column in edge.columns:
            yield f"// {_one_line(column)}: {_evidence(table.profile, column)}"
        members = list(_render_properties(table, (), skipped=edge.columns))
        yield f"edge {key.name}: {ends}" + (" {" if members else "")
        yield from [*members, "}"] if members else []
        return
    if key not in relations.keys:
        return
    yield f"node {key.name} {{"
    yield from _render_properties(table, relations.keys[key], skipped=())
    yield "}"


def _render_properties(table: Table, key: Sequence[str], *, skipped: Sequence[str]) -> Iterator[str]:
    for column, profile in table.profile.columns.items():
        name = table.properties.get(column, "")
        if column in skipped or not column:
            continue
        evidence = _evidence(table.profile, column, is_key=tuple(key) == (column,))
        if name == "id":
            yield f"// id: {evidence}; the ids of the graph"
            continue
        if profile.type is not None and profile.type.scalar is None:
            yield f"// left out: `{_one_line(column)}` has {profile.type.reason}; {evidence}"
            continue
        is_key = tuple(key) == (column,)
        written = write_type(profile, is_nullable=table.profile.nulls(column) > 0, is_key=column in key)
        was = f"column `{_one_line(column)}`, " if name != column else ""
        yield f"{name}: {written}{' @key' if is_key else ''} // {was}{evidence}"
    if len(key) > 1:
        yield f"@key({', '.join(table.properties[column] for column in key)})"


def write_type(profile: ColumnProfile, *, is_nullable: bool, is_key: bool) -> str:
    """Return the type of a property; a column without any value is a text that may be null."""
    mark = "?" if is_nullable else ""
    if profile.type is None or profile.type.scalar is None:
        return "String?"
    if profile.is_vector and profile.lengths is not None and profile.lengths[0] <= VECTOR_DIMENSION_MAX:
        return f"Vector({profile.lengths[0]}){mark}"
    name = profile.type.scalar.value
    if profile.type.is_list:
        return f"[{name}]{mark}"
    if not is_key and profile.type.scalar is Scalar.STRING and _is_enum(profile):
        return f"enum({', '.join(sorted(profile.words or ()))}){mark}"
    return f"{name}{mark}"


def _is_enum(profile: ColumnProfile) -> bool:
    words = profile.words
    if words is None or len(words) < 2 or not all(map(_ENUM_VALUE.fullmatch, words)):
        return False
    return profile.values >= max(_ENUM_ROWS_MIN, _ENUM_ROWS_PER_VALUE * len(words))


def _evidence(profile: TableProfile, column: str, *, is_key: bool = False) -> str:
    """Return the counts of a column; the values of a key were all compared, so their number is exact."""
    values = profile.columns[column]
    rows, nulls = f"{profile.rows:,} row{'s' if profile.rows != 1 else ''}", f"{profile.nulls(column):,} null"
    if values.type is None or values.type.is_list or values.type.scalar in (None, Scalar.BLOB):
        return f"{rows}, {nulls}"
    about = "" if values.sketch.is_exact or is_key else "about "
    distinct = profile.rows if is_key else min(values.sketch.distinct, values.values)
    return f"{rows}, {about}{distinct:,} distinct, {nulls}"


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
