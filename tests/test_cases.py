"""Every case of the corpus is a test, and the runner is shown to fail when product and case disagree."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.case_expectations import CaseFailure
from tests.support.case_file import CASES, CONFORMANCE_MAX, Case, CaseSyntaxError, Step, parse_cases, read_cases
from tests.support.case_runner import run_case
from tests.support.language_codes import LANGUAGE_CODES

FILES = sorted(CASES.glob("*.case"))


def corpus() -> Iterator[Case | CaseSyntaxError]:
    for path in FILES:
        try:
            yield from read_cases(path)
        except CaseSyntaxError as error:
            # A broken file fails as one test with its place, and leaves the other files their cases.
            yield error


def name_of(item: Case | CaseSyntaxError) -> str:
    return f"cases/{item.file}::{item.id}" if isinstance(item, Case) else str(item)


@pytest.mark.parametrize("item", [pytest.param(item, id=name_of(item)) for item in corpus()])
def test_case(item: Case | CaseSyntaxError) -> None:
    if isinstance(item, CaseSyntaxError):
        pytest.fail(str(item), pytrace=False)
    try:
        run_case(item)
    except CaseFailure as failure:
        pytest.fail(str(failure), pytrace=False)
    if item.pending:
        pytest.skip(f"pending: waits for {item.pending}")


def test_corpus_holds_every_conformance_number() -> None:
    numbers = {item.number for item in corpus() if isinstance(item, Case)}
    assert sorted(set(range(1, CONFORMANCE_MAX + 1)) - numbers) == []


def test_corpus_conformance_ids_are_unique_across_files() -> None:
    ids = [item.id for item in corpus() if isinstance(item, Case) and item.number]
    assert sorted(name for name in set(ids) if ids.count(name) > 1) == []


def codes_of(step: Step) -> set[str]:
    """Return the language codes that an expectation pins down to a place or a name."""
    if step.verb in {"error", "note"} and ":" in step.arguments:
        return {step.arguments.split()[0]}
    return {line.split()[0] for line in step.lines} if step.verb == "findings" else set()


def test_corpus_shows_every_language_code_where_it_is_raised() -> None:
    cases = [item for item in corpus() if isinstance(item, Case) and not item.pending]
    shown = {code for case in cases for step in case.steps for code in codes_of(step)}
    # I7 speaks of a stored schema that is damaged, which no source can be; L203 and L204 of directories of queries.
    assert sorted(LANGUAGE_CODES.keys() - shown - {"I7", "L203", "L204"}) == []


TWICE = "== 1 twice\n-- schema\nnode A {}\nnode A {}\n"
PORTS = """== 78 ports
-- fixture F
-- query
query q() {
  match { $p: Port }
  return { $p.code as code, $p.berths as berths }
}
"""


def run_text(text: str) -> None:
    for case in parse_cases("memory.case", text):
        run_case(case)


@pytest.mark.parametrize(
    "text",
    [
        TWICE + "-- error S25",
        TWICE + "-- error S25 2:6",
        TWICE + "-- error S25 2:6\n`A`",
        PORTS + "-- ok",
        PORTS + "-- descriptor\ncode String\nberths I32?",
        PORTS + "-- reads\nnode Port\n-- writes",
    ],
)
def test_run_case_right_expectation_passes(text: str) -> None:
    run_text(text)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        (TWICE + "-- error S26 2:6", 5, "expected S26, found S25"),
        (TWICE + "-- error S25 2:7", 5, "expected it at 2:7"),
        (TWICE + "-- error S25 2:6\nno such words", 5, "expected the words `no such words`"),
        (TWICE + "-- error", 5, "`-- error` takes"),
        (TWICE + "-- ok", 2, "expected nothing wrong, found 1"),
        (TWICE + "-- error S25\n-- error S26", 2, "expected S25, S26, found 1"),
        (TWICE + "node A {}\n-- error S25", 2, "found 2"),
        ("== 1 fine\n-- schema\nnode A {}\n-- error S25", 2, "expected S25, found 0"),
        ("== 1 fine\n-- schema\nnode A {}\n-- note S29", 2, "expected S29, found 0"),
        ("== 1 fine\n-- schema\nnode A {}\n-- ids\nA 2", 4, "A 1"),
        ("== 1 fine\n-- schema\nnode A {}\n-- ids\nB 1", 4, "B None"),
        ("== 1 fine\n-- schema\nnode A {}\n-- findings", 4, "cannot be expected of a CompiledSchema"),
        ("== 1 fine\n-- schema\nnode A {}\n-- rows", 4, "needs an engine"),
        ("== 1 fine\n-- query\nquery q() { match { $a: A } return { $a } }\n-- ok", 2, "needs `-- fixture`"),
        ("== 1 fine\n-- pending reads\n-- schema\nnode A { x: }\n-- ok", 3, "expected nothing wrong, found 1"),
        ("== 1 fine\n-- schema\nnode A {}\n-- migrate\nnode B {}\n-- steps", 6, "add_type"),
        ('== 1 fine\n-- schema\nnode A { k: I32 @key }\n-- values {"k": 7} type=A\n-- key 8', 5, "7"),
        (PORTS + "-- descriptor\ncode String", 8, "berths I32?"),
        (PORTS + "-- descriptor\nberths I32?\ncode String", 8, "code String"),
        (PORTS + "-- reads\nnode Vessel", 8, "node Port"),
        (PORTS + "-- writes\nnode Port", 8, "(nothing)"),
        (PORTS + "-- plan\nnonsense", 8, "Port"),
        (PORTS.replace("-- query", "-- mutate") + "-- ok", 3, "error[T29]"),
        (PORTS.replace("-- query", "-- lint") + "-- findings\nL201 warning Port.berths", 8, "(nothing)"),
    ],
)
def test_run_case_wrong_expectation_fails_with_its_place(text: str, place: int, reason: str) -> None:
    with pytest.raises(CaseFailure) as caught:
        run_text(text)
    assert str(caught.value).startswith(f"cases/memory.case:{place}: case ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("stray", 1, "before the first"),
        ("==1 no blank\n-- ok", 1, "a title is"),
        ("== one words\n-- ok", 1, "a title is"),
        ("== 121 too many\n-- schema\n-- ok", 1, "end at 120"),
        ("== 1 a\n-- schema\n-- ok\n== 1 b\n-- schema\n-- ok", 4, "appears twice"),
        ("== 1 a\nstray\n-- schema\n-- ok", 2, "a step is"),
        ("== 1 a\n-- frobnicate\n-- ok", 2, "unknown verb `frobnicate`"),
        ("== 1 a\n-- pending luck\n-- schema\n-- ok", 2, "pending waits for"),
        ("== 1 a\n-- schema\n-- pending reads\n-- ok", 3, "right after the title"),
        ("== 1 a\n-- ok", 2, "expects something of no step"),
        ("== 1 a\n-- fixture F", 1, "does something"),
        ("== 1 a\n-- schema\nnode A {}", 2, "nothing is expected"),
    ],
)
def test_parse_cases_malformed_text_is_refused_with_its_place(text: str, place: int, reason: str) -> None:
    with pytest.raises(CaseSyntaxError) as caught:
        parse_cases("memory.case", text)
    assert str(caught.value).startswith(f"cases/memory.case:{place}: ")
    assert reason in str(caught.value)


def test_fixture_data_is_what_the_conformance_cases_describe() -> None:
    lines = (CASES / "fixtures" / "F.ndjson").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    counts = Counter(record.get("type") or record["edge"] for record in records)
    assert counts == {"Vessel": 4, "Port": 2, "TowedBy": 3, "CallsAt": 4}
