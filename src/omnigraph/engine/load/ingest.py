"""Load data: a small input, also of frames, in memory and checked like a mutation; anything larger in splits."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Literal, get_args

import orjson

from omnigraph.engine.arguments import check_choice, check_type, strip_name
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.branches import mask_hidden_names
from omnigraph.engine.external_blobs import BlobReader
from omnigraph.engine.input.formats import reject_other_format
from omnigraph.engine.input.frames import FrameLines, as_frame, is_arrow_stream, resolve_input
from omnigraph.engine.input.ndjson.blocks import Loaded
from omnigraph.engine.input.ndjson.reader import (
    Data,
    Decoder,
    add_part,
    is_records,
    read_blocks,
    read_compatible,
)
from omnigraph.engine.input.ndjson.slow_path import Aliases, Converter, Envelopes
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.write.committed_rows import CommittedRows
from omnigraph.engine.write.staging import Stager, require_same_types, too_large
from omnigraph.engine.write.write_authorization import (
    WritePermissions,
    check_base,
    mask_hidden_type_errors,
    missing_base,
    renew_permissions,
    write_permissions,
)
from omnigraph.errors import BranchExists, DataError, LimitExceeded, OmniGraphError
from omnigraph.lang.catalog import KINDS, Catalog, Kind, Type, TypeKey
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.limits import (
    INGEST_CHUNK_RECORDS,
    LOAD_MEMORY_BYTES_MAX,
    WRITE_BYTES_MAX,
    WRITE_ENTITIES_MAX,
)
from omnigraph.manifest.branches import create_branch
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.public_values import EntityCounts, IngestReceipt, Mode, OnDuplicate
from omnigraph.rules.delta import INTENTS, Changes, Delta, Findings, choose_winner, first_of_each, last_of_each
from omnigraph.rules.validate import validate_malformed

Dialect = Literal["strict", "compatible"]
# Of a frame that does not say how large it is, and how many dictionaries are measured.
_ROW_BYTES: Final = 256
_SAMPLED_RECORDS: Final = 100
_NDJSON: Final = frozenset({".ndjson", ".jsonl", ".json"})
Frames = Mapping[str, Any] | None


@dataclass
class Reader:
    """Reads one input against one catalog, up to so many entities and bytes of Arrow of each type."""

    catalog: Catalog
    findings: Findings
    is_strict: bool
    entities_max: int
    bytes_max: int
    blobs: BlobReader | None
    loaded: dict[TypeKey, Loaded] = field(default_factory=dict)

    def read(self, data: Data) -> dict[TypeKey, Loaded]:
        """Return the tables of an input by type, in table-key order; what is malformed is added to the findings."""
        if self.is_strict and not is_records(data):
            self._read_lines(data)
        else:
            self._read_records(data)
        self.findings.violations.sort(key=lambda violation: violation.line or 0)
        if not self.findings.violations:
            self._check_sizes()
        return dict(sorted(self.loaded.items()))

    def _read_lines(self, data: Data) -> None:
        """Read the input to its end, or until it is certain to be rejected."""
        decoder = Decoder(self.catalog, self.findings, blobs=self.blobs)
        self.loaded = decoder.loaded
        for buffer in read_blocks(data):
            if not decoder.lines:
                reject_other_format(buffer)
            decoder.add(buffer, decoder.lines + 1)
            if self.findings.is_full or self._is_too_much():
                return

    def _read_records(self, data: Data) -> None:
        envelopes = Envelopes(self.catalog, self.findings)
        aliases = None if self.is_strict else Aliases(self.findings)
        converter = Converter(self.findings, aliases, blobs=self.blobs)
        take = envelopes.take if self.is_strict else envelopes.take_compatible
        for number, value in read_compatible(data, self.findings):
            gathered = take(number, value)
            if self.findings.is_full:
                break
            if gathered is None or len(gathered.members) < INGEST_CHUNK_RECORDS:
                continue
            envelopes.finish(gathered)
            add_part(self.loaded, converter.convert(gathered))
            if self._is_too_much():
                break
        for gathered in envelopes.take_all():
            add_part(self.loaded, converter.convert(gathered))
        if aliases is not None and not self.findings.violations:
            aliases.apply(self.loaded)

    def _is_too_much(self) -> bool:
        """Return True if more was read than one write may hold."""
        return any(rows.size > self.bytes_max or rows.count > self.entities_max for rows in self.loaded.values())

    def _check_sizes(self) -> None:
        for table_key, loaded in self.loaded.items():
            name = loaded.type.name
            if loaded.count > self.entities_max:
                raise too_large(f"keyed entities for {table_key}", self.entities_max, loaded.count, name, "entities")
            if self.is_strict and loaded.size > self.bytes_max:
                raise too_large("strict_input_arrow_bytes", self.bytes_max, loaded.size, name, "bytes", "N11")
            if loaded.size > self.bytes_max:
                raise too_large(f"keyed write bytes for {table_key}", self.bytes_max, loaded.size, name, "bytes")


def ingest(
    session: GraphSession,
    data: Data,
    *,
    mode: Mode = "merge",
    branch: str = MAIN,
    from_branch: str | None = None,
    dialect: Dialect = "strict",
    on_duplicate: OnDuplicate = "error",
    bytes_max: int | None = None,
) -> IngestReceipt:
    """Write NDJSON from a path, bytes, a file object, or dictionaries, as one commit.

    It may hold as much as one small write, or of each type `bytes_max` in any number of entities.

    `append` adds entities that must be new, `merge` inserts or replaces them by id, `overwrite` replaces every type in
    the input. A missing branch is created from `from_branch` first. An input without entities makes no commit.
    """
    check_choice("mode", mode, get_args(Mode))
    check_choice("on_duplicate", on_duplicate, get_args(OnDuplicate))
    check_choice("dialect", dialect, get_args(Dialect))
    branch = strip_name(branch)
    session.require("change", on_branch(branch))
    base = missing_base(session, branch, from_branch)
    if base is not None:
        check_base(session, base, branch)
    view = session.full_view(base if base is not None else branch)
    may = write_permissions(session, view.snapshot, branch if base is not None else None)
    unit = "line" if dialect == "strict" and not is_records(data) else "record"
    locate = None
    if isinstance(data, FrameLines):
        unit, locate = "row", data.locate
    findings = Findings(unit=unit, locate=locate)
    blobs, is_strict, is_keyed = session.blob_reader(), dialect == "strict", mode != "overwrite"
    entities_max = WRITE_ENTITIES_MAX if is_keyed and bytes_max is None else sys.maxsize
    if bytes_max is None:
        bytes_max = WRITE_BYTES_MAX if is_keyed or is_strict else sys.maxsize
    loaded = Reader(may.visible.catalog, findings, is_strict, entities_max, bytes_max, blobs).read(data)
    if isinstance(data, FrameLines) and not findings.violations:
        empty = _empty_types(may.visible.catalog, data, loaded)
        loaded |= empty if mode == "overwrite" else {}
    may.check(rows.type.name for rows in loaded.values())
    deltas = {key: _delta(rows, mode, on_duplicate) for key, rows in loaded.items()}
    changes = Changes(view.catalog, deltas, unit, locate)
    with mask_hidden_type_errors(may.hidden, session.actor):
        if findings.violations:
            may.report(validate_malformed(changes, CommittedRows(view), findings))
        return _write(session, view, changes, mode, branch, base, may)


def _empty_types(catalog: Catalog, frames: FrameLines, loaded: Mapping[TypeKey, Loaded]) -> dict[TypeKey, Loaded]:
    """Return the types of frames without rows, which an overwrite leaves without entities."""
    types = [_type_of(catalog, kind, name) for kind, names in frames.type_names.items() for name in names]
    return {type_.table_key: Loaded(type_) for type_ in types if type_.table_key not in loaded}


def _type_of(catalog: Catalog, kind: Kind, name: str) -> Type:
    types: Mapping[str, Type] = catalog.nodes if kind == "node" else catalog.edges
    if name not in types:
        hint = did_you_mean(name, types, otherwise=f"the graph has: {', '.join(sorted(types)) or 'none'}")
        raise DataError(f"there is no {kind} type `{name}`; {hint}. Nothing was written", rule="N4", type=name)
    return types[name]


def _write(
    session: GraphSession,
    view: View,
    changes: Changes,
    mode: Mode,
    branch: str,
    base: str | None,
    permitted: WritePermissions,
) -> IngestReceipt:
    # What cannot be written must not leave an empty branch behind.
    created = base is not None and _create(session, view, branch, changes, permitted)
    if not changes.deltas:
        # An input without entities makes no commit.
        return IngestReceipt(branch, base, created, mode, EntityCounts(), EntityCounts(), session.actor, None)
    stager = Stager()

    def prepare(snapshot: Snapshot) -> Plan:
        now = session.full_view_of(snapshot)
        require_same_types(view.catalog, now.catalog, changes.deltas)
        # The name may belong to another branch by now.
        may = renew_permissions(session, permitted, snapshot)
        may.check(type_delta.type.name for type_delta in changes.deltas.values())
        committed, rebased = CommittedRows(now), replace(changes, catalog=now.catalog)
        may.validate(rebased, committed)
        return stager.plan(session, "ingest", rebased, committed, properties={"mode": mode})

    receipt = session.kernel.commit(
        branch, prepare, CommitPolicy.CHANGE if mode == "overwrite" else CommitPolicy.INSERT
    )
    assert receipt is not None
    assert receipt.commit is not None
    counts = {key: delta.rows.num_rows for key, delta in changes.deltas.items()}
    nodes, edges = (EntityCounts({key.name: n for key, n in counts.items() if key.kind == kind}) for kind in KINDS)
    commit = session.redact_receipt(receipt.commit, branch)
    return IngestReceipt(branch, base, created, mode, nodes, edges, session.actor, commit)


def _delta(loaded: Loaded, mode: Mode, on_duplicate: OnDuplicate) -> Delta:
    rows, lines = loaded.rows, loaded.lines
    winner = choose_winner(on_duplicate, INTENTS[mode], loaded.type)
    # Duplicates that none wins are left for the rules to report.
    if winner != "error":
        of_each = first_of_each if winner == "first" else last_of_each
        kept = of_each(rows.column("id").combine_chunks())
        rows, lines = rows.take(kept), lines[kept]
    return Delta(loaded.type, rows, INTENTS[mode], lines=lines)


def _create(session: GraphSession, view: View, branch: str, changes: Changes, may: WritePermissions) -> bool:
    may.validate(changes, CommittedRows(view))
    try:
        with mask_hidden_names(session, branch):
            create_branch(session.kernel, branch, view.snapshot, session.actor)
    except BranchExists:
        # Another process created the branch meanwhile; the write is validated against its content.
        return False
    return True


def load(session: GraphSession, data: Any, nodes: Frames, edges: Frames, **options: Any) -> IngestReceipt:
    """Load data: what is known to be small in memory, anything else in splits."""
    check_type("nodes", nodes, Mapping | None)
    check_type("edges", edges, Mapping | None)
    # An iterator of rows can be read once, so it becomes a table before anything looks at it.
    nodes, edges = ({name: as_frame(frame) for name, frame in (frames or {}).items()} for frames in (nodes, edges))
    with _reread(data) as source:
        if is_small(source, nodes, edges):
            try:
                return ingest(session, resolve_input(source, nodes, edges), bytes_max=LOAD_MEMORY_BYTES_MAX, **options)
            except LimitExceeded:
                # Its size was guessed too low; raised before anything is written.
                pass
        return _load_in_bulk(session, source, nodes, edges, options)


def is_small(data: Any, nodes: Frames, edges: Frames) -> bool:
    """Return True if an input is best held in memory, by its size as far as that is known before it is decoded."""
    frames = [*(nodes or {}).values(), *(edges or {}).values()]
    if frames:
        return all(map(is_arrow_stream, frames)) and sum(map(_frame_bytes, frames)) <= LOAD_MEMORY_BYTES_MAX
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        return path.suffix.lower() in _NDJSON and path.is_file() and path.stat().st_size <= LOAD_MEMORY_BYTES_MAX
    if isinstance(data, bytes):
        return len(data) <= LOAD_MEMORY_BYTES_MAX
    return not _is_list_of_paths(data) and _records_bytes(data) <= LOAD_MEMORY_BYTES_MAX


def _frame_bytes(frame: Any) -> int:
    """Return the size of a frame that has rows in memory; a stream may be of any size."""
    if isinstance(nbytes := getattr(frame, "nbytes", None), int):
        return nbytes
    return len(frame) * _ROW_BYTES if hasattr(frame, "__len__") else sys.maxsize


def _records_bytes(records: Any) -> int:
    """Return about how large dictionaries are as NDJSON, by the first ones."""
    if not isinstance(records, list) or not records:
        return 0
    sample = records[:_SAMPLED_RECORDS]
    return len(orjson.dumps(sample, default=str, option=orjson.OPT_NON_STR_KEYS)) * len(records) // len(sample)


def _is_list_of_paths(data: Any) -> bool:
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(item, str | os.PathLike) for item in data)


@contextmanager
def _reread(data: Any) -> Iterator[Any]:
    """Yield an input that can be read twice: a file object is copied to a file, an iterator to a list."""
    if not hasattr(data, "readline"):
        yield list(data) if isinstance(data, Iterator) else data
        return
    with NamedTemporaryFile(suffix=".ndjson") as spool:
        text = data.read(0)
        if isinstance(text, str):
            spool.writelines(line.encode() for line in data)
        else:
            shutil.copyfileobj(data, spool)
        spool.flush()
        yield Path(spool.name)


@contextmanager
def without_path(path: str) -> Iterator[None]:
    """Call a temporary file `the input` in errors, because its caller never saw it."""
    try:
        yield
    except OmniGraphError as error:
        error.message = error.message.replace(f"`{path}`", "the input").replace(path, "the input")
        raise


def _load_in_bulk(
    session: GraphSession, data: Any, nodes: Frames, edges: Frames, options: Mapping[str, Any]
) -> IngestReceipt:
    from omnigraph.engine.load.load import load as load_in_bulk

    is_path = data is None or isinstance(data, str | os.PathLike) or _is_list_of_paths(data)
    with NamedTemporaryFile(suffix=".ndjson") as spool:
        if not is_path:
            spool.writelines([data] if isinstance(data, bytes) else (orjson.dumps(item) + b"\n" for item in data))
            spool.flush()
        sources: Any = () if data is None else data if is_path else spool.name
        with without_path(spool.name):
            report = load_in_bulk(session, sources, nodes=nodes, edges=edges, **options)
    return IngestReceipt(
        report.branch,
        report.base_branch,
        report.branch_created,
        report.mode,
        EntityCounts(report.nodes),
        EntityCounts(report.edges),
        report.actor,
        report.commit,
    )
