"""Text search finds the same entities with an index, with a lagging index, and without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from omnigraph.engine.query.ranking import bm25, match_text
from omnigraph.errors import DataError, LimitExceeded
from omnigraph.limits import FUZZY_WORDS_MAX
from omnigraph.store.index import text_occurrences
from tests.support.search_fixtures import Notes
from tests.support.staged_fixtures import earlier_analyser

TEXTS = {
    "star": "north star",
    "north": "North",
    "boats": "The running Boats",
    "stop": "of the and",
    "empty": "",
    "null": None,
    "hyphen": "x1 NORTH-star",
    "umlaut": "Größe und Straße",
    "capitals": "GRÖSSE",
    "decomposed": "e\u0301lan vital",
    "composed": "\u00c9LAN",
    "accents": "r\u00e9sum\u00e9s \u0130stanbul",
    "long": "v" + "i" * 60 + "deo " + "u" * 30 + "\u00fc" * 30,
    "japanese": "東京都に行く。ｶﾀｶﾅ",
    "chinese": "我爱北京天安门",
    "thai": "ภาษาไทยที่น้ำตาล",
    "hindi": "हिन्दी में",
    "greek": "ΟΔΟΣ",
    "arabic": "العَرَبِيَّة",
    "mixed": "Tokyo東京😀sky",
    "tea": "th\u00e9",
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


def outdated(path: Path) -> Notes:
    """Another analyser built the index."""
    notes = unindexed(path)
    with earlier_analyser():
        notes.index()
    return notes


def half_outdated(path: Path) -> Notes:
    """Another analyser built the index of half of the notes."""
    with earlier_analyser():
        return half_indexed(path)


def rebuilt(path: Path) -> Notes:
    """Another analyser had built the index, which was folded since."""
    notes = outdated(path)
    notes.fold()
    return notes


MAKERS = [unindexed, indexed, half_indexed, folded, outdated, half_outdated, rebuilt]


def found(notes: Notes, query: str, function: str = "search", edits: int | None = None) -> set[str]:
    return set(notes.names(match_text(notes.view, "Note", "bodyText", query, function, edits).tolist()))


FOUND: dict[str, set[str]] = {
    "STAR": {"star", "hyphen"},
    "north": {"star", "north", "hyphen"},
    "boat": {"boats"},
    "run boat": {"boats"},
    "star boats": {"star", "hyphen", "boats"},
    "the": set(),
    "straße": {"umlaut"},
    "STRASSE": {"umlaut"},
    "grösse": {"umlaut", "capitals"},
    "gro\u0308\u00dfe": {"umlaut", "capitals"},
    "elan": {"decomposed", "composed"},
    "e\u0301lan": {"decomposed", "composed"},
    "e": set(),
    "lan": set(),
    "resume": {"accents"},
    "istanbul": {"accents"},
    "I\u0307STANBUL": {"accents"},
    f"V{'I' * 60}DEO": {"long"},
    f"v{'i' * 59}deo": set(),
    f"{'u' * 60}": {"long"},
    "東京": {"japanese", "mixed"},
    "東京都": {"japanese", "mixed"},
    "京": set(),
    "カタカナ": {"japanese"},
    "北京": {"chinese"},
    "天安门": {"chinese"},
    "ไทย": {"thai"},
    "น้ำตาล": {"thai"},
    "हिन्दी": {"hindi"},
    "हिन": set(),
    "οδός": {"greek"},
    "العربية": {"arabic"},
    "sky": {"mixed"},
    "TOKYO": {"mixed"},
    "😀": set(),
    "thé": {"tea"},
    "southern": set(),
    "absent": set(),
    "": set(),
    "!?": set(),
}
FOUND_MISSPELT: dict[tuple[str, int], set[str]] = {
    ("nroth", 2): {"star", "north", "hyphen"},
    ("nort", 1): {"star", "north", "hyphen"},
    ("nrth", 0): set(),
    ("baats", 1): {"boats"},
    ("bxxts", 1): set(),
    ("runing", 1): {"boats"},
    ("running", 1): {"boats"},
    ("RUNING", 1): {"boats"},
    ("größe", 1): {"umlaut", "capitals"},
    ("Grösse", 0): {"umlaut", "capitals"},
    ("GROSE", 1): {"umlaut", "capitals"},
    ("ela\u0301m", 1): {"decomposed", "composed"},
    ("résumé", 0): set(),
    ("resumes", 0): {"accents"},
    ("resume", 1): {"accents"},
    (f"v{'i' * 58}deo", 2): {"long"},
    ("東北", 1): {"japanese", "mixed"},
    ("北京", 0): {"chinese"},
    ("ไทย", 0): {"thai"},
    ("istambul", 1): {"accents"},
    ("the", 1): set(),
    ("thé", 0): {"tea"},
    ("thé", 1): {"tea"},
    ("teh", 2): {"tea"},
    ("sothern", 1): set(),
    ("zzzzzzzzzz", 2): set(),
    ("y" * 60, 8): set(),
    ("elan", 0): {"decomposed", "composed"},
}


@pytest.fixture(scope="module", params=MAKERS)
def notes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Notes:
    """The same notes in every state of their index."""
    made: Notes = request.param(tmp_path_factory.mktemp("notes"))
    return made


@pytest.mark.slow
def test_search_any_state_of_the_index_finds_the_same(notes: Notes) -> None:
    assert {query: found(notes, query) for query in FOUND} == FOUND


@pytest.mark.slow
def test_fuzzy_any_state_of_the_index_forgives_that_many_errors(notes: Notes) -> None:
    answers = {(query, edits): found(notes, query, "fuzzy", edits) for query, edits in FOUND_MISSPELT}
    assert answers == FOUND_MISSPELT


@pytest.mark.parametrize("make", [unindexed, indexed])
def test_fuzzy_compares_whole_words_and_not_their_stems(make: Make, tmp_path: Path) -> None:
    notes = make(tmp_path)
    notes.put({"long": "jumping", "short": "jumps", "accent": "élan vital", "letters": "e lan"})
    assert found(notes, "jumpinh", "fuzzy", 1) == {"long"}
    assert found(notes, "jumpt", "fuzzy", 1) == {"short"}
    assert found(notes, "jumps", "fuzzy", 0) == {"short"}
    # An accent that is typed as a letter and a mark is one letter.
    assert found(notes, "e\u0301lam", "fuzzy", 1) == {"accent", "composed", "decomposed"}
    assert found(notes, "e\u0301lan", "search") == {"accent", "composed", "decomposed"}


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


@pytest.mark.slow
@pytest.mark.parametrize("documents", [0, 65_536], ids=["proposed", "all scored"])
@pytest.mark.parametrize("make", MAKERS)
def test_bm25_equal_scores_at_the_limit_are_all_given_in_row_order(
    make: Make, documents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.store.index.text_search._SCORED_DOCUMENTS_MAX", documents)
    monkeypatch.setattr("omnigraph.store.index.text_search._SCORED_MAX", 0)
    monkeypatch.setattr("omnigraph.store.index.text_search._ASKED_MORE", 1)
    notes = make(tmp_path)
    notes.put({f"reef{number:02}": "coral reef" for number in range(40)} | {"best": "coral coral reef"})
    for state in range(2):
        rows, _ = bm25(notes.view, "Note", "bodyText", "coral", None, 3)
        assert rows.tolist() == [*notes.rows("best"), *sorted(notes.rows(*(f"reef{n:02}" for n in range(40))))]
        if state == 0:
            notes.index() if make is unindexed else notes.fold()


def proposed_notes(path: Path, monkeypatch: pytest.MonkeyPatch, rare: int) -> Notes:
    """Return indexed notes, of which some were deleted and some are unknown to the index, asked for a few at a time."""
    for name, value in (("_SCORED_DOCUMENTS_MAX", 0), ("_SCORED_MAX", 0), ("_ASKED_MORE", 1), ("_RARE_MAX", rare)):
        monkeypatch.setattr(f"omnigraph.store.index.text_search.{name}", value)
    notes = Notes.at(path)
    notes.put({f"n{number:03}": "coral " * (1 + number % 3) + "reef sand " * (number % 4) for number in range(90)})
    notes.index()
    return notes


@pytest.mark.slow
@pytest.mark.parametrize("rare", [0, 40, 65_536])
@pytest.mark.parametrize("state", ["whole", "partly covered", "deleted"])
def test_bm25_proposed_by_an_index_is_the_first_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rare: int, state: str
) -> None:
    notes = proposed_notes(tmp_path, monkeypatch, rare)
    if state == "partly covered":
        notes.put({f"late{number}": "coral reef" for number in range(9)})
    if state == "deleted":
        notes.put({f"n{number:03}": None for number in range(0, 90, 4)})
    check_first_of_all(notes)


def check_first_of_all(notes: Notes) -> None:
    """Compare the best, of all and of some, with the first of all that match, which are scored without the index."""
    some = np.array(notes.rows(*(f"n{number:03}" for number in range(0, 90, 3))), np.uint64)
    for words in ("coral", "reef coral", "sand coral coral"):
        for among in (None, some):
            rows, scores = bm25(notes.view, "Note", "bodyText", words, among)
            for limit in (1, 3, 10, 30):
                best, best_scores = bm25(notes.view, "Note", "bodyText", words, among, limit)
                end = int(np.count_nonzero(scores >= scores[min(limit, len(scores)) - 1]))
                assert best.tolist() == rows[:end].tolist()
                assert best_scores.tolist() == scores[:end].tolist()


@pytest.mark.slow
def test_bm25_proposals_taken_for_the_best_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: whatever the index proposes first is believed, although others tie with it."""
    notes = proposed_notes(tmp_path, monkeypatch, 65_536)
    best = text_occurrences.IndexedTexts.best
    monkeypatch.setattr(text_occurrences.IndexedTexts, "best", lambda *asked: best(*asked)._replace(least=-np.inf))
    with pytest.raises(AssertionError):
        check_first_of_all(notes)


def test_search_after_a_change_reads_the_version_of_its_view(tmp_path: Path) -> None:
    notes = indexed(tmp_path)
    old = notes.view
    notes.put({"late": "north sea"})
    assert "late" in found(notes, "north")
    rows = match_text(old, "Note", "bodyText", "north", "search", None)
    assert sorted(notes.names(rows.tolist())) == ["hyphen", "north", "star"]


def test_search_empty_type_finds_nothing(tmp_path: Path) -> None:
    notes = Notes.at(tmp_path)
    assert match_text(notes.view, "Note", "bodyText", "north", "search", None).tolist() == []
    assert bm25(notes.view, "Note", "bodyText", "north")[0].tolist() == []


def test_fuzzy_counts_words_of_scripts_without_spaces(tmp_path: Path) -> None:
    """Rare signs are words of one letter, so there are more words than spaces."""
    notes = unindexed(tmp_path)
    signs = "".join(chr(0x4E00 + 37 * number) for number in range(FUZZY_WORDS_MAX + 40))
    with pytest.raises(LimitExceeded, match="distinct words"):
        found(notes, signs, "fuzzy", 1)
    assert found(notes, signs[:30], "fuzzy", 0) == set()
