"""Mistakes that a data engineer makes in a pipeline: each is an error with its position, before any data moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.load.load import load
from omnigraph.errors import OmniGraphError, PipelineError, UsageError
from omnigraph.graph import Graph
from omnigraph.pipelines import check
from omnigraph.pipelines.declaration.config import parse_pipelines
from omnigraph.pipelines.history import RunReport

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = """
node Person { name: String @key  age: I64?  price: F64?  ok: Bool?  tags: [String]? }
node Tag { code: I64 @key }
edge Knows: Person -> Person
edge Has: Person -> Tag
"""
FILE = """\
pipelines:
  people:
    publish: { merge_into: main }
    sources:
      accounts: { format: parquet, path: accounts, incremental: seq }
    transforms:
      persons: "SELECT name, age FROM accounts"
      friends: "SELECT name, friend FROM accounts WHERE friend IS NOT NULL"
    nodes: { Person: { from: persons } }
    edges: { Knows: { from: friends, src: name, dst: friend } }
    expect: [{ on: persons, not_null: [name] }]
"""
PERSONS, FRIENDS = "SELECT name, age FROM accounts", "SELECT name, friend FROM accounts"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    write(tmp_path, "1", [1, 2], ["ann", "bob"])
    return og.init(tmp_path / "g.omni", SCHEMA)


def write(folder: Path, name: str, values: Sequence[Any], names: Sequence[str]) -> None:
    (folder / "accounts").mkdir(exist_ok=True)
    nothing = pa.nulls(len(names), pa.string())
    ages = pa.array(range(30, 30 + len(names)), pa.int64())
    table = pa.table({"seq": pa.array(values), "name": [*names], "age": ages, "friend": nothing})
    pq.write_table(table, folder / "accounts" / f"{name}.parquet")


def run(graph: Graph, spark: Any, folder: Path, text: str = FILE, **options: Any) -> RunReport:
    return pipeline.run(graph, parse_pipelines(text, folder=folder), spark=spark, **options)


def names(graph: Graph) -> set[str]:
    return {row["p.name"] for row in graph.query("query q() { match { $p: Person } return { $p.name } }").rows()}


# What is replaced in the file, by what, where the error points, and what it says.
MISTAKES = [
    (PERSONS, "SELEC name FROM accounts", "7:16", "PARSE_SYNTAX_ERROR"),
    (PERSONS, "SELECT 1; SELECT 2", "7:16", "PARSE_SYNTAX_ERROR"),
    (PERSONS, "SELECT nam FROM accounts", "7:16", "Did you mean"),
    (PERSONS, "SELECT name FROM acounts", "7:16", "a transform sees sources and earlier transforms"),
    (PERSONS, "SELECT name FROM friends", "7:16", "a transform sees sources and earlier transforms"),
    (PERSONS, "SELECT name, friend AS name FROM accounts", "7:16", "two columns `name`"),
    # Spark would run these at once.
    (PERSONS, "DROP VIEW accounts", "7:16", "not a valid query"),
    (PERSONS, "CREATE TABLE leaked AS SELECT 1 AS a", "7:16", "not a valid query"),
    (PERSONS, "CREATE OR REPLACE TEMP VIEW accounts AS SELECT 1 AS a", "7:16", "not a valid query"),
    (PERSONS, "SET spark.sql.ansi.enabled = false", "7:16", "not a valid query"),
    # Files of the runner, by their path.
    (PERSONS, "SELECT value AS name FROM text.`/etc/hosts`, accounts", "7:16", "not a valid query"),
    (PERSONS, "SELECT name, CAST('2026-01-01' AS DATE) AS price FROM accounts", "9:22", "is a date"),
    (PERSONS, "SELECT name, array(age) AS tags FROM accounts", "9:22", "is a array of long"),
    (PERSONS, "SELECT name, age AS ok FROM accounts", "9:22", "is a long, and `Person.ok` is Bool?"),
    (PERSONS, "SELECT NAME, age FROM accounts", "11:14", "did you mean `NAME`"),
    ("from: persons }", "from: persons, columns: { name: name }, delete_when: age }", "9:22", "is not a boolean"),
    (FRIENDS, "SELECT name, array(friend) AS friend FROM accounts", "10:21", "is a array, and the key `Person.name`"),
    (FRIENDS, "SELECT name, age AS friend FROM accounts", "10:21", "is a long, and the key `Person.name` is String"),
    ("{ Knows: { from: friends, src: name, dst: friend", "{ Has: { from: persons, src: age, dst: age", "10:19", ""),
    ("{ on: persons, not_null: [name] }", "{ on: persons, condition: 'age >' }", "11:14", "the condition `age >`"),
    ("{ on: persons, not_null: [name] }", "{ on: persons, condition: 'age + 1' }", "11:14", "is not valid"),
    ("{ on: persons, not_null: [name] }", "{ on: persons, condition: 'max(age) > 1' }", "11:14", "is not valid"),
    ("{ on: persons, not_null: [name] }", "{ on: persons, condition: 'rand() < 2' }", "11:14", "is not valid"),
    ("not_null: [name]", "unique: [nam]", "11:14", "did you mean `name`"),
    ("incremental: seq", "incremental: friends", "5:17", "did you mean `friend`"),
    ("format: parquet", "format: parket", "5:17", "parket"),
    ("format: parquet", "format: csv", "5:17", "add `header: true`"),
    ("format: parquet, path: accounts", "format: jdbc, url: 'jdbc:no:db', table: t", "5:17", "No suitable driver"),
    ("path: accounts", "path: '${HIDDEN}'", "5:17", "Path does not exist: file:${HIDDEN}"),
    ("path: accounts", "path: '${NOTHING}'", "5:17", "`${NOTHING}` is empty"),
    ("merge_into: main", "merge_into: mian", "3:14", "did you mean `main`"),
]  # fmt: skip


def test_check_says_where_a_mistake_is(
    graph: Graph, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HIDDEN", "/vault/hunter2")
    monkeypatch.setenv("NOTHING", "")
    head = graph.commits()[0].commit_id
    for before, after, position, message in MISTAKES:
        assert before in FILE, before
        declared = parse_pipelines(FILE.replace(before, after, 1), folder=tmp_path)
        with pytest.raises(UsageError) as caught:
            pipeline.check(graph, declared, spark=spark)
        text = str(caught.value)
        assert text.startswith(f"pipelines.yaml:{position}: "), (after, text)
        assert message in text, (after, text)
        assert "hunter2" not in text
    assert not spark.catalog.tableExists("leaked")
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert graph.commits()[0].commit_id == head
    # Spark logs what it raises, as JSON with a stack.
    assert "SQLQueryContextLogger" not in capfd.readouterr().err


def test_transform_may_be_any_query(graph: Graph, spark: Any, tmp_path: Path) -> None:
    for query in (
        "WITH old AS (SELECT * FROM accounts) SELECT name, age FROM old ORDER BY age -- all",
        "SELECT name, age FROM accounts UNION ALL SELECT 'cid', 3 LIMIT 2 ; ",
    ):
        assert run(graph, spark, tmp_path, FILE.replace(PERSONS, query), dry_run=True).nodes == {"Person": 2}


@pytest.mark.parametrize(
    ("values", "later", "message"),
    [
        ([True], [False], "is a boolean, which does not grow"),
        ([b"a"], [b"b"], "is a binary, which does not grow"),
        (["9"], ["10"], "as text 10 is below 9"),
    ],
)
def test_column_that_would_skip_rows_is_refused(
    graph: Graph, spark: Any, tmp_path: Path, values: list[Any], later: list[Any], message: str
) -> None:
    write(tmp_path, "1", values, ["ann"])
    with pytest.raises(UsageError, match=message):
        run(graph, spark, tmp_path)
    assert names(graph) == set()


def test_nan_is_no_watermark(graph: Graph, spark: Any, tmp_path: Path) -> None:
    write(tmp_path, "1", [0.5, math.nan], ["ann", "bob"])
    report = run(graph, spark, tmp_path)
    assert (report.watermarks, report.expectations[0].failed) == ({"accounts": "0.5"}, 1)
    write(tmp_path, "2", [0.75], ["cid"])
    run(graph, spark, tmp_path)
    assert names(graph) == {"ann", "cid"}


def test_watermark_of_another_column_or_type_is_refused(graph: Graph, spark: Any, tmp_path: Path) -> None:
    run(graph, spark, tmp_path)
    renamed = FILE.replace("incremental: seq", "incremental: age")
    with pytest.raises(
        UsageError, match=r"5:17: source `accounts` was read up to `2` of seq \(number\), and now grows"
    ):
        run(graph, spark, tmp_path, renamed)
    write(tmp_path, "1", [date(9000, 1, 1)], ["cid"])
    with pytest.raises(UsageError, match=r"now grows by seq \(time\)"):
        run(graph, spark, tmp_path)
    refreshed = run(graph, spark, tmp_path, full_refresh=True)
    assert (refreshed.watermarks, refreshed.expectations[0].outcome, refreshed.expectations[0].message) == (
        {"accounts": "9000-01-01"},
        "warn",
        "`seq` is 9000-01-01, in the future; no row below it is read any more",
    )
    assert names(graph) == {"ann", "bob", "cid"}


def test_range_that_selects_nothing_is_refused(graph: Graph, spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no value is above `5` and at most `1`; the lower bound is not included"):
        run(graph, spark, tmp_path, backfill=("5", "1"))
    with pytest.raises(UsageError, match="a backfill needs a range"):
        run(graph, spark, tmp_path, backfill=(None, None))
    with pytest.raises(UsageError, match="`source` is that of a backfill"):
        run(graph, spark, tmp_path, source="accounts")
    with pytest.raises(UsageError, match="`limit` is a number of runs"):
        pipeline.list_runs(graph, parse_pipelines(FILE)["people"], -1)


def test_line_that_is_not_json_fails_the_run(graph: Graph, spark: Any, tmp_path: Path) -> None:
    """Spark would read it as a row of nulls."""
    (tmp_path / "people.json").write_text('{"seq": 1, "name": "ann", "age": 3, "friend": "x"}\n{"seq": 2, "name":\n')
    text = FILE.replace("format: parquet, path: accounts", "format: json, path: people.json")
    with pytest.raises(OmniGraphError, match=r"(?i)malformed"):
        run(graph, spark, tmp_path, text)
    schema = "schema: 'seq BIGINT, name STRING, age BIGINT, friend STRING', "
    csv = FILE.replace("format: parquet, path: accounts", f"format: csv, {schema}path: people.csv")
    (tmp_path / "people.csv").write_text("1,ann,old,\n")
    with pytest.raises(PipelineError, match=r"people.csv` line 1: column `age` is `old`, which is not a bigint"):
        run(graph, spark, tmp_path, csv)
    # A field too many moves the others, also if those are not used.
    (tmp_path / "people.csv").write_text("1,Ann, the first,3,\n")
    with pytest.raises(UsageError, match="has 5 columns, and `schema` 4"):
        run(graph, spark, tmp_path, csv.replace("SELECT name, age", "SELECT name"))
    # Spark would read the columns by their position.
    (tmp_path / "people.csv").write_text("seq,age,name,friend\n1,3,4,\n")
    with pytest.raises(UsageError, match="is seq, age, name, friend, and `schema` is seq, name, age, friend"):
        run(graph, spark, tmp_path, csv.replace("path: people", "header: true, path: people"))
    (tmp_path / "people.xml").write_text("<r><row><seq>1</seq><name>ann</name><age>old</age></row></r>")
    with pytest.raises(PipelineError, match="nothing was published"):
        run(graph, spark, tmp_path, csv.replace("format: csv", "format: XML, rowTag: row").replace(".csv", ".xml"))


def test_columns_may_have_any_name(graph: Graph, spark: Any, tmp_path: Path) -> None:
    text = """
pipelines:
  people:
    publish: { merge_into: main }
    sources: { rows: { format: parquet, path: odd, incremental: the.seq } }
    nodes:
      Person: { from: rows, columns: { name: "a `name`", age: an age }, order_by: the.seq, delete_when: is.gone }
    expect: [{ on: rows, not_null: ["a `name`"] }, { on: rows, unique: [the.seq] }]
"""
    (tmp_path / "odd").mkdir()
    for seq, gone in ((1, False), (2, True)):
        rows = {"the.seq": [seq, seq + 10], "a `name`": ["ann", f"p{seq}"], "an age": [3, 4], "is.gone": [gone, False]}
        pq.write_table(pa.table(rows), tmp_path / "odd" / f"{seq}.parquet")
        run(graph, spark, tmp_path, text, full_refresh=True)
    assert names(graph) == {"p1", "p2"}


def test_files_that_vanish_fail_the_run_and_the_next_one_loads(
    graph: Graph, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge_and_remove(frame: Any, view: str, *arguments: Any) -> Any:
        for path in (tmp_path / "accounts").glob("*.parquet"):
            path.unlink()
        return judge(frame, view, *arguments)

    judge = check.judge_view
    with monkeypatch.context() as patched:
        patched.setattr("omnigraph.pipelines.run.judge_view", judge_and_remove)
        with pytest.raises(PipelineError, match="nothing was published"):
            run(graph, spark, tmp_path)
    assert (names(graph), graph.branches.list()) == (set(), ["main"])
    write(tmp_path, "2", [1], ["ann"])
    assert (run(graph, spark, tmp_path).status, names(graph)) == ("published", {"ann"})


def test_rows_that_arrive_during_a_run_belong_to_the_next(
    graph: Graph, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_late(*arguments: Any, **options: Any) -> Any:
        write(tmp_path, "2", [3], ["cid"])
        return load(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr("omnigraph.pipelines.run.load", load_late)
        assert run(graph, spark, tmp_path).watermarks == {"accounts": "2"}
    assert names(graph) == {"ann", "bob"}
    assert (run(graph, spark, tmp_path).nodes, names(graph)) == ({"Person": 1}, {"ann", "bob", "cid"})


def test_row_that_breaks_a_rule_is_told_without_its_temporary_file(graph: Graph, spark: Any, tmp_path: Path) -> None:
    text = FILE.replace(FRIENDS + " WHERE friend IS NOT NULL", "SELECT name, 'nil' AS friend FROM accounts")
    with pytest.raises(
        OmniGraphError,
        match=r"^`.*/accounts/1.parquet` line \d \(from = \w+, to = nil\): the target of an edge `Knows`",
    ):
        run(graph, spark, tmp_path, text)


def test_key_that_comes_twice_in_a_run_is_refused(graph: Graph, spark: Any, tmp_path: Path) -> None:
    write(tmp_path, "1", [1, 2], ["ann", "ann"])
    with pytest.raises(OmniGraphError, match="the input holds the key `ann` twice"):
        run(graph, spark, tmp_path)
    assert (names(graph), graph.branches.list()) == (set(), ["main"])
