"""An input is loaded alike in memory and staged in files: the corpus of cases, and inputs at random."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.input import line_ranges
from omnigraph.engine.key_buckets import files as key_files
from omnigraph.engine.key_buckets import hashes as key_hashes
from omnigraph.engine.load import buckets, key_matcher, line_numbers, matching, set_checks
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.limits import LOAD_BUCKETS_MAX
from omnigraph.rules.validate import ROW_CHECKS, RULES
from tests.support.case_engine import Engine, Ran, _records
from tests.support.case_file import CASES, Case, Step, read_cases
from tests.support.case_runner import run_case
from tests.support.examples import examples
from tests.support.graph_template import copy_graph
from tests.support.pipeline_fixtures import (
    COMMITTED,
    SCHEMA,
    contents,
    lines_of,
    load_bytes,
    splits_of,
    told,
    without_made_up,
)

pytestmark = pytest.mark.slow

_EMAILS, _TEAMS = st.sampled_from(["ann@x", "bob@x", "c@x", None]), st.sampled_from(["red", "blue", "RED", None])
_NAMES, _NOTES = (
    st.sampled_from(["ann", "bob", "cy", "dee", "ann\u0301", ""]),
    st.sampled_from(["n1", "n2", "n3", None]),
)
_LEVELS = st.sampled_from([0, 1, 2, 3, 12, None])


def _record(kind: str, data: dict[str, Any], **outer: Any) -> dict[str, Any]:
    kept = {name: value for name, value in data.items() if value is not None}
    return {**({"type": kind} if not outer else {"edge": kind}), **outer, "data": kept}


_PERSON = st.builds(
    lambda name, email, level, team, role: _record(
        "Person", {"name": name, "email": email, "level": level, "team": team, "role": role}
    ),
    _NAMES, _EMAILS, _LEVELS, _TEAMS, st.sampled_from(["lead", "member", "boss", None]),
)  # fmt: skip
_NOTE = st.builds(
    lambda id_, text, score: _record("Note", {"id": id_, "text": text, "score": score}),
    _NOTES, st.text(max_size=3), st.sampled_from([1.5, -0.0, 0.0, 2.0, "x", None]),
)  # fmt: skip
_EDGE = st.builds(
    lambda kind, start, end, id_: _record(kind, {"id": id_}, **{"from": start, "to": end}),
    st.sampled_from(["Knows", "Wrote", "Reports", "Likes", "Likes"]),
    _NAMES,
    st.one_of(_NAMES, st.sampled_from(["n1", "n2"])),
    st.sampled_from(["k1", "w1", "w2", "r1", "e1", "e2", None]),
)  # fmt: skip
_ODD = st.sampled_from(
    [b"", b"{", b'{"type":"Nobody","data":{}}', b'{"type":"Person","data":{"nam":"x"}}', b"[]", b"\r"]
)
_LINE = st.one_of(_PERSON, _PERSON, _NOTE, _EDGE, _EDGE).map(lambda one: lines_of([one])[:-1])
_INPUT = st.lists(st.one_of(_LINE, _LINE, _LINE, _LINE, _LINE, _LINE, _LINE, _ODD), max_size=12).map(b"\n".join)
# The world of the other tests, with edges that have a key.
WORLD = SCHEMA + "edge Likes: Person -> Person { weight: I32?  @key(src, dst) }\n"
_MODES = st.sampled_from(["append", "merge", "overwrite"])


def _outcome(graph: Graph, raw: bytes, folder: Path, options: dict[str, Any]) -> dict[str, object]:
    """Return all that a load says and does, without ids that are made up and the time that it took."""
    before, branch = graph.snapshot().head, options.get("branch", "main")
    try:
        report = load_bytes(graph, raw, folder, **options)
    except OmniGraphError as error:
        assert graph.snapshot().head == before
        assert graph.branches.list() == ["main"]
        return told(error)
    receipt = report.to_json()
    again = load_bytes(graph, raw, folder, **options).to_json() if "job_id" in options else {}
    timed = ("seconds", "entities_per_second", "megabytes_per_second", "commit", "job_id")
    return {
        "receipt": without_made_up({name: value for name, value in receipt.items() if name not in timed}),
        "again": (again.get("already_applied"), again.get("commit") == receipt["commit"]),
        "commit": report.commit and (report.commit.kind, sorted(report.commit.properties)),
        "digest": report.commit and report.commit.properties["input_digest"],
        "rejected": without_made_up([line.to_json() for line in report.rejected]),
        "contents": contents(graph, branch),
    }


def compare(raw: bytes, options: dict[str, Any], size: int, keys: int = 1) -> None:
    """Load one input held in memory and staged in files, with only some keys in a range; nothing must differ."""
    with tempfile.TemporaryDirectory() as name, patch.dict("os.environ", {"OMNIGRAPH_DURABILITY": "process"}):
        folder = Path(name)
        options = {"report": folder / "report", **options}
        graphs = [copy_graph(folder / letter, WORLD, lines_of(COMMITTED)) for letter in "ab"]
        in_memory = _outcome(graphs[0], raw, folder, options)
        with splits_of(size), patch.object(key_matcher, "LOAD_BUCKET_KEYS", keys):
            in_files = _outcome(graphs[1], raw, folder, options)
        assert in_files == in_memory


# What a caller may ask for besides the mode; each is left out half of the time.
_OPTIONS = st.fixed_dictionaries(
    {"mode": _MODES},
    optional={
        "on_error": st.just("quarantine"),
        "on_duplicate": st.sampled_from(["first", "last"]),
        "job_id": st.just("day-1"),
        "max_errors": st.sampled_from([1, 3]),
        "branch": st.just("review"),
    },
).map(lambda options: {**options, "from_branch": "main"} if "branch" in options else options)
_SIZES, _KEYS = st.sampled_from([17, 200, 10_000]), st.sampled_from([1, 7, 1_000_000])


@given(raw=_INPUT, options=_OPTIONS, size=_SIZES, keys=_KEYS)
@settings(max_examples=examples(15))
def test_random_input_is_loaded_alike_in_memory_and_in_files(raw: bytes, options: Any, size: int, keys: int) -> None:
    compare(raw, options, size, keys)


@given(raw=_INPUT, options=_OPTIONS, size=_SIZES, keys=_KEYS)
@settings(max_examples=examples(50))
def test_many_random_inputs_are_loaded_alike(raw: bytes, options: Any, size: int, keys: int) -> None:
    compare(raw, options, size, keys)


# Inputs that break one rule each, or that need a pass over several splits; each finds at least one mutant below.
_WROTE, _ANN = (("ann", "k1"), ("ann", "e1"), ("bob", "k1")), [{"type": "Person", "data": {"name": "ann"}}]
TELLING: list[tuple[str, list[dict[str, Any]]]] = [
    ("append", [{"type": "Person", "data": {"name": "cy"}}, {"type": "Person", "data": {"name": "cy"}}]),
    ("append", [{"type": "Person", "data": {"name": "ann"}}]),
    ("append", [{"type": "Person", "data": {"name": "cy", "email": "ann@x"}}]),
    (
        "merge",
        [{"type": "Person", "data": {"name": "cy", "email": "ann@x"}}, {"type": "Person", "data": {"name": "ann"}}],
    ),
    ("append", [{"edge": "Knows", "from": "ann", "to": "nobody"}]),
    ("append", [{"type": "Person", "data": {"name": "cy"}}, {"edge": "Knows", "from": "cy", "to": "nobody"}]),
    ("overwrite", [{"type": "Person", "data": {"name": "cy"}}]),
    ("append", [{"edge": "Wrote", "from": "ann", "to": "n1"}] * 2),
    ("append", [{"edge": "Knows", "from": "ann", "to": "nobody"}] * 3),
    ("append", [{"edge": "Wrote", "from": who, "to": "n1", "data": {"id": id_}} for who, id_ in _WROTE]),
    ("merge", [{"type": "Person", "data": {"name": name, "email": "ann@x"}} for name in ("cy", "dee")] + _ANN),
    ("merge", [{"type": "Note", "data": {"id": "n1", "text": word}} for word in ("a", "b")] * 2),
    ("merge", [{"edge": "Reports", "from": "ann", "to": "bob", "data": {"id": "r1"}}]),
    ("merge", [{"type": "Note", "data": {"id": "n1", "text": word}} for word in ("a", "b", "c")]),
    ("append", [{"type": "Person", "data": {"name": "cy", "level": 77}}, {"type": "Person", "data": {"name": "dee"}}]),
    # With a choice, a row that is superseded breaks no rule.
    ("append", [{"type": "Person", "data": {"name": "cy", "level": level}} for level in (1, 77)]),
]


# The input breaks nothing if some of it is left out.
LENIENT: list[dict[str, Any]] = [
    {},
    {"on_error": "quarantine"},
    {"on_duplicate": "first"},
    {"on_error": "quarantine", "on_duplicate": "first"},
]


@pytest.mark.parametrize("place", range(len(TELLING)))
def test_telling_input_is_loaded_alike(place: int) -> None:
    mode, records = TELLING[place]
    for options in LENIENT:
        compare(lines_of(records), {"mode": mode, **options}, 40)


def _without(name: str) -> Any:
    return patch.dict(matching.FINDERS, {name: lambda bucket: {}})


MUTANTS: dict[str, Callable[[], Any]] = {
    **{f"no {rule.__name__}": partial(_without, rule.__name__) for rule in RULES if rule not in ROW_CHECKS},
    "lines of every split start anew": lambda: patch.object(line_numbers.LineNumbers, "offset", lambda self, split: 0),
    "first line of a split is lost": lambda: patch.object(line_ranges, "_read_byte_range", _losing),
    "replaced rows stay": lambda: patch.object(matching, "is_known_key", lambda own, *others: own != own),
    "the first of an id wins": lambda: patch.object(
        matching, "find_superseded_rows", lambda hashes, checks, rows: rows[1:]
    ),
    "replaced rows still hold their values": lambda: patch.object(
        set_checks, "_SurvivingRows", lambda check: check.committed
    ),
    "no end is missing": lambda: patch.object(matching, "subtract", lambda values, known: values[:0]),
    "ranges leave a gap": lambda: patch.object(key_files.HashRange, "bucket_bounds", _with_a_gap),
    "rows of a file count from its own first": lambda: patch.object(buckets.StagedRows, "_parts", _uncounted),
}


def _with_a_gap(self: key_files.HashRange) -> tuple[int, int]:
    step = LOAD_BUCKETS_MAX // self.count
    return self.number * step, (self.number + 1) * step - step // 2


def _uncounted(self: buckets.StagedRows) -> Any:
    return ((0, part) for part in self.parts if part)


_byte_range = line_ranges._read_byte_range


def _losing(split: Any) -> tuple[bytes, bool]:
    found, is_cut = _byte_range(split)
    return found if split.start == 0 else found.partition(b"\n")[2], is_cut


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
@pytest.mark.sampled(3)
def test_compare_mutant_is_caught(mutant: str) -> None:
    caught = 0
    for mode, records in TELLING:
        with MUTANTS[mutant]():
            try:
                compare(lines_of(records), {"mode": mode}, 40)
            except (AssertionError, OmniGraphError, IndexError):
                caught += 1
    assert caught


def test_finders_and_row_checks_cover_every_rule() -> None:
    names = {rule.__name__ for rule in RULES}
    assert {rule.__name__ for rule in ROW_CHECKS} | set(matching.FINDERS) == names
    assert not {rule.__name__ for rule in ROW_CHECKS} & set(matching.FINDERS)
    assert set(set_checks.ASSEMBLERS) == set(matching.FINDERS)


def test_hash_column_equal_values_have_equal_hashes_and_slices_agree() -> None:
    import pyarrow as pa

    texts = pa.array(["", "a", "a\0", "abcdefgh", "abcdefghi", "x" * 600, "x" * 601, "a", None])
    hashes = key_hashes.hash_column(texts, "seed")
    assert len(set(hashes[:7].tolist())) == 7
    assert hashes[1] == hashes[7]
    assert key_hashes.hash_column(texts.slice(3, 4), "seed").tolist() == hashes[3:7].tolist()
    assert key_hashes.hash_column(texts, "other").tolist() != hashes.tolist()
    zeros = key_hashes.hash_column(pa.array([0.0, -0.0, 1.0]), "seed")
    assert zeros[0] == zeros[1] != zeros[2]


# -- the corpus ------------------------------------------------------------------------------------------------


def _corpus() -> list[Case]:
    cases = [case for path in sorted(CASES.glob("*.case")) for case in read_cases(path)]
    return [case for case in cases if _loads(case) and not case.pending]


def _loads(case: Case) -> bool:
    """Tell whether a case loads something in the strict dialect, and does not end at a bound of an ingest."""
    loads = [step for step in case.steps if step.verb == "load"]
    bounds = any(step.verb == "error" and step.arguments.startswith(("E12", "N11")) for step in case.steps)
    return bool(loads) and not bounds and all(step.option("dialect") in (None, "strict") for step in loads)


@pytest.mark.parametrize("case", _corpus(), ids=lambda case: f"{case.file}-{case.id}")
def test_load_case_of_the_corpus_holds(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Engine.run

    def run(self: Engine, step: Step) -> Ran:
        if step.verb != "load":
            return plain(self, step)
        graph = self._opened()
        before = len(graph.commits())
        raw = _records(step)
        with splits_of(max(300, len(raw) // 8)):
            load_bytes(graph, raw, tmp_path, step.option("mode") or "merge")
        return Ran(commits=len(graph.commits()) - before)

    monkeypatch.setattr(Engine, "run", run)
    run_case(case)
