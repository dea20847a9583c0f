"""Ranking: entities in the order of `nearest`, `bm25` or `rrf`, and the score of each.

Calls the searches; which entities may be ranked, and what happens to their rows, is decided in `finish`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.context import Run
from omnigraph.engine.read.entities import Entities
from omnigraph.engine.read.expressions import compile_value
from omnigraph.engine.read.ordering import text_ranks
from omnigraph.engine.read.rows import UNIT
from omnigraph.engine.read.vectors import Constant, Ids, Numbers, Texts, Vector
from omnigraph.errors import DataError
from omnigraph.lang.query import ir

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Entities, best first, with their scores."""

    ids: Ids
    scores: Scores

    def among(self, kept: Ids, count: int) -> Ranked:
        """Return the ranking of some entities only."""
        flags = np.zeros(count, np.bool_)
        flags[kept] = True
        mask = flags[self.ids]
        return Ranked(self.ids[mask], self.scores[mask])


Arm = Callable[[Run, Ids, int | None], Ranked]


class Ranking:
    """A compiled rank call."""

    def __init__(self, rank: ir.Rank) -> None:
        self.rank = rank
        field = rank.first.field if isinstance(rank, ir.Rrf) else rank.field
        self.variable, self.node_type = field.variable, field.owner
        self._arms = [_arm(arm) for arm in ((rank.first, rank.second) if isinstance(rank, ir.Rrf) else (rank,))]
        self._k = compile_value(rank.k) if isinstance(rank, ir.Rrf) else None

    def arms(self, run: Run, candidates: Ids, best: int | None) -> list[Ranked]:
        """Rank candidates by each call; `best` bounds how many `nearest` takes."""
        return [arm(run, candidates, best) for arm in self._arms]

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
            scores[arm.ids] += 1.0 / (k + np.arange(len(arm.ids)) + 1.0)
        # Equal scores keep the first call's order, and what only the second found comes after.
        order = np.argsort(-scores[ids], kind="stable")
        return Ranked(ids[order], scores[ids][order])

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


def _arm(call: ir.Nearest | ir.Bm25) -> Arm:
    return _nearest(call) if isinstance(call, ir.Nearest) else _bm25(call)


def _bm25(call: ir.Bm25) -> Arm:
    query = compile_value(call.query)
    node_type, property_ = call.field.owner, call.field.property

    def rank(run: Run, candidates: Ids, best: int | None) -> Ranked:
        from omnigraph.engine.read import search

        text = _constant(query(run, UNIT))
        entities = run.nodes(node_type)
        if text is None or len(candidates) == 0:
            return _nothing(entities)
        rows, scores = search.bm25(run.view, node_type, property_, text, _rows(entities, candidates), None)
        return _in_order(run, node_type, entities.from_row_ids(rows), -scores, scores)

    return rank


def _nearest(call: ir.Nearest) -> Arm:
    query = compile_value(call.query)
    node_type, property_ = call.field.owner, call.field.property
    dimension = call.field.type.dimension
    assert dimension is not None

    def rank(run: Run, candidates: Ids, best: int | None) -> Ranked:
        from omnigraph.engine.read import search

        sought = _constant(query(run, UNIT))
        entities = run.nodes(node_type)
        if sought is None:
            return _nothing(entities)
        # What is wrong with the question is said even where there is nothing to rank.
        if isinstance(sought, str):
            embedder = run.embedder if run.embedder is not None else search.embedder_of(run.view)
            search.check_model(embedder, call.model)
        else:
            sought = search.checked_vector(sought, dimension, property_)
        if len(candidates) == 0:
            return _nothing(entities)
        if isinstance(sought, str):
            sought = search.embed_query(embedder, sought, dimension)
        rows, scores = search.nearest(run.view, node_type, property_, sought, _rows(entities, candidates), best)
        # More than the best may come back when several are equally good; the ids then decide.
        ranked = _in_order(run, node_type, entities.from_row_ids(rows), scores, scores)
        return Ranked(ranked.ids[:best], ranked.scores[:best])

    return rank


def _constant(vector: Vector) -> Any:
    assert isinstance(vector, Constant)
    return vector.value


def _nothing(entities: Entities) -> Ranked:
    return Ranked(np.empty(0, entities.dtype), np.empty(0))


def _rows(entities: Entities, candidates: Ids) -> npt.NDArray[np.uint64] | None:
    """Return the row ids of the candidates; None when they are all there are."""
    return None if len(candidates) == entities.count else entities.row_ids[candidates]


def _in_order(run: Run, node_type: str, ids: Ids, keys: Scores, scores: Scores) -> Ranked:
    """Return the entities by score, equal scores by id."""
    if len(ids) < 2:
        return Ranked(ids, scores)
    texts = run.nodes(node_type).values("id", ids)
    assert isinstance(texts, Texts)
    order = np.lexsort((text_ranks(texts.array), keys))
    return Ranked(ids[order], scores[order])
