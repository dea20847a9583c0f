"""Remarks on what is legal but does nothing, where that is hardly what the author meant (S29).

Pure. Notes never refuse a schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.lang.diagnostic import Diagnostic, Severity
from omnigraph.lang.schema.expand import Draft
from omnigraph.lang.schema.nearest import did_you_mean
from omnigraph.lang.schema.number import parse_bound
from omnigraph.lang.schema.syntax import Item

_KNOWN: Final = ("key", "unique", "index", "embed", "rename_from", "description", "instruction", "merge")
_FORMS: Final = {
    "range": "a range is a constraint: `@range(property, low..high)`",
    "check": 'a check is a constraint: `@check(property, "pattern")`',
    "card": "a cardinality is a range behind the target of an edge: `@card(0..1)`",
}


def note_inert(draft: Draft) -> Iterator[Diagnostic]:
    """Yield a note for every annotation that has no effect and every range that nothing can satisfy."""
    for owner in draft.owners:
        declaration = owner.declaration
        for item in declaration.annotations:
            yield from _note_annotation(draft, item)
        for property_ in declaration.properties:
            for item in property_.annotations:
                yield from _note_annotation(draft, item)
        for item in declaration.constraints:
            bounds = (item.arguments or ())[-1]
            if item.word != "range" or bounds.low is None or bounds.high is None:
                continue
            low, high = parse_bound(bounds.low), parse_bound(bounds.high)
            if low is not None and high is not None and low > high:
                message = "no value can be within this range: its lower bound is above its upper bound"
                yield Diagnostic("S29", message, draft.source, bounds.span, severity=Severity.WARNING)


def _note_annotation(draft: Draft, item: Item) -> Iterator[Diagnostic]:
    if item.word in _KNOWN:
        return
    hint = _FORMS.get(item.word) or did_you_mean(item.word, (*_KNOWN, *_FORMS))
    message = f"the annotation `@{item.word}` is kept but has no effect"
    yield Diagnostic("S29", message, draft.source, item.span, hint, Severity.INFO)
