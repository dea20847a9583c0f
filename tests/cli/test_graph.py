"""Commands on a graph: what they do, print and refuse, through the same door as a user."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli import main

pytestmark = pytest.mark.slow

SCHEMA = """node Person {
  name: String @key
  age: I32?
}

edge Knows: Person -> Person
"""
DATA = """{"type":"Person","data":{"name":"ann","age":40}}
{"type":"Person","data":{"name":"bob"}}
{"edge":"Knows","from":"ann","to":"bob","data":{"id":"k1"}}
"""
GROW = """query grow($n: String) { update Person set { age: 41 } where name = $n }
query gone() { delete Person where name = "bob" }
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A directory with a small graph, which is also the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.pg").write_text(SCHEMA)
    (tmp_path / "wider.pg").write_text(SCHEMA.replace("age: I32?", "age: I32?\n  email: String?"))
    (tmp_path / "data.ndjson").write_text(DATA)
    (tmp_path / "grow.gq").write_text(GROW)
    assert main(["init", "g.omni", "--schema", "schema.pg", "--quiet"]) == 0
    assert main(["ingest", "g.omni", "--data", "data.ndjson", "--mode", "append", "--as", "ada", "--quiet"]) == 0
    capsys.readouterr()
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *given: str, status: int = 0) -> tuple[str, str]:
    assert main(list(given)) == status
    captured = capsys.readouterr()
    return captured.out, captured.err


def read_json(capsys: pytest.CaptureFixture[str], *given: str, status: int = 0) -> dict[str, object]:
    found = json.loads(run(capsys, *given, "--json", status=status)[0])
    assert isinstance(found, dict)
    return found


def test_init_says_what_it_made_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schema.pg").write_text(SCHEMA)
    out, err = run(capsys, "init", str(tmp_path / "g.omni"), "--schema", str(tmp_path / "schema.pg"))
    assert "1 node and 1 edge types" in out
    assert err == f"omnigraph init → {tmp_path / 'g.omni'}\n"


@pytest.mark.usefixtures("place")
def test_init_existing_graph_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = run(capsys, "init", "g.omni", "--schema", "schema.pg", "--quiet", status=1)
    assert err.startswith("error[graph.already_initialized]: ")


@pytest.mark.usefixtures("place")
def test_ingest_counts_what_it_read(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "ingest", "g.omni", "--data", "data.ndjson", "--mode", "merge")
    assert out.splitlines()[:2] == ["node Person: 2", "edge Knows: 1"]
    assert "3 entities on main, commit " in out
    assert err == "omnigraph ingest → g.omni\n"


@pytest.mark.usefixtures("place")
def test_ingest_into_a_new_branch_makes_it(capsys: pytest.CaptureFixture[str]) -> None:
    given = [
        "ingest",
        "--store",
        "g.omni",
        "--data",
        "data.ndjson",
        "--mode",
        "merge",
        "--branch",
        "r",
        "--from",
        "main",
    ]
    report = read_json(capsys, *given)
    assert (report["branch"], report["base_branch"], report["branch_created"]) == ("r", "main", True)
    assert read_json(capsys, "branch", "list", "g.omni")["branches"] == ["main", "r"]


def test_ingest_bad_data_is_told_by_rule_and_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "bad.ndjson").write_text('{"type":"Person","data":{"name":"x","age":"y"}}\n{"type":"Prson","data":{}}\n')
    _, err = run(capsys, "ingest", "g.omni", "--data", "bad.ndjson", "--mode", "merge", "--quiet", status=1)
    assert "line 1" in err
    assert "error[N" in err


def test_ingest_from_standard_input(place: Path) -> None:
    given = [sys.executable, "-m", "omnigraph", "ingest", "g.omni", "--data", "-", "--mode", "merge", "--json"]
    done = subprocess.run(given, input=DATA, capture_output=True, text=True, cwd=place)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["total_entities"] == 3


@pytest.mark.parametrize("given", [["ingest", "--data", "d", "--mode", "overwrite"], ["branch", "delete", "x"]])
def test_destructive_work_on_remote_storage_needs_a_yes(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Refused before anything is opened, since nobody can be asked here."""
    _, err = run(capsys, *given, "--store", "s3://lake/g.omni", status=1)
    assert "→ s3:" in err
    assert "add `--yes`" in err


def test_mutate_runs_the_named_query_and_stays_silent_on_stderr(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["mutate", "grow", "--store", "g.omni", "--query", "grow.gq", "--params", '{"n": "ann"}', "--as", "eve"]
    out, err = run(capsys, *given)
    assert out.startswith("grow: 1 node and 0 edges on main, commit ")
    assert err == ""
    assert og.open(place / "g.omni").commits()[0].actor == "eve"


@pytest.mark.usefixtures("place")
def test_mutate_without_a_match_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["mutate", "grow", "--store", "g.omni", "--query", "grow.gq", "--params", '{"n": "nobody"}']
    assert run(capsys, *given)[0] == "grow: 0 nodes and 0 edges on main, nothing changed, no commit\n"


def test_mutate_if_commit_lost_exits_with_4(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = og.open(place / "g.omni").snapshot().head
    given = ["mutate", "gone", "--store", "g.omni", "--query", "grow.gq", "--if-commit", str(head)]
    assert read_json(capsys, *given)["affected_edges"] == 1
    error = read_json(capsys, *given, status=4)
    assert (error["code"], error["expected"]) == ("precondition.failed", head)


@pytest.mark.usefixtures("place")
def test_mutate_mistake_is_shown_in_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.gq").write_text('query w() {\n  delete Person where nme = "x"\n}\n')
    _, err = run(capsys, "mutate", "--store", "g.omni", "--query", "wrong.gq", status=1)
    assert "wrong.gq:2:23" in err
    assert "did you mean `name`?" in err


ALL = "query all() { match { $p: Person } return { $p.name as name, $p.age as age } order { name asc } }"


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ("table", "name  age\n----  ----\nann     40\nbob   null\n(2 rows)\n"),
        ("kv", "name  ann\nage   40\n\nname  bob\nage   null\n"),
        ("csv", "name,age\nann,40\nbob,\n"),
        ("jsonl", '{"name": "ann", "age": 40}\n{"name": "bob", "age": null}\n'),
        (
            "jsonl --metadata",
            """{"kind": "metadata", "query_name": "all", "target": {"branch": "main"}, "row_count": 2}
{"name": "ann", "age": 40}
{"name": "bob", "age": null}
""",
        ),
    ],
)
def test_query_prints_rows_in_the_format_asked_for(shape: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "query", "--store", "g.omni", "-e", ALL, "--format", *shape.split()) == (text, "")


def test_query_json_names_its_commit(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_json(capsys, "query", "--store", "g.omni", "-e", ALL)
    assert found == {
        "query_name": "all",
        "target": {"branch": "main"},
        "row_count": 2,
        "graph_commit_id": og.open(place / "g.omni").snapshot().head,
        "columns": ["name", "age"],
        "rows": [{"name": "ann", "age": 40}, {"name": "bob", "age": None}],
    }


def test_query_reads_branch_or_snapshot(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = str(og.open(place / "g.omni").snapshot().head)
    run(capsys, "branch", "create", "old", "--store", "g.omni")
    run(capsys, "mutate", "gone", "--store", "g.omni", "--query", "grow.gq")
    given = ["query", "--store", "g.omni", "-e", ALL]
    counts = [
        read_json(capsys, *given, *more)["row_count"] for more in ([], ["--branch", "old"], ["--snapshot", before])
    ]
    assert counts == [1, 2, 2]
    # A commit is the same on every branch.
    assert read_json(capsys, *given, "--branch", "old", "--snapshot", before)["row_count"] == 2


def test_query_parameters_come_from_a_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "p.json").write_text('{"n": "ann"}')
    text = "query one($n: String) { match { $p: Person { name: $n } } return { $p.age } }"
    out, _ = run(capsys, "query", "--store", "g.omni", "-e", text, "--params-file", "p.json", "--format", "csv")
    assert out == "p.age\n40\n"


@pytest.mark.usefixtures("place")
def test_query_given_a_mutation_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = run(capsys, "query", "gone", "--store", "g.omni", "--query", "grow.gq", status=1)
    assert err.startswith("error[")
    assert "mutation" in err


@pytest.mark.usefixtures("place")
def test_explain_shows_the_plan_and_profile_adds_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    plan, _ = run(capsys, "explain", "--store", "g.omni", "-e", ALL)
    profile, _ = run(capsys, "explain", "--store", "g.omni", "-e", ALL, "--profile")
    assert "Person" in plan
    assert len(profile) > len(plan)
    assert read_json(capsys, "explain", "--store", "g.omni", "-e", ALL)


@pytest.mark.usefixtures("place")
def test_schema_apply_then_show_gives_the_new_text(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "schema", "apply", "g.omni", "--schema", "wider.pg")
    assert out.startswith("+ add Person.email: String?\napplied, commit ")
    assert err == "omnigraph schema apply → g.omni\n"
    assert run(capsys, "schema", "show", "g.omni")[0] == Path("wider.pg").read_text()
    assert run(capsys, "schema", "apply", "g.omni", "--schema", "wider.pg")[0] == "no changes, nothing applied\n"
    report = read_json(capsys, "schema", "apply", "g.omni", "--schema", "schema.pg", "--allow-data-loss", "--quiet")
    assert (report["applied"], report["purge_pending"]) == (True, ["node:Person.email"])


@pytest.mark.usefixtures("place")
def test_schema_plan_against_a_graph_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    plan = read_json(capsys, "schema", "plan", "g.omni", "--schema", "wider.pg")
    assert plan["steps"] == [
        {
            "kind": "add_property",
            "type_kind": "node",
            "type_name": "Person",
            "property_name": "email",
            "property_type": "String?",
            "effect": "instant",
        }
    ]
    assert run(capsys, "schema", "show", "--store", "g.omni")[0] == SCHEMA


@pytest.mark.usefixtures("place")
def test_schema_apply_on_a_branch_leaves_main(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "branch", "create", "review/a", "--store", "g.omni")
    command = ("--schema", "wider.pg", "--branch", "review/a")
    assert read_json(capsys, "schema", "plan", "g.omni", *command)["step_count"] == 1
    applied = read_json(capsys, "schema", "apply", "g.omni", *command, "--quiet")
    assert applied["applied"] is True
    assert read_json(capsys, "schema", "plan", "g.omni", *command)["step_count"] == 0
    shown = run(capsys, "schema", "show", "g.omni", "--branch", "review/a")[0]
    assert "email" in shown
    assert run(capsys, "schema", "show", "g.omni")[0] == SCHEMA


@pytest.mark.usefixtures("place")
def test_schema_conflict_of_a_merge_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "branch", "create", "x", "--store", "g.omni")
    for branch in ("x", "main"):
        run(capsys, "schema", "apply", "g.omni", "--schema", "wider.pg", "--branch", branch, "--quiet")
    out, _ = run(capsys, "branch", "merge", "x", "--store", "g.omni", "--dry-run", status=1)
    assert "1 DivergentSchema\n  `Person.email`: each side has a property of this name" in out
    assert "--take TYPE.PROPERTY=ours" in out
    assert "omnigraph schema apply --branch" in out
    _, err = run(capsys, "branch", "merge", "x", "--store", "g.omni", "--take", "Person.nope=ours", status=1)
    assert "names no conflict of this merge; there are: `Person.email`" in err
    out, _ = run(capsys, "branch", "merge", "x", "--store", "g.omni", "--take", "Person.email=theirs")
    assert "done" in out
    _, err = run(capsys, "branch", "merge", "x", "--store", "g.omni", "--take", "Person.email=ours", status=1)
    assert "names no conflict of this merge; there are: none" in err


@pytest.mark.usefixtures("place")
def test_ours_settles_schemas_and_then_entities(capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "branch", "create", "x", "--store", "g.omni")
    for branch in ("x", "main"):
        run(capsys, "schema", "apply", "g.omni", "--schema", "wider.pg", "--branch", branch, "--quiet")
        insert = f'insert Person {{ name: "zoe", email: "{branch}" }}'
        run(capsys, "mutate", "--store", "g.omni", "--branch", branch, "-e", insert, "--quiet")
    found: Any = read_json(capsys, "branch", "merge", "x", "--store", "g.omni", "--dry-run", status=1)
    assert [one["kind"] for one in found["conflicts"]] == ["DivergentSchema"]
    run(capsys, "branch", "merge", "x", "--store", "g.omni", "--ours", "--quiet")
    query = 'match { $p: Person { name: "zoe" } } return { $p.email as email }'
    assert read_json(capsys, "query", "--store", "g.omni", "-e", query)["rows"] == [{"email": "main"}]


@pytest.mark.usefixtures("place")
def test_branch_life_from_create_to_delete(capsys: pytest.CaptureFixture[str]) -> None:
    made = read_json(capsys, "branch", "create", "x", "--store", "g.omni", "--as", "ada")
    assert (made["from"], made["name"], made["actor_id"]) == ("main", "x", "ada")
    assert read_json(capsys, "branch", "list", "g.omni")["branches"] == ["main", "x"]
    out, err = run(capsys, "branch", "delete", "x", "--store", "g.omni")
    assert out == "deleted branch x\n"
    assert err == "omnigraph branch delete → g.omni\n"
    assert read_json(capsys, "branch", "delete", "x", "--store", "g.omni", status=1)["code"] == "branch.not_found"


@pytest.mark.usefixtures("place")
def test_commit_list_and_show_agree(capsys: pytest.CaptureFixture[str]) -> None:
    commits = read_json(capsys, "commit", "list", "g.omni")["commits"]
    assert isinstance(commits, list)
    assert [(one["kind"], one["actor_id"]) for one in commits] == [("ingest", "ada"), ("init", None)]
    newest = commits[0]["graph_commit_id"]
    assert read_json(capsys, "commit", "show", newest, "--store", "g.omni") == commits[0]
    out, _ = run(capsys, "commit", "show", newest, "--store", "g.omni")
    assert f"graph_commit_id          {newest}" in out
    table, _ = run(capsys, "commit", "list", "--store", "g.omni")
    assert table.splitlines()[2].startswith(f"{newest[:10]}  ingest  main    ada    20")
    assert read_json(capsys, "commit", "show", "nope", "--store", "g.omni", status=1)["code"] == "commit.not_found"
    assert read_json(capsys, "commit", "list", "g.omni", "--limit", "1")["commits"] == commits[:1]
    assert read_json(capsys, "commit", "list", "g.omni", "--limit", "5", "--before", newest)["commits"] == commits[1:]


@pytest.mark.usefixtures("place")
def test_snapshot_shows_every_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    found = read_json(capsys, "snapshot", "g.omni")
    datasets = found["datasets"]
    assert isinstance(datasets, list)
    assert [(one["entity_kind"], one["type_name"], one["entity_count"]) for one in datasets] == [
        ("edge", "Knows", 1),
        ("node", "Person", 2),
    ]
    assert (found["graph_branch"], found["graph_manifest_version"]) == ("main", 2)
    out, _ = run(capsys, "snapshot", "--store", "g.omni", "--branch", "main")
    assert "node  Person         2" in out


def test_export_then_ingest_gives_the_same_graph(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported, _ = run(capsys, "export", "g.omni")
    assert exported.splitlines()[0] == '{"edge":"Knows","from":"ann","to":"bob","data":{"id":"k1"}}'
    (place / "exported.ndjson").write_text(exported)
    run(capsys, "init", "copy.omni", "--schema", "schema.pg")
    run(capsys, "ingest", "copy.omni", "--data", "exported.ndjson", "--mode", "append")
    assert run(capsys, "export", "copy.omni")[0] == exported
    assert run(capsys, "export", "copy.omni", "--type", "Knows")[0] == exported.splitlines(keepends=True)[0]


def test_export_reader_that_stops_early_is_no_traceback(place: Path) -> None:
    command = f"{sys.executable} -m omnigraph export g.omni | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=place)
    assert (done.stdout, done.stderr) == ("{", "")


@pytest.mark.usefixtures("place")
def test_lint_against_a_graph_uses_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "lint", "g.omni", "--query", "grow.gq")[0].startswith("2 queries")
    _, err = run(capsys, "lint", "g.omni", "--schema", "schema.pg", "--query", "grow.gq", status=1)
    assert "no schema to check against" in err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["snapshot"], "no graph was given; add `--store URI`"),
        (["snapshot", "a.omni", "--store", "b.omni"], "two graphs were given, `a.omni` and `b.omni`"),
        (["snapshot", "nowhere.omni"], "there is no graph at"),
        (["snapshot", "https://example.org/g"], "is the address of a server"),
        (["mutate", "--store", "g"], "no query was given"),
        (["mutate", "--store", "g", "--query", "a.gq", "-e", "x"], "use one of them"),
        (["mutate", "--store", "g", "-e", "x", "--params", "["], "the parameters are not JSON"),
        (["mutate", "--store", "g", "-e", "x", "--params", '{"a": 1, "a": 2}'], "duplicate member `a`"),
        (["mutate", "--store", "g", "-e", "x", "--params", "[1]"], "not a JSON object"),
        (["mutate", "--store", "g", "-e", "x", "--params", "{}", "--params-file", "p"], "use one of them"),
        (["mutate", "--store", "g", "-e", "x", "--params-file", "no-such"], "cannot read `no-such`"),
        (["schema", "plan", "--schema", "x.pg", "--against", "y.pg", "--store", "g"], "no schema to plan from"),
    ],
)
def test_wrong_call_says_what_to_do(
    given: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _, err = run(capsys, *given, status=1)
    assert says in err
    assert list(tmp_path.iterdir()) == []
