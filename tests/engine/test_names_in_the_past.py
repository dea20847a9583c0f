"""Reads of the past: today's names by identity on every surface, names of then when asked for, hard drops nowhere."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.errors import GraphError, OmniGraphError, UsageError
from omnigraph.lang.diagnostic import LanguageError
from omnigraph.pipeline import export as export_files
from omnigraph.policy import load_bundle

FIRST = """
node Person { name: String @key
  age: I32? @index
  about: String? @index
  secret: String? @index
  photo: Blob? }
edge Knows: Person -> Person { since: I32? }
"""
RENAMED = """
node Human @rename_from("Person") { name: String @key
  years: I32? @index @rename_from("age")
  bio: String? @index @rename_from("about")
  image: Blob? @rename_from("photo")
  mail: String? }
edge Likes: Human -> Human @rename_from("Knows") { since: I32? }
"""
LAST = RENAMED.replace('@rename_from("Person") ', "").replace('@rename_from("Knows") ', "") + (
    "node Person { name: String @key\n  age: I32? }\nedge Knows: Person -> Person"
)
for renamed in ("age", "about", "photo"):
    LAST = LAST.replace(f' @rename_from("{renamed}")', "")
PEOPLE = "query q() { match { $p: Human } return { $p.name, $p.years, $p.mail } order { $p.name asc } }"
OLD_PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name asc } }"
SECRETS = "query q() { match { $p: Person } return { $p.secret } }"
ADA = {"p.name": "ada", "p.years": 36, "p.mail": None}
BOB = {"p.name": "bob", "p.years": None, "p.mail": None}


class Renamed:
    """A graph whose type `Person` became `Human`, and whose name `Person` then went to another type."""

    def __init__(self, path: Path, *, hard: bool = False) -> None:
        self.graph = og.init(path / "g.omni", schema=FIRST)
        self.graph.ingest(
            [
                {
                    "type": "Person",
                    "data": {
                        "name": "ada",
                        "age": 36,
                        "about": "likes engines",
                        "secret": "TOPSECRET",
                        "photo": b"png",
                    },
                },
                {"type": "Person", "data": {"name": "bob", "about": "likes tea"}},
                {"edge": "Knows", "from": "ada", "to": "bob", "data": {"id": "e", "since": 1999}},
            ]
        )
        self.graph.maintenance.ensure_indices()
        self.old = str(self.graph.snapshot().head)
        self.version = self.graph.snapshot().version
        self.time = datetime.now(UTC)
        self.graph.tags.create("v1", at=self.old)
        self.graph.schema.apply(RENAMED, allow_data_loss=hard)
        self.graph.schema.apply(LAST)
        self.graph.ingest([{"type": "Person", "data": {"name": "zed", "age": 1}}])

    def ask(self, source: str, **more: Any) -> list[dict[str, Any]]:
        return self.graph.query(source, at=more.pop("at", self.old), **more).to_json_rows()


@pytest.fixture
def world(tmp_path: Path) -> Renamed:
    return Renamed(tmp_path)


@pytest.mark.slow
def test_query_current_name_reads_rows_from_before_the_rename(world: Renamed) -> None:
    for at in (world.old, "v1", world.version, world.time):
        assert world.ask(PEOPLE, at=at) == [ADA, BOB]
    assert world.graph.at("v1").query(PEOPLE).to_json_rows() == [ADA, BOB]


@pytest.mark.slow
def test_query_recreated_type_shows_no_rows_of_the_former_one(world: Renamed) -> None:
    assert world.ask(OLD_PEOPLE) == []
    walk = "query q() { match { $p: Person $p knows $x } return { $x.name } }"
    assert world.ask(walk) == []
    optional = "query q() { match { $p: Human optional { $x: Person $x.name = $p.name } } return { count($p) as n } }"
    assert world.ask(optional) == [{"n": 2}]


@pytest.mark.slow
def test_query_walks_searches_and_filters_by_todays_names(world: Renamed) -> None:
    walk = "query q() { match { $p: Human $p likes $x } return { $x.name } }"
    assert world.ask(walk) == [{"x.name": "bob"}]
    assert world.ask("query q() { match { $p: Human { years: 36 } } return { $p.name } }") == [{"p.name": "ada"}]
    found = 'query q() { match { $p: Human search($p.bio, "engines") } return { $p.name } }'
    assert world.ask(found) == [{"p.name": "ada"}]
    assert world.ask('query q() { match { $p: Human $p.mail = "x" } return { $p.name } }') == []


@pytest.mark.slow
def test_query_names_then_asks_with_the_schema_of_the_commit(world: Renamed) -> None:
    then = [{"p.name": "ada", "p.age": 36}, {"p.name": "bob", "p.age": None}]
    assert world.ask(OLD_PEOPLE, names="then") == then
    assert world.ask(OLD_PEOPLE, at="v1", names="then") == then
    assert world.graph.at("v1", names="then").query(OLD_PEOPLE).to_json_rows() == then
    assert {"p.secret": "TOPSECRET"} in world.ask(SECRETS, names="then")
    with pytest.raises(LanguageError):
        world.ask(PEOPLE, names="then")


@pytest.mark.slow
def test_query_dropped_property_cannot_be_named_today(world: Renamed) -> None:
    with pytest.raises(LanguageError, match="no property `secret`"):
        world.ask(SECRETS.replace("Person", "Human"))
    with pytest.raises(UsageError, match="`now` or `then`"):
        world.ask(PEOPLE, names="later")


@pytest.mark.slow
def test_same_version_read_with_two_schemas_in_one_process_mixes_nothing(world: Renamed) -> None:
    for _ in range(2):
        assert world.ask(PEOPLE) == [ADA, BOB]
        assert [one["p.age"] for one in world.ask(OLD_PEOPLE, names="then")] == [36, None]


@pytest.mark.slow
def test_explain_and_blob_and_export_use_todays_names(world: Renamed, tmp_path: Path) -> None:
    graph = world.graph
    assert "Human" in graph.explain(PEOPLE, at=world.old).render()
    assert graph.blob("Human", "ada", "image", at=world.old).read() == b"png"
    assert graph.blob("Person", "ada", "photo", at=world.old, names="then").read() == b"png"
    with pytest.raises(OmniGraphError):
        graph.blob("Person", "ada", "photo", at=world.old)
    records = [orjson.loads(one) for one in b"".join(graph.export(at=world.old)).splitlines()]
    assert [one.get("type") or one.get("edge") for one in records] == ["Likes", "Human", "Human"]
    assert records[1]["data"]["years"] == 36
    # What was exported with the names of today is taken by the schema of today.
    with og.init(tmp_path / "copy.omni", schema=graph.schema.source) as copy:
        copy.ingest(b"".join(graph.export(at=world.old)))
    then = [orjson.loads(one) for one in b"".join(graph.export(at=world.old, names="then")).splitlines()]
    assert [one.get("type") or one.get("edge") for one in then] == ["Knows", "Person", "Person"]
    for names, folder in (("now", "Human"), ("then", "Person")):
        report = export_files(graph, tmp_path / names, "ndjson", at=world.old, names=names, engine="local")
        assert report.entities[f"node:{folder}"] == 2


@pytest.mark.slow
def test_diff_and_changes_name_types_as_today(world: Renamed) -> None:
    graph = world.graph
    changes = graph.diff("v1", "main").changes.to_pylist()
    # A rename changes no entity; only what was written to the new type is new.
    assert [(one["type_name"], one["id"], one["op"]) for one in changes] == [("Person", "zed", "insert")]
    back = graph.diff("main", "v1", types=["Person"]).changes.to_pylist()
    assert [(one["id"], one["op"]) for one in back] == [("zed", "delete")]
    then = graph.diff(graph.commits()[-1].commit_id, "v1", names="then").changes.to_pylist()
    assert {one["type_name"] for one in then} == {"Person", "Knows"}
    load = next(one for one in graph.commits()[::-1] if one.kind == "ingest")
    page = graph.commit_changes(load.commit_id, types=["Human"]).to_json()
    assert {one["type"]["name"] for one in page["changes"]} == {"Human"}  # type: ignore[attr-defined]
    image = page["changes"][0]["after"]["properties"]  # type: ignore[index]
    assert (image["years"], image["mail"], "secret" in image) == (36, None, False)
    page = graph.commit_changes(load.commit_id, types=["Person"], names="then").to_json()
    assert page["changes"][0]["after"]["properties"]["secret"] == "TOPSECRET"  # type: ignore[index]
    feed = graph.changes(start="beginning", types=["Human"]).to_json()
    assert [one["id"] for block in feed["blocks"] for one in block["changes"]] == ["ada", "bob"]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_feed_goes_on_over_a_rename_that_readers_may_be_in_the_middle_of(world: Renamed) -> None:
    blocks = world.graph.changes(start=f"after:{world.old}").blocks
    assert any(step.kind == "rename_type" for block in blocks for step in block.schema_steps)


@pytest.mark.slow
def test_branch_of_an_old_commit_reads_with_its_own_names(world: Renamed) -> None:
    graph = world.graph
    graph.branches.create("old", "v1")
    assert [one["p.age"] for one in graph.query(OLD_PEOPLE, branch="old").to_json_rows()] == [36, None]
    # Whoever is on that branch asks with its names, also about commits of main.
    rows = graph.query(OLD_PEOPLE, branch="old", at=str(graph.snapshot().head)).to_json_rows()
    assert [one["p.name"] for one in rows] == ["ada", "bob"]
    changes = graph.diff("old", "main").changes.to_pylist()
    assert [(one["type_name"], one["id"]) for one in changes] == [("Person", "zed")]
    # The property that main has dropped is there on the branch, in rows that neither has written since.
    back = graph.diff("main", "old").changes.to_pylist()
    assert [(one["id"], one["op"]) for one in back] == [("ada", "update")]


@pytest.mark.slow
def test_command_line_reads_the_past_with_both_names(world: Renamed, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", world.graph.uri, "--snapshot", "v1"]
    assert main(["query", *store, "-e", PEOPLE, "--json"]) == 0
    assert [one["p.name"] for one in orjson.loads(capsys.readouterr().out)["rows"]] == ["ada", "bob"]
    assert main(["query", *store, "--names", "then", "-e", OLD_PEOPLE, "--json"]) == 0
    assert [one["p.age"] for one in orjson.loads(capsys.readouterr().out)["rows"]] == [36, None]


# -- policy ------------------------------------------------------------------------------------------------------------

RULES = """
version: 1
groups: {{team: [ann]}}
rules:
  - id: some
    allow: {{actors: {{group: team}}, actions: [read, export], types: [{types}]}}
"""


def seen_by_ann(world: Renamed, types: str) -> og.Graph:
    return og.open(world.graph.uri, actor="ann", policy=load_bundle(RULES.format(types=types)))


@pytest.mark.slow
def test_policy_rule_follows_the_identity_of_a_type(world: Renamed) -> None:
    may_human = seen_by_ann(world, "Human")
    assert may_human.query(PEOPLE, at="v1").to_json_rows() == [ADA, BOB]
    assert len(may_human.query(OLD_PEOPLE, at="v1", names="then").to_json_rows()) == 2
    # The rule speaks of the type that is called so today, and not of the one that was.
    may_person = seen_by_ann(world, "Person")
    assert may_person.query(OLD_PEOPLE, at="v1").to_json_rows() == []
    for ask in (PEOPLE, OLD_PEOPLE):
        with pytest.raises(LanguageError):
            may_person.query(ask, at="v1", names="then")
    assert b"".join(may_person.export(at="v1", names="then")) == b""
    load = next(one for one in world.graph.commits()[::-1] if one.kind == "ingest")
    assert may_person.commit_changes(load.commit_id, names="then").to_json()["changes"] == []


@pytest.mark.slow
def test_policy_hides_types_that_are_gone_from_those_who_do_not_see_all(world: Renamed) -> None:
    world.graph.schema.apply("node Person { name: String @key\n  age: I32? }\nedge Knows: Person -> Person")
    partly = seen_by_ann(world, "Person")
    with pytest.raises(LanguageError):
        partly.query(OLD_PEOPLE, at="v1", names="then")
    assert b"".join(partly.export(at="v1", names="then")) == b""


# -- hard drops --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_hard_dropped_property_is_unreadable_at_every_commit_at_once(tmp_path: Path) -> None:
    world = Renamed(tmp_path, hard=True)
    graph = world.graph
    assert [one.name for one in graph.snapshot().state.purges] == ["node:Person.secret"]
    for at in (world.old, "v1", world.version, world.time):
        with pytest.raises(LanguageError, match="no property `secret`"):
            world.ask(SECRETS, at=at, names="then")
        assert [one["p.age"] for one in world.ask(OLD_PEOPLE, at=at, names="then")] == [36, None]
        assert b"TOPSECRET" not in b"".join(graph.export(at=at, names="then"))
    load = next(one for one in graph.commits()[::-1] if one.kind == "ingest")
    for names in ("now", "then"):
        assert "TOPSECRET" not in str(graph.commit_changes(load.commit_id, names=names).to_json())
    assert "TOPSECRET" not in str(graph.changes(start="beginning").to_json())
    with pytest.raises(GraphError) as caught:
        graph.branches.create("back", "v1")
    assert caught.value.code == "branch.purged"
    graph.branches.create("fine")


@pytest.mark.slow
def test_hard_dropped_type_is_unreadable_at_every_commit_at_once(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", schema=FIRST + "node Note { k: String @key }\nedge On: Note -> Person")
    graph.ingest(
        [
            {"type": "Note", "data": {"k": "n"}},
            {"type": "Person", "data": {"name": "ada"}},
            {"edge": "On", "from": "n", "to": "ada", "data": {}},
        ]
    )
    old = str(graph.snapshot().head)
    graph.schema.apply(FIRST, allow_data_loss=True)
    for names in ("now", "then"):
        with pytest.raises(LanguageError):
            graph.query("query q() { match { $n: Note } return { $n.k } }", at=old, names=names)
        records = b"".join(graph.export(at=old, names=names)).splitlines()
        assert [orjson.loads(one)["type"] for one in records] == ["Person"]
    with pytest.raises(GraphError) as caught:
        graph.branches.create("back", old)
    assert caught.value.code == "branch.purged"


@pytest.mark.slow
def test_soft_drop_leaves_no_purge_and_stays_readable_then(world: Renamed) -> None:
    assert world.graph.snapshot().state.purges == ()
    world.graph.branches.create("back", "v1")
    assert {"p.secret": "TOPSECRET"} in world.graph.query(SECRETS, branch="back").to_json_rows()


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("$p.load, $p.word, $p.list } order { $p.k asc", [(1, "a", [1]), (1e39, "c", [0.5])]),
        ("$p.load, count($p) } order { $p.load asc", [(1, 1), (1e39, 1)]),
        ("max($p.load), max($p.word)", [(1e39, "c")]),
        ("$p.load + 1 } order { $p.k asc", [(2,), (1e39,)]),
    ],
)
def test_property_widened_on_another_branch_is_read_as_it_is_there(
    tmp_path: Path, returned: str, expected: list[tuple[Any, ...]]
) -> None:
    schema = "node P { k: String @key  load: I32?  word: enum(a, b)  list: [I32]? }"
    graph = og.init(tmp_path / "g.omni", schema)
    graph.ingest([{"type": "P", "data": {"k": "1", "load": 1, "word": "a", "list": [1]}}])
    graph.branches.create("wide")
    wide = schema.replace("I32", "F64").replace("a, b", "a, b, c")
    graph.schema.apply(wide, branch="wide")
    graph.ingest([{"type": "P", "data": {"k": "2", "load": 1e39, "word": "c", "list": [0.5]}}], branch="wide")
    at = str(graph.snapshot("wide").head)
    found = graph.query(f"query q() {{ match {{ $p: P }} return {{ {returned} }} }}", at=at).rows()
    assert [tuple(row.values()) for row in found] == expected
