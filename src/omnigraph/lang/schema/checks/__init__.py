"""The rules of the schema language, a module per stage, in the order in which they are checked.

Pure. A rule takes the draft and yields diagnostics; it never raises and never sees another rule's findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from omnigraph.lang.diagnostic import Diagnostic
from omnigraph.lang.schema.ast import Draft
from omnigraph.lang.schema.checks.annotations import (
    check_annotations,
    check_constraints,
    check_defaults,
    check_merge_rules,
    check_unknown_annotations,
    note_inert,
    note_legacy_annotations,
)
from omnigraph.lang.schema.checks.declarations import check_interfaces, check_names, check_values
from omnigraph.limits import DIAGNOSTICS_MAX

Rule = Callable[[Draft], Iterator[Diagnostic]]

STAGES: tuple[Rule, ...] = (
    check_values,
    check_interfaces,
    check_annotations,
    check_unknown_annotations,
    check_merge_rules,
    check_defaults,
    check_constraints,
    check_names,
)


def check_draft(draft: Draft) -> tuple[Diagnostic, ...]:
    """Return all that is wrong: stage by stage, in source order within a stage, each finding once."""
    diagnostics: list[Diagnostic] = []
    for stage in STAGES:
        # An interface's mistake shows in every node that implements it; one report of it is enough.
        unique = {(item.code, item.span): item for item in stage(draft)}
        diagnostics += sorted(unique.values(), key=lambda item: item.span.start)
    return tuple(diagnostics[:DIAGNOSTICS_MAX])


def note_draft(draft: Draft) -> tuple[Diagnostic, ...]:
    """Return remarks on declarations without effect, in source order."""
    notes = (*note_inert(draft), *note_legacy_annotations(draft))
    return tuple(sorted(notes, key=lambda item: item.span.start)[:DIAGNOSTICS_MAX])
