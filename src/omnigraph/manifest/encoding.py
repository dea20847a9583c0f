"""Encode and decode a version of `__manifest`: rows, metadata and format stamp, or only the pins of many versions.

Inconsistent rows are reported as corruption. Does no I/O.

A long history names the same versions again and again, so pins are made unique batch by batch; memory follows what is
different, not how many catalogs there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, Final
from zlib import crc32

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import GraphError
from omnigraph.ids import BranchId, CommitId, OperationId
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import REACH_BATCH_VERSIONS
from omnigraph.manifest import catalog_format
from omnigraph.manifest.model import (
    AcceptedSchema,
    Branch,
    Commit,
    Link,
    Pin,
    Purge,
    Snapshot,
    State,
    Tag,
    Tombstone,
    TypeIdentity,
    share_values,
)
from omnigraph.store.files.reachability import DatasetFork, NeededFiles
from omnigraph.store.files.versions import read_overwritten
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.store import Store

STAMP_KEY = b"omnigraph:internal_schema_version"
OPERATION_KEY = b"omnigraph:operation_id"
LINKS_KEY = b"omnigraph:links"
PREVIOUS_KEY = b"omnigraph:previous_operation_id"
CHECKSUMS_KEY = b"omnigraph:checksums"
SEAL_KEY = b"omnigraph:seal"

SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.string())),
        pa.field("table_key", pa.string(), nullable=False),
        pa.field("stable_table_id", pa.uint64()),
        pa.field("table_incarnation_id", pa.uint64()),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
    ]
)

KINDS = {"graph_head", "schema", "table", "table_version", "table_tombstone", "branch", "tag", "graph_commit", "purge"}
_Row = tuple[str, str, str | None, str | None, None, str, int | None, int | None, int | None, str | None, int | None]


def operation_of(schema: pa.Schema) -> str:
    """Return the operation that made a version of the catalog."""
    return (schema.metadata or {}).get(OPERATION_KEY, b"").decode()


@dataclass(frozen=True, slots=True)
class FileChecksums:
    """The checksums in the metadata of a catalog version: of its row files, and of the dataset versions it publishes.

    `rows` is packed by `store.write.file_proof`; `versions` is by path. The commit has the checksums of other files.
    """

    rows: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


NO_CHECKSUMS: Final = FileChecksums()


def checksums_of(schema: pa.Schema) -> FileChecksums:
    """Return the file checksums in the metadata of a catalog version; empty for versions of older releases.

    Raises `ValueError` if the metadata is damaged.
    """
    metadata = schema.metadata or {}
    if metadata.get(SEAL_KEY, _seal(metadata)) != _seal(metadata):
        raise ValueError("the seal of its metadata is broken")
    members = orjson.loads(metadata.get(CHECKSUMS_KEY, b"{}"))
    return FileChecksums(members.get("rows", ""), members.get("versions", {}))


def schema_of(
    operation_id: OperationId,
    previous: OperationId | None,
    links: tuple[Link, ...],
    checksums: FileChecksums = NO_CHECKSUMS,
) -> pa.Schema:
    """Return the schema of the next catalog version.

    Its metadata holds the operation, the previous operation, links and file checksums, with a checksum of itself.
    """
    encoded_links = [[link.ref.path, link.ref.branch, link.ref.version, link.manifest] for link in links]
    metadata = {
        STAMP_KEY: str(catalog_format.FORMAT_STAMP).encode(),
        OPERATION_KEY: operation_id.encode(),
        PREVIOUS_KEY: (previous or "").encode(),
        LINKS_KEY: orjson.dumps(encoded_links),
        CHECKSUMS_KEY: orjson.dumps({"rows": checksums.rows, "versions": dict(checksums.versions)}),
    }
    return SCHEMA.with_metadata({**metadata, SEAL_KEY: _seal(metadata)})


def _seal(metadata: Mapping[bytes, bytes]) -> bytes:
    """Return a checksum of the metadata: the newest version has no other protection."""
    keys = (STAMP_KEY, OPERATION_KEY, PREVIOUS_KEY, LINKS_KEY, CHECKSUMS_KEY)
    return f"{crc32(orjson.dumps([metadata.get(key, b'').decode(errors='replace') for key in keys])):08x}".encode()


def encode(state: State) -> pa.Table:
    """Return the complete state as rows, in a fixed order."""
    rows: list[_Row] = [
        _row(f"graph_head:{state.branch_id or 'main'}", "graph_head", {"head_commit_id": state.head}),
        _row("schema", "schema", asdict(state.schema)),
    ]
    for key in sorted(state.pins):
        rows.extend(_pin_rows(state.pins[key]))
    rows.extend(_tombstone_row(tombstone) for tombstone in sorted(state.tombstones, key=lambda row: row.identity))
    rows.extend(_branch_row(state.branches[name]) for name in sorted(state.branches))
    rows.extend(_tag_row(state.tags[name]) for name in sorted(state.tags))
    rows.extend(_purge_row(purge) for purge in sorted(state.purges, key=lambda row: row.object_id))
    rows.extend(commit_row(commit) for commit in state.commits)
    return as_table(rows)


def as_table(rows: Iterable[_Row]) -> pa.Table:
    """Return rows as a table of the manifest's schema."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _row(
    object_id: str,
    kind: str,
    members: Mapping[str, object] | None = None,
    *,
    location: str | None = None,
    table_key: str = "",
    identity: TypeIdentity | None = None,
    version: int | None = None,
    branch: str | None = None,
    row_count: int | None = None,
) -> _Row:
    metadata = orjson.dumps(members).decode() if members else None
    ids = (None, None) if identity is None else (identity.type_id, identity.incarnation_id)
    return (object_id, kind, location, metadata, None, table_key, *ids, version, branch, row_count)


def _pin_rows(pin: Pin) -> list[_Row]:
    optional = {"adopted_at": pin.adopted_at, "checksum": pin.checksum}
    members = {name: value for name, value in optional.items() if value is not None}
    table_id, version_id = f"table:{pin.identity}", f"table_version:{pin.identity}:{pin.version:020d}"
    subject: Any = {"table_key": pin.table_key, "identity": pin.identity}
    published: Any = {"version": pin.version, "branch": pin.fork, "row_count": pin.row_count}
    return [
        _row(table_id, "table", location=pin.path, **subject),
        _row(version_id, "table_version", members, **subject, **published),
    ]


def _tombstone_row(tombstone: Tombstone) -> _Row:
    object_id = f"table_tombstone:{tombstone.identity}:{tombstone.version:020d}"
    subject: Any = {"table_key": tombstone.table_key, "identity": tombstone.identity, "version": tombstone.version}
    return _row(object_id, "table_tombstone", location=tombstone.path, **subject)


def _branch_row(branch: Branch) -> _Row:
    members = {
        "branch_id": branch.branch_id,
        "parent": branch.parent,
        "parent_version": branch.parent_version,
        "created_at": branch.created_at_us,
        "actor_id": branch.actor,
        **({} if branch.recorded_names is None else {"names": list(branch.recorded_names)}),
        **({} if branch.identity_space is None else {"identity_space": branch.identity_space}),
    }
    return _row(f"branch:{branch.name}", "branch", members)


def _tag_row(tag: Tag) -> _Row:
    members = {"commit_id": tag.commit_id, "created_at": tag.created_at_us, "actor_id": tag.actor}
    return _row(f"tag:{tag.name}", "tag", members, version=tag.manifest_version, branch=tag.branch)


def _purge_row(purge: Purge) -> _Row:
    members = {
        "property_id": purge.property_id,
        "name": purge.name,
        "dropped_at": purge.dropped_at_us,
        "field_ids": list(purge.field_ids),
        "is_blob": purge.is_blob,
        "is_embedded": purge.is_embedded,
        "is_done": purge.is_done,
    }
    return _row(purge.object_id, "purge", members, location=purge.path, identity=purge.identity)


def commit_row(commit: Commit) -> _Row:
    members = {
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "created_at": commit.created_at_us,
        "kind": commit.kind,
        "operation_id": commit.operation_id,
        "properties": dict(commit.properties),
        **({"checksums": commit.checksums} if commit.checksums else {}),
        **({"branch_names": list(commit.branch_names)} if commit.branch_names else {}),
        **({} if commit.corrected_us is None else {"corrected_at": commit.corrected_us}),
    }
    return _row(commit.commit_id, "graph_commit", members, version=commit.manifest_version, branch=commit.branch)


# -- reading ---------------------------------------------------------------------------------------------------


def check_stamp(schema: pa.Schema, where: str) -> int:
    """Return the format of a manifest; refuse one that this release cannot read, and say what to do about it."""
    raw = (schema.metadata or {}).get(STAMP_KEY)
    if raw is None and "stable_table_id" in schema.names:
        raise _wrong_format(
            f"{where} has no format stamp: an interrupted init, or damaged metadata. Restore it from a backup;"
            " delete the directory only if you know that the graph was never finished",
            None,
        )
    text = (b"1" if raw is None else raw).decode(errors="replace")
    if not text.isdigit():
        raise _wrong_format(f"{where} carries the unreadable format stamp `{text}`; restore it from a backup", text)
    stamp = int(text)
    if stamp > catalog_format.FORMAT_STAMP:
        raise _wrong_format(
            f"{where} has format {text}; this release reads format {catalog_format.FORMAT_STAMP}. Upgrade omnigraph"
            " first",
            stamp,
        )
    if catalog_format.upgrade_path(stamp, catalog_format.FORMAT_STAMP) is None:
        raise _wrong_format(
            f"{where} has format {text}, written by an older release; this one reads format"
            f" {catalog_format.FORMAT_STAMP}. Export it with the release that wrote it, then `omnigraph init` and"
            " `omnigraph load` the export: data, vectors and blobs survive, history and branches do not",
            stamp,
        )
    return stamp


def _wrong_format(message: str, stamp: int | str | None) -> GraphError:
    return GraphError(message, code="graph.format", found=stamp)


def reject_old(schema: pa.Schema, where: str, uri: str) -> None:
    """Raise for a graph that must be upgraded before this release may write to it."""
    stamp = check_stamp(schema, where)
    if stamp != catalog_format.FORMAT_STAMP:
        raise _wrong_format(
            f"{where} has format {stamp}, written by an older release; this one writes format"
            f" {catalog_format.FORMAT_STAMP}. Run `omnigraph upgrade {uri}` once: data, history and branches stay;"
            " older releases cannot open it then",
            stamp,
        )


def decode(table: pa.Table, branch: str, branch_id: BranchId | None, version: int) -> Snapshot:
    """Return the snapshot in a version of the manifest; inconsistent rows are corruption."""
    metadata = table.schema.metadata or {}
    where = f"`__manifest` version {version}"
    with report_damage(where, "read an older version, or restore it from a backup"):
        table = _upgraded(table, check_stamp(table.schema, where))
        checksums = checksums_of(table.schema)
        operation_id = OperationId(metadata[OPERATION_KEY].decode())
        encoded_links = orjson.loads(metadata[LINKS_KEY])
        links = tuple(Link(DatasetRef(path, owner, at), manifest) for path, owner, at, manifest in encoded_links)
        state = share_values(_decode_state(table, branch_id, checksums))
    return Snapshot(branch, version, operation_id, state, links)


def _upgraded(table: pa.Table, stamp: int) -> pa.Table:
    """Return the rows of an older format as those of the current one."""
    for upgrade in catalog_format.upgrade_path(stamp, catalog_format.FORMAT_STAMP) or ():
        table = upgrade.rewrite(table)
    return table


@contextmanager
def report_damage(where: str, remedy: str) -> Iterator[None]:
    """Raise `graph.corrupt` for rows that cannot be decoded; a flipped bit may be in any of them."""
    try:
        yield
    except GraphError:
        raise
    except (KeyError, ValueError, TypeError) as error:
        raise GraphError(f"{where} is damaged: {error!r}; {remedy}", code="graph.corrupt", object=where) from error


def _decode_state(table: pa.Table, branch_id: BranchId | None, checksums: FileChecksums) -> State:
    rows_by_type: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        row["json"] = orjson.loads(row["metadata"]) if row["metadata"] else {}
        rows_by_type.setdefault(row["object_type"], []).append(row)
    # Every publish rewrites all rows, so rows of an unknown kind would be lost by the next one.
    if unknown := sorted(rows_by_type.keys() - KINDS):
        raise ValueError(f"rows of the unknown kind `{unknown[0]}`")
    (head,), (schema,) = rows_by_type["graph_head"], rows_by_type["schema"]
    # A fork starts as a copy of main, but only main's own branches and tags count.
    on_main = branch_id is None
    return State(
        branch_id,
        head["json"]["head_commit_id"],
        AcceptedSchema(**{member.name: schema["json"][member.name] for member in fields(AcceptedSchema)}),
        _decode_pins(rows_by_type.get("table", []), rows_by_type.get("table_version", []), checksums),
        tuple(_decode_tombstone(row) for row in rows_by_type.get("table_tombstone", [])),
        tuple(decode_commit(row) for row in rows_by_type.get("graph_commit", [])),
        {branch.name: branch for branch in map(_decode_branch, rows_by_type.get("branch", []))} if on_main else {},
        {tag.name: tag for tag in map(_decode_tag, rows_by_type.get("tag", []))} if on_main else {},
        tuple(_decode_purge(row) for row in rows_by_type.get("purge", [])) if on_main else (),
    )


def _decode_pins(
    tables: list[dict[str, Any]], versions: list[dict[str, Any]], checksums: FileChecksums
) -> dict[TypeKey, Pin]:
    paths: dict[TypeIdentity, str] = {}
    for row in tables:
        identity = read_identity(row)
        assert_consistent(row["object_id"] == f"table:{identity}", row)
        paths[identity] = row["location"]
    pins: dict[TypeKey, Pin] = {}
    for row in versions:
        identity = read_identity(row)
        assert_consistent(row["object_id"] == f"table_version:{identity}:{row['table_version']:020d}", row)
        assert_consistent(identity in paths and row["table_key"] not in pins, row)
        pin = Pin(
            identity,
            TypeKey(row["table_key"]),
            paths[identity],
            row["table_version"],
            row["table_branch"],
            row["row_count"],
            adopted_at=row["json"].get("adopted_at"),
            checksum=row["json"].get("checksum"),
        )
        # A version that was published with these rows got its checksum when they were written already.
        checksum = checksums.versions.get(pin.ref.manifest_path)
        pins[pin.table_key] = pin if checksum is None else replace(pin, checksum=checksum)
    if len(pins) != len(paths):
        raise ValueError(f"{len(paths)} registered types but {len(pins)} published versions")
    return pins


def read_identity(row: dict[str, Any]) -> TypeIdentity:
    """Return the identity of the type that a row of a catalog is about."""
    return TypeIdentity(row["stable_table_id"], row["table_incarnation_id"])


def assert_consistent(claim: bool, row: dict[str, Any]) -> None:
    """Raise for a row whose id does not follow from its columns: another tool wrote it."""
    if not claim:
        raise ValueError(f"row `{row['object_id']}` contradicts itself or another row")


def _decode_tombstone(row: dict[str, Any]) -> Tombstone:
    identity = read_identity(row)
    assert_consistent(row["object_id"] == f"table_tombstone:{identity}:{row['table_version']:020d}", row)
    return Tombstone(identity, TypeKey(row["table_key"]), row["location"], row["table_version"])


def _decode_branch(row: dict[str, Any]) -> Branch:
    members = row["json"]
    name = row["object_id"].removeprefix("branch:")
    names = members.get("names")
    assert_consistent(names is None or (len(names) > 0 and names[-1] == name), row)
    return Branch(
        name,
        members["branch_id"],
        members["parent"],
        members["parent_version"],
        members["created_at"],
        members["actor_id"],
        None if names is None else tuple(names),
        members.get("identity_space"),
    )


def _decode_tag(row: dict[str, Any]) -> Tag:
    members = row["json"]
    return Tag(
        row["object_id"].removeprefix("tag:"),
        members["commit_id"],
        row["table_branch"],
        row["table_version"],
        members["created_at"],
        members["actor_id"],
    )


def _decode_purge(row: dict[str, Any]) -> Purge:
    members = row["json"]
    purge = Purge(
        read_identity(row),
        members["property_id"],
        members["name"],
        row["location"],
        members["dropped_at"],
        tuple(members["field_ids"]),
        members["is_blob"],
        members["is_embedded"],
        members["is_done"],
    )
    assert_consistent(row["object_id"] == purge.object_id, row)
    return purge


def decode_commit(row: dict[str, Any]) -> Commit:
    """Return a commit from its row; `json` holds its parsed metadata."""
    members = row["json"]
    return Commit(
        CommitId(row["object_id"]),
        row["table_branch"],
        row["table_version"],
        members["parent_commit_id"],
        members["merged_parent_commit_id"],
        members["actor_id"],
        members["created_at"],
        members["kind"],
        members["operation_id"],
        members["properties"],
        members.get("checksums", ""),
        tuple(members.get("branch_names", ())),
        members.get("corrected_at"),
    )


_COLUMNS = (
    "object_type",
    "location",
    "metadata",
    "table_key",
    "stable_table_id",
    "table_incarnation_id",
    "table_version",
    "table_branch",
)


@dataclass
class CatalogPins:
    """What some catalogs name: versions by dataset or fork, the names of types, and the head of each catalog.

    `needed` are the files of the catalogs themselves.
    """

    versions: dict[DatasetFork, set[int]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    heads: dict[DatasetRef, CommitId | None] = field(default_factory=dict)
    needed: NeededFiles | None = None

    def update(self, other: CatalogPins) -> None:
        for location, numbers in other.versions.items():
            self.versions.setdefault(location, set()).update(numbers)
        self.names = other.names | self.names
        self.heads |= other.heads
        if self.needed is None:
            self.needed = other.needed
        elif other.needed is not None:
            self.needed.update(other.needed)


def read_pins(store: Store, catalogs: Sequence[DatasetRef]) -> CatalogPins:
    """Return what catalogs name; each is read once, and one that cannot be read is an error."""
    pins = CatalogPins()
    tasks = [
        partial(_read_batch, store, catalogs[begin : begin + REACH_BATCH_VERSIONS])
        for begin in range(0, len(catalogs), REACH_BATCH_VERSIONS)
    ]
    for part in store.in_parallel(tasks):
        pins.update(part)
    return pins


def _read_batch(store: Store, catalogs: Sequence[DatasetRef]) -> CatalogPins:
    needed = NeededFiles()
    pins, tables = CatalogPins(needed=needed), []
    for ref in catalogs:
        table = _read_checked(store, ref, needed)
        with report_damage(f"catalog `{ref}`", "no version was removed; restore it from a backup"):
            pins.heads[ref] = _head(table)
        kinds = pc.is_in(table["object_type"], value_set=pa.array(["table", "table_version"]))
        tables.append(table.filter(kinds).drop_columns(["metadata"]))
    if not tables:
        return pins
    # Consecutive catalogs differ in a few rows, so grouping all columns leaves about as many rows as there were
    # changes.
    distinct = pa.concat_tables(tables).group_by([column for column in _COLUMNS if column != "metadata"]).aggregate([])
    located = {
        read_identity(row): row["location"] for row in distinct.filter(pc.field("object_type") == "table").to_pylist()
    }
    for row in distinct.filter(pc.field("object_type") == "table_version").to_pylist():
        with report_damage("a catalog", "no version was removed; restore it from a backup"):
            path = located[read_identity(row)]
        pins.versions.setdefault((path, row["table_branch"]), set()).add(row["table_version"])
        pins.names.setdefault(path, row["table_key"])
    return pins


def _read_checked(store: Store, ref: DatasetRef, needed: NeededFiles) -> pa.Table:
    table = read_overwritten(store, ref, _COLUMNS, needed)
    stamp = check_stamp(table.schema, f"`{ref}`")
    if stamp != catalog_format.FORMAT_STAMP:
        # An upgrade from an older format may read any column.
        table = read_overwritten(store, ref, None, needed)
        table = _upgraded(table, stamp).select(_COLUMNS)
    kinds = Counter(table["object_type"].to_pylist())
    # Cleanup deletes what no catalog names, so a catalog that lost rows must stop it instead of naming too little.
    is_whole = kinds["graph_head"] == 1 and kinds["table"] == kinds["table_version"]
    if not is_whole or not kinds.keys() <= KINDS:
        raise GraphError(
            f"catalog `{ref}` is damaged: it has rows {dict(kinds)}; no version was removed. Restore it from a backup",
            code="graph.corrupt",
            object=str(ref),
        )
    return table


def _head(table: pa.Table) -> CommitId | None:
    [metadata] = table.filter(pc.field("object_type") == "graph_head")["metadata"].to_pylist()
    head = orjson.loads(metadata or "{}")["head_commit_id"]
    return None if head is None else CommitId(head)
