"""Ranking: entities in the order of `nearest`, `bm25` or `rrf`, and the score of each.

Calls the searches; which entities may be ranked, and what happens to their rows, is decided in `finish`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.query.context import Run
from omnigraph.engine.query.entities import Entities
from omnigraph.engine.query.expressions import compile_value
from omnigraph.engine.query.ordering import text_ranks
from omnigraph.engine.query.vectors import UNIT, Constant, Ids, Numbers, Texts, Vector
from omnigraph.errors import DataError
from omnigraph.lang.query import ir

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Entities, best first, with their scores; and with the place of each, if others are left out in between."""

    ids: Ids
    scores: Scores
    places: Ids | None = None

    def among(self, kept: Ids, count: int) -> Ranked:
        """Return the ranking of some entities only."""
        flags = np.zeros(count, np.bool_)
        flags[kept] = True
        mask = flags[self.ids]
        return Ranked(self.ids[mask], self.scores[mask])


@dataclass(frozen=True, slots=True)
class Graded:
    """Rows of entities from the best down; those of equal score are put in order, by id, only where it matters.

    `keys` are the scores such that the best is the lowest.
    """

    entities: Entities
    rows: npt.NDArray[np.uint64]
    scores: Scores
    keys: Scores

    def first(self, wanted: int | None) -> Ranked:
        """Return the best in order, all when None."""
        end = self._end(wanted)
        ranked = self._ordered(np.arange(end))
        return Ranked(ranked.ids[:wanted], ranked.scores[:wanted])

    def first_and(self, wanted: int, others: Ids) -> Ranked:
        """Return the best that are not among some entities, and these wherever they are, with the places of all."""
        is_other = np.isin(self.rows, self.entities.row_ids[others])
        mask = np.isin(self.keys, self.keys[is_other])
        alone = np.flatnonzero(~is_other)
        mask[: self._end(int(alone[wanted - 1]) + 1 if wanted <= len(alone) else None)] = True
        # Whole grades are chosen, so putting each in order leaves its entities at the places of that grade.
        places = np.flatnonzero(mask)
        ranked = self._ordered(places)
        return Ranked(ranked.ids, ranked.scores, places)

    def _end(self, wanted: int | None) -> int:
        """Return where the grade of the last wanted one ends."""
        if not wanted or wanted >= len(self.rows):
            return 0 if wanted == 0 else len(self.rows)
        return int(np.searchsorted(self.keys, self.keys[wanted - 1], "right"))

    def _ordered(self, places: Ids) -> Ranked:
        ids = self.entities.from_row_ids(self.rows[places])
        return _in_order(self.entities, ids, self.keys[places], self.scores[places])


class Ranking:
    """A compiled rank call."""

    def __init__(self, rank: ir.Rank) -> None:
        self.rank = rank
        field = rank.first.field if isinstance(rank, ir.Rrf) else rank.field
        self.variable, self.node_type = field.variable, field.owner
        self._arms = [_Arm(arm) for arm in ((rank.first, rank.second) if isinstance(rank, ir.Rrf) else (rank,))]
        self._k = compile_value(rank.k) if isinstance(rank, ir.Rrf) else None

    def arms(self, run: Run, candidates: Ids, best: int | None) -> list[Ranked]:
        """Rank candidates by each call; `best` bounds how many `nearest` takes, when it is not fused with another."""
        if self._k is not None:
            return [arm.graded(run, candidates, None).first(None) for arm in self._arms]
        [arm] = self._arms
        return [arm.graded(run, candidates, best if arm.is_nearest else None).first(best if arm.is_nearest else None)]

    def best(self, run: Run, candidates: Ids, wanted: int | None) -> Ranked:
        """Return the best of the candidates, all when None; nothing is put in order that cannot be among them."""
        if self._k is None:
            return self._arms[0].graded(run, candidates, wanted).first(wanted)
        # A rank counts all candidates, however many are wanted; so the lists are whole, and the first of a fused
        # ranking do not depend on where it is cut.
        graded = [arm.graded(run, candidates, None) for arm in self._arms]
        if wanted is None:
            return self.fuse(run, [one.first(None) for one in graded])
        first, second = graded
        shared = first.entities.from_row_ids(np.intersect1d(first.rows, second.rows))
        # Of those that one call alone ranks, no more than are wanted can be among the best.
        ranked = self.fuse(run, [one.first_and(wanted, shared) for one in graded])
        return Ranked(ranked.ids[:wanted], ranked.scores[:wanted])

    def fuse(self, run: Run, arms: list[Ranked]) -> Ranked:
        """Return the one ranking that the arms make together."""
        if self._k is None:
            return arms[0]
        k = _constant(self._k(run, UNIT))
        if not isinstance(k, int) or k <= 0:
            raise DataError("`k` of `rrf` must be greater than zero; leave it out for 60", rule="E4", value=k)
        first, second = arms
        ids = np.concatenate([first.ids, second.ids[~np.isin(second.ids, first.ids)]])
        size = int(ids.max(initial=-1)) + 1
        scores = np.zeros(size)
        for arm in arms:
            places = np.arange(len(arm.ids)) if arm.places is None else arm.places
            scores[arm.ids] += 1.0 / (k + places + 1.0)
        # Equal scores keep the first call's order, and what only the second found comes after.
        order = np.argsort(-scores[ids], kind="stable")
        return Ranked(ids[order], scores[ids][order])

    def describe(self, run: Run, wanted: int | None) -> dict[str, object]:
        """Say how vectors would be compared and texts searched, if any are."""
        from omnigraph.engine.query import search

        limit = wanted if self._k is None else None
        told: dict[str, object] = {}
        for arm in self._arms:
            if arm.is_nearest:
                told["vectors"] = search.describe_nearest(run.view, *arm.place, limit)
            else:
                told["texts"] = search.describe_search(run.view, *arm.place)
        return told

    def scores(self, run: Run, ids: Ids) -> Numbers:
        """Return the score of each row's entity, null where it has none; nothing is left out."""
        present = np.unique(ids[ids >= 0])
        ranked = self.fuse(run, self.arms(run, present, None))
        return spread(ranked, ids, run.nodes(self.node_type).count)


def spread(ranked: Ranked, ids: Ids, count: int) -> Numbers:
    """Return the score of each id."""
    scores, known = np.zeros(count + 1), np.zeros(count + 1, np.bool_)
    scores[ranked.ids] = ranked.scores
    known[ranked.ids] = True
    return Numbers(scores[ids], known[ids])


class _Arm:
    """One compiled call: its question, and how it is asked."""

    def __init__(self, call: ir.Nearest | ir.Bm25) -> None:
        self.is_nearest = isinstance(call, ir.Nearest)
        self._query = compile_value(call.query)
        self._node_type, self._property = call.field.owner, call.field.property
        self.place = (self._node_type, self._property)
        self._dimension = call.field.type.dimension or 0
        self._model = call.model if isinstance(call, ir.Nearest) else None

    def graded(self, run: Run, candidates: Ids, best: int | None) -> Graded:
        """Return the candidates that match; with `best` at least so many, and all of the last grade."""
        return self._near(run, candidates, best) if self.is_nearest else self._relevant(run, candidates, best)

    def _relevant(self, run: Run, candidates: Ids, best: int | None) -> Graded:
        from omnigraph.engine.query import search

        text = _constant(self._query(run, UNIT))
        entities = run.nodes(self._node_type)
        if text is None or len(candidates) == 0:
            return _nothing(entities)
        rows, scores = search.bm25(run.view, self._node_type, self._property, text, _rows(entities, candidates), best)
        return Graded(entities, rows, scores, -scores)

    def _near(self, run: Run, candidates: Ids, best: int | None) -> Graded:
        from omnigraph.engine.query import search
        from omnigraph.engine.query.embedders import check_model, embed_query

        sought = _constant(self._query(run, UNIT))
        entities = run.nodes(self._node_type)
        if sought is None:
            return _nothing(entities)
        # What is wrong with the question is said even where there is nothing to rank.
        if isinstance(sought, str):
            embedder = run.embedder if run.embedder is not None else search.embedder_of(run.view)
            check_model(embedder, self._model)
        else:
            sought = search.checked_vector(sought, self._dimension, self._property)
        if len(candidates) == 0:
            return _nothing(entities)
        if isinstance(sought, str):
            sought = embed_query(embedder, sought, self._dimension)
        rows, distances = search.nearest(
            run.view, self._node_type, self._property, sought, _rows(entities, candidates), best
        )
        return Graded(entities, rows, distances, distances)


def _constant(vector: Vector) -> Any:
    assert isinstance(vector, Constant)
    return vector.value


def _nothing(entities: Entities) -> Graded:
    return Graded(entities, np.empty(0, np.uint64), np.empty(0), np.empty(0))


def _rows(entities: Entities, candidates: Ids) -> npt.NDArray[np.uint64] | None:
    """Return the row ids of the candidates; None when they are all there are."""
    return None if len(candidates) == entities.count else entities.row_ids[candidates]


def _in_order(entities: Entities, ids: Ids, keys: Scores, scores: Scores) -> Ranked:
    """Return the entities by score, equal scores by id."""
    if len(ids) < 2 or bool((keys[1:] > keys[:-1]).all()):
        return Ranked(ids, scores)
    texts = entities.values("id", ids)
    assert isinstance(texts, Texts)
    order = np.lexsort((text_ranks(texts.array), keys))
    return Ranked(ids[order], scores[order])
