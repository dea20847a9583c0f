"""Calls of a graph as plain values, so that they can be made here or in another process, and printed as a script."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.policy import load_bundle
from tests.support.pipeline_fixtures import staging_in_files
from tests.world.values import duration_text

# The name of a call, then its arguments; JSON all the way down.
Call = dict[str, Any]
Answer = dict[str, Any]
ARROW: Mapping[str, pa.DataType] = {
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "Bool": pa.bool_(),
    "Date": pa.date32(),
    "DateTime": pa.timestamp("ms", "UTC"),
    "Duration": pa.duration("us"),
}


def run(graph: Graph, call: Call) -> Answer:
    """Make a call; an error with a code is an answer, any other one is a fault of the product and raised."""
    arguments = dict(call)
    name = arguments.pop("call")
    if (actor := arguments.pop("actor", None)) is not None:
        graph = og.open(graph.uri, actor=actor, policy=load_bundle(arguments.pop("policy")))
    try:
        answer: Answer = CALLS[name](graph, **arguments)
        return answer
    except OmniGraphError as error:
        if error.code.startswith("internal"):
            raise
        return _refusal(error)


def _refusal(error: OmniGraphError) -> Answer:
    return {
        "error": error.code,
        "rule": error.context.get("rule"),
        "message": str(error),
        "kinds": _kinds(error.context.get("conflicts")),
    }


def _kinds(conflicts: Any) -> list[Any]:
    return [[one["kind"], one["type_key"], one["entity_id"]] for one in conflicts or []]


def _commit(receipt: Any) -> Answer:
    commit = receipt.commit
    return {"commit": None if commit is None else commit.commit_id}


def _mutate(graph: Graph, source: str, branch: str, params: Mapping[str, Any], dry_run: bool = False) -> Answer:
    receipt = graph.mutate(source, params, branch=branch, dry_run=dry_run)
    return {**_commit(receipt), "nodes": receipt.affected_nodes, "edges": receipt.affected_edges}


def _merge(graph: Graph, source: str, into: str, **options: Any) -> Answer:
    return _previewed(partial(graph.branches.merge, source, into), **options)


def _replay(graph: Graph, kind: str, commit_id: str, branch: str, **options: Any) -> Answer:
    return _previewed(partial(getattr(graph, kind), commit_id, branch), **options)


def _previewed(merge: Callable[..., Any], *, preview: bool = False, **options: Any) -> Answer:
    """Make a merge, after a dry run of it if asked for; both are answered."""
    dry = _merged(partial(merge, **options, dry_run=True)) if preview else None
    answer = _merged(partial(merge, **options))
    if dry is not None:
        answer |= {"dry": _essence(dry), "done": _essence(answer)}
    return answer


def _merged(merge: Callable[[], Any]) -> Answer:
    try:
        receipt = merge()
    except OmniGraphError as error:
        if error.code.startswith("internal"):
            raise
        return _refusal(error)
    conflicts = [[one.kind.value, one.type_key, one.entity_id] for one in receipt.conflicts]
    counted = [one for one in receipt.types if not one.adopted]
    changes = [[str(one.type_key), one.inserted, one.updated, one.deleted] for one in counted]
    found = {"outcome": receipt.outcome, "bases": list(receipt.bases), "kinds": conflicts, "changes": changes}
    return {**_commit(receipt), **found}


def _essence(answer: Answer) -> list[Any]:
    """Return what a merge and its dry run must agree on: a run that meets conflicts fails, its dry run reports them."""
    kinds = sorted(answer["kinds"], key=str)
    if kinds or "error" in answer:
        return [kinds, None if kinds else answer["error"]]
    return [answer["outcome"], answer["bases"], answer["changes"]]


def _create(graph: Graph, name: str, from_: str) -> Answer:
    graph.branches.create(name, from_)
    return {}


def _delete(graph: Graph, name: str) -> Answer:
    graph.branches.delete(name)
    return {}


def _rename(graph: Graph, name: str, new_name: str) -> Answer:
    graph.branches.rename(name, new_name)
    return {}


def _tag(graph: Graph, name: str, at: str) -> Answer:
    graph.tags.create(name, at)
    return {}


def _untag(graph: Graph, name: str) -> Answer:
    graph.tags.delete(name)
    return {}


def _apply(graph: Graph, schema: str, branch: str) -> Answer:
    planned = graph.schema.plan(schema, branch=branch)
    receipt = graph.schema.apply(schema, branch=branch)
    dry, done = ([one.render() for one in steps] for steps in (planned.steps, receipt.steps))
    return {**_commit(receipt), "dry": dry, "done": done}


def _optimize(graph: Graph, branch: str) -> Answer:
    return _commit(graph.maintenance.optimize(branch))


def _index(graph: Graph, branch: str) -> Answer:
    return _commit(graph.maintenance.ensure_indices(branch))


def _cleanup(graph: Graph, keep: int, ages: list[list[Any]], preview: str = "api") -> Answer:
    """Let files be of some ages, and clean up. What a running process left behind keeps its age."""
    if "://" not in graph.uri:
        _age_files(Path(graph.uri), ages)
    dry = _preview_cleanup(graph, keep, preview)
    report = graph.maintenance.cleanup(keep=keep, confirm=True)
    done: Any = report.to_json()
    return {
        "errors": [[str(one.type_key), str(one.error)] for one in report.datasets if one.error],
        "dry": _removals(dry),
        "done": _removals(done),
    }


def _removals(report: Any) -> list[Any]:
    """Return what a report of cleanup says was removed, or would be, and which dead operations were settled."""
    counts = [[name, report[name]] for name in ("intents_rolled_forward", "intents_rolled_back")]
    return [*counts, *(one for one in report["datasets"] if one["files_removed"] or one["error"])]


def _preview_cleanup(graph: Graph, keep: int, preview: str) -> Any:
    """Return what a cleanup says that it would do: by this handle, by one that cannot write, by the command line."""
    if preview == "command":
        from omnigraph.cli import main

        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            main(["cleanup", graph.uri, "--keep", str(keep), "--dry-run", "--json"])
        return json.loads(text.getvalue())
    if preview == "read_only":
        with og.open(graph.uri, read_only=True) as reader:
            return reader.maintenance.cleanup(keep=keep, dry_run=True).to_json()
    return graph.maintenance.cleanup(keep=keep, dry_run=True).to_json()


def _age_files(root: Path, ages: list[list[Any]]) -> None:
    """Set the age of each file by its place in the list of names: hours ago."""
    intents = root.glob("__recovery/*.json")
    files = sorted({path for path in root.rglob("*") if path.is_file()} - {*intents})
    now = datetime.now(UTC).timestamp()
    for index, path in enumerate(files):
        hours = ages[index % len(ages)]
        at = now - float(hours[0]) * 3_600
        os.utime(path, (at, at))


def _reconcile(graph: Graph) -> Answer:
    graph.maintenance.reconcile()
    return {}


def _load(graph: Graph, lines: list[Any], form: str, mode: str, branch: str, columns: Mapping[str, Any]) -> Answer:
    """Load entities given as NDJSON values, in some format, through some engine."""
    engine, _, shape = form.partition(":")
    arguments: dict[str, Any] = {"mode": mode, "branch": branch}
    folder = Path(tempfile.mkdtemp(prefix="world-"))
    try:
        if shape in ("dicts", "ndjson", "gz"):
            data = _as_lines(lines, shape, folder, is_file=engine == "bulk")
            receipt = _loader(engine)(graph, data, **arguments)
        else:
            tables = _as_tables(lines, columns, shape, folder)
            receipt = _loader(engine)(graph, **tables, **arguments)
        return _commit(receipt)
    finally:
        shutil.rmtree(folder)


def _loader(engine: str) -> Any:
    from omnigraph import pipeline

    if engine == "bulk":
        return staging_in_files()(partial(pipeline.load, engine="local"))
    return {"load": Graph.load, "ingest": Graph.ingest}[engine]


def _as_lines(lines: list[Any], shape: str, folder: Path, *, is_file: bool) -> Any:
    if shape == "dicts" and not is_file:
        return lines
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    if not is_file:
        return text
    if shape == "gz":
        import gzip

        path = folder / "data.ndjson.gz"
        path.write_bytes(gzip.compress(text))
    else:
        path = folder / "data.ndjson"
        path.write_bytes(text)
    return [str(path)]


def _as_tables(lines: list[Any], columns: Mapping[str, Any], shape: str, folder: Path) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {"nodes": {}, "edges": {}}
    for name, typed in columns.items():
        kind = "edges" if "from" in typed else "nodes"
        key = "edge" if kind == "edges" else "type"
        rows = [{**one["data"], **{end: one[end] for end in ("from", "to") if end in one}} for one in lines]
        rows = [row for row, line in zip(rows, lines, strict=True) if line.get(key) == name]
        rows = [{column: row.get(column) for column in typed} for row in rows]
        path = folder / f"{kind}-{name}.{shape}"
        if shape == "csv":
            path.write_text(_csv_text(rows, typed), encoding="utf-8", newline="")
            found[kind][name] = str(path)
            continue
        table = pa.table({column: _array([row[column] for row in rows], base) for column, base in typed.items()})
        if shape == "decimal":
            table = _with_decimals(table)
        if shape == "parquet":
            pq.write_table(table, path)
            found[kind][name] = str(path)
        else:
            found[kind][name] = table.to_pandas() if shape == "pandas" else table
    return {kind: tables for kind, tables in found.items() if tables}


def _array(values: list[Any], base: str) -> Any:
    if base.startswith("["):
        return pa.array(values, pa.list_(ARROW.get(base[1:-1], pa.string())))
    if base.startswith("Vector"):
        return pa.array(values, pa.list_(pa.float32(), int(base[7:-1])))
    if base == "Date":
        values = [None if one is None else date(1970, 1, 1) + timedelta(one) for one in values]
    if base == "DateTime":
        values = [None if one is None else datetime.fromtimestamp(one / 1_000, UTC) for one in values]
    if base == "Duration":
        values = [None if one is None else timedelta(milliseconds=one) for one in values]
    return pa.array(values, ARROW.get(base, pa.string()))


def _with_decimals(table: pa.Table) -> pa.Table:
    """Return a table whose floats are decimals, as databases have them, where a decimal can hold them."""
    for index, name in enumerate(table.column_names):
        values = table[name].to_pylist()
        if table[name].type == pa.float64() and all(one is None or abs(one) < 1e9 for one in values):
            decimals = [None if one is None else Decimal(repr(one)) for one in values]
            table = table.set_column(index, name, pa.array(decimals, pa.decimal128(12, 2)))
    return table


def _csv_text(rows: list[dict[str, Any]], typed: Mapping[str, str]) -> str:
    """Return rows as CSV: null is an empty field, an empty text a quoted one."""
    buffer = io.StringIO()
    buffer.write(",".join(typed) + "\n")
    writer = csv.writer(buffer, quoting=csv.QUOTE_NOTNULL if hasattr(csv, "QUOTE_NOTNULL") else csv.QUOTE_ALL)
    for row in rows:
        fields = [_csv_field(row[column], base) for column, base in typed.items()]
        if hasattr(csv, "QUOTE_NOTNULL"):
            writer.writerow(fields)
        else:
            buffer.write(",".join("" if one is None else '"' + one.replace('"', '""') + '"' for one in fields) + "\n")
    return buffer.getvalue()


def _csv_field(value: Any, base: str) -> str | None:
    if value is None:
        return None
    if base.startswith(("[", "Vector")):
        return json.dumps(value)
    if base == "Date":
        return (date(1970, 1, 1) + timedelta(value)).isoformat()
    if base == "DateTime":
        return datetime.fromtimestamp(value / 1_000, UTC).isoformat()
    if base == "Duration":
        return duration_text(value)
    if base == "Bool":
        return "true" if value else "false"
    return str(value)


def _pipeline(graph: Graph, declaration: str, file: Any = None, is_retry: bool = False) -> Answer:
    """Let a file come, and run a declared pipeline, or load what earlier runs have rejected."""
    from omnigraph import pipeline
    from omnigraph.pipelines.declaration.config import parse_pipelines

    folder = Path(f"{graph.uri}.pipelines")
    if file is not None:
        path = folder / file["path"] / file["name"]
        if file["is_alone"]:
            shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        columns: Mapping[str, str] = file["columns"]
        rows = [{column: row.get(column) for column in columns} for row in file["rows"]]
        if file["name"].endswith("csv"):
            path.write_text(_csv_text(rows, columns), encoding="utf-8", newline="")
        else:
            arrays = {name: _array([row[name] for row in rows], base) for name, base in columns.items()}
            pq.write_table(_with_decimals(pa.table(arrays)), path)
    declared, report = parse_pipelines(declaration, folder=folder), folder / "report"
    if is_retry:
        done = pipeline.retry_rejected(graph, declared, report=report)
    else:
        done = pipeline.run(graph, declared, spark=_spark(), report=report)
    files = {
        path.parent.name: len(path.read_text().splitlines())
        for path in sorted(report.glob("rejected/*/rejected.ndjson"))
    }
    return {
        "commit": done.commit_id if done.status == "published" else None,
        "status": done.status,
        "run_id": done.run_id,
        "rejected": done.rejected,
        "files": {name: count for name, count in files.items() if count},
    }


@cache
def _spark() -> Any:
    from omnigraph.spark.session import session

    spark = session("local[1]")
    spark.sparkContext.setLogLevel("OFF")
    for name, value in {"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"}.items():
        spark.conf.set(name, value)
    return spark


CALLS: dict[str, Any] = {
    "pipeline": _pipeline,
    "mutate": _mutate,
    "load": _load,
    "merge": _merge,
    "replay": _replay,
    "create_branch": _create,
    "delete_branch": _delete,
    "rename_branch": _rename,
    "tag": _tag,
    "untag": _untag,
    "apply_schema": _apply,
    "optimize": _optimize,
    "index": _index,
    "cleanup": _cleanup,
    "reconcile": _reconcile,
}
