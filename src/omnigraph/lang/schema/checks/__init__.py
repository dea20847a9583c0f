"""The rules of the schema language, a module per stage, in the order in which they are checked.

Pure. A rule takes the draft and yields findings; it never raises and never sees those of another rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from omnigraph.lang.diagnostic import Diagnostic, Finding
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

Rule = Callable[[Draft], Iterator[Finding]]

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
    findings: list[Finding] = []
    for stage in STAGES:
        # An interface's mistake shows in every node that implements it; one report of it is enough.
        unique = {(item.code, item.span): item for item in stage(draft)}
        findings += sorted(unique.values(), key=lambda item: item.span.start)
    return _in_source(draft, findings)


def note_draft(draft: Draft) -> tuple[Diagnostic, ...]:
    """Return remarks on declarations without effect, in source order."""
    notes = (*note_inert(draft), *note_legacy_annotations(draft))
    return _in_source(draft, sorted(notes, key=lambda item: item.span.start))


def _in_source(draft: Draft, findings: Iterable[Finding]) -> tuple[Diagnostic, ...]:
    return tuple(finding.in_source(draft.source) for finding in islice(findings, DIAGNOSTICS_MAX))
