"""Input files: find them, cut them into splits of one task each, and write DataFrames to files first.

Plans only; `read_split` turns a split into rows.
"""

from __future__ import annotations

import fnmatch
import glob
import io
import os
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet
from pyarrow import fs

from omnigraph.engine.input.filesystems import filesystem, object_scheme, open_file, path_in_store, unreadable_file
from omnigraph.engine.input.frames import frame_without_type, is_arrow_stream
from omnigraph.engine.tasks import GraphAccess, Runner, reading_stage
from omnigraph.errors import UsageError
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog, EdgeType, TypeKey
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.limits import LOAD_SPLIT_BYTES

_GLOB_CHARACTERS = frozenset("*?[")
# How Hive names the partition of nulls.
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"

# Columns that directory names encode as `name=value`, as in Hive and Spark.
Partitions: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class File:
    """One input file, by the name that messages use.

    `partitions` are the columns of directories below the source, `parent_partitions` those of the path to the source.
    `modified_ns` is the time of its last change, in nanoseconds since 1970.
    """

    name: str
    size: int
    partitions: Partitions = ()
    parent_partitions: Partitions = ()
    modified_ns: int = 0


def find_files(source: str | os.PathLike[str]) -> list[File]:
    """Return the files of a path, directory or glob pattern, sorted by name; no match is an error."""
    text = os.fspath(source)
    try:
        files = _find_objects(text) if object_scheme(text) else _find_local_files(text)
    except OSError as error:
        raise unreadable_file(text, error) from error
    except ValueError as error:
        raise UsageError(f"invalid path `{text!r}`: {error}", path=text) from error
    if not files:
        raise UsageError(f"`{text}` matches no file; check the path", path=text)
    return sorted(files, key=lambda file: file.name)


def _find_local_files(text: str) -> list[File]:
    text = os.path.expanduser(text.removeprefix("file://"))
    root = os.path.dirname(text)
    if os.path.isdir(text):
        root = text
        names = [os.path.join(folder, name) for folder, _, files in os.walk(text) for name in files]
    elif not os.path.exists(text) and _GLOB_CHARACTERS & set(text):
        root = _pattern_root(text)
        names = [name for name in glob.glob(text, recursive=True) if os.path.isfile(name)]
    else:
        names = [text]
    parents = parse_partitions(root)
    files = []
    for name in names:
        below = os.path.relpath(name, root or os.curdir)
        if name == text or _is_data_file(below):
            status = os.stat(name)
            partitions = parse_partitions(os.path.dirname(below))
            files.append(File(os.path.abspath(name), status.st_size, partitions, parents, status.st_mtime_ns))
    return files


def _find_objects(text: str) -> list[File]:
    scheme, path = object_scheme(text), path_in_store(text)
    is_pattern = bool(_GLOB_CHARACTERS & set(path))
    root = _pattern_root(path) if is_pattern else path
    client = filesystem(text)
    info = client.get_file_info(root)
    if info.type is fs.FileType.File:
        return [File(text, info.size, (), parse_partitions(os.path.dirname(path)), info.mtime_ns or 0)]
    inside = client.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
    files = [(entry, entry.path[len(root) :].strip("/")) for entry in inside if entry.type is fs.FileType.File]
    if is_pattern:
        files = [(entry, below) for entry, below in files if fnmatch.fnmatchcase(entry.path, path)]
    parents = parse_partitions(root)
    return [
        File(
            f"{scheme}{entry.path}", entry.size, parse_partitions(os.path.dirname(below)), parents, entry.mtime_ns or 0
        )
        for entry, below in files
        if _is_data_file(below)
    ]


def _pattern_root(pattern: str) -> str:
    """Return the directory below which a glob pattern can match.

    >>> _pattern_root("logs/day=*/part-*.csv")
    'logs'
    """
    return os.path.dirname(pattern[: min(pattern.index(sign) for sign in _GLOB_CHARACTERS if sign in pattern)])


def parse_partitions(folder: str) -> Partitions:
    """Return the partition columns of a path, outermost first.

    >>> parse_partitions("logs/day=2024-01-02/place=S%C3%A3o Paulo/kind=__HIVE_DEFAULT_PARTITION__")
    (('day', '2024-01-02'), ('place', 'São Paulo'), ('kind', None))
    """
    pairs = [part.split("=", 1) for part in folder.replace(os.sep, "/").split("/") if part.find("=") > 0]
    return tuple((unquote(name), None if value == _NULL_PARTITION else unquote(value)) for name, value in pairs)


def _is_data_file(path: str) -> bool:
    """Return True if a file holds data: names that begin with `_` or a dot are metadata of the writer.

    As in Spark, a partition column may begin with `_`, and unfinished Hadoop copies are skipped.

    >>> [_is_data_file(name) for name in ("_year=2024/part-0", "_temporary/0/part-0", "part-0._COPYING_")]
    [True, False, False]
    """
    parts = path.strip("/").split("/")
    is_hidden = [part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts]
    return not any(is_hidden) and not parts[-1].endswith("._COPYING_")


Path: TypeAlias = str | os.PathLike[str]
# The column of each key property of an endpoint; under the empty name for a column that holds ids or single keys.
EndpointColumns: TypeAlias = Mapping[str, str]

_FORMATS: Final = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".parquet": "parquet",
    ".parq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
}
COMPRESSIONS: Final = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
# In memory, the row of a file that repeats its values.
_ROW_BYTES: Final = 64
_DEFAULT_ENDPOINTS: Final = (("from", "to"), ("src", "dst"))


@dataclass(frozen=True, slots=True)
class Columns:
    """A file or DataFrame whose rows are entities of one type, with a mapping of its columns.

    `properties` maps columns to properties of another name. `source` and `target` are the columns of the endpoints of
    edges, by default `from` and `to`, or `src` and `dst`. For a node with a composite key, an endpoint may name one
    column per key property: `house,floor=upper_floor`. `name` is what messages call the data, by default its file.
    `delimiter` separates the fields of a CSV file, by default a comma, or a tab in `.tsv`.
    `view` is that of a declared pipeline, whose rows may have a column that says where they come from.
    """

    data: Any
    source: str | None = None
    target: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    delimiter: str | None = None
    view: str | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads: bytes of an NDJSON file, row groups of a Parquet file, a whole file, or what is in memory.

    `columns` is None for NDJSON, whose lines name their types. `partitions` are the partition columns below the source;
    those of the path to it, `parent_partitions`, apply where the file has no such column. `content` is what is read
    instead of a file: text, records (dictionaries), or Arrow batches. `rows` are those of a Parquet file.
    """

    file: str
    format: str
    start: int
    stop: int
    size: int
    compression: str | None = None
    table_key: TypeKey | None = None
    columns: Columns | None = None
    partitions: Partitions = ()
    parent_partitions: Partitions = ()
    name: str | None = None
    rows: int = 0
    content: Any = field(default=None, compare=False, repr=False)

    @property
    def shown_name(self) -> str:
        """What messages call the input: its file or frame; empty if it is neither."""
        return self.file if self.name is None else self.name

    @property
    def memory_bytes(self) -> int:
        """About how much memory its rows take; unknown for what is compressed."""
        return sys.maxsize if self.compression is not None else max(self.size, self.rows * _ROW_BYTES)

    def open(self) -> Any:
        """Open the bytes of the split for random access."""
        return open_file(self.file) if self.content is None else pa.BufferReader(self.content)

    @property
    def delimiter(self) -> str:
        """What separates the fields of a CSV file."""
        chosen = self.columns.delimiter if self.columns is not None else None
        return chosen if chosen is not None else delimiter_of(self.file)

    @property
    def is_first(self) -> bool:
        return self.start == 0

    @property
    def first_line(self) -> int:
        """The number of the first line: 1 only at the start of a file, where a byte order mark may be."""
        return 1 if self.is_first else 2


def plan_ndjson(sources: Sequence[Path]) -> list[Split]:
    """Return the splits of NDJSON files; a compressed file is one split."""
    splits: list[Split] = []
    for file in _all_files(sources):
        format_, compression = detect_format(file)
        if format_ != "ndjson":
            raise UsageError(
                f"`{file.name}` is {format_}, which does not name the type of its rows; pass it as `nodes` or"
                " `edges` (`--node Type=FILE`, `--edge Type=FILE`)",
                path=file.name,
            )
        step = file.size if compression else LOAD_SPLIT_BYTES
        for start in range(0, max(file.size, 1), max(step, 1)):
            stop = min(start + step, file.size)
            splits.append(Split(file.name, format_, start, stop, stop - start, compression))
    return splits


def plan_columns(table_key: TypeKey, columns: Columns, properties: Container[str] = ()) -> list[Split]:
    """Return the splits of one type's files: row groups of Parquet, or whole files of CSV.

    Partition directories in the path to the source are columns only if they are mapped or name a property.
    """
    sources = columns.data if isinstance(columns.data, list | tuple) else [columns.data]
    _check_delimiter(columns.delimiter)
    bare = replace(columns, data=None, properties=dict(columns.properties))
    splits: list[Split] = []
    for file in _all_files(sources):
        format_, compression = detect_format(file)
        if format_ == "ndjson":
            raise UsageError(f"`{file.name}` names the type of each line; pass it as `data`", path=file.name)
        pieces = _plan_row_groups(file) if format_ == "parquet" else [(0, 0, file.size, 0)]
        mapped = {*columns.properties, columns.source, columns.target}
        parents = tuple(item for item in file.parent_partitions if item[0] in properties or item[0] in mapped)
        splits += [
            Split(
                file.name,
                format_,
                start,
                stop,
                size,
                compression,
                table_key,
                bare,
                file.partitions,
                parents,
                columns.name,
                rows,
            )
            for start, stop, size, rows in pieces
        ]
    return splits


def _check_delimiter(delimiter: str | None) -> None:
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise UsageError(
            f"`{delimiter}` cannot separate the fields of a CSV file; use one character, such as `;`",
            delimiter=delimiter,
        )


def find_table_key(catalog: Catalog, kind: str, name: str) -> TypeKey:
    """Return the table key of a type name; an unknown name is an error with a suggestion."""
    types: Mapping[str, Any] = catalog.nodes if kind == "node" else catalog.edges
    type_ = types.get(name) if kind == "node" else catalog.edge_by_word(name)
    if type_ is None:
        hint = did_you_mean(name, types) or f"the schema has {', '.join(sorted(types)[:8]) or 'none'}"
        raise UsageError(f"there is no {kind} type `{name}`; {hint}", type=name)
    return type_.table_key


def parse_columns(source: Any) -> Columns:
    """Parse a source with optional endpoint columns: `follows.csv:src_id->dst_id`.

    >>> parse_columns("follows.csv:src_id->dst_id")
    Columns(data='follows.csv', source='src_id', target='dst_id', properties={}, name=None, delimiter=None, view=None)
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


def endpoint_columns(
    type_: EdgeType, columns: Columns, names: Sequence[str]
) -> tuple[EndpointColumns, EndpointColumns]:
    """Return the columns of the source and of the target of edges."""
    for source, target in ((columns.source, columns.target), *_DEFAULT_ENDPOINTS):
        if source is not None and target is not None:
            first, second = _parse_endpoint(source, names), _parse_endpoint(target, names)
            if first and second:
                return first, second
    expected = f"`{columns.source}` and `{columns.target}`" if columns.source else "`from` and `to`, or `src` and `dst`"
    present = ", ".join(f"`{name}`" for name in names) or "none"
    raise UsageError(
        f"no endpoints for `{type_.name}`: expected the columns {expected}, found {present}; name them"
        " with `FILE:from_column->to_column`",
        type=type_.name,
    )


def _parse_endpoint(text: str, names: Sequence[str]) -> EndpointColumns:
    """Return the columns of an endpoint, empty if one is missing; a column name may itself contain a comma."""
    if text in names:
        return {"": text}
    pairs = [[part.strip() for part in item.split("=", 1)] for item in text.split(",")]
    end = {pair[0]: pair[-1] for pair in pairs}
    return end if len(pairs) > 1 and all(column in names for column in end.values()) else {}


def _all_files(sources: Sequence[Path]) -> Iterator[File]:
    for source in sources:
        if not isinstance(source, str | os.PathLike):
            raise unsupported_input(source)
        yield from find_files(source)


def unsupported_input(source: object) -> UsageError:
    """Return the error for a source that is no input."""
    if is_arrow_stream(source):
        return frame_without_type()
    return UsageError(
        f"unsupported input of type `{type(source).__name__}`; expected a path, a data frame (pandas, polars,"
        " Arrow or Spark), record batches or a list of dictionaries",
        source=str(source)[:80],
    )


def detect_format(file: File) -> tuple[str, str | None]:
    ending, compression = _split_ending(file.name)
    format_ = _FORMATS.get(ending)
    if format_ is None or (compression and format_ == "parquet"):
        raise UsageError(
            f"`{file.name}` has an unsupported format; expected one of {', '.join(_FORMATS)}, text formats also"
            f" compressed as {', '.join(COMPRESSIONS)}. A declared pipeline reads any format of Spark",
            path=file.name,
        )
    return format_, compression


def delimiter_of(path: str) -> str:
    """Return what separates the columns of a text file, by its name.

    >>> delimiter_of("people.tsv.gz"), delimiter_of("people.csv")
    ('\\t', ',')
    """
    return "\t" if _split_ending(path)[0] == ".tsv" else ","


def compression_of(path: str) -> str | None:
    """Return how a file is compressed, by its name."""
    return _split_ending(path)[1]


def _split_ending(path: str) -> tuple[str, str | None]:
    """Return the ending of a file name without that of its compression, and the compression."""
    stem, ending = os.path.splitext(path.lower())
    compression = COMPRESSIONS.get(ending)
    return (ending, None) if compression is None else (os.path.splitext(stem)[1], compression)


def _plan_row_groups(file: File) -> Iterator[tuple[int, int, int, int]]:
    """Yield runs of row groups of about the size of a split: first, stop, bytes, rows."""
    try:
        with open_file(file.name) as opened:
            metadata = pyarrow.parquet.ParquetFile(opened).metadata
    except (pa.ArrowInvalid, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"`{file.name}` is not a Parquet file: {reason}", path=file.name) from error
    first = size = rows = 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        rows += metadata.row_group(group).num_rows
        if size >= LOAD_SPLIT_BYTES or group == metadata.num_row_groups - 1:
            yield first, group + 1, size, rows
            first, size, rows = group + 1, 0, 0
    if metadata.num_row_groups == 0:
        yield 0, 0, 0, 0


def is_frame(source: object) -> bool:
    """Return True for a Spark DataFrame, classic or Spark Connect."""
    return hasattr(source, "mapInArrow")


def write_frame(runner: Runner, frame: Any, access: GraphAccess, folder: str, type_name: str) -> list[str]:
    """Write the rows of a type's distributed frame to a folder of the graph and return the URIs of the files."""
    write = partial(write_batches, access, folder)
    # Only the paths of successful attempts come back; files of failed ones are removed with the folder.
    paths = runner.map_frame(reading_stage(type_name), frame, write, "path string")
    root = access.store().root
    return [root.child(path).uri for path in paths]


def write_batches(access: GraphAccess, folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one partition to files of about the size of a split, and yield their paths."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        gathered.append(batch)
        size += batch.nbytes
        if size >= LOAD_SPLIT_BYTES:
            yield _write_parquet(access, folder, gathered)
            gathered, size = [], 0
    if gathered:
        yield _write_parquet(access, folder, gathered)


def _write_parquet(access: GraphAccess, folder: str, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_batches(batches), sink, compression="zstd", use_dictionary=False)
    path = f"{folder}/{new_ulid()}.parquet"
    access.store().objects.write(path, sink.getvalue())
    return pa.RecordBatch.from_pydict({"path": [path]})
