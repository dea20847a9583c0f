"""Load data of any size: what is small in one write, and everything else with the bulk loader of the pipeline."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final

import orjson

from omnigraph.bulk_loader import bulk_loader
from omnigraph.engine.arguments import check_type
from omnigraph.engine.write.frames import as_frame, is_arrow_stream
from omnigraph.errors import LimitExceeded, OmniGraphError
from omnigraph.limits import WRITE_BYTES_MAX, WRITE_ENTITIES_MAX
from omnigraph.public_values import EntityCounts, IngestReceipt

_NDJSON: Final = frozenset({".ndjson", ".jsonl", ".json"})
Frames = Mapping[str, Any] | None


def load(graph: Any, data: Any, nodes: Frames, edges: Frames, *, engine: str = "auto", **options: Any) -> IngestReceipt:
    """Load data into a graph; an input that turns out to be too large for one write is loaded in bulk, by `engine`."""
    check_type("nodes", nodes, Mapping | None)
    check_type("edges", edges, Mapping | None)
    # An iterator of rows can be read once, so it becomes a table before anything looks at it.
    nodes, edges = ({name: as_frame(frame) for name, frame in (frames or {}).items()} for frames in (nodes, edges))
    with _reread(data) as source:
        if is_small(source, nodes, edges):
            try:
                receipt: IngestReceipt = graph.ingest(source, nodes=nodes, edges=edges, **options)
                return receipt
            except LimitExceeded:
                # Raised before anything is written.
                pass
        return _load_in_bulk(graph, source, nodes, edges, {**options, "engine": engine})


def is_small(data: Any, nodes: Frames, edges: Frames) -> bool:
    """Return True if an input may fit into one write; the write itself finds out."""
    frames = [*(nodes or {}).values(), *(edges or {}).values()]
    if frames:
        return all(is_arrow_stream(frame) and _row_count(frame) <= WRITE_ENTITIES_MAX for frame in frames)
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        return path.suffix.lower() in _NDJSON and path.is_file() and path.stat().st_size <= WRITE_BYTES_MAX
    return not _is_list_of_paths(data)


def _row_count(frame: Any) -> int:
    return len(frame) if hasattr(frame, "__len__") else WRITE_ENTITIES_MAX + 1


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


def _load_in_bulk(graph: Any, data: Any, nodes: Frames, edges: Frames, options: Mapping[str, Any]) -> IngestReceipt:
    is_path = data is None or isinstance(data, str | os.PathLike) or _is_list_of_paths(data)
    with NamedTemporaryFile(suffix=".ndjson") as spool:
        if not is_path:
            spool.writelines([data] if isinstance(data, bytes) else (orjson.dumps(item) + b"\n" for item in data))
            spool.flush()
        sources: Any = () if data is None else data if is_path else spool.name
        with without_path(spool.name):
            report = bulk_loader()(graph, sources, nodes=nodes, edges=edges, **options)
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
