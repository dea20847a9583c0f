"""What two histories have in common: graphs of commits written by hand, and random ones against the definition."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from random import Random

import pytest

from omnigraph.engine.merge import ancestry
from omnigraph.engine.merge.ancestry import Joined, MergeBase, is_ancestor, merge_base
from omnigraph.ids import CommitId, OperationId
from omnigraph.manifest.history import Commits
from omnigraph.manifest.model import Commit

Parents = dict[str, tuple[str, ...]]


class History:
    """Commits by short names, each `name: parents`, in the order of their times; lookups are counted."""

    def __init__(self, text: str, times: dict[str, int] | None = None) -> None:
        self.commits: dict[CommitId, Commit] = {}
        self.asked: set[str] = set()
        for number, line in enumerate(text.split(";"), start=1):
            name, _, parents = line.strip().partition(":")
            first, second = ([CommitId(one) for one in parents.split()] + [None, None])[:2]
            at_us, commit_id = (times or {}).get(name, number), CommitId(name)
            self.commits[commit_id] = Commit(
                commit_id, None, number, first, second, None, at_us, "k", OperationId(name), {}
            )

    def __getitem__(self, commit_id: CommitId, /) -> Commit:
        self.asked.add(commit_id)
        return self.commits[commit_id]


def best_common_ancestors(history: Commits, one: CommitId, two: CommitId) -> tuple[CommitId, ...]:
    return ancestry._best(history, (one,), (two,))


def best(history: History, one: str, two: str) -> list[str]:
    found = best_common_ancestors(history, CommitId(one), CommitId(two))
    assert found == best_common_ancestors(history, CommitId(two), CommitId(one))
    return list(found)


def defined(parents: Parents, one: str, two: str) -> set[str]:
    """Return the common ancestors that no other common ancestor has in its history: the definition, word by word."""
    common = closure(parents, one) & closure(parents, two)
    return {base for base in common if not any(base in closure(parents, other) for other in common - {base})}


def closure(parents: Parents, commit: str) -> set[str]:
    found, pending = set[str](), [commit]
    while pending:
        one = pending.pop()
        if one not in found:
            found.add(one)
            pending += parents[one]
    return found


TWO_FEATURES = "x0; a1: x0; m1: x0; b1: m1; m2: m1; m3: m2; m4: m3; m5: m4; m6: m5; ma: m6 a1"


@pytest.mark.parametrize(
    ("text", "one", "two", "expected"),
    [
        ("a; b: a; c: a", "b", "c", ["a"]),
        ("a; b: a; c: b", "a", "c", ["a"]),
        ("a; b: a", "b", "b", ["b"]),
        ("a; b", "a", "b", []),
        # The merged parent counts as well: after a merge, its source is common.
        ("a; b: a; c: a; d: b c; e: c; f: d", "e", "f", ["c"]),
        # Histories that were merged crosswise have two, of which neither is part of the other.
        ("a; b: a; c: a; d: b c; e: c b", "d", "e", ["c", "b"]),
        # Near by the merged parent, and yet part of the history of another common ancestor.
        (TWO_FEATURES, "ma", "b1", ["m1"]),
        ("a; b: a; c: b; d: c; x: a; e: d x; f: x", "e", "f", ["x"]),
    ],
)
def test_best_common_ancestors_are_part_of_no_other(text: str, one: str, two: str, expected: list[str]) -> None:
    assert best(History(text), one, two) == expected


def test_best_common_ancestors_are_found_without_a_walk_to_the_beginning() -> None:
    chain = "; ".join(["c0", *(f"c{number}: c{number - 1}" for number in range(1, 1_000)), "x: c999", "y: c999"])
    history = History(chain)
    assert best(history, "x", "y") == ["c999"]
    assert len(history.asked) < 6


def test_walk_visits_each_commit_between_two_heads_a_few_times_at_most() -> None:
    """Long branches that took over each other's state again and again."""
    lines, heads = ["c0"], ["c0", "c0"]
    for number in range(2_000):
        side = number % 2
        merged = f" {heads[1 - side]}" if number % 20 == 0 else ""
        lines.append(f"n{number}: {heads[side]}{merged}")
        heads[side] = f"n{number}"
    history = CountedHistory("; ".join(lines))
    best_common_ancestors(history, CommitId(heads[0]), CommitId(heads[1]))
    assert history.lookups < 4 * 2_000


class CountedHistory(History):
    lookups = 0

    def __getitem__(self, commit_id: CommitId, /) -> Commit:
        self.lookups += 1
        return super().__getitem__(commit_id)


def random_history(random: Random, size: int) -> tuple[Parents, History]:
    """Return commits with one or two parents each, some of them dated by a clock that was wrong."""
    names = [f"n{number:02}" for number in range(size)]
    parents: Parents = {names[0]: ()}
    for number, name in enumerate(names[1:], start=1):
        recent = names[max(0, number - 5) : number]
        parents[name] = tuple(random.sample(recent, min(len(recent), random.choice([1, 1, 2]))))
    text = "; ".join(f"{name}: {' '.join(own)}" for name, own in parents.items())
    wrong = {name: random.randrange(3 * size) for name in names if random.random() < 0.3}
    return parents, History(text, wrong)


def check_random_histories(count: int) -> int:
    """Hold random histories against the definition; return how many pairs have several best common ancestors."""
    crossed = 0
    for seed in range(count):
        parents, history = random_history(Random(seed), 16)
        for one, two in permutations(list(parents)[-5:], 2):
            expected = defined(parents, one, two)
            crossed += len(expected) > 1
            found = best_common_ancestors(history, CommitId(one), CommitId(two))
            assert set(found) == expected, (seed, one, two)
            assert len(found) == len(expected)
            assert is_ancestor(history, CommitId(one), CommitId(two)) == (one in closure(parents, two))
    return crossed


@pytest.mark.slow
def test_best_common_ancestors_obey_their_definition_on_any_clocks() -> None:
    assert check_random_histories(200) > 100


def nearest(commits: Commits, ones: tuple[CommitId, ...], twos: tuple[CommitId, ...]) -> tuple[CommitId, ...]:
    """Return the common ancestor with the smallest sum of distances."""

    def distances(starts: tuple[CommitId, ...]) -> dict[CommitId, int]:
        found, step = dict.fromkeys(starts, 0), list(starts)
        while step:
            parents = [(up, found[one] + 1) for one in step for up in ancestry._parents(commits[one])]
            step = [up for up, _ in parents if up not in found]
            found |= {up: far for up, far in reversed(parents) if up not in found}
        return found

    left, right = distances(ones), distances(twos)
    return tuple(sorted(left.keys() & right.keys(), key=lambda one: left[one] + right[one])[:1])


def any_one(commits: Commits, ones: tuple[CommitId, ...], twos: tuple[CommitId, ...]) -> tuple[CommitId, ...]:
    """Return one of the best common ancestors, whatever the others say."""
    return _REAL(commits, ones, twos)[:1]


def trusting(commits: Commits, ones: tuple[CommitId, ...], twos: tuple[CommitId, ...]) -> tuple[CommitId, ...]:
    """Believe the clocks: what is met first is part of nothing else."""
    return tuple(ancestry._paint_down(commits, ones, twos))


_REAL = ancestry._best


@pytest.mark.parametrize("mutant", [nearest, any_one, trusting], ids=lambda one: one.__name__)
def test_definition_catches_another_rule(mutant: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ancestry, "_best", mutant)
    with pytest.raises(AssertionError):
        check_random_histories(200)


# -- virtual bases ----------------------------------------------------------------------------------------------------


def test_merge_base_of_crossed_histories_joins_by_what_is_below() -> None:
    history = History("a; b: a; c: a; d: b c; e: c b")
    below = MergeBase(CommitId("a"))
    expected = MergeBase(CommitId("c"), (Joined(CommitId("b"), below),))
    assert merge_base(history, CommitId("d"), CommitId("e")) == expected
    assert merge_base(history, CommitId("e"), CommitId("d")) == expected


def test_merge_base_follows_crossings_no_further_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["a", "l0: a", "r0: a"]
    lines += [f"{one}{n}: {one}{n - 1} {two}{n - 1}" for n in range(1, 50) for one, two in (("l", "r"), ("r", "l"))]
    history = History("; ".join(lines))
    monkeypatch.setattr(ancestry, "MERGE_BASE_COMMITS_MAX", 10)
    base = merge_base(history, CommitId("l49"), CommitId("r49"))
    assert base is not None
    assert list(base.states()) == [f"{side}{number}" for number in range(48, 43, -1) for side in "rl"]


def test_reduced_base_joins_only_what_differs_and_was_changed_twice() -> None:
    def base(first: int, second: int, below: int | None) -> MergeBase[int]:
        return MergeBase(first, (Joined(second, None if below is None else MergeBase(below)),))

    assert base(1, 1, None).reduced(lambda one: one) == MergeBase(1)
    assert base(1, 2, 1).reduced(lambda one: one) == MergeBase(2)
    assert base(1, 2, 2).reduced(lambda one: one) == MergeBase(1)
    assert base(1, 2, 3).reduced(lambda one: one) == base(1, 2, 3)
    assert base(1, 2, None).reduced(lambda one: one) == base(1, 2, None)


# -- ancestors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [("a", "e", True), ("c", "e", True), ("e", "e", True), ("e", "a", False), ("d", "e", False), ("x", "e", False)],
)
def test_is_ancestor_follows_both_parents(older: str, newer: str, expected: bool) -> None:
    history = History("a; x; b: a; c: a; d: c; e: b c")
    assert is_ancestor(history, CommitId(older), CommitId(newer)) == expected


def test_is_ancestor_stops_where_both_come_together() -> None:
    chain = "; ".join(["c0", *(f"c{number}: c{number - 1}" for number in range(1, 100)), "x: c97", "y: c99"])
    history = History(chain)
    assert not is_ancestor(history, CommitId("x"), CommitId("y"))
    assert len(history.asked) < 6
