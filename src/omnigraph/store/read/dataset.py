"""Pinned, read-only handles of one version of one dataset, read with the columns it was stored with or others.

A handle never moves: it reads the same rows for as long as cleanup keeps the version.

A shape edits the manifest in memory, as a `Project` transaction would on disk: no data file is read or written, and
row ids, blobs and the indexes of what remains work as they do on the stored version.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, Transaction
from lance.fragment import FragmentMetadata, LanceFragment

from omnigraph.errors import GraphError, OmniGraphError, StorageError, StorageKind
from omnigraph.lang.scalars import FACTS
from omnigraph.lang.schema.arrow_schema import ARROW_TYPES
from omnigraph.settings import mask_secrets
from omnigraph.store.files.manifest_file import read_message, write_message
from omnigraph.store.lance_schema import edit_schema, field_ids, field_messages, nested_field_ids
from omnigraph.store.objects.failures import forbidden_in_directory, from_text

if TYPE_CHECKING:
    from lance.dataset import LanceScanner

    from omnigraph.store.store import Store

# Members of the manifest message of Lance.
_FIELDS: Final = 1
_FRAGMENTS: Final = 2
_INDEXES: Final = 6
# Added columns get field ids that no stored column ever has: caches know columns by them.
_ADDED_FROM: Final = 1 << 24


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """Columns to drop, to rename and to add as nulls, by the names that are stored; `is_empty` leaves no rows.

    `added` is an Arrow schema in its IPC form, so that a shape can be compared, hashed and sent to tasks.
    """

    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    added: bytes = b""
    is_empty: bool = False

    @property
    def added_fields(self) -> list[pa.Field[Any]]:
        return list(_schema(self.added)) if self.added else []


AS_STORED: Final = Shape()


def shape_of(renamed: Mapping[str, str], dropped: Sequence[str], added: Sequence[pa.Field[Any]]) -> Shape:
    """Return the shape for some changes of columns; added columns are nullable, even if the schema requires values.

    >>> shape_of({}, [], []) == AS_STORED
    True
    """
    fields = [field.with_nullable(True) for field in added]
    return Shape(
        tuple(sorted(renamed.items())),
        tuple(sorted(dropped)),
        pa.schema(fields).serialize().to_pybytes() if fields else b"",
    )


@lru_cache(maxsize=256)
def _schema(raw: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(raw))


def shaped_manifest(manifest: bytes, schema: Any, shape: Shape, *, with_indexes: bool) -> bytes:
    """Return a manifest message of Lance whose columns are those of a shape; `schema` is the stored Lance schema."""
    left_out = {_FIELDS} | ({_FRAGMENTS} if shape.is_empty else set()) | (set() if with_indexes else {_INDEXES})
    edited = edit_schema(
        schema, add=shape.added_fields, drop=shape.dropped, rename=dict(shape.renamed), next_id=_ADDED_FROM
    )
    fields = [(_FIELDS, message) for message in field_messages(edited)]
    return write_message([*fields, *(part for part in read_message(manifest) if part[0] not in left_out)])


# The types on whose columns Lance takes no typed filter, as its filter texts name them.
FILTER_WORDS: Final = {ARROW_TYPES[scalar]: facts.filter_word for scalar, facts in FACTS.items() if facts.filter_word}
# Lance hides such columns from the filters on others; it misses durations, and lists of any of them.
_UNNAMED: Final = (pa.uint8(), pa.uint16(), *FILTER_WORDS)
# By its name, since `lance.dataset` as an attribute is a function.
lance_dataset: Final[Any] = import_module("lance.dataset")
_known_to_lance: Final = lance_dataset._needs_substrait_placeholder


def needs_placeholder(type_: Any) -> bool:
    """Return True if a column of this type must be hidden from a filter on another column."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return needs_placeholder(type_.value_type)
    return type_ in _UNNAMED or bool(_known_to_lance(type_))


lance_dataset._needs_substrait_placeholder = needs_placeholder

MAX_VERSION = (1 << 64) - 1

# Values belong in expressions, which carry their type; strings are for what expressions cannot express.
Filter: TypeAlias = str | pc.Expression


@dataclass(frozen=True, slots=True, order=True)
class DatasetRef:
    """The physical identity of a state: which directory, which Lance branch of it, which version.

    `shape` is how its columns are read; all that is published has the columns that it was stored with.
    """

    path: str
    branch: str | None
    version: int
    shape: Shape = AS_STORED

    @property
    def stored(self) -> DatasetRef:
        """The same version with the columns that it was stored with."""
        return self if self.shape == AS_STORED else DatasetRef(self.path, self.branch, self.version)

    @property
    def directory(self) -> str:
        """The directory that holds the files of this branch, relative to the graph's root."""
        return self.path if self.branch is None else f"{self.path}/tree/{self.branch}"

    @property
    def manifest_path(self) -> str:
        return f"{self.directory}/_versions/{manifest_name(self.version)}"

    @property
    def branch_entry(self) -> str:
        """The file by which Lance lists this branch."""
        return f"{self.path}/_refs/branches/{self.branch}.json"

    @property
    def successor(self) -> DatasetRef:
        return self.at(self.version + 1)

    def at(self, version: int) -> DatasetRef:
        return DatasetRef(self.path, self.branch, version)

    def __str__(self) -> str:
        return f"{self.directory}@{self.version}"


def manifest_name(version: int) -> str:
    """Return Lance's file name for a version: newest first when listed.

    >>> manifest_name(1)
    '18446744073709551614.manifest'
    """
    return f"{MAX_VERSION - version:020d}.manifest"


class Dataset:
    """One version of one dataset, open for reading and for staging changes on top of it."""

    def __init__(self, store: Store, ref: DatasetRef, lance: LanceDataset) -> None:
        self.store = store
        self.ref = ref
        self.lance = lance
        self.staged_as: str | None = None
        # Of the file that holds this version, if it was written here.
        self.checksum: str | None = None
        self._count: int | None = None

    @property
    def version(self) -> int:
        return self.ref.version

    @cached_property
    def schema(self) -> pa.Schema:
        with lance_errors(f"reading the schema of {self.ref}"):
            return self.lance.schema

    @contextmanager
    def reading(self, doing: str | None = None, *, counted_as: str = "scan") -> Iterator[None]:
        """Count a request that reads this version, and turn what Lance raises meanwhile into our errors."""
        self.store.meter.count(counted_as, str(self.ref))
        with lance_errors(doing or f"reading {self.ref}", self):
            yield

    def count(self, filter: Filter | None = None) -> int:  # noqa: A002 - the word every scan API uses
        if filter is None and self._count is not None:
            return self._count
        with lance_errors(f"counting {self.ref}", self):
            count = int(self.lance.count_rows(filter))
        if filter is None:
            self._count = count
        return count

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002 - the word every scan API uses
        *,
        with_row_id: bool = False,
        with_row_address: bool = False,
    ) -> pa.Table:
        """Return the rows that satisfy a filter as one table."""
        # Lance plans a list of columns in time quadratic to its length; all of them need no list.
        requested = frozenset(columns or ())
        is_all = columns is not None and requested == frozenset(self.schema.names)
        with self.reading():
            table = self.lance.to_table(
                columns=list(columns) if columns is not None and not is_all else None,
                filter=filter,
                with_row_id=with_row_id,
                with_row_address=with_row_address,
            )
        if columns is None or not is_all:
            return table
        return table.select([*columns, *(name for name in table.schema.names if name not in requested)])

    def batches(
        self,
        columns: Sequence[str] | None = None,
        filter: Filter | None = None,  # noqa: A002 - the word every scan API uses
        *,
        with_row_id: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Stream the rows that satisfy a filter."""
        with self.reading():
            yield from self.lance.to_batches(
                columns=list(columns) if columns is not None else None, filter=filter, with_row_id=with_row_id
            )

    def take(self, row_ids: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows by stable row id, in the requested order; deleted ones are left out."""
        with self.reading(counted_as="take"):
            return self.lance._take_rows(list(row_ids), columns=list(columns) if columns is not None else None)

    def read_fragments(self, fragment_ids: Sequence[int], column: str) -> pa.Table:
        """Return one column of some fragments, with row ids and row addresses."""
        with self.reading(counted_as="fragments"):
            return self.scanner([column], frozenset(fragment_ids), with_row_id=True, with_row_address=True).to_table()

    def scanner(
        self, columns: Sequence[str], fragment_ids: Collection[int] | None = None, **options: Any
    ) -> LanceScanner:
        """Return Lance's scanner of columns of some fragments, or of all, in their order; use it while `reading`."""
        fragments = self.lance.get_fragments()
        if fragment_ids is not None:
            fragments = [fragment for fragment in fragments if fragment.fragment_id in fragment_ids]
        return self.lance.scanner(columns=list(columns), fragments=fragments, **options)

    def fragment(self, fragment_id: int) -> LanceFragment:
        """Return a fragment that this version lists."""
        fragment = self.lance.get_fragment(fragment_id)
        assert fragment is not None, f"{self.ref} lists a fragment {fragment_id} that it does not have"
        return fragment

    @cached_property
    def fragments(self) -> list[FragmentMetadata]:
        """The fragments that the rows lie in, in their order."""
        return [fragment.metadata for fragment in self.lance.get_fragments()]

    @property
    def fragment_rows(self) -> list[int]:
        """Rows per fragment, in fragment order."""
        return [fragment.num_rows for fragment in self.fragments]

    @cached_property
    def field_ids(self) -> dict[str, int]:
        """The Lance field id of each column; it survives renames."""
        return field_ids(self.lance.lance_schema)

    def nested_field_ids(self, column: str) -> tuple[int, ...]:
        """Return the Lance field ids of a column and of all fields nested in it."""
        return nested_field_ids(self.lance.lance_schema, column)

    def base_directories(self) -> list[str]:
        """The absolute paths, outside of its own directory, from which a branch inherits files."""
        return [str(base.path) for base in self.lance.base_paths().values()]

    def is_gone(self) -> bool:
        """Return True if this version was certainly removed from storage, though its handle may still be in use."""
        names = (self.ref.manifest_path, *([self.staged_as] if self.staged_as else ()))
        try:
            return not any(self.store.objects.exists(name) for name in names)
        except StorageError:
            return False

    def transaction(self, version: int) -> Transaction | None:
        """Return the transaction that made a version, or None when it is no longer there to read."""
        try:
            return self.lance.read_transaction(version)
        except (OSError, ValueError):
            return None


@contextmanager
def lance_errors(doing: str, *read: Dataset) -> Iterator[None]:
    """Turn what Lance raises into our storage error: by what it says of a failed request, else by its type.

    When a version that was `read` is gone, any error of Lance is due to the cleanup that removed it.
    """
    try:
        yield
    except BaseException as error:
        failure = _storage_failure(doing, error)
        for dataset in read if isinstance(failure, StorageError) else ():
            if dataset.is_gone():
                raise reclaimed(dataset.ref) from failure
        if failure is error:
            raise
        raise failure from error


def miscounted(dataset: Dataset, rows: int) -> GraphError:
    """Return the refusal to work with rows that are more or fewer than their version says: some file was exchanged."""
    return GraphError(
        f"{dataset.ref} holds {rows} rows, and its version says {dataset.count()}: a file was exchanged"
        " or damaged. Find it with `omnigraph verify --data`, and restore it from a backup",
        code="graph.corrupt",
        object=str(dataset.ref),
    )


def reclaimed(ref: DatasetRef) -> GraphError:
    """Return the refusal to read a version that is not there any more."""
    return GraphError(
        f"{ref} was removed by cleanup; read a newer commit",
        code="graph.version_reclaimed",
        object=str(ref),
        version=ref.version,
    )


def _storage_failure(doing: str, error: BaseException) -> BaseException:
    """Return our error for what Lance raised; other errors are returned as they are."""
    if isinstance(error, OmniGraphError):
        return error
    if isinstance(error, OSError | RuntimeError | ValueError):
        return storage_error(doing, error)
    if not is_panic(error) and not _is_raised_by_lance(error):
        return error
    return StorageError(
        f"{doing} failed: Lance cannot interpret what is stored ({first_line(error)}); check it with"
        " `omnigraph verify --data`",
        kind=StorageKind.PERMANENT,
    )


def is_panic(error: BaseException) -> bool:
    """Return True if Lance has panicked, as it does over some damaged files; the class cannot be imported."""
    return type(error).__name__ == "PanicException"


def _is_raised_by_lance(error: BaseException) -> bool:
    """Return True for a TypeError of Lance's own Python code: a damaged schema, and no wrong call of this package."""
    if not isinstance(error, TypeError):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith("lance.")


def storage_error(doing: str, error: BaseException) -> StorageError:
    """Return the storage failure that an exception of Lance, or of another reader of files."""
    if isinstance(error, FileNotFoundError):
        return StorageError(f"{doing}: not found", kind=StorageKind.NOT_FOUND)
    if (remedy := forbidden_in_directory(error)) is not None:
        # Which step it was means nothing to a user: none of them is possible there.
        return StorageError(
            f"cannot work in the graph's directory: {remedy}", kind=StorageKind.CONFIGURATION, doing=doing
        )
    if isinstance(error, PermissionError):
        remedy = "permission denied; check the owner and mode of the graph's files or its credentials"
        return StorageError(f"{doing}: {remedy}", kind=StorageKind.CONFIGURATION)
    meaning = from_text(str(error))
    if meaning is None:
        return StorageError(f"{doing} failed: {first_line(error)}", kind=StorageKind.UNKNOWN)
    return StorageError(f"{doing} failed: {meaning[1]}", kind=meaning[0])


def first_line(error: BaseException) -> str:
    """Return what an error says, without the stack of causes and source locations that Lance appends."""
    text = mask_secrets(str(error).strip())
    return text.splitlines()[0].split(", /")[0][:300] if text else type(error).__name__
