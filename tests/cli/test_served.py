"""Commands on a server: by profile, default and alias, with stored queries, and with refusals that say what to type."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli import main
from tests.server.conftest import POLICY, QUERIES
from tests.support.live_server import DATA, PEOPLE, SCHEMA, TOKENS, Live, serving_graph

LISTING = """
version: 1
groups: {all: [ada]}
rules:
  - id: all-list
    allow: {actors: {group: all}, actions: [graph_list]}
"""
CONFIG = """
servers: {{here: {{url: "{url}"}}}}
profiles: {{prod: {{server: here, default_graph: g}}, bare: {{server: here}}}}
aliases: {{everybody: {{server: here, graph: g, query: people, format: csv}}}}
"""
SAY = "query say($name: String) { match { $p: Person { name: $name } } return { $p.name as name } }"


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    home = tmp_path / "home"
    monkeypatch.setenv("OMNIGRAPH_HOME", str(home))
    for name in ("OMNIGRAPH_STORE", "OMNIGRAPH_PROFILE", "OMNIGRAPH_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.ingest(DATA)
    (tmp_path / "queries").mkdir()
    files = {"policy.yaml": POLICY, "listing.yaml": LISTING, "queries/all.gq": QUERIES}
    for path, text in files.items():
        (tmp_path / path).write_text(text, encoding="utf-8")
    with serving_graph(
        tmp_path / "g.omni",
        tokens=TOKENS,
        policy=tmp_path / "policy.yaml",
        server_policy=tmp_path / "listing.yaml",
        queries=tmp_path / "queries",
    ) as server:
        home.mkdir()
        (home / "config.yaml").write_text(CONFIG.format(url=f"http://{server.host}:{server.port}"), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO(TOKENS["ada"]))
            assert main(["login", "here"]) == 0
        yield server


def run(capsys: pytest.CaptureFixture[str], *given: str, status: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    found = main(list(given))
    captured = capsys.readouterr()
    assert found == status, captured.err
    return captured.out, captured.err


@pytest.mark.slow
def test_shell_works_on_a_server(
    live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statements = (
        "match { $p: Person } return { count($p) as people }",
        ":queries",
        ':run add {"name": "new"}',
        "match { $p: Person } return { count($p) as people }",
        ":schema Person",
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(statements)))
    out, _ = run(capsys, "shell", "--profile", "prod", "--format", "csv")
    first, _, rest = out.partition("\n1 node and 0 edges on main, commit ")
    assert first.splitlines()[:2] == ["people", "5"]
    assert {"people", "add"} <= set(first.splitlines()[2:])
    listed, _ = run(capsys, "queries", "list", "--profile", "prod")
    assert listed.splitlines()[0].split() == ["query", "kind", "parameters", "description"]
    assert ["add", "mutation", "name:", "string"] in [line.split()[:4] for line in listed.splitlines()]
    _, err = run(capsys, "queries", "list", status=1)
    assert "name a directory of `.gq` files, or a server" in err
    assert "\npeople\n6\nnode Person {" in rest


@pytest.mark.slow
def test_served_commands_find_their_graph_and_its_queries(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = run(capsys, "graphs", "list", "--server", "here", "--json")
    assert [one["graph_id"] for one in json.loads(out)["graphs"]] == ["g"]
    assert run(capsys, "alias", "everybody")[0] == "name\np0\np1\np2\np3\np4\n"
    assert run(capsys, "alias", "everybody", "--format", "jsonl")[0].count("\n") == 5
    out, _ = run(capsys, "query", "people", "--profile", "prod", "--format", "csv")
    assert out.splitlines() == ["name", "p0", "p1", "p2", "p3", "p4"]
    out, _ = run(capsys, "mutate", "add", "--profile", "prod", "--params", '{"name": "new"}', "--json")
    assert json.loads(out)["actor_id"] == "ada"
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "prod")
    served, _ = run(capsys, "query", "-e", PEOPLE)
    direct, _ = run(capsys, "query", "-e", PEOPLE, "--store", str(tmp_path / "g.omni"))
    assert served == direct
    _, err = run(capsys, "branch", "create", "review/x")
    assert err == f"omnigraph branch create → http://{live.host}:{live.port}/graphs/g\n"
    run(capsys, "tag", "create", "v1")
    for words in (["branch", "delete", "review/x", "--yes"], ["tag", "delete", "v1"]):
        out, _ = run(capsys, *words, "--json")
        # Who took a name away is known to a server, and to nobody who only asked it to.
        assert json.loads(out).keys() == {"uri", "name"}


@pytest.mark.slow
def test_only_graph_of_a_server_needs_no_name(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    query = "query q() { match { $p: Person } return { count($p) as people } }"
    named, _ = run(capsys, "query", "-e", query, "--profile", "prod")
    assert run(capsys, "query", "-e", query, "--profile", "bare")[0] == named


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["query", "add", "--profile", "prod"], "mutat"),
        (["query", "nobody", "--profile", "prod"], "the stored query does not exist"),
        (["alias", "everybody", "one", "two"], "takes 0 values"),
        (["alias", "nobody"], "`everybody`"),
        (["branch", "delete", "review/x", "--profile", "prod"], "add `--yes`"),
        (["mutate", "add", "--profile", "prod", "--as", "bob"], "the token determines the actor"),
        (["load", "--data", "x", "--mode", "merge", "--profile", "prod", "--job-id", "j"], "accepts NDJSON only"),
        (["load", "--data", "x", "--mode", "merge", "--profile", "prod", "--max-errors", "7"], "accepts NDJSON only"),
        (["query", "people", "--profile", "prod", "--engine", "spark"], "runs on its server"),
        (["query", "people", "--profile", "prod", "--master", "local[1]"], "runs on its server"),
        (["export", "--out", "files", "--profile", "prod"], "--store URI"),
        (["optimize", "--profile", "prod"], "works on the storage of a graph"),
        (["graphs", "list", "--server", "there"], "`here`"),
    ],
)
def test_served_commands_refuse_with_what_to_type(
    given: list[str], says: str, live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = run(capsys, *given, status=1)
    assert says in err
