"""Which commit two histories have in common, on graphs of commits written by hand."""

from __future__ import annotations

import pytest

from omnigraph.engine.merge.ancestry import is_ancestor, merge_base
from omnigraph.ids import CommitId, OperationId
from omnigraph.limits import CLOCK_SKEW_SECONDS
from omnigraph.manifest.model import Commit


class History:
    """Commits by one-letter names, each `name: parents`; lookups are counted."""

    def __init__(self, text: str) -> None:
        self.commits: dict[CommitId, Commit] = {}
        self.asked: set[str] = set()
        for version, line in enumerate(text.split(";"), start=1):
            name, _, parents = line.strip().partition(":")
            first, second = ([CommitId(one) for one in parents.split()] + [None, None])[:2]
            at_us = version * 2 * CLOCK_SKEW_SECONDS * 1_000_000
            commit_id = CommitId(name)
            self.commits[commit_id] = Commit(
                commit_id, None, version, first, second, None, at_us, "k", OperationId(name), {}
            )

    def __call__(self, commit_id: CommitId) -> Commit:
        self.asked.add(commit_id)
        return self.commits[commit_id]


@pytest.mark.parametrize(
    ("text", "one", "two", "expected"),
    [
        ("a; b: a; c: a", "b", "c", "a"),
        ("a; b: a; c: b", "a", "c", "a"),
        ("a; b: a", "b", "b", "b"),
        ("a; b", "a", "b", None),
        # The merged parent counts as well: after a merge, its source is the nearer base.
        ("a; b: a; c: a; d: b c; e: c; f: d", "e", "f", "c"),
        # Criss-cross: both merged each other, and the higher version settles the tie.
        ("a; b: a; c: a; d: b c; e: c b", "d", "e", "c"),
        # Nearer by sum wins over higher version.
        ("a; b: a; c: b; d: c; x: a; e: d x; f: x", "e", "f", "x"),
    ],
)
def test_merge_base_is_the_nearest_common_ancestor(text: str, one: str, two: str, expected: str | None) -> None:
    assert merge_base(CommitId(one), CommitId(two), History(text)) == expected
    assert merge_base(CommitId(two), CommitId(one), History(text)) == expected


def test_merge_base_walks_no_further_than_it_must() -> None:
    chain = "; ".join(["c0", *(f"c{number}: c{number - 1}" for number in range(1, 100)), "x: c99", "y: c99"])
    history = History(chain)
    assert merge_base(CommitId("x"), CommitId("y"), history) == "c99"
    assert len(history.asked) < 6


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [("a", "e", True), ("c", "e", True), ("e", "e", True), ("e", "a", False), ("d", "e", False), ("x", "e", False)],
)
def test_is_ancestor_follows_both_parents(older: str, newer: str, expected: bool) -> None:
    history = History("a; x; b: a; c: a; d: c; e: b c")
    assert is_ancestor(CommitId(older), CommitId(newer), history) == expected


def test_is_ancestor_stops_at_what_is_clearly_older() -> None:
    chain = "; ".join(["c0", *(f"c{number}: c{number - 1}" for number in range(1, 100)), "x: c97", "y: c99"])
    history = History(chain)
    assert not is_ancestor(CommitId("x"), CommitId("y"), history)
    assert len(history.asked) < 6
