"""Merges on many ranges, in threads and on executors: the same outcome as in process, and nothing left behind."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.cli import main
from omnigraph.engine import merge as merging
from omnigraph.engine.key_buckets.files import FileSlice
from omnigraph.engine.merge import apply as applying
from omnigraph.engine.merge import graph_merge, key_checks, placement, range_merge
from omnigraph.engine.merge import merge as merge_branches
from omnigraph.engine.merge.placement import Placement
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Runner, Threads
from omnigraph.errors import MergeConflict, OmniGraphError, PipelineError, PipelineUnavailable, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.intents import pending
from omnigraph.public_values import MergeReceipt
from omnigraph.spark import executors
from omnigraph.spark.executors import Executors
from tests.engine.test_dags import run
from tests.support.examples import IS_LONG
from tests.support.graph_template import copy_built
from tests.support.history_world import template
from tests.support.merge_fixtures import files
from tests.support.pipeline_fixtures import ThreadsAsExecutors


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync nothing: what a power cut leaves is for other tests."""
    monkeypatch.setenv("OMNIGRAPH_DURABILITY", "process")


# The package has a function of the same name, which hides the module.
diffing = import_module("omnigraph.spark.diff")


def shown(error: MergeConflict) -> list[Any]:
    found = error.context["conflicts"]
    assert isinstance(found, list)
    return found


# Ranges of few ids each, and buckets of few keys.
SMALL = Placement(Threads(), 1, 1)


# -- random histories -------------------------------------------------------------------------------------------

# Their merges end in every way in which a merge can end.
SEEDS = (0, 17, 25)


def spread(
    real: Any, session: GraphSession, source: str, into: str, *, dry_run: bool, resolutions: Any
) -> MergeReceipt:
    """Merge on ranges of few ids, after a dry run in one piece and one on ranges, which must tell the same."""
    before = session.kernel.snapshot(into).head
    in_one_piece, on_ranges = (
        answer_to(partial(real, session, source, into, dry_run=True, resolutions=resolutions, placement=placement))
        for placement in (None, SMALL)
    )
    assert in_one_piece == on_ranges
    if dry_run:
        receipt: MergeReceipt = real(session, source, into, dry_run=True, resolutions=resolutions)
        return receipt
    try:
        merged: MergeReceipt = real(session, source, into, resolutions=resolutions, placement=SMALL)
    except MergeConflict as error:
        assert session.kernel.snapshot(into).head == before
        told = [one.to_json() for one in in_one_piece[0].conflicts]
        assert shown(error) == told  # noqa: PT017 - what else a caller does is up to the world
        raise
    # What a fast-forward takes over as it is, it does not count.
    assert merged.types == in_one_piece[0].types or merged.outcome == "fast_forward"
    assert not [one.path for one in session.kernel.store.objects.list("") if "_staging-" in one.path]
    return merged


def answer_to(merge: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the receipt of a merge, or the code of its error, and which resolutions it refuses."""
    try:
        return (merge(),)
    except OmniGraphError as error:
        return error.code, error.message, str(error.context.get("resolutions"))


def histories(root: Path, patch: pytest.MonkeyPatch, seeds: Iterable[int]) -> Counter[str]:
    patch.setattr(merging, "merge", partial(spread, merging.merge))
    return run(template(root), root, seeds)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(range(60), marks=pytest.mark.long)], ids=["sample", "many"])
def test_ranges_of_random_histories_equal_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: Iterable[int]
) -> None:
    merges = histories(tmp_path, monkeypatch, seeds)
    assert min(merges.values()) > 0, merges


@pytest.mark.slow
def test_load_into_main_after_it_took_over_the_dataset_of_a_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying, "MERGE_ADOPT_ENTITIES_MIN", 1)
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    graph.branches.create("review")
    graph.ingest([person(1)], branch="review")
    graph.branches.merge("review")
    assert graph.snapshot().state.pins[TypeKey("node:Person")].owner is not None
    for number in (2, 3):
        (tmp_path / "more.ndjson").write_bytes(orjson.dumps(person(number)))
        pipeline.load(graph, data=[tmp_path / "more.ndjson"], engine="local")
    assert graph.snapshot().state.pins[TypeKey("node:Person")].owner is None
    assert graph.snapshot().state.pins[TypeKey("node:Person")].row_count == 3
    assert graph.maintenance.verify().is_sound


# -- larger graphs beside each other ------------------------------------------------------------------------------

SCHEMA = """
node Person {
  name: String @key  age: I32?  mail: String? @unique  a: I32?  b: I32?  photo: Blob?  tags: [I32]? @merge(union)
  @unique(a, b)
}
node City { name: String @key  size: F64? @unique  lists: [I32]? }
edge Lives: Person -> City @card(0..2)
edge Knows: Person -> Person { since: I32? }
"""
PEOPLE = 120


def person(number: int, **more: object) -> dict[str, Any]:
    row = {"name": f"p{number}", "age": number, "mail": f"m{number}", "a": number % 10, "b": number, "tags": [number]}
    return {"type": "Person", "data": row | {"photo": f"base64:{'QUJD' * (number % 5 + 1)}"} | more}


def edge(kind: str, source: int, target: str, number: int, **data: object) -> dict[str, Any]:
    return {"edge": kind, "from": f"p{source}", "to": target, "data": {"id": f"{kind}{number}", **data}}


def twin(path: Path, story: str) -> Graph:
    """Return a graph whose branch `review` and main went different ways; of one story all are equal."""
    return copy_built(BUILDERS[story], path)


def build_twin(story: Callable[[Graph], None], path: Path) -> Graph:
    graph = og.init(path, SCHEMA)
    cities = [{"type": "City", "data": {"name": f"c{number}", "size": number}} for number in range(6)]
    graph.ingest([*cities, *(person(number) for number in range(PEOPLE))])
    lives = [edge("Lives", number, f"c{number % 6}", number) for number in range(0, PEOPLE, 2)]
    knows = [edge("Knows", number, f"p{(number * 7) % PEOPLE}", number) for number in range(PEOPLE)]
    graph.ingest([*lives, *knows])
    graph.branches.create("review")
    rng = random.Random(7)
    # Both sides change other properties of the same people, and add and delete others.
    for branch, base, change in (("main", 200, {"age": 1}), ("review", 300, {"tags": [0]})):
        chosen = rng.sample(range(60), 25)
        graph.ingest(
            [person(one, **change) for one in chosen] + [person(base + one) for one in range(20)], branch=branch
        )
        graph.ingest([edge("Knows", base + one, f"p{one}", base + one) for one in range(20)], branch=branch)
        for one in (30, 31):
            graph.mutate(f'query q() {{ delete Person where name = "p{(base // 4 + one) % PEOPLE}" }}', branch=branch)
    story(graph)
    return graph


def nothing_more(graph: Graph) -> None:
    """No conflict: what is moved on one side makes room for what is added on it."""
    # A value, and an end, go from one entity to another in the same merge.
    graph.ingest([person(61, mail="other"), person(400, mail="m61"), edge("Lives", 62, "c0", 500)], branch="review")
    graph.ingest([edge("Knows", 3, "p4", 1), edge("Knows", 4, "p3", 2, since=1)], branch="review")


def both_sides(graph: Graph) -> None:
    """Both sides change one property to different values, and delete what the other changes."""
    for branch, age in (("main", 5), ("review", 6)):
        graph.ingest([person(one, age=age * one) for one in range(100, 110)], branch=branch)
    graph.mutate('query q() { delete Person where name = "p111" }')
    graph.ingest([person(111, age=3)], branch="review")


def broken_rules(graph: Graph) -> None:
    """Each side is right by itself, and together they break every set rule."""
    graph.ingest([person(401, mail="same"), person(402, a=1, b=999), edge("Lives", 100, "c1", 601)])
    graph.ingest([person(501, mail="same"), person(502, a=1, b=999), edge("Lives", 100, "c2", 602)], branch="review")
    graph.mutate('query q() { delete Person where name = "p113" }')
    graph.ingest([edge("Knows", 114, "p113", 700)], branch="review")
    graph.mutate('query q() { delete Person where name = "p115" }', branch="review")
    graph.ingest([edge("Knows", 115, "p116", 701)])


def other_schemas(graph: Graph) -> None:
    """Each side changes the schema, and rows under its own."""
    renamed = SCHEMA.replace("age: I32?", 'years: I32? @rename_from("age")  nick: String?')
    graph.schema.apply(renamed, branch="review")
    seven = {"name": "p7", "years": 7, "nick": "seven", "mail": "m7", "a": 7, "b": 7}
    graph.ingest([{"type": "Person", "data": seven}], branch="review")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?") + "node Place { name: String @key }")
    graph.ingest([person(8, tags=[8, 9], age=1 << 40), {"type": "Place", "data": {"name": "x"}}])


def new_rules(graph: Graph) -> None:
    """Their side brings rules, which rows of ours break that theirs has not touched."""
    graph.schema.apply(SCHEMA.replace("size: F64? @unique", "size: F64? @unique  @range(size, 0..9)"), branch="review")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  @range(age, 0..999)"), branch="review")
    graph.ingest([person(118, age=1_000)])


STORIES: dict[str, Callable[[Graph], None]] = {
    one.__name__: one for one in (nothing_more, both_sides, broken_rules, other_schemas, new_rules)
}
BUILDERS = {name: partial(build_twin, story) for name, story in STORIES.items()}


def outcome(graph: Graph, run: Callable[[Graph], MergeReceipt]) -> tuple[Any, Any]:
    """Return what came of a merge, and what is in the graph after it."""
    told: Any
    try:
        receipt = run(graph)
        told = (receipt.outcome, receipt.types)
    except MergeConflict as error:
        told = shown(error)
    assert pending(session_of(graph).kernel.store) == ([], [])
    return told, sorted(b"".join(graph.export()).splitlines())


def on(runner: Callable[[], Runner], **options: Any) -> Callable[[Graph], MergeReceipt]:
    def run(graph: Graph) -> MergeReceipt:
        return merge_branches(session_of(graph), "review", "main", placement=Placement(runner(), 25, 40), **options)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
def test_ranges_of_a_merge_equal_the_merge_in_process(tmp_path: Path, story: str) -> None:
    here = outcome(twin(tmp_path / "here", story), lambda graph: graph.branches.merge("review"))
    graph = twin(tmp_path / "there", story)
    there = outcome(graph, on(Threads))
    assert there == here
    assert graph.maintenance.verify().is_sound
    assert not [one for one in files(graph) if "_staging-" in one]


@pytest.mark.slow
def test_stories_of_a_merge_come_to_what_they_are_told_for(tmp_path: Path) -> None:
    kinds = {
        story: {
            one.kind.value for one in twin(tmp_path / story, story).branches.merge("review", dry_run=True).conflicts
        }
        for story in STORIES
    }
    assert kinds == {
        "nothing_more": set(),
        "both_sides": {"DivergentUpdate", "DeleteVsUpdate"},
        "broken_rules": {"UniqueViolation", "CardinalityViolation", "OrphanEdge"},
        "other_schemas": set(),
        "new_rules": {"ValueConstraintViolation"},
    }


@pytest.mark.slow
@pytest.mark.parametrize("story", ["both_sides", "broken_rules"])
@pytest.mark.parametrize("take", ["ours", "theirs"])
def test_ranges_apply_the_same_resolutions_as_one_process(tmp_path: Path, story: str, take: str) -> None:
    graph = twin(tmp_path / "here", story)
    conflicts = [one for one in graph.branches.merge("review", dry_run=True).conflicts if one.entity_id is not None]
    # A source with too many edges is no entity: one of its edges has to be decided about.
    too_many = [{"type_key": "edge:Lives", "entity_id": "Lives602", "take": "ours"}] if story == "broken_rules" else []
    given = [{"type_key": one.type_key, "entity_id": one.entity_id, "take": take} for one in conflicts] + too_many
    here = outcome(graph, lambda graph: graph.branches.merge("review", resolutions=given))
    there = outcome(twin(tmp_path / "there", story), on(Threads, resolutions=given))
    assert there == here


@pytest.mark.slow
@pytest.mark.parametrize("story", ["both_sides", "broken_rules"])
def test_ranges_refuse_the_same_idle_resolutions_as_one_process(tmp_path: Path, story: str) -> None:
    graph = twin(tmp_path / "g", story)
    dry = graph.branches.merge("review", dry_run=True)
    people = [
        row["name"] for row in graph.query("query q() { match { $p: Person } return { $p.name as name } }").rows()
    ]
    cities = [row["name"] for row in graph.query("query q() { match { $c: City } return { $c.name as name } }").rows()]
    places = [("node:Person", str(one)) for one in (people[::40] if IS_LONG else people[:1])]
    places += [("node:City", str(one)) for one in (cities if IS_LONG else cities[:1])]
    places += [(one.type_key or "", str(one.entity_id)) for one in dry.conflicts[: 4 if IS_LONG else 1]]
    places += [("node:Person", "nobody"), ("node:Nothing", "x")]
    answers = Counter[str]()
    for key, entity_id in dict.fromkeys(places):
        given = [{"type_key": key, "entity_id": entity_id, "take": "ours"}]
        here = answer_to(partial(graph.branches.merge, "review", resolutions=given))
        there = answer_to(partial(on(Threads, resolutions=given), graph))
        assert here[0] in ("merge.conflict", "merge.resolution"), "one decision does not settle all conflicts"
        assert there == here
        answers[str(here[0])] += 1
    assert answers.keys() == {"merge.conflict", "merge.resolution"}


@pytest.mark.slow
@pytest.mark.parametrize("story", ["both_sides", "broken_rules"])
def test_merge_tells_only_so_many_conflicts_wherever_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: str
) -> None:
    graph = twin(tmp_path / "g", story)
    everything = [one.to_json() for one in graph.branches.merge("review", dry_run=True).conflicts]
    for module in (graph_merge, range_merge, key_checks):
        monkeypatch.setattr(module, "MERGE_CONFLICTS_MAX", 2)
    for merge in (lambda graph: graph.branches.merge("review"), on(Threads)):
        with pytest.raises(MergeConflict, match="at least 2 conflicts") as caught:
            merge(graph)
        assert shown(caught.value) == everything[:2]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "engine"), [(-1, "elsewhere"), (1 << 40, "here")])
def test_merge_auto_takes_spark_above_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, engine: str
) -> None:
    graph = twin(tmp_path / "g", "nothing_more")
    asked: list[str | None] = []

    def start(master: str | None) -> Runner:
        asked.append(master)
        return ThreadsAsExecutors()

    monkeypatch.setattr(placement, "MERGE_LOCAL_SECONDS_MAX", limit)
    monkeypatch.setattr(executors, "start_executors", start)
    receipt = pipeline.merge(graph, "review", delete_branch=True)
    assert (receipt.outcome, receipt.branch_deleted) == ("merged", True)
    assert asked == ([None] if engine == "elsewhere" else [])


@pytest.mark.slow
def test_merge_auto_without_spark_stays_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = twin(tmp_path / "g", "nothing_more")

    def start(_: str | None) -> Runner:
        raise PipelineUnavailable("no Java")

    monkeypatch.setattr(placement, "MERGE_LOCAL_SECONDS_MAX", -1)
    monkeypatch.setattr(executors, "start_executors", start)
    with pytest.raises(PipelineUnavailable):
        pipeline.merge(graph, "review", engine="spark")
    assert pipeline.merge(graph, "review").outcome == "merged"


def test_merge_of_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown engine `sparc`"):
        pipeline.merge(og.init(tmp_path / "g", SCHEMA), "review", engine="sparc")  # type: ignore[call-overload]


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["comparing", "merging", "checking", "marking"])
def test_merge_whose_tasks_fail_leaves_nothing_behind(tmp_path: Path, stage: str) -> None:
    graph = twin(tmp_path / "g", "nothing_more")

    class Failing(Threads):
        def run(self, name: str, work: Any, payloads: Any, sizes: Any = ()) -> Any:
            done = super().run(name, work, payloads, sizes)
            if name == stage:
                raise PipelineError("a worker is gone")
            return done

    before = files(graph)
    with pytest.raises(PipelineError):
        on(Failing)(graph)
    # Marks are small files that nothing names; a sweep takes them by age.
    assert {one for one in files(graph) - before if "/_deletions/" not in one} == set()
    assert pending(session_of(graph).kernel.store) == ([], [])
    assert graph.branches.merge("review").outcome == "merged"


@pytest.mark.slow
def test_merge_command_chooses_where_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = twin(tmp_path / "g", "nothing_more").uri
    masters: list[str | None] = []

    def start(master: str | None) -> Runner:
        masters.append(master)
        return ThreadsAsExecutors()

    monkeypatch.setattr(executors, "start_executors", start)
    command = ["branch", "merge", "review", "--store", uri]
    assert main([*command, "--engine", "spark", "--dry-run"]) == 1
    assert "in process" in capsys.readouterr().err
    assert main([*command, "--engine", "spark", "--master", "local[1]"]) == 0
    assert "merge of review into main: done, commit " in capsys.readouterr().out
    assert masters == ["local[1]"]


# -- on Spark -----------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("story", ["nothing_more", "broken_rules"])
def test_merge_on_executors_equals_the_merge_in_process(tmp_path: Path, spark: Any, story: str) -> None:
    here = outcome(twin(tmp_path / "here", story), lambda graph: graph.branches.merge("review"))
    graph = twin(tmp_path / "there", story)

    def run(graph: Graph) -> MergeReceipt:
        return merge_branches(session_of(graph), "review", "main", placement=Placement(Executors(spark), 100, 200))

    assert outcome(graph, run) == here
    assert not [one for one in files(graph) if "_staging-" in one]


# -- mutants ------------------------------------------------------------------------------------------------------


def range_loses_an_entity(patch: pytest.MonkeyPatch) -> None:
    """A range ends one entity too early."""
    real = FileSlice.read_table
    patch.setattr(FileSlice, "read_table", lambda self, store: (rows := real(self, store)).slice(0, rows.num_rows - 1))


def bucket_loses_an_edge(patch: pytest.MonkeyPatch) -> None:
    """An edge is judged at its source alone."""
    real = key_checks._split_edges

    def broken(job: Any, rows: Any) -> Any:
        for group, bucket, part in real(job, rows):
            yield group, bucket, part.filter(part.column("src").is_valid())

    patch.setattr(key_checks, "_split_edges", broken)


def rows_that_go_stay(patch: pytest.MonkeyPatch) -> None:
    """What is replaced is not marked."""
    patch.setattr(range_merge, "write_addresses", lambda *_: {})


MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    range_loses_an_entity: "nothing_more",
    bucket_loses_an_edge: "broken_rules",
    rows_that_go_stay: "nothing_more",
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
@pytest.mark.sampled(1)
def test_comparison_of_merges_catches_a_broken_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    story = MUTANTS[mutant]
    here = outcome(twin(tmp_path / "here", story), lambda graph: graph.branches.merge("review"))
    mutant(monkeypatch)
    assert outcome(twin(tmp_path / "there", story), on(Threads)) != here


# -- diffs --------------------------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
def test_diff_on_executors_equals_the_diff_in_process(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = twin(tmp_path / "g", "nothing_more")
    monkeypatch.setattr(diffing, "STREAM_TASK_ROWS", 60)
    first = graph.commits()[-1].commit_id
    some: dict[str, Any] = {"types": ["Person"], "ops": ["insert"]}
    for a, b, asked in (("main", "review", dict[str, Any]()), (first, "main", some)):
        frame = pipeline.diff(graph, a, b, spark=spark, **asked)
        expected = graph.diff(a, b, **asked).changes
        assert frame.columns == expected.column_names
        assert sorted(map(repr, map(tuple, frame.collect()))) == sorted(
            repr(tuple(row.values())) for row in expected.to_pylist()
        )
        assert expected.num_rows
    assert pipeline.diff(graph, "main", "main", spark=spark).collect() == []
