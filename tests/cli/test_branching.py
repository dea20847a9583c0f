"""Branches, tags, merges, diffs, feeds and blobs from the command line: what they do, print and refuse."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.limits import BLOB_READ_BYTES_MAX
from omnigraph.store.objects import durability

pytestmark = pytest.mark.slow

SCHEMA = """node Person {
  name: String @key
  age: I32?
  photo: Blob?
}

edge Knows: Person -> Person
"""
DATA = """{"type":"Person","data":{"name":"ann","age":40,"photo":"base64:aGVsbG8="}}
{"type":"Person","data":{"name":"bob","age":41}}
{"edge":"Knows","from":"ann","to":"bob","data":{"id":"k1"}}
"""
STORE = ("--store", "g.omni")


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    """A small graph with a branch `review`, in the current directory."""
    monkeypatch.chdir(tmp_path)
    graph = og.init("g.omni", SCHEMA)
    graph.ingest(DATA.encode(), mode="append")
    graph.branches.create("review")
    return graph


def run(capsys: pytest.CaptureFixture[str], *given: str, status: int = 0) -> tuple[str, str]:
    assert main(list(given)) == status
    captured = capsys.readouterr()
    return captured.out, captured.err


def read_json(capsys: pytest.CaptureFixture[str], *given: str, status: int = 0) -> dict[str, Any]:
    out, err = run(capsys, *given, "--json", status=status)
    assert err == "" or "→" in err
    found: dict[str, Any] = json.loads(out)
    return found


def put(graph: og.Graph, branch: str, **ages: int) -> str:
    graph.ingest([{"type": "Person", "data": {"name": n, "age": a}} for n, a in ages.items()], branch=branch)
    return head(graph, branch)


def head(graph: og.Graph, branch: str = "main") -> str:
    found = graph.snapshot(branch).head
    assert found is not None
    return found


# -- branches and tags ------------------------------------------------------------------------------------------


def test_branch_create_starts_from_branch_commit_or_tag(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    old = head(graph)
    run(capsys, "tag", "create", "then", *STORE)
    newer = put(graph, "main", cy=1)
    for name, source in (("a", "main"), ("b", old), ("c", "then")):
        out, err = run(capsys, "branch", "create", name, "--from", source, *STORE)
        assert out == f"branch {name} starts where {source} is\n"
        assert err == "omnigraph branch create → g.omni\n"
    assert [head(graph, name) for name in "abc"] == [newer, old, old]
    _, err = run(capsys, "branch", "create", "d", "--from", "nowhere", *STORE, "--quiet", status=1)
    assert "omnigraph tag list" in err


@pytest.mark.usefixtures("graph")
def test_branch_rename_keeps_the_branch(capsys: pytest.CaptureFixture[str]) -> None:
    assert read_json(capsys, "branch", "rename", "review", "checked", *STORE)["name"] == "checked"
    assert read_json(capsys, "branch", "list", "g.omni")["branches"] == ["checked", "main"]
    out, _ = run(capsys, "branch", "rename", "checked", "seen", *STORE)
    assert out == "branch checked is now seen\n"
    assert read_json(capsys, "branch", "rename", "checked", "x", *STORE, status=1)["code"] == "branch.not_found"


def test_tag_life_from_create_to_delete(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = head(graph), put(graph, "review", cy=1)
    made = read_json(capsys, "tag", "create", "one", "--at", first, "--as", "ada", *STORE)
    assert (made["name"], made["graph_commit_id"], made["actor_id"]) == ("one", first, "ada")
    out, err = run(capsys, "tag", "create", "two", "--branch", "review", *STORE)
    assert (out, err) == (f"tag two names commit {second}\n", "omnigraph tag create → g.omni\n")
    assert [tag["name"] for tag in read_json(capsys, "tag", "list", "g.omni")["tags"]] == ["one", "two"]
    assert f"one  {first}  ada " in run(capsys, "tag", "list", "g.omni")[0]
    assert run(capsys, "tag", "delete", "one", *STORE, "--quiet") == ("", "")
    assert read_json(capsys, "tag", "delete", "one", *STORE, status=1)["code"] == "tag.not_found"


# -- merges -----------------------------------------------------------------------------------------------------


def test_merge_prints_counts_and_the_commit(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    put(graph, "review", cy=1, dee=2, ann=50)
    put(graph, "main", bob=51)
    out, err = run(capsys, "branch", "merge", "review", *STORE, "--as", "ada", "--delete-branch")
    assert out == (
        "node Person: 2 inserted, 1 updated, 0 deleted\n"
        f"merge of review into main: done, commit {head(graph)}\ndeleted branch review\n"
    )
    assert err == "omnigraph branch merge → g.omni\n"
    assert graph.commits()[0].actor == "ada"


def test_merge_dry_run_writes_nothing_and_is_silent_on_stderr(
    graph: og.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    put(graph, "review", cy=1)
    before = head(graph)
    out, err = run(capsys, "branch", "merge", "review", *STORE, "--dry-run")
    assert out.endswith("merge of review into main, if it were run now: fast forward\n")
    assert err == ""
    assert head(graph) == before
    assert read_json(capsys, "branch", "merge", "review", *STORE, "--dry-run")["outcome"] == "fast_forward"


def test_merge_up_to_date_makes_no_commit(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    before = head(graph)
    assert run(capsys, "branch", "merge", "review", *STORE)[0] == "merge of review into main: already up to date\n"
    assert head(graph) == before


def diverge(graph: og.Graph, count: int) -> None:
    """Let both sides insert `count` people with different ages, and one delete what the other changes."""
    names = [f"p{number}" for number in range(count)]
    put(graph, "review", **dict.fromkeys(names, 1), bob=60)
    put(graph, "main", **dict.fromkeys(names, 2))
    graph.mutate('query q() { delete Person where name = "bob" }')


def test_merge_conflicts_are_told_three_by_kind(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    diverge(graph, 5)
    before = head(graph)
    out, err = run(capsys, "branch", "merge", "review", *STORE, "--quiet", status=1)
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == ("error[merge.conflict]: the merge of review into main has 6 conflicts, and nothing was changed")
    assert sum("both sides inserted it" in line for line in lines) == 3
    assert "5 DivergentInsert" in lines
    assert "  and 2 more" in lines
    assert "1 DeleteVsUpdate" in lines
    assert any("omnigraph branch merge review --into main --store g.omni --dry-run --json" in line for line in lines)
    assert "--resolutions" in lines[-1]
    assert head(graph) == before


def test_merge_conflicts_as_json_are_complete(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    diverge(graph, 5)
    error = read_json(capsys, "branch", "merge", "review", *STORE, status=1)
    assert (error["code"], len(error["conflicts"])) == ("merge.conflict", 6)
    dry = read_json(capsys, "branch", "merge", "review", *STORE, "--dry-run", status=1)
    assert (dry["outcome"], dry["conflicts"]) == ("conflicted", error["conflicts"])
    out, _ = run(capsys, "branch", "merge", "review", *STORE, "--dry-run", status=1)
    assert "the merge of review into main would have 6 conflicts" in out


@pytest.mark.parametrize("source", ["file", "standard input"])
def test_merge_resolutions_settle_conflicts(
    graph: og.Graph, source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    diverge(graph, 1)
    dry = read_json(capsys, "branch", "merge", "review", *STORE, "--dry-run", status=1)
    text = "\n".join(json.dumps(one | {"take": "theirs"}) for one in dry["conflicts"])
    Path("decided.ndjson").write_text(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    name = "decided.ndjson" if source == "file" else "-"
    assert read_json(capsys, "branch", "merge", "review", *STORE, "--resolutions", name)["outcome"] == "merged"
    found = graph.query("query q() { match { $p: Person } return { $p.name as n, $p.age as a } order { n asc } }")
    assert [tuple(row.values()) for row in found.rows()] == [("ann", 40), ("bob", 60), ("p0", 1)]


def test_merge_resolution_mistake_is_refused(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    put(graph, "review", cy=1)
    Path("wrong.json").write_text('[{"type_key": "node:Person", "entity_id": "cy", "take": "mine"}]')
    _, err = run(capsys, "branch", "merge", "review", *STORE, "--quiet", "--resolutions", "wrong.json", status=1)
    assert err.startswith("error[merge.resolution]: resolution 1 takes `mine`")


def test_merge_that_cannot_delete_its_source_warns(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    put(graph, "review", cy=1)
    graph.branches.create("child", "review")
    out, err = run(capsys, "branch", "merge", "review", *STORE, "--delete-branch")
    assert "fast forward, commit" in out
    assert "\nwarning: review was not deleted: " in err
    assert "`child`" in err


def test_revert_and_cherry_pick_by_commit_or_tag(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    commit_id = put(graph, "review", cy=1)
    picked = read_json(capsys, "cherry-pick", commit_id, *STORE)
    assert (picked["outcome"], picked["types"][0]["inserted"]) == ("merged", 1)
    run(capsys, "tag", "create", "picked", *STORE)
    dry, _ = run(capsys, "revert", "picked", *STORE, "--dry-run")
    assert "if it were run now: done" in dry
    out, err = run(capsys, "revert", "picked", *STORE)
    assert out == (
        f"node Person: 0 inserted, 0 updated, 1 deleted\nrevert of picked on main: done, commit {head(graph)}\n"
    )
    assert err == "omnigraph revert → g.omni\n"
    put(graph, "main", ann=70)
    put(graph, "main", ann=71)
    run(capsys, "tag", "create", "older", "--at", graph.commits()[1].commit_id, *STORE)
    _, err = run(capsys, "revert", "older", *STORE, "--quiet", status=1)
    assert "omnigraph revert older --branch main --store g.omni --dry-run --json" in err
    first = graph.commits()[-1].commit_id
    assert read_json(capsys, "revert", first, *STORE, status=1)["code"] == "commit.parentless"


# -- diffs and changes ------------------------------------------------------------------------------------------


def test_diff_shows_what_differs(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    put(graph, "review", ann=50, cy=1)
    graph.mutate('query q() { delete Person where name = "bob" }', branch="review")
    out, _ = run(capsys, "diff", "main", "review", *STORE)
    assert out.splitlines()[2:] == [
        "delete  edge  Knows   k1   ann   bob",
        'update  node  Person  ann             age 40 → 50, photo "base64:aGVsbG8=" → null',
        "delete  node  Person  bob",
        'insert  node  Person  cy              age 1, name "cy"',
        "1 insert, 1 update, 2 deletes in 2 types",
    ]
    few, _ = run(capsys, "diff", "main", "review", *STORE, "--kind", "node", "--type", "Person", "--op", "insert")
    assert [" ".join(line.split()) for line in few.splitlines()[2:]] == [
        'insert node Person cy age 1, name "cy"',
        "1 insert, 0 updates, 0 deletes in 1 type",
    ]
    assert run(capsys, "diff", "main", "main", *STORE)[0] == "0 inserts, 0 updates, 0 deletes in 0 types\n"
    found = read_json(capsys, "diff", "main", "review", *STORE)
    assert found == graph.diff("main", "review").to_json()
    _, err = run(capsys, "diff", "main", "review", *STORE, "--type", "Prson", status=1)
    assert "expected one of Knows, Person" in err


def test_commit_changes_follow_each_other_as_text_and_page_as_json(
    graph: og.Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.cli.history.CHANGE_PAGE_CHANGES", 2)
    commit_id = put(graph, "main", ann=50, bob=51, cy=1)
    out, _ = run(capsys, "commit", "changes", commit_id, *STORE)
    head_line, *lines = out.splitlines()
    assert head_line.startswith(f"commit {commit_id} on main at 20")
    assert lines == [
        '  update node Person ann: age 40 → 50, photo "base64:aGVsbG8=" → null',
        "  update node Person bob: age 41 → 51",
        '  insert node Person cy: age 1, name "cy"',
    ]
    page = read_json(capsys, "commit", "changes", commit_id, *STORE, "--limit", "2")
    assert [one["id"] for one in page["changes"]] == ["ann", "bob"]
    token = page["next_page_token"]
    rest = read_json(capsys, "commit", "changes", commit_id, *STORE, "--page-token", token)
    assert [one["id"] for one in rest["changes"]] == ["cy"]
    assert "next_page_token" not in rest
    assert run(capsys, "commit", "changes", commit_id, *STORE, "--limit", "2")[0].endswith(f"page token {token}\n")
    picked, _ = run(capsys, "commit", "changes", commit_id, *STORE, "--op", "insert", "--limit", "2")
    assert picked.splitlines()[1:] == lines[2:]


def test_commit_changes_long_values_are_cut_as_text(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    graph.ingest([{"type": "Person", "data": {"name": "x" * 10_000}}])
    [_, line] = run(capsys, "commit", "changes", head(graph), *STORE)[0].splitlines()
    assert line.endswith("x…")
    assert line.count("x") < 10_100


def test_changes_poll_goes_on_from_its_cursor(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "changes", "poll", "g.omni")
    first, last = out.splitlines()
    assert last == "caught up"
    commits = [put(graph, "main", cy=1), put(graph, "main", cy=2)]
    cursor = first.removeprefix("cursor ")
    out, _ = run(capsys, "changes", "poll", "g.omni", "--cursor", cursor, "--max-commits", "1")
    assert out.splitlines()[1] == '  insert node Person cy: age 1, name "cy"'
    assert out.endswith("more changes are available: poll again with this cursor\n")
    page = read_json(capsys, "changes", "poll", "g.omni", "--cursor", cursor)
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == commits
    assert page["caught_up"] is True
    error = read_json(capsys, "changes", "poll", "g.omni", "--branch", "review", "--cursor", cursor, status=1)
    assert error["code"] == "changes.cursor_rejected"
    _, err = run(capsys, "changes", "poll", "g.omni", "--cursor", cursor, "--start", "now", status=1)
    assert "only one of" in err


def test_changes_poll_as_text_crosses_pages_and_prints_the_cursor_last(
    graph: og.Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.cli.history.CHANGE_PAGE_CHANGES", 2)
    put(graph, "main", a=1, b=2, c=3, d=4, e=5)
    out, _ = run(capsys, "changes", "poll", "g.omni", "--start", "beginning")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "commit",
        *["insert"] * 3,
        "commit",
        *["insert"] * 5,
        "cursor",
        "caught",
    ]
    page, _ = run(capsys, "changes", "poll", "g.omni", "--start", "beginning", "--limit", "2")
    assert page.splitlines()[-1].startswith("page token eyJ")
    given = ["changes", "poll", "g.omni", "--page-token", page.splitlines()[-1].removeprefix("page token ")]
    assert "k1 (ann → bob)" in run(capsys, *given)[0]


def test_changes_poll_keeps_its_cursor_in_a_file(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["changes", "poll", "g.omni", "--cursor-file", "c.txt", "--start", "beginning"]
    first, _ = run(capsys, *given)
    assert first.splitlines()[0].startswith("commit ")
    assert first.splitlines()[-1] == "caught up"
    assert "cursor" not in first
    assert run(capsys, *given)[0] == "caught up\n"
    put(graph, "main", x=1)
    assert len(run(capsys, *given)[0].splitlines()) == 3
    assert main([*given, "--cursor", "x"]) == 1
    assert main([*given, "--limit", "1"]) == 0


def test_terminal_gets_no_page_token(
    graph: og.Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    page, _ = run(capsys, "changes", "poll", "g.omni", "--start", "beginning", "--limit", "2")
    assert page.splitlines()[-1].startswith("more changes follow: raise --limit, or page with --json")


@pytest.mark.usefixtures("power_durability")
def test_changes_baseline_is_whole_before_its_cursor_is_told(
    graph: og.Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    synced: list[str] = []

    def sync(path: str) -> None:
        assert os.path.exists("b.ndjson") == os.path.isdir(path), "the bytes before the name, the name before its entry"
        synced.append(path)

    with durability.replaced(sync):
        found = read_json(capsys, "changes", "baseline", "g.omni", "--out", "b.ndjson")
    assert os.getcwd() in synced
    assert synced[0].endswith(".part")
    assert found["path"] == "b.ndjson"
    assert found["snapshot_commit_id"] == head(graph)
    assert Path("b.ndjson").read_bytes() == b"".join(graph.export())
    assert sorted(os.listdir()) == ["b.ndjson", "g.omni"]
    later = put(graph, "main", cy=1)
    page = read_json(capsys, "changes", "poll", "g.omni", "--cursor", found["resume_cursor"])
    assert [block["cause"]["graph_commit_id"] for block in page["blocks"]] == [later]


def test_changes_baseline_that_breaks_off_leaves_the_old_file(
    graph: og.Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("b.ndjson").write_text("old")

    def broken(*given: object, **options: object) -> Any:
        yield b"half a record"
        raise og.errors.StorageError("gone")

    with monkeypatch.context() as patched:
        patched.setattr("omnigraph.graph.Graph.baseline", broken)
        out, err = run(capsys, "changes", "baseline", "g.omni", "--out", "b.ndjson", status=1)
    assert (out, err) == ("", "error[storage.failed]: gone\n")
    assert Path("b.ndjson").read_text() == "old"
    assert sorted(os.listdir()) == ["b.ndjson", "g.omni"]
    _, err = run(capsys, "changes", "baseline", "g.omni", "--out", "no/where", status=1)
    assert err.startswith("error[usage.invalid]: cannot write `no/where`: no such file")


# -- blobs ------------------------------------------------------------------------------------------------------

PHOTO = ("node", "Person", "ann", "photo")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), b"hello"),
        (("--offset", "1"), b"ello"),
        (("--offset", "1", "--length", "2"), b"el"),
        (("--offset", "3", "--length", "999"), b"lo"),
    ],
)
@pytest.mark.usefixtures("graph")
def test_blob_get_reads_a_range(
    options: tuple[str, ...], expected: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["blob", "get", *PHOTO, *STORE, *options]) == 0
    assert capfdbinary.readouterr() == (expected, b"")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--offset", "5"), "blob.range"),
        (("--offset", "5", "--length", "1"), "blob.range"),
        (("--offset", "6"), "blob.range"),
        (("--length", "0"), "usage.invalid"),
        (("--length", "-1"), "usage.invalid"),
        (("--offset", "-1"), "usage.invalid"),
        (("--offset", str(2**62), "--length", str(2**62)), "usage.invalid"),
        (("--branch", "main", "--snapshot", "x"), "commit.not_found"),
    ],
)
@pytest.mark.usefixtures("graph")
def test_blob_get_wrong_range_is_refused(
    options: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = run(capsys, "blob", "get", *PHOTO, *STORE, *options, status=1)
    assert err.startswith(f"error[{code}]: ")


def test_blob_get_length_is_checked_before_the_graph_is_opened(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = run(capsys, "blob", "get", *PHOTO, "--store", "nowhere.omni", "--length", "0", status=1)
    assert err.startswith("error[usage.invalid]: ")


def test_blob_get_larger_than_one_read_is_whole(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    from base64 import b64encode

    raw = bytes(range(256)) * (BLOB_READ_BYTES_MAX // 256) + b"tail"
    record = {"name": "big", "photo": f"base64:{b64encode(raw).decode()}"}
    graph.ingest([{"type": "Person", "data": record}], branch="review")
    given = ["blob", "get", "node", "Person", "big", "photo", *STORE, "--branch", "review", "--out", "big.bin"]
    assert run(capsys, *given) == ("", "")
    assert Path("big.bin").read_bytes() == raw


def test_blob_stat_names_length_and_tag(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_json(capsys, "blob", "stat", *PHOTO, *STORE)
    assert found == {
        "selector": {"entity": "node", "type": "Person", "id": "ann", "property": "photo"},
        "kind": "managed",
        "size": 5,
        "snapshot_commit_id": head(graph),
        "etag": graph.blob("Person", "ann", "photo").etag,
        "length": 5,
        "target": {"resolved_snapshot": head(graph)},
    }
    named = read_json(capsys, "blob", "stat", *PHOTO, *STORE, "--branch", "main")
    assert named["target"] == {"branch": "main", "resolved_snapshot": head(graph)}
    out, _ = run(capsys, "blob", "stat", *PHOTO, *STORE, "--snapshot", head(graph))
    assert "length              5\n" in out
    missing = read_json(capsys, "blob", "stat", "node", "Person", "bob", "photo", *STORE, status=1)
    assert missing["code"] == "blob.not_found"
    wrong = read_json(capsys, "blob", "stat", "thing", "Person", "bob", "photo", *STORE, status=1)
    assert wrong["code"] == "usage.invalid"
