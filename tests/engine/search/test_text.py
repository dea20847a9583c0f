"""Text search finds the same entities with an index, with a lagging index, and without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from omnigraph.engine.read.search import bm25, text_matches
from omnigraph.errors import DataError
from tests.engine.search.notes import Notes

TEXTS = {
    "star": "north star",
    "north": "North",
    "boats": "The running Boats",
    "stop": "of the and",
    "empty": "",
    "null": None,
    "hyphen": "x1 NORTH-star",
    "umlaut": "Größe und Straße",
}
Make = Callable[[Path], Notes]


def unindexed(path: Path) -> Notes:
    notes = Notes.at(path)
    notes.put(TEXTS)
    return notes


def indexed(path: Path) -> Notes:
    notes = unindexed(path)
    notes.index()
    return notes


def half_indexed(path: Path) -> Notes:
    """Half of the notes came after the index; one that it knows has changed since."""
    notes = Notes.at(path)
    names = list(TEXTS)
    first = {name: TEXTS[name] for name in names[:4]}
    notes.put(first | {"north": "southern wind"})
    notes.index()
    notes.put({name: TEXTS[name] for name in names[4:]} | {"north": TEXTS["north"]})
    return notes


def folded(path: Path) -> Notes:
    """Every row is covered, but by segments of different ages that disagree about one note."""
    notes = Notes.at(path)
    filler = {f"filler{number}": "quiet lake" for number in range(100)}
    notes.put(TEXTS | {"north": "southern wind"} | filler)
    notes.index()
    notes.put({"north": TEXTS["north"]})
    notes.fold()
    return notes


MAKERS = [unindexed, indexed, half_indexed, folded]


def found(notes: Notes, query: str, function: str = "search", edits: int | None = None) -> set[str]:
    return set(notes.names(text_matches(notes.view, "Note", "bodyText", query, function, edits).tolist()))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("STAR", {"star", "hyphen"}),
        ("north", {"star", "north", "hyphen"}),
        ("boat", {"boats"}),
        ("run boat", {"boats"}),
        ("star boats", {"star", "hyphen", "boats"}),
        ("the", set()),
        ("straße", {"umlaut"}),
        ("southern", set()),
        ("absent", set()),
        ("", set()),
        ("!?", set()),
    ],
)
def test_search_any_state_of_the_index_finds_the_same(
    make: Make, query: str, expected: set[str], tmp_path: Path
) -> None:
    assert found(make(tmp_path), query) == expected


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("query", "edits", "expected"),
    [
        ("nroth", 2, {"star", "north", "hyphen"}),
        ("nort", 1, {"star", "north", "hyphen"}),
        ("nrth", 0, set()),
        ("baats", 1, {"boats"}),
        ("bxxts", 1, set()),
        ("runing", 1, {"boats"}),
        ("running", 1, {"boats"}),
        ("RUNING", 1, {"boats"}),
        ("größe", 1, {"umlaut"}),
        ("Grösse", 2, {"umlaut"}),
        ("teh", 2, set()),
        ("sothern", 1, set()),
        ("zzzzzzzzzz", 2, set()),
        ("y" * 60, 8, set()),
    ],
)
def test_fuzzy_any_state_of_the_index_forgives_that_many_errors(
    make: Make, query: str, edits: int, expected: set[str], tmp_path: Path
) -> None:
    assert found(make(tmp_path), query, "fuzzy", edits) == expected


@pytest.mark.parametrize("make", [unindexed, indexed])
def test_fuzzy_compares_whole_words_and_not_their_stems(make: Make, tmp_path: Path) -> None:
    notes = make(tmp_path)
    notes.put({"long": "jumping", "short": "jumps", "accent": "élan vital", "letters": "e lan"})
    assert found(notes, "jumpinh", "fuzzy", 1) == {"long"}
    assert found(notes, "jumpt", "fuzzy", 1) == {"short"}
    # An accent that is typed as a letter and a mark is one letter.
    assert found(notes, "e\u0301lam", "fuzzy", 1) == {"accent"}
    assert found(notes, "e\u0301lan", "search") == {"accent"}


def test_fuzzy_without_a_number_forgives_two_errors(tmp_path: Path) -> None:
    notes = unindexed(tmp_path)
    assert found(notes, "nroht", "fuzzy") == set()
    assert found(notes, "nroth", "fuzzy") == {"star", "north", "hyphen"}


@pytest.mark.parametrize("edits", [-1, 9])
def test_fuzzy_impossible_number_of_errors_is_refused(edits: int, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        found(unindexed(tmp_path), "north", "fuzzy", edits)
    assert caught.value.context["rule"] == "E4"


@pytest.mark.parametrize("make", [unindexed, indexed])
def test_bm25_shorter_and_rarer_texts_come_first(make: Make, tmp_path: Path) -> None:
    notes = make(tmp_path)
    rows, scores = bm25(notes.view, "Note", "bodyText", "north")
    assert notes.names(rows.tolist()) == ["north", "star", "hyphen"]
    assert (np.diff(scores) < 0).all()
    assert scores.dtype == np.float64


def test_bm25_index_in_memory_scores_like_a_built_one(tmp_path: Path) -> None:
    notes = unindexed(tmp_path)
    before = bm25(notes.view, "Note", "bodyText", "north star boats")
    notes.index()
    after = bm25(notes.view, "Note", "bodyText", "north star boats")
    assert before[0].tolist() == after[0].tolist()
    assert before[1].tolist() == after[1].tolist()


@pytest.mark.parametrize("make", MAKERS)
def test_bm25_candidates_restrict_before_the_limit(make: Make, tmp_path: Path) -> None:
    notes = make(tmp_path)
    among = np.array(notes.rows("hyphen", "star", "boats"), np.uint64)
    rows, _ = bm25(notes.view, "Note", "bodyText", "north", among, 1)
    assert notes.names(rows.tolist()) == ["star"]
    none, _ = bm25(notes.view, "Note", "bodyText", "north", among[:0], 1)
    assert none.tolist() == []


@pytest.mark.parametrize("documents", [0, 65_536], ids=["proposed", "all scored"])
@pytest.mark.parametrize("make", MAKERS)
def test_bm25_equal_scores_at_the_limit_are_all_given_in_row_order(
    make: Make, documents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.store.text._SCORED_DOCUMENTS_MAX", documents)
    notes = make(tmp_path)
    notes.put({f"reef{number:02}": "coral reef" for number in range(40)} | {"best": "coral coral reef"})
    for state in range(2):
        rows, _ = bm25(notes.view, "Note", "bodyText", "coral", None, 3)
        assert rows.tolist() == [*notes.rows("best"), *sorted(notes.rows(*(f"reef{n:02}" for n in range(40))))]
        if state == 0:
            notes.index() if make is unindexed else notes.fold()


def test_search_after_a_change_reads_the_version_of_its_view(tmp_path: Path) -> None:
    notes = indexed(tmp_path)
    old = notes.view
    notes.put({"late": "north sea"})
    assert "late" in found(notes, "north")
    rows = text_matches(old, "Note", "bodyText", "north", "search", None)
    assert sorted(notes.names(rows.tolist())) == ["hyphen", "north", "star"]


def test_search_empty_type_finds_nothing(tmp_path: Path) -> None:
    notes = Notes.at(tmp_path)
    assert text_matches(notes.view, "Note", "bodyText", "north", "search", None).tolist() == []
    assert bm25(notes.view, "Note", "bodyText", "north")[0].tolist() == []
