"""Every command of a graph's life on a path and in a bucket: the same answers, and what differs is said on stderr."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli import main
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n"
WIDER = SCHEMA.replace("age: I32?", "age: I32?  mail: String?")
DATA = """{"type":"Person","data":{"name":"ann","age":40}}
{"type":"Person","data":{"name":"bob"}}
{"edge":"Knows","from":"ann","to":"bob","data":{"id":"k1"}}
"""
GROW = "query grow($n: String) { update Person set { age: 41 } where name = $n }"
AGES = "query ages() { match { $p: Person } return { $p.name as name, $p.age as age } order { $p.name } }"


class Walk:
    """Runs commands on one graph, and keeps what they said."""

    def __init__(self, uri: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.uri = uri
        self.capsys = capsys
        for name, text in {"a.pg": SCHEMA, "b.pg": WIDER, "d.ndjson": DATA, "bad.ndjson": DATA + "{"}.items():
            (folder / name).write_text(text)
        self.schema, self.wider = str(folder / "a.pg"), str(folder / "b.pg")
        self.data, self.bad = str(folder / "d.ndjson"), str(folder / "bad.ndjson")

    def run(self, *given: str, status: int = 0, echo: str | None = None) -> str:
        """Run a command that must end with a status, and echo its target if it is a write other than `mutate`."""
        assert main(list(given)) == status, self.capsys.readouterr().err
        said = self.capsys.readouterr()
        if echo is not None:
            assert f"omnigraph {echo} → {self.uri}\n" in said.err
        elif status == 0:
            assert said.err == ""
        return said.out if status == 0 else said.err

    def read(self, *given: str) -> dict[str, object]:
        found = json.loads(self.run(*given, "--json"))
        assert isinstance(found, dict)
        return found


def live(walk: Walk) -> dict[str, object]:
    """Lead a graph through its life; return what does not depend on where it lies."""
    uri = walk.uri
    seen: dict[str, object] = {}
    assert "1 node and 1 edge types" in walk.run("init", uri, "--schema", walk.schema, echo="init")
    assert "already_initialized" in walk.run("init", uri, "--schema", walk.schema, status=1, echo="init")
    ingest = ("ingest", uri, "--data", walk.data, "--mode")
    seen["ingest"] = walk.run(*ingest, "append", "--as", "ada", echo="ingest").partition(" commit ")[0]
    assert "error[N1]: line 4" in walk.run("ingest", uri, "--data", walk.bad, "--mode", "merge", status=1)
    assert "error[E11]" in walk.run(*ingest, "append", status=1, echo="ingest")
    given = ("mutate", "--store", uri, "-e", GROW, "--params", '{"n":"ann"}')
    mutated = walk.read(*given)
    seen["mutate"] = (mutated["affected_nodes"], mutated["branch"])
    assert "error[" in walk.run(*given, "--if-commit", "0" * 26, status=4)
    seen["plan"] = walk.run("schema", "plan", uri, "--schema", walk.wider)
    assert walk.run("schema", "show", uri) == SCHEMA
    walk.run("schema", "apply", uri, "--schema", walk.wider, echo="schema apply")
    assert walk.run("schema", "show", uri) == WIDER
    seen["rows"] = walk.read("query", "--store", uri, "-e", AGES)["rows"]
    for shape in ("table", "kv", "csv"):
        seen[shape] = walk.run("query", "--store", uri, "-e", AGES, "--format", shape)
    seen["export"] = walk.run("export", uri)
    snapshot = walk.read("snapshot", uri)
    committed = mutated["commit"]
    assert isinstance(committed, dict)
    seen["snapshot"] = sorted(snapshot)
    seen["commits"] = history(walk, committed["graph_commit_id"])
    assert seen["commits"] == [None, None, "ada", None], "schema apply, mutate, ingest, init"
    return seen


def history(walk: Walk, mutation: str) -> list[object]:
    """Return the actors of all commits, and check that one of them is shown as it is listed."""
    listed = walk.read("commit", "list", walk.uri)["commits"]
    assert isinstance(listed, list)
    shown = walk.read("commit", "show", mutation, "--store", walk.uri)
    assert shown in listed or shown.get("commit") in listed
    return [one["actor_id"] for one in listed]


@pytest.mark.slow
@pytest.mark.s3
def test_life_of_a_graph_is_the_same_on_a_path_and_in_a_bucket(
    s3_server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    near = Walk(str(tmp_path / "g.omni"), tmp_path, capsys)
    far = Walk(s3_server.uri("walk"), tmp_path, capsys)
    assert live(near) == live(far)
    overwrite = ("ingest", "--data", near.data, "--mode", "overwrite")
    near.run(*overwrite, near.uri, echo="ingest")
    before = far.read("snapshot", far.uri)
    for extra in ((), ("--json",)):
        assert main([*overwrite, far.uri, *extra]) == 1
        said = capsys.readouterr()
        assert "add `--yes`" in said.out + said.err
    assert far.read("snapshot", far.uri) == before
    far.run(*overwrite, far.uri, "--yes", echo="ingest")
    assert near.run("export", near.uri) == far.run("export", far.uri)
