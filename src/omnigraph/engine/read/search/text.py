"""Text predicates and text relevance on a node property.

Returns row ids of the pinned version; several predicates are the caller's intersection.
"""

from __future__ import annotations

import numpy as np

from omnigraph.engine.core import View
from omnigraph.engine.read.budget import check_running
from omnigraph.engine.read.search.prepared import text_search
from omnigraph.errors import DataError, LimitExceeded
from omnigraph.limits import FUZZY_EDITS_MAX, FUZZY_WORDS_MAX, SEARCH_WORDS_MAX
from omnigraph.store.bm25 import Scores
from omnigraph.store.live import RowIds
from omnigraph.store.text import NO_HITS, describe_texts, distinct_words


def describe_search(view: View, node_type: str, property: str) -> str:  # noqa: A002 - the language's word
    """Say how the texts of a property would be searched."""
    return describe_texts(view.dataset(view.catalog.nodes[node_type].table_key), property)


def text_matches(
    view: View,
    node_type: str,
    property: str,  # noqa: A002 - the language's word
    query: str,
    function: str,
    max_edits: int | None = None,
) -> RowIds:
    """Return the rows, in row id order, whose text holds any word of the query.

    `fuzzy` forgives up to `max_edits` typing errors (inserted, dropped or replaced letters) per word.
    """
    edits = 0 if function != "fuzzy" else 2 if max_edits is None else max_edits
    if not 0 <= edits <= FUZZY_EDITS_MAX:
        raise DataError(
            f"`fuzzy` forgives between 0 and {FUZZY_EDITS_MAX} typing errors, not {edits}", rule="E4", value=edits
        )
    is_fuzzy = function == "fuzzy"
    _refuse_long(query, FUZZY_WORDS_MAX if is_fuzzy else SEARCH_WORDS_MAX)
    search = text_search(view, node_type, property)
    rows = search.matches_misspelt(query, edits, check_running) if is_fuzzy else search.matches(query)
    return np.unique(rows)


def _refuse_long(query: str, most: int) -> None:
    """Refuse a text of more words than may be looked up for one condition."""
    # Scripts without spaces have words of one letter, and Unicode has signs that stand for up to four words.
    if len(query) <= most // 4:
        return
    count = len(distinct_words(query))
    if count > most:
        raise LimitExceeded(
            f"the text has {count} different words, and one search looks up {most}; search for fewer",
            resource="search_words",
            limit=most,
            actual=count,
        )


def bm25(
    view: View,
    node_type: str,
    property: str,  # noqa: A002 - the language's word
    query: str,
    candidates: RowIds | None = None,
    limit: int | None = None,
) -> tuple[RowIds, Scores]:
    """Return the matching rows among the candidates with their relevance, best first, equal ones in row id order.

    Rows as good as the last one within the limit come along, so that the caller can break the tie.
    """
    if candidates is not None and len(candidates) == 0:
        return NO_HITS.rows, NO_HITS.scores
    _refuse_long(query, SEARCH_WORDS_MAX)
    hits = text_search(view, node_type, property).search(query, candidates, limit)
    return hits.rows, hits.scores
