"""Embedding in the pipeline: while loading and on Spark, what is asked, what a failure leaves, and the guide."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.embed.embed_tasks import embed_site
from omnigraph.engine.load import kept_rows
from omnigraph.engine.load.kept_rows import RowKeeper
from omnigraph.engine.tasks import Threads
from omnigraph.errors import DataError, JobExists, UsageError
from omnigraph.graph import session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.spark.executors import Executors
from tests.engine.test_embed import answer, asked, doc, made, provider, refusing
from tests.support.embedding_provider import Provider
from tests.support.pipeline_fixtures import staging_in_files

pytestmark = pytest.mark.slow

__all__ = ["provider"]

GUIDE = Path(__file__).parents[2] / "docs" / "embeddings.md"
SCHEMA = """
node Doc { name: String @key  text: String?  pages: I32?  vec: Vector(4) @embed(text)  @range(pages, 0..9) }
edge Cites: Doc -> Doc
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g.omni", SCHEMA)


def lines(tmp_path: Path, *records: dict[str, Any]) -> Path:
    path = tmp_path / "data.ndjson"
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def vectors(graph: og.Graph) -> dict[str, Any]:
    records = map(json.loads, b"".join(graph.export(types=["Doc"])).splitlines())
    return {record["data"]["name"]: record["data"]["vec"] for record in records}


def test_load_gives_vectors_to_rows_without_one(graph: og.Graph, provider: Provider, tmp_path: Path) -> None:
    data = lines(tmp_path, doc("a", text="one"), doc("b", text="two", vec=[0, 0, 1, 0]), doc("c", text="one"))
    report = pipeline.load(graph, data, mode="append", embed=True)
    assert report.to_json()["embedded"] == [
        {"property": "Doc.vec", "filled": 2, "cleared": 0, "texts_asked": 1, "texts_cached": 0}
    ]
    assert asked(provider) == ["one"]
    assert vectors(graph) == {"a": pytest.approx(made("one")), "b": [0, 0, 1, 0], "c": pytest.approx(made("one"))}
    again = lines(tmp_path, doc("a", text="uno"), doc("c", text="one"))
    pipeline.load(graph, again, mode="merge", embed=True)
    assert asked(provider) == ["uno"]
    assert vectors(graph)["a"] == pytest.approx(made("uno"))
    assert graph.embed().commit is None


def test_load_of_parquet_without_the_column_gets_vectors(graph: og.Graph, provider: Provider, tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"name": ["a", "b"], "text": ["one", "two"]}), tmp_path / "d.parquet")
    pipeline.load(graph, nodes={"Doc": tmp_path / "d.parquet"}, mode="append", embed=True)
    assert vectors(graph)["b"] == pytest.approx(made("two"))


def test_load_without_embed_still_needs_what_is_required(graph: og.Graph, provider: Provider, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Doc\.vec"):
        pipeline.load(graph, lines(tmp_path, doc("a", text="one")), mode="append")
    assert provider.requests == []


def test_load_row_with_neither_text_nor_vector_is_refused(graph: og.Graph, provider: Provider, tmp_path: Path) -> None:
    data = lines(tmp_path, doc("a", text="one"), doc("b"))
    with pytest.raises(DataError, match=r"line 2: `Doc\.vec` is required") as caught:
        pipeline.load(graph, data, mode="append", embed=True)
    assert caught.value.context["rule"] == "E4"
    report = pipeline.load(
        graph, data, mode="append", embed=True, on_error="quarantine", report=tmp_path / "r", max_errors=1
    )
    assert [(one.line, one.violation.rule) for one in report.rejected] == [(2, "E4")]
    assert list(vectors(graph)) == ["a"]
    assert asked(provider) == ["one"]


def vectors_not_made(graph: og.Graph, tmp_path: Path) -> list[tuple[int, str]]:
    data = lines(tmp_path, doc("a", text="one"), doc("b", text="two", pages="many"), doc("c", text="two", pages=99))
    with pytest.raises(DataError) as caught:
        pipeline.load(graph, data, mode="append", embed=True)
    violations: Any = caught.value.context["violations"]
    return [(violation["line"], violation["rule"]) for violation in violations]


def test_load_with_malformed_lines_misses_no_vector_that_it_does_not_make(
    graph: og.Graph, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [line for line, _ in vectors_not_made(graph, tmp_path)] == [2, 3]
    assert provider.requests == []
    monkeypatch.setattr(RowKeeper, "_without_vectors_to_make", lambda *arguments: arguments[-1])
    assert 1 in [line for line, _ in vectors_not_made(graph, tmp_path)]


def test_load_quarantine_counts_rows_the_same_in_every_pass(
    graph: og.Graph, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows that come in parts are found again by their numbers, past those that were left out.
    monkeypatch.setattr(kept_rows.EmbedJob, "window", lambda self, key: 2)
    records = [doc("a", text="one"), doc("b"), doc("c", text="two", pages=99), doc("d", text="two"), doc("d", text="x")]
    records += [doc("e", text="y"), {"edge": "Cites", "from": "b", "to": "e", "data": {}}]
    report = pipeline.load(
        graph,
        lines(tmp_path, *records),
        mode="append",
        embed=True,
        on_error="quarantine",
        report=tmp_path / "r",
        max_errors=9,
    )
    assert {(one.line, one.violation.rule) for one in report.rejected} >= {(2, "E4"), (3, "E8"), (7, "E9")}
    assert set(vectors(graph)) >= {"a", "e"}
    tally = report.embedded["Doc.vec"]
    assert (tally.filled, tally.asked) == (len(vectors(graph)), len(asked(provider)))
    assert graph.maintenance.verify().is_sound


def test_load_of_an_id_in_two_files_counts_requests_and_vectors(tmp_path: Path, provider: Provider) -> None:
    graph = og.init(tmp_path / "k.omni", "node Doc { text: String?  vec: Vector(4) @embed(text) }")
    for file, texts in (("1", {"a": "one", "b": "two"}), ("2", {"a": "three"})):
        records = [{"type": "Doc", "data": {"id": id_, "text": text}} for id_, text in texts.items()]
        (tmp_path / f"{file}.ndjson").write_text("\n".join(map(json.dumps, records)))
    files = [tmp_path / "1.ndjson", tmp_path / "2.ndjson"]
    with staging_in_files():
        report = pipeline.load(graph, files, embed=True)
    assert asked(provider) == ["one", "three", "two"]
    assert (report.embedded["Doc.vec"].filled, report.embedded["Doc.vec"].asked) == (2, 3)


def test_load_in_memory_asks_for_no_text_of_a_superseded_row(tmp_path: Path, provider: Provider) -> None:
    graph = og.init(tmp_path / "k.omni", "node Doc { text: String?  vec: Vector(4) @embed(text) }")
    records = [{"type": "Doc", "data": {"id": id_, "text": text}} for id_, text in ("a1", "b2", "a3")]
    report = graph.load(records, embed=True)
    assert asked(provider) == ["2", "3"]
    assert (report.embedded["Doc.vec"].filled, report.embedded["Doc.vec"].asked) == (2, 2)


def test_load_that_looks_again_at_edges_gives_vectors_to_nothing(
    graph: og.Graph, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[str] = []
    embed_rows = kept_rows.embed_rows

    def fill_rows(job: Any, table_key: TypeKey, rows: pa.Table, tallies: Any) -> Any:
        filled.append(table_key)
        return embed_rows(job, table_key, rows, tallies)

    monkeypatch.setattr(kept_rows, "embed_rows", fill_rows)
    data = lines(tmp_path, doc("a", text="one"), {"edge": "Cites", "from": "nobody", "to": "noone", "data": {}})
    with pytest.raises(DataError, match="nobody"):
        pipeline.load(graph, data, mode="append", embed=True)
    assert filled == ["node:Doc"]


@pytest.mark.parametrize("status", [429, 500, 400])
def test_load_whose_provider_fails_publishes_nothing_and_can_be_rerun(
    graph: og.Graph, provider: Provider, tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.engine.embed.cache.EMBED_TEXTS_MAX", 2)
    data = lines(tmp_path, *(doc(f"d{number}", text=f"t{number}") for number in range(8)))
    provider.answer = refusing(status)
    with pytest.raises(DataError) as caught:
        pipeline.load(graph, data, mode="append", embed=True)
    assert caught.value.context["rule"] == "E13"
    assert vectors(graph) == {}
    known = {text for _, _, body in provider.requests for text in body["input"]} - {"t6", "t7"}
    provider.requests.clear()
    provider.answer = answer
    pipeline.load(graph, data, mode="append", embed=True)
    assert asked(provider) == sorted({f"t{number}" for number in range(8)} - known)
    assert len(vectors(graph)) == 8


def test_load_refused_by_its_lines_asks_nothing(graph: og.Graph, provider: Provider, tmp_path: Path) -> None:
    data = lines(tmp_path, doc("a", text="one"), {"type": "Dok", "data": {}})
    with pytest.raises(DataError, match="Dok"):
        pipeline.load(graph, data, mode="append", embed=True)
    assert provider.requests == []


def test_load_job_with_and_without_embed_are_two_jobs(graph: og.Graph, provider: Provider, tmp_path: Path) -> None:
    data = lines(tmp_path, doc("a", text="one", vec=[1, 0, 0, 0]))
    pipeline.load(graph, data, job_id="j", embed=True)
    assert pipeline.load(graph, data, job_id="j", embed=True).already_applied
    with pytest.raises(JobExists):
        pipeline.load(graph, data, job_id="j")


def test_load_embed_of_a_schema_without_embed_is_refused(tmp_path: Path, provider: Provider) -> None:
    graph = og.init(tmp_path / "p.omni", "node Doc { name: String @key }")
    with pytest.raises(UsageError, match="nothing to embed"):
        pipeline.load(graph, lines(tmp_path, doc("a")), embed=True)


def test_embed_unknown_engine_is_refused(graph: og.Graph) -> None:
    with pytest.raises(UsageError, match="unknown engine"):
        pipeline.embed(graph, engine="abacus")  # type: ignore[call-overload]  # that is the point


def test_site_carries_the_provider_and_its_key_but_no_other_secret(
    graph: og.Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_OTHER_SECRET", "x")
    names = dict(embed_site(session_of(graph).kernel.store, "op", Threads()).access.settings)
    assert (names["OPENAI_API_KEY"], names["OMNIGRAPH_EMBED_BASE_URL"]) == ("secret-key", provider.url)
    assert "SOME_OTHER_SECRET" not in names


def test_load_with_other_settings_than_those_of_the_graph_is_refused(
    graph: og.Graph, provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = lines(tmp_path, doc("a", text="one"))
    graph.embed()
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "m2")
    with pytest.raises(DataError, match="open the graph again") as caught:
        pipeline.load(graph, data, mode="append", embed=True)
    assert [caught.value.context[name] for name in ("rule", "expected", "actual")] == ["E13", "m1", "m2"]
    assert (asked(provider), vectors(graph)) == ([], {})
    with og.open(graph.uri) as other:
        pipeline.load(other, data, mode="append", embed=True)
    assert {body["model"] for _, _, body in provider.requests} == {"m2"}


def test_site_leaves_no_setting_of_an_earlier_driver_behind(
    graph: og.Graph, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMNIGRAPH_EMBED_BASE_URL")
    access = embed_site(session_of(graph).kernel.store, "op", Threads()).access
    monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", "http://earlier")
    access.store()
    assert "OMNIGRAPH_EMBED_BASE_URL" not in os.environ


@pytest.mark.spark
def test_spark_loads_and_embeds_as_this_process_does(
    graph: og.Graph, provider: Provider, tmp_path: Path, spark: Any
) -> None:
    data = lines(tmp_path, *(doc(f"d{number}", text=f"t{number % 4}") for number in range(9)))
    report = pipeline.load(graph, data, mode="append", embed=True, engine="spark")
    assert (report.engine, report.embedded["Doc.vec"].filled) == ("spark", 9)
    assert asked(provider) == ["t0", "t1", "t2", "t3"]
    expected = {f"d{number}": pytest.approx(made(f"t{number % 4}")) for number in range(9)}
    assert vectors(graph) == expected
    graph.mutate('query u() { update Doc set { text: "new" } where name = "d0" }')
    assert Executors(spark).processes == 2
    receipt = pipeline.embed(graph, engine="spark")
    assert (receipt.engine, receipt.properties[0].tally.filled) == ("spark", 1)
    assert asked(provider) == ["new"]
    assert vectors(graph) == expected | {"d0": pytest.approx(made("new"))}
    graph.mutate('query u() { update Doc set { text: "t7" } where name = "d0" }')
    provider.answer = refusing(400)
    with pytest.raises(DataError) as caught:
        pipeline.embed(graph, engine="spark")
    assert caught.value.context["rule"] == "E13"
    assert graph.maintenance.verify().is_sound


def test_guide_runs_block_after_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    programs = [(language, "\n".join(text for _, text in group)) for language, group in groupby(blocks, itemgetter(0))]
    [(_, python), (_, shell)] = programs
    exec(compile(python, GUIDE.name, "exec"), {})  # what a reader would paste
    run = subprocess.run(["sh", "-e", "-c", shell], capture_output=True, text=True)
    assert run.returncode == 0, (run.stdout, run.stderr)
