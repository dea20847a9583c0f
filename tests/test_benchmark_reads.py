"""The comparison of reads: its data is seeded, its engines agree, and a disagreement is caught."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.path_worker import PATH_LINES, OmniGraph, number_of
from benchmarks.paths import Places, Shape, make_roads, prepare_paths
from benchmarks.reads import compare
from benchmarks.reads.cold import Cold
from benchmarks.reads.compare import Disagreement, Timing
from benchmarks.reads.construct_lines import ANY_LINE
from benchmarks.reads.data import TINY, make_tables, vocabulary, write_data
from benchmarks.reads.draws import Deck
from benchmarks.reads.engines import Engine, duckdb_engine, load_maker
from benchmarks.reads.lines import BY_NAME, Draw, Line
from benchmarks.reads.quality import Truth
from benchmarks.reads.tables import make_tables as page_tables
from benchmarks.reads.warm import Warm
from benchmarks.reads.worker import Session

pytestmark = pytest.mark.slow

CALLS = 3
EXACT = [line for line in ANY_LINE.values() if not line.is_search]


@pytest.fixture(autouse=True)
def _one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "ROUNDS", 1)
    # Nothing is measured here, and to collect what a worker holds takes seconds after a thousand tests.
    monkeypatch.setattr(gc, "collect", lambda: 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reads") / "data"
    write_data(TINY, folder)
    return folder


@pytest.fixture(scope="module")
def deck(data: Path) -> Deck:
    return Deck.read(data)


@pytest.fixture(scope="module")
def engines(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    opened = {}
    # Threads of DuckDB spin while they wait for each other, on a machine that has other tests to run.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duckdb_engine, "THREADS", 1)
        for name in ("ours", "duckdb"):
            home = tmp_path_factory.mktemp(name) / "home"
            load_maker(name).build(data, home)
            opened[name] = load_maker(name).open_engine(home)
    return opened


class Process:
    """An engine of this process that is asked like one in another."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self._session = Session(engine)

    def ask(self, do: str, line: str = "", params: Sequence[Any] = ()) -> dict[str, Any]:
        return self._session.answer({"do": do, "line": line, "params": list(params)})


def run_line(line: Line, deck: Deck, engines: dict[str, Engine]) -> Timing:
    workers: Any = {name: Process(name, engine) for name, engine in engines.items()}
    [timing] = compare.compare([line], deck, workers)
    return timing


def test_make_tables_same_size_same_rows() -> None:
    first, second = make_tables(TINY), make_tables(TINY)
    assert all(first[name].equals(second[name]) for name in first)


def test_make_tables_edges_are_simple_and_keys_unique() -> None:
    tables = make_tables(TINY)
    follows = list(zip(tables["follows"]["src"].to_pylist(), tables["follows"]["dst"].to_pylist(), strict=True))
    assert len(set(follows)) == len(follows) > TINY.follows * 0.8
    assert all(source != target for source, target in follows)
    for name, key in (("person", "handle"), ("post", "slug")):
        assert len(set(tables[name][key].to_pylist())) == tables[name].num_rows
    assert len(set(vocabulary())) == 20_000


def test_write_data_existing_folder_is_kept(data: Path) -> None:
    before = (data / "person.parquet").stat().st_mtime_ns
    write_data(TINY, data)
    assert (data / "person.parquet").stat().st_mtime_ns == before


def test_deck_draw_same_line_same_parameters(deck: Deck) -> None:
    for line in ANY_LINE.values():
        assert deck.draw(line, CALLS) == deck.draw(line, CALLS)
    handles = [one["handle"] for one in deck.draw(BY_NAME["point"], 50)]
    assert len(set(handles)) > 25


@pytest.mark.parametrize("line", EXACT, ids=lambda line: line.name)
def test_compare_exact_line_agrees_with_duckdb(line: Line, deck: Deck, engines: dict[str, Engine]) -> None:
    timing = run_line(line, deck, engines)
    assert not timing.failures
    assert set(timing.rounds) == {"ours", "duckdb"}
    assert timing.ratios()["duckdb"] > 0


@pytest.mark.parametrize("name", ["bm25", "vector"])
def test_search_line_finds_what_an_exact_search_finds(
    name: str, data: Path, deck: Deck, engines: dict[str, Engine]
) -> None:
    line, truth = BY_NAME[name], Truth(data)
    timing = run_line(line, deck, engines)
    params = deck.draw(line, line.calls)
    for found in timing.found.values():
        assert [truth.share(one, keys) for one, keys in zip(params, found, strict=True)] == [1.0] * len(params)


def test_truth_share_wrong_keys_are_noticed(data: Path, deck: Deck) -> None:
    [params] = deck.draw(BY_NAME["vector"], 1)
    slugs = [str(slug) for slug in pq.read_table(data / "post.parquet")["slug"].to_pylist()]
    truth = Truth(data)
    assert sum(truth.share(params, slugs[place : place + 10]) for place in range(0, len(slugs), 10)) == pytest.approx(1)


@pytest.mark.parametrize("name", ["hop1", "hop2_all", "reach3", "anti", "group", "top", "collect", "with"])
@pytest.mark.sampled(2)
def test_compare_engine_that_is_wrong_is_caught(name: str, deck: Deck, engines: dict[str, Engine]) -> None:
    class Wrong:
        """DuckDB without the last row of any result."""

        def ask(self, line: Line) -> Any:
            right = engines["duckdb"].ask(line)
            assert right is not None
            return lambda params: right(params).to_pylist()[:-1]

    with pytest.raises(Disagreement, match=name):
        run_line(ANY_LINE[name], deck, {"ours": engines["ours"], "duckdb": Wrong()})


def test_compare_engine_that_fails_is_told_and_left_out(deck: Deck, engines: dict[str, Engine]) -> None:
    class Failing:
        def ask(self, line: Line) -> Any:
            def fail(params: object) -> None:
                raise ValueError("no such index")

            return fail

    timing = run_line(BY_NAME["point"], deck, {"ours": engines["ours"], "kuzu": Failing()})
    assert timing.failures == {"kuzu": "ValueError: no such index"}
    assert timing.ratios() == {}


def test_page_tables_name_the_best_peer_and_what_is_short_of_its_aim() -> None:
    line = BY_NAME["hop2"]
    timing = Timing(line, {"ours": [1.0, 2.0], "duckdb": [8.0, 16.0], "kuzu": [2.0, 4.0]}, {}, {"ladybug": "gone"})
    warm = Warm(
        [timing], {"ours": 10**6, "duckdb": 10**6, "kuzu": 10**6}, {"hop2": {"first": 2, "again": 1}}, {"hop2": 0}, {}
    )
    first = {"ours": 60.0, "kuzu": 20.0}
    cold = [Cold(line, {"ours": 100.0, "kuzu": 50.0}, first, {"ours": 5_000_000, "kuzu": 1_000_000}, 7)]
    tables = page_tables(["ours", "duckdb", "kuzu"], warm, warm, cold)
    assert tables[0].rows == ((line.title, "1.5 ms", "2× (kuzu)", "5×", "12 ms (8×)", "3 ms (2×)"),)
    assert "ladybug fails with gone" in tables[0].about
    assert "Rounds per line: 2." in tables[0].about
    assert tables[1].rows[0][:3] == (line.title, "2×", "5×")
    assert tables[2].rows == ((line.title, "100 ms (60 ms)", "", "50 ms (20 ms), 0.5×"),)
    assert tables[3].rows == ((line.title, "1×", "1×", "1×"),)
    assert tables[4].rows == ((line.title, "2 ms", "1 ms", "7", "5 MB", "kuzu 1 MB", "0"),)


def test_lines_every_engine_language_has_the_same_parameters() -> None:
    names = {
        Draw.NOTHING: [], Draw.PERSON: ["handle"], Draw.PAIR: ["handle", "other"], Draw.CITY: ["city"],
        Draw.WORDS: ["words"], Draw.VECTOR: ["vec"], Draw.BOTH: ["words", "vec"],
    }  # fmt: skip
    for line in ANY_LINE.values():
        for text in filter(None, (line.gq, line.cypher, line.sql)):
            assert all(f"${name}" in text for name in names[line.draw])


def test_paths_of_ours_and_the_reference_cost_the_same(tmp_path: Path) -> None:
    """SciPy is not installed here, so the reference is the definition: every road is relaxed, many times."""
    shape = Shape("small", 60, 3)
    homes = prepare_paths(shape, tmp_path)
    ours, roads, places = OmniGraph(homes["ours"]), make_roads(shape), Places(shape.size)
    assert len(set(zip(roads["start"].tolist(), roads["end"].tolist(), strict=True))) == len(roads["fee"])
    for line in (PATH_LINES[0], PATH_LINES[2]):
        for params in places.draw(line, CALLS):
            costs = np.full(shape.size, np.inf)
            start = number_of(params["start"])
            costs[start] = 0
            for _ in range(shape.size):
                np.minimum.at(costs, roads["end"], costs[roads["start"]] + roads["fee"])
            answer = ours.ask(line)(params)
            if "end" in params:
                assert answer["cost"].to_pylist() == [costs[number_of(params["end"])]]
            else:
                found = dict(zip(answer["number"].to_pylist(), answer["cost"].to_pylist(), strict=True))
                reached = np.flatnonzero(np.isfinite(costs)).tolist()
                assert found == {place: costs[place] for place in reached if place != start}


def test_shapes_grid_has_roads_to_neighbours_and_back() -> None:
    roads = make_roads(Shape("grid", 9, None))
    pairs = set(zip(roads["start"].tolist(), roads["end"].tolist(), strict=True))
    assert len(pairs) == 24
    assert {end for start, end in pairs if start == 4} == {1, 3, 5, 7}
    assert {(end, start) for start, end in pairs} == pairs
