"""Random worlds of indexed entities that come, change and go, and what every search must answer by definition.

The truth is a plain read of all entities, which no index takes part in; answers are computed from it here.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import omnigraph as og
from omnigraph import pipeline
from omnigraph.engine.query.embedders import MockEmbedder
from omnigraph.errors import GraphError, MergeConflict, OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.store.read.dataset import Dataset
from tests.support.staged_fixtures import earlier_analyser

# Words that the analyser leaves as they are.
PLAIN = ("sea", "wind", "reef", "star", "moon", "rock", "sand", "palm")
# What a text may hold between spaces, with the whole words of it, written down by hand from the definition.
FORMS: dict[str, tuple[str, ...]] = {
    **{word: (word,) for word in PLAIN},
    "SEAS": ("seas",),
    "re\u0301ef": ("reef",),
    "ｓｔａｒ": ("star",),
    "straße": ("strasse",),
    "STRASSE": ("strasse",),
    "\u0130stanbul": ("istanbul",),
    "I\u0307stanbul": ("istanbul",),
    "x" * 45 + "y": ("x" * 45 + "y",),
    "moon_rock-sand": ("moon", "rock", "sand"),
    "the": (),
    "😀": (),
    "sea😀palm": ("sea", "palm"),
    "東京都に行く": ("東京", "都", "に", "行く"),
    "東京": ("東京",),
    "我爱北京": ("我", "爱", "北京"),
    "สวัสดีชาวโลก": ("สวัสดี", "ชาว", "โลก"),
    "โลก": ("โลก",),
    "हिन्दी": ("हिन्दी",),
    "Tokyo東京": ("tokyo", "東京"),
    "ΟΔΟΣ": ("οδοσ",),
    "οδός": ("οδοσ",),
}
WORDS = tuple(FORMS)
WEIGHTS = (8, 4, *[1] * (len(WORDS) - 2))
# Words that English endings make another term of.
STEMS = {"seas": "sea", "strasse": "strass"}
CHURN = (0.0, 0.05, 0.2, 0.5, 0.9)
DOC = TypeKey("node:Doc")


def schema(extra: int) -> str:
    more = "".join(f"  extra{number}: String?\n" for number in range(extra))
    return (
        "node Doc {\n  name: String @key\n  n: I32 @index\n  tag: String? @index\n  text: String? @index\n"
        f"  vec: Vector(2)? @index\n  made: Vector(3)? @embed(text) @index\n{more}}}\n"
    )


class World:
    """One graph, on which writers and upkeep take turns."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.path = path
        self.graph: Graph = og.init(path / "g.omni", schema=schema(0))
        self.log: list[str] = []
        self.checks = 0
        self._names = 0
        self._extra = 0
        self._branches = ["main"]
        self._put("main", [self._record() for _ in range(self.random.randint(5, 40))])
        with earlier_analyser() if seed % 3 == 1 else nullcontext():
            self.graph.maintenance.ensure_indices()

    # -- what happens ------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step: Callable[[str], None] = self.random.choices(
                [
                    self._churn,
                    self._optimize,
                    self._optimize_by_another_analyser,
                    self._branch,
                    self._merge,
                    self._revert,
                    self._reshape,
                    self._embed,
                ],
                [10, 5, 1, 1, 2, 1, 1, 2],
            )[0]
            branch = self.random.choice(self._branches)
            self.log.append(f"{step.__name__} {branch}")
            try:
                step(branch)
            except (GraphError, MergeConflict) as error:
                # Merges and reverts may meet conflicts; nothing has happened then.
                self.log.append(f"  refused: {error.code}")
            self.check(branch)
        self.check_past()
        assert self.graph.maintenance.verify().is_sound, self.graph.maintenance.verify().findings

    def _churn(self, branch: str) -> None:
        """Replace, remove and add a share of all entities, by writers of all kinds."""
        names = self._all_names(branch)
        share = self.random.choice(CHURN)
        self.random.shuffle(names)
        touched = names[: int(len(names) * share)]
        cut = self.random.randint(0, len(touched))
        self._delete(branch, touched[:cut])
        changed = [self._record(name) for name in touched[cut:]]
        added = [self._record() for _ in range(self.random.choice((0, 1, 5, 20)))]
        self._put(branch, changed)
        self._put(branch, added, is_new=True)
        if self.random.random() < 0.05:
            self._load(branch, [self._record() for _ in range(10)], "overwrite")

    def _put(self, branch: str, records: list[dict[str, Any]], is_new: bool = False) -> None:
        if not records:
            return
        way = self.random.choice(("ingest", "load", "mutate"))
        self.log.append(f"  put {len(records)} by {way}")
        if way == "load":
            self._load(branch, records, "append" if is_new and self.random.random() < 0.5 else "merge")
        elif way == "ingest" or len(records) > 8:
            self.graph.ingest([{"type": "Doc", "data": one} for one in records], branch=branch)
        else:
            for one in records:
                known = {key: json.dumps(value, ensure_ascii=False) for key, value in one.items() if value is not None}
                fields = " ".join(f"{key}: {value}" for key, value in known.items())
                self.graph.mutate(f"query q() {{ insert Doc {{ {fields} }} }}", branch=branch)

    def _load(self, branch: str, records: list[dict[str, Any]], mode: Any) -> None:
        file = self.path / "in.ndjson"
        file.write_text("\n".join(json.dumps({"type": "Doc", "data": one}) for one in records))
        pipeline.load(self.graph, [file], mode=mode, branch=branch, engine="local")

    def _delete(self, branch: str, names: list[str]) -> None:
        self.log.append(f"  delete {len(names)}")
        if names and self.random.random() < 0.3:
            low = self.random.randint(0, 9)
            self.graph.mutate(f"query q() {{ delete Doc where n = {low} }}", branch=branch)
        for name in names:
            self.graph.mutate(f'query q() {{ delete Doc where name = "{name}" }}', branch=branch)

    def _optimize(self, branch: str) -> None:
        self.graph.maintenance.optimize(
            branch
        ) if self.random.random() < 0.8 else self.graph.maintenance.ensure_indices(branch)

    def _optimize_by_another_analyser(self, branch: str) -> None:
        with earlier_analyser():
            self.graph.maintenance.optimize(branch)

    def _branch(self, branch: str) -> None:
        name = f"b{len(self._branches)}"
        self.graph.branches.create(name, from_=branch)
        self._branches.append(name)

    def _merge(self, branch: str) -> None:
        others = [one for one in self._branches if one != branch]
        if others:
            self.graph.branches.merge(self.random.choice(others), into=branch)

    def _revert(self, branch: str) -> None:
        commits = [one for one in self.graph.commits(branch)[:6] if one.kind in ("ingest", "load", "mutate")]
        if commits:
            self.graph.revert(self.random.choice(commits).commit_id, branch)

    def _reshape(self, branch: str) -> None:
        if len(self._branches) == 1:
            self._extra += 1
            self.graph.schema.apply(schema(self._extra))

    def _embed(self, branch: str) -> None:
        self.graph.embed(branch, embedder=MockEmbedder())

    def _record(self, name: str | None = None) -> dict[str, Any]:
        if name is None:
            self._names += 1
            name = f"d{self.random.randint(0, 9)}{self._names:03}"
        one = self.random.random
        words = self.random.choices(WORDS, weights=WEIGHTS, k=self.random.randint(0, 9))
        return {
            "name": name,
            "n": self.random.randint(0, 9),
            "tag": self.random.choice(PLAIN) if one() < 0.9 else None,
            "text": " ".join(words) if one() < 0.9 else None,
            "vec": [self.random.randint(-4, 4) / 2, self.random.randint(-4, 4) / 2] if one() < 0.9 else None,
        }

    # -- what must hold ----------------------------------------------------------------------------------------

    def check(self, branch: str) -> None:
        graph = self.graph if self.random.random() < 0.7 else og.open(self.graph.uri)
        self._check(lambda source, **params: graph.query(source, params=params, branch=branch).rows())
        view = session_of(graph).view(branch)
        check_btrees(view.dataset(view.catalog.nodes["Doc"].table_key), self.random.randint(0, 9))

    def check_past(self) -> None:
        for branch in self._branches:
            commits = self.graph.commits(branch)
            for one in self.random.sample(commits, min(3, len(commits))):
                past = self.graph.at(one.commit_id)
                self._check(lambda source, past=past, **params: past.query(source, params=params).rows())

    def _check(self, ask: Callable[..., list[dict[str, Any]]]) -> None:
        try:
            truth = ask(
                "query q() { match { $d: Doc } return { $d.name as name, $d.n as n, $d.text as text, $d.vec as vec } }"
            )
        except OmniGraphError:
            # Before the first entity there is no such type in the past of a branch.
            return
        words = " ".join(self.random.choices(WORDS, k=self.random.choice((1, 1, 2, 3))))
        limit = self.random.choice((1, 3, 10, 1000))
        window = self.random.choice((1, 2, 5, 1000))
        below = self.random.choice((2, 5, 10))
        place = [self.random.randint(-4, 4) / 2, self.random.randint(-4, 4) / 2]
        edits = self.random.choice((0, 1, 2))
        self.checks += 1
        # Rounding may order scores that are equal by definition, and ranks are made of that order.
        by_score = [row["name"] for row in ask(bm25_source(), w=words)]
        for name, source, expected in [
            *questions(truth, words, limit, below, place, window, by_score),
            misspelt(truth, words, edits),
        ]:
            got = [tuple(row.values()) for row in ask(source, w=words)]
            assert is_close(got, expected), (name, words, limit, below, place, window, got, expected)

    def _all_names(self, branch: str) -> list[str]:
        rows = self.graph.query("query q() { match { $d: Doc } return { $d.name as name } }", branch=branch).rows()
        return sorted(str(row["name"]) for row in rows)


def bm25_source() -> str:
    """Return a search for the relevance of all entities."""
    head = "query q($w: String) { match { $d: Doc }"
    return f"{head} return {{ $d.name as name, bm25($d.text, $w) as s }} order {{ s }} limit 100000 }}"


def questions(
    truth: list[dict[str, Any]],
    words: str,
    limit: int,
    below: int,
    place: list[float],
    window: int,
    answered: list[str],
) -> list[tuple[str, str, list[tuple[Any, ...]]]]:
    """Return searches and what they must answer, in order; without one, in that of names.

    `answered` are the names that the engine ranks by relevance; they order those whose scores differ by rounding alone.
    """
    scores, distances = relevance(truth, words), apart(truth, place)
    low = {one["name"] for one in truth if one["n"] < below}
    by_score = ranked({name: -score for name, score in scores.items()})
    by_distance = ranked(distances)
    order = {name: rank for rank, name in enumerate(answered)}
    # A name that was not answered at all is the finding of the search for relevance itself.
    by_rank = sorted(by_score, key=lambda name: (-round(scores[name], 9), order.get(name, len(order))))
    fused = fuse(by_distance[:window], by_rank[:window])
    few = fuse(*([name for name in names if name in low][:window] for names in (by_distance, by_rank)))
    head = "query q($w: String) { match { $d: Doc"
    near = f"nearest($d.vec, {place})"
    rest = f"as s }} order {{ s }} limit {limit} }}"
    return [
        (
            "search",
            f"{head} search($d.text, $w) }} return {{ $d.name as name }} order {{ name }} }}",
            [(one,) for one in sorted(scores)],
        ),
        (
            "not search",
            f"{head} not {{ search($d.text, $w) }} }} return {{ $d.name as name }} order {{ name }} }}",
            [(one["name"],) for one in sorted(truth, key=lambda row: row["name"]) if one["name"] not in scores],
        ),
        (
            "bm25",
            f"{head} }} return {{ $d.name as name, bm25($d.text, $w) {rest}",
            [(one, scores[one]) for one in by_score[:limit]],
        ),
        (
            "bm25 among",
            f"{head} $d.n < {below} }} return {{ $d.name as name, bm25($d.text, $w) {rest}",
            [(one, scores[one]) for one in by_score if one in low][:limit],
        ),
        (
            "nearest",
            f"{head} }} return {{ $d.name as name, {near} {rest}",
            [(one, distances[one]) for one in by_distance[:limit]],
        ),
        (
            "nearest among",
            f"{head} $d.n < {below} }} return {{ $d.name as name, {near} {rest}",
            [(one, distances[one]) for one in by_distance if one in low][:limit],
        ),
        (
            "rrf",
            f"{head} }} return {{ $d.name as name, rrf({near}, bm25($d.text, $w), 60, {window}) {rest}",
            fused[:limit],
        ),
        (
            "rrf among",
            f"{head} $d.n < {below} }} return {{ $d.name as name, rrf({near}, bm25($d.text, $w), 60, {window}) {rest}",
            few[:limit],
        ),
    ]


def misspelt(truth: list[dict[str, Any]], words: str, edits: int) -> tuple[str, str, list[tuple[Any, ...]]]:
    """Return a search for words within so many edits, and what it must answer."""
    sought = set(whole_words(words))
    near = [
        (one["name"],)
        for one in sorted(truth, key=lambda row: row["name"])
        if any(distance(word, other) <= edits for word in sought for other in set(whole_words(one["text"])))
    ]
    head = f"query q($w: String) {{ match {{ $d: Doc fuzzy($d.text, $w, {edits}) }}"
    return "fuzzy", f"{head} return {{ $d.name as name }} order {{ name }} }}", near


def whole_words(text: str | None) -> list[str]:
    return [word for form in (text or "").split() for word in FORMS[form]]


def terms(text: str | None) -> list[str]:
    return [STEMS.get(word, word) for word in whole_words(text)]


@cache
def distance(first: str, second: str) -> int:
    """Return the edits (insert, drop, replace) between two words, straight from the definition."""
    if not first or not second:
        return max(len(first), len(second))
    if first[0] == second[0]:
        return distance(first[1:], second[1:])
    rest = (first[1:], second), (first, second[1:]), (first[1:], second[1:])
    return 1 + min(distance(*one) for one in rest)


def relevance(truth: list[dict[str, Any]], words: str) -> dict[str, float]:
    """Return BM25 of what matches, straight from its definition."""
    texts = {one["name"]: terms(one["text"]) for one in truth}
    texts = {name: text for name, text in texts.items() if text}
    found: dict[str, float] = {}
    average = sum(map(len, texts.values())) / max(len(texts), 1)
    for word in terms(words):
        holding = [name for name, text in texts.items() if word in text]
        weight = math.log(1 + (len(texts) - len(holding) + 0.5) / (len(holding) + 0.5))
        for name in holding:
            count = texts[name].count(word)
            norm = 1.2 * (1 - 0.75 + 0.75 * len(texts[name]) / average)
            found[name] = found.get(name, 0.0) + weight * count * 2.2 / (count + norm)
    return found


def apart(truth: list[dict[str, Any]], place: list[float]) -> dict[str, float]:
    return {one["name"]: math.dist(one["vec"], place) for one in truth if one["vec"] is not None}


def ranked(keys: dict[str, float]) -> list[str]:
    """Return names by key, equal ones by name; keys that differ by rounding alone are equal."""
    return sorted(keys, key=lambda name: (round(keys[name], 9), name))


def fuse(first: list[str], second: list[str]) -> list[tuple[str, float]]:
    """Return reciprocal ranks in two windows, added; equal ones in the order of the first, and then of the second."""
    scores: dict[str, float] = dict.fromkeys([*first, *second], 0.0)
    for names in (first, second):
        for place, name in enumerate(names, start=1):
            scores[name] += 1 / (60 + place)
    order = {name: place for place, name in enumerate(scores)}
    return sorted(scores.items(), key=lambda one: (-round(one[1], 12), order[one[0]]))


def is_close(got: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> bool:
    """Return True if rows are equal, numbers up to rounding, which may also order rows that would be tied otherwise."""
    if len(got) != len(expected) or not all(map(are_close, got, expected)):
        return False
    # Rows that are tied to the last bit are in the expected order.
    order = {row[0]: index for index, row in enumerate(expected)}
    in_order = all(
        order.get(row[0], -1) < order.get(other[0], -1) for row, other in pairwise(got) if row[1:] == other[1:]
    )
    return in_order and names_of_ties(got, expected) == names_of_ties(expected, expected)


def are_close(row: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return np.allclose(row[1:], other[1:], rtol=1e-9, atol=0)


def names_of_ties(rows: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> list[set[str]]:
    """Return the names of rows side by side whose expected numbers are equal up to rounding."""
    names: list[set[str]] = []
    for index, row in enumerate(rows):
        is_tied = index > 0 and len(row) > 1 and are_close(expected[index - 1], expected[index])
        names = [*names[:-1], names[-1] | {row[0]}] if is_tied else [*names, {row[0]}]
    return names


def check_btrees(dataset: Dataset, number: int) -> None:
    """Hold what b-trees answer against the same filters without them."""
    for where in (f"n = {number}", f"n >= {number}", "tag = 'sea'", "tag IS NULL", "id >= 'd5'"):
        scans = [dataset.lance.scanner(columns=["id"], filter=where, use_scalar_index=use) for use in (True, False)]
        found = [sorted(str(name) for name in one.to_table()["id"].to_pylist()) for one in scans]
        assert found[0] == found[1], (where, found)
