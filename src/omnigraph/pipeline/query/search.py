"""Text and vector search for queries on Spark: the driver searches the indexes and joins the hits as rows.

The driver holds ids of candidates and hits, never other properties.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.query.context import QueryRun
from omnigraph.engine.query.expressions import compile_value
from omnigraph.engine.query.physical_plan import ReadPlan
from omnigraph.engine.query.ranking import Ranked, Ranking
from omnigraph.engine.query.vectors import UNIT_ROW, Constant, Ids
from omnigraph.lang.query import ir

POSITION = "position"
SCORE = "score"


class Search:
    """All searches of one read."""

    def __init__(self, spark: Any, plan: ReadPlan, run: QueryRun) -> None:
        self._spark = spark
        self._plan = plan
        self._run = run
        self._arms: list[Ranked] | None = None

    def matches(self, match: ir.TextMatch) -> Any:
        """Return the sorted row ids that a text condition matches."""
        from omnigraph.engine.query.search import match_text

        text = self._constant(match.query)
        if not isinstance(text, str):
            return np.empty(0, np.uint64)
        edits = self._constant(match.max_edits) if match.max_edits is not None else None
        most = edits if isinstance(edits, int) else None
        field = match.field
        return match_text(self._run.view, field.owner, field.property, text, match.function, most)

    def _constant(self, expression: ir.Expr) -> Any:
        vector = compile_value(expression)(self._run, UNIT_ROW)
        assert isinstance(vector, Constant)
        return vector.value

    # -- ranking -----------------------------------------------------------------------------------------------

    def narrow(self, frame: Any, id_name: str) -> Any:
        """Restrict the scan of the ranked variable to the best candidates of each ranking call."""
        ranking = self._ranking
        self._arms = ranking.arms(self._run, self._dense(frame, id_name), self._plan.cut(self._run).end)
        candidate_ids = np.unique(np.concatenate([arm.ids for arm in self._arms]))
        return frame.join(self._frame(candidate_ids, id_name, {}), id_name, "left_semi")

    def rank(self, rows: Any, id_name: str) -> Any:
        """Keep the rows of ranked entities, and add their position and score."""
        ranking, cut = self._ranking, self._plan.cut(self._run)
        present = self._dense(rows, id_name)
        count = self._run.nodes(ranking.node_type).count
        arms = self._arms if self._arms is not None else ranking.arms(self._run, present, cut.end)
        ranked = ranking.fuse(self._run, [arm.among(present, count) for arm in arms])
        if not isinstance(ranking.rank, ir.Bm25) and cut.end is not None:
            ranked = Ranked(ranked.ids[: cut.end], ranked.scores[: cut.end])
        columns = {POSITION: np.arange(len(ranked.ids)), SCORE: ranked.scores}
        return rows.join(self._frame(ranked.ids, id_name, columns), id_name)

    def scored(self, rows: Any, rank: ir.Rank, id_name: str, name: str) -> Any:
        """Add the scores of a call that does not order the rows."""
        ranking = Ranking(rank)
        present = self._dense(rows, id_name, ranking)
        scores = ranking.scores(self._run, present)
        scored = np.flatnonzero(scores.valid) if scores.valid is not None else np.arange(len(present))
        return rows.join(self._frame(present[scored], id_name, {name: scores.data[scored]}, ranking), id_name, "left")

    @property
    def _ranking(self) -> Ranking:
        assert self._plan.ranking is not None
        return self._plan.ranking

    def _dense(self, rows: Any, id_name: str, ranking: Ranking | None = None) -> Ids:
        """Return the dense entity numbers of the ids in rows."""
        from pyspark.sql import functions

        ids = rows.select(id_name).where(functions.col(id_name).isNotNull()).distinct().toArrow().column(0)
        entities = self._run.nodes((ranking or self._ranking).node_type)
        return np.sort(entities.find_all(ids.cast(pa.string())))

    def _frame(self, ids: Ids, id_name: str, columns: dict[str, Any], ranking: Ranking | None = None) -> Any:
        from pyspark.sql import functions

        entities = self._run.nodes((ranking or self._ranking).node_type)
        texts = entities.arrow("id", ids, pa.string())
        return functions.broadcast(self._spark.createDataFrame(pa.table({id_name: texts, **columns})))
