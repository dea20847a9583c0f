"""Every case of the corpus is a test, and the runner is shown to fail when product and case disagree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.caseexpect import CaseFailure
from tests.casefile import CASES, CONFORMANCE_MAX, Case, CaseSyntaxError, read_cases
from tests.caserunner import run_case

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


def test_corpus_ids_are_unique_across_files() -> None:
    ids = [item.id for item in corpus() if isinstance(item, Case)]
    assert sorted(id for id in set(ids) if ids.count(id) > 1) == []
