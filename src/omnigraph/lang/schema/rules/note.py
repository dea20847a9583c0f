"""Remarks on what is legal but does nothing, where that is hardly what the author meant (S29).

Pure. Notes never refuse a schema.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.diagnostic import Diagnostic, Severity
from omnigraph.lang.schema.expand import Draft
from omnigraph.lang.schema.number import parse_bound


def note_inert(draft: Draft) -> Iterator[Diagnostic]:
    """Yield a note for every range that nothing can satisfy."""
    for owner in draft.owners:
        for item in owner.declaration.constraints:
            bounds = (item.arguments or ())[-1]
            if item.word != "range" or bounds.low is None or bounds.high is None:
                continue
            low, high = parse_bound(bounds.low), parse_bound(bounds.high)
            if low is not None and high is not None and low > high:
                message = "no value can be within this range: its lower bound is above its upper bound"
                yield Diagnostic("S29", message, draft.source, bounds.span, severity=Severity.WARNING)
