"""Writing DataFrames and streams: values there and back, modes, rules, and batches that come again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import DataError, KeyConflict, OmniGraphError, PipelineError, ReadSetChanged, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.manifest.intents import pending
from omnigraph.spark.datasource import tables
from omnigraph.spark.datasource.tables import StagedPartition, StreamWriter, Writer, stage_partition
from tests.support.datasource_fixtures import empty_things, entities, things

pytestmark = pytest.mark.slow


def options(graph: Graph, **given: str) -> dict[str, str]:
    return {"graph": graph.uri, "type": "Dot", **given}


def dots(*names: str) -> Any:
    return iter([pa.RecordBatch.from_pydict({"name": list(names)})])


def names(graph: Graph, branch: str = "main") -> list[str]:
    return [one["data"]["name"] for one in entities(graph, branch) if one.get("type") == "Dot"]


def staging(graph: Graph) -> list[str]:
    return [str(one) for one in Path(graph.uri).rglob("_staging-*/*")]


def write_batch(graph: Graph, batch: int, *rows: str, query: str = "q", **given: str) -> None:
    """Do what Spark does for one batch: stage in tasks, and commit with another writer."""
    staged = StreamWriter(options(graph, **given), False).write(dots(*rows))
    writing = staged.write_plan.of_batch(f"{batch}")
    assert writing.job.operation_id.endswith(f"-{batch}")
    StreamWriter(options(graph, **given), False).commit(
        [StagedPartition(staged.write_plan, staged.splits, query), None], batch
    )


def test_writer_publishes_all_partitions_as_one_commit(tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    before = graph.snapshot().version
    writer = Writer(options(graph), False)
    messages = [writer.write(dots("c", "d")), writer.write(dots("e")), writer.write(iter([]))]
    assert (names(graph), len(pending(session_of(graph).kernel.store)[0])) == (["a", "b"], 1)
    writer.commit(messages)
    assert (names(graph), graph.snapshot().version) == (["a", "b", "c", "d", "e"], before + 1)
    assert (pending(session_of(graph).kernel.store)[0], staging(graph)) == ([], [])


def test_writer_breaking_a_rule_across_partitions_writes_nothing(tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    for rows in (("c", "d"), ("d",)), (("c",), ("a",)):
        writer = Writer(options(graph), False)
        with pytest.raises(OmniGraphError):
            writer.commit([writer.write(dots(*one)) for one in rows])
    assert (names(graph), staging(graph)) == (["a", "b"], [])
    edges = Writer(options(graph, type="Likes"), False)
    lost = edges.write(iter([pa.RecordBatch.from_pydict({"src": ["a"], "dst": ["gone"]})]))
    with pytest.raises(DataError, match="gone"):
        edges.commit([lost])


def test_writer_merges_and_overwrites_on_a_branch(tmp_path: Path) -> None:
    graph = empty_things(tmp_path / "g")
    graph.ingest([{"type": "Dot", "data": {"name": "a"}}], mode="append")
    graph.branches.create("side")
    merge = Writer(options(graph, mode="merge", branch="side"), False)
    merge.commit([merge.write(dots("a", "b"))])
    assert (names(graph, "side"), names(graph)) == (["a", "b"], ["a"])
    replace = Writer(options(graph, branch="side"), True)
    replace.commit([replace.write(dots("z"))])
    assert names(graph, "side") == ["z"]
    with pytest.raises(UsageError, match="does not match the mode of the writer"):
        Writer(options(graph, mode="merge"), True)


def test_writer_that_replaces_a_type_changed_meanwhile_conflicts(tmp_path: Path) -> None:
    graph = empty_things(tmp_path / "g")
    replace = Writer(options(graph), True)
    message = replace.write(dots("z"))
    graph.ingest([{"type": "Dot", "data": {"name": "meanwhile"}}], mode="append")
    with pytest.raises(ReadSetChanged, match="changed on branch"):
        replace.commit([message])
    assert (names(graph), staging(graph)) == (["meanwhile"], [])


def test_stream_that_replaces_its_type_does_so_in_every_batch(tmp_path: Path) -> None:
    graph = empty_things(tmp_path / "g")
    writer = StreamWriter(options(graph), True)
    for batch, row in enumerate(("x", "y")):
        staged = writer.write(dots(row))
        writing = staged.write_plan.of_batch(f"{batch}")
        splits = stage_partition(writing, dots(row)).splits
        writer.commit([StagedPartition(writing, splits, "q")], batch)
        assert names(graph) == [row]
        graph.ingest([{"type": "Dot", "data": {"name": "other"}}], mode="append")


def test_writer_whose_files_were_swept_publishes_nothing(tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    writer = Writer(options(graph), False)
    message = writer.write(dots("c"))
    (file,) = Path(graph.uri).rglob(f"data/{message.write_plan.job.operation_id}-*.lance")
    file.unlink()
    with pytest.raises(PipelineError, match="staged files are gone"):
        writer.commit([message])
    assert names(graph) == ["a", "b"]


def test_stream_writer_batch_that_comes_again_is_written_once(tmp_path: Path) -> None:
    graph = things(tmp_path / "g")
    write_batch(graph, 0, "c")
    write_batch(graph, 1, "d")
    version = graph.snapshot().version
    # The same rows would be refused as duplicates if they were not known to be written.
    write_batch(graph, 1, "d")
    write_batch(graph, 0, "c")
    assert graph.snapshot().version == version
    graph.ingest([{"type": "Dot", "data": {"name": "other"}}], mode="append")
    write_batch(graph, 2, "e")
    write_batch(graph, 0, "f", query="another")
    write_batch(graph, 1, query="another")
    assert names(graph) == ["a", "b", "c", "d", "e", "f", "other"]
    marks = [(one.properties.get("stream"), one.properties.get("batch")) for one in graph.commits()[:2]]
    assert marks == [("another", "0"), ("q", "2")]


def test_stream_writer_without_a_mark_doubles_or_loses_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = things(tmp_path / "g")
    write_batch(graph, 0, "c")
    monkeypatch.setattr(tables, "_last_commit", lambda *_: None)
    monkeypatch.setattr("omnigraph.engine.load.transaction.find_applied", lambda *_: None)
    with pytest.raises(KeyConflict):
        write_batch(graph, 0, "c")


def test_stream_writer_accepts_a_batch_that_another_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = things(tmp_path / "g")
    write_batch(graph, 0, "c")
    monkeypatch.setattr(tables, "_last_commit", lambda *_: None)
    write_batch(graph, 0, "c")
    assert names(graph) == ["a", "b", "c"]


@pytest.mark.spark
def test_dataframe_written_back_is_the_same_graph(spark: Any, tmp_path: Path) -> None:
    graph, copy = things(tmp_path / "g"), empty_things(tmp_path / "copy")
    for name in ("Thing", "Dot", "Likes"):
        frame = spark.read.format("omnigraph").option("graph", graph.uri).option("type", name).load()
        frame.write.format("omnigraph").option("graph", copy.uri).option("type", name).mode("append").save()
    assert entities(copy) == entities(graph)
    frame.write.format("omnigraph").option("graph", copy.uri).option("type", "Likes").mode("overwrite").save()
    likes = frame.write.format("omnigraph").option("graph", copy.uri).option("type", "Likes")
    likes.option("mode", "merge").mode("append").save()
    assert entities(copy) == entities(graph)
    with pytest.raises(Exception, match="has an entity with the id"):
        frame.write.format("omnigraph").option("graph", copy.uri).option("type", "Likes").mode("append").save()
    assert entities(copy) == entities(graph)


@pytest.mark.spark
def test_stream_query_that_starts_again_writes_every_batch_once(spark: Any, tmp_path: Path) -> None:
    graph = empty_things(tmp_path / "g")
    (tmp_path / "in").mkdir()

    def run() -> None:
        frame = spark.readStream.schema("name string").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        writer = frame.writeStream.format("omnigraph").options(**options(graph))
        writer.option("checkpointLocation", str(tmp_path / "check")).trigger(
            availableNow=True
        ).start().awaitTermination()

    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.json").write_text(f'{{"name": "{name}"}}\n')
    run()
    assert names(graph) == ["a", "b"]
    commits = len(graph.commits())
    # A query that died between its commit and Spark's note of it runs the batch once more.
    newest = max((tmp_path / "check" / "commits").glob("[0-9]*"), key=lambda one: int(one.name))
    newest.unlink()
    (tmp_path / "check" / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    assert (names(graph), len(graph.commits())) == (["a", "b"], commits)
    (tmp_path / "in" / "c.json").write_text('{"name": "c"}\n')
    run()
    assert (names(graph), len(graph.commits())) == (["a", "b", "c"], commits + 1)
