"""Sources: from what a caller names to the splits that tasks read, each small enough for one of them.

Plans only; `reading` turns a split into rows.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog, EdgeType
from omnigraph.lang.query.words import suggestion
from omnigraph.limits import LOAD_SPLIT_BYTES
from omnigraph.pipeline.files import File, Partitions, find_files, open_file

Path: TypeAlias = str | os.PathLike[str]
# The column of each property of a key that an end of edges is spread over; of an id, or a key of one, under no name.
End: TypeAlias = Mapping[str, str]

_FORMATS: Final = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".parquet": "parquet",
    ".csv": "csv",
}
_COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd"}
_ENDS: Final = (("from", "to"), ("src", "dst"))


@dataclass(frozen=True, slots=True)
class Columns:
    """A file or DataFrame whose rows are entities of one type, and what its columns are.

    `properties` gives columns that are named otherwise: column to property. `source` and `target` are the columns that
    hold the ends of edges; without them `from` and `to`, or `src` and `dst`, are taken. Where a node has a key of
    several properties, an end may be one column for each of them: `house,floor=upper_floor`.
    """

    data: Any
    source: str | None = None
    target: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads: bytes of an NDJSON file, row groups of a Parquet file, or a whole file.

    `columns` is None for NDJSON, which says itself what it holds. `partitions` are columns that directories below the
    source spell; those of its own path, `parent_partitions`, count where the file has no such column.
    """

    file: str
    format: str
    start: int
    stop: int
    size: int
    compression: str | None = None
    table_key: str | None = None
    columns: Columns | None = None
    partitions: Partitions = ()
    parent_partitions: Partitions = ()

    @property
    def is_first(self) -> bool:
        return self.start == 0


def plan_ndjson(sources: Sequence[Path]) -> list[Split]:
    """Return the splits of NDJSON files; a compressed one cannot be cut."""
    splits: list[Split] = []
    for file in _all_files(sources):
        format_, compression = _format_of(file)
        if format_ != "ndjson":
            raise UsageError(
                f"`{file.name}` is {format_}, which does not say what its rows are; name their type with `nodes` or"
                " `edges` (`--node Type=FILE`, `--edge Type=FILE`)",
                path=file.name,
            )
        step = file.size if compression else LOAD_SPLIT_BYTES
        for start in range(0, max(file.size, 1), max(step, 1)):
            stop = min(start + step, file.size)
            splits.append(Split(file.name, format_, start, stop, stop - start, compression))
    return splits


def plan_columns(table_key: str, columns: Columns, properties: Container[str] = ()) -> list[Split]:
    """Return the splits of one type's files: row groups of Parquet, or whole files of CSV.

    Directories of the path that was named are columns if they are among the `properties` of the type, or mapped.
    """
    sources = columns.data if isinstance(columns.data, list | tuple) else [columns.data]
    bare = Columns(None, columns.source, columns.target, dict(columns.properties))
    splits: list[Split] = []
    for file in _all_files(sources):
        format_, compression = _format_of(file)
        if format_ == "ndjson":
            raise UsageError(f"`{file.name}` names the types of its lines itself; give it as `data`", path=file.name)
        pieces = _row_groups(file) if format_ == "parquet" else [(0, 0, file.size)]
        parents = tuple(
            (name, value)
            for name, value in file.parent_partitions
            if name in properties or name in {*columns.properties, columns.source, columns.target}
        )
        partitions = file.partitions, parents
        splits += [Split(file.name, format_, *piece, compression, table_key, bare, *partitions) for piece in pieces]
    return splits


def table_key_of(catalog: Catalog, kind: str, name: str) -> str:
    """Return the key of a type that a caller named, or refuse the name with a suggestion."""
    known: Mapping[str, Any] = catalog.nodes if kind == "node" else catalog.edges
    found = known.get(name) if kind == "node" else catalog.edge_by_word(name)
    if found is None:
        hint = suggestion(name, known) or f"the schema has {', '.join(sorted(known)[:8]) or 'none'}"
        raise UsageError(f"there is no {kind} type `{name}`; {hint}", type=name)
    return str(found.table_key)


def parse_columns(source: Any) -> Columns:
    """Return a source with the columns that its text names: `follows.csv:src_id->dst_id`.

    >>> parse_columns("follows.csv:src_id->dst_id")
    Columns(data='follows.csv', source='src_id', target='dst_id', properties={})
    """
    if isinstance(source, Columns):
        return source
    if not isinstance(source, str) or "->" not in source:
        return Columns(source)
    data, _, ends = source.rpartition(":")
    first, _, second = (part.strip() for part in ends.partition("->"))
    if not data or not first or not second:
        raise UsageError(f"`{source}` does not name two columns; write `FILE:from_column->to_column`", source=source)
    return Columns(data, first, second)


def end_columns(type_: EdgeType, columns: Columns, names: Sequence[str]) -> tuple[End, End]:
    """Return the columns that hold either end of edges."""
    for source, target in ((columns.source, columns.target), *_ENDS):
        if source is not None and target is not None:
            first, second = _columns_of_end(source, names), _columns_of_end(target, names)
            if first and second:
                return first, second
    wanted = f"`{columns.source}` and `{columns.target}`" if columns.source else "`from` and `to`, or `src` and `dst`"
    raise UsageError(
        f"the ends of `{type_.name}` are looked for in the columns {wanted}, and there are {_listed(names)}; name them"
        " with `FILE:from_column->to_column`",
        type=type_.name,
    )


def _columns_of_end(text: str, names: Sequence[str]) -> End:
    """Return the columns that a text names, nothing if one is missing; a column may have a comma in its name."""
    if text in names:
        return {"": text}
    pairs = [[part.strip() for part in one.split("=", 1)] for one in text.split(",")]
    end = {pair[0]: pair[-1] for pair in pairs}
    return end if len(pairs) > 1 and all(column in names for column in end.values()) else {}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _all_files(sources: Sequence[Path]) -> Iterator[File]:
    for source in sources:
        if not isinstance(source, str | os.PathLike):
            raise UsageError(f"`{type(source).__name__}` is no input; give the path of a file", source=str(source)[:80])
        yield from find_files(source)


def _format_of(file: File) -> tuple[str, str | None]:
    stem, ending = os.path.splitext(file.name.lower())
    compression = _COMPRESSIONS.get(ending)
    if compression:
        ending = os.path.splitext(stem)[1]
    format_ = _FORMATS.get(ending)
    if format_ is None or (compression and format_ == "parquet"):
        raise UsageError(
            f"`{file.name}` is of a kind that a load does not read; it takes {', '.join(_FORMATS)}, the texts also as"
            f" {' and '.join(_COMPRESSIONS)}",
            path=file.name,
        )
    return format_, compression


def _row_groups(file: File) -> Iterator[tuple[int, int, int]]:
    """Yield runs of row groups of about the size of a split: first, last + 1, bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_file(file.name) as opened:
            metadata = pq.ParquetFile(opened).metadata
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"`{file.name}` is no Parquet file: {reason}", path=file.name) from error
    first = size = 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= LOAD_SPLIT_BYTES or group == metadata.num_row_groups - 1:
            yield first, group + 1, size
            first, size = group + 1, 0
    if metadata.num_row_groups == 0:
        yield 0, 0, 0
