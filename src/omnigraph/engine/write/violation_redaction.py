"""Redaction of rule violations for writers who may change a type but not read it.

Pure. What repeats the caller's own input stays: the line, the property, the value sent. That a key is taken (E11) or
an end is missing (E9) cannot be hidden from an actor who may write it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from omnigraph.rules.violations import Findings, Violation


def redact_findings(findings: Findings, unreadable: Set[str]) -> Findings:
    """Return findings without stored rows of unreadable types, and without their number."""
    if not unreadable or not findings.violations:
        return findings
    redacted = Findings(len(findings.violations) + 1, unit=findings.unit)
    for violation in dict.fromkeys(redact_violation(violation, unreadable) for violation in findings.violations):
        redacted.add(violation)
    return redacted


def redact_violation(violation: Violation, unreadable: Set[str]) -> Violation:
    """Return a violation that tells nothing about stored rows if its type is unreadable.

    >>> stored = Violation("E5", "`ann` and `bob` both hold 'x'", "node:Person", "bob", "mail", "'x'")
    >>> redact_violation(stored, {"Person"}).message
    "`@unique` of `Person.(mail)` is violated: another entity holds 'x' as well; send another value"
    """
    name = (violation.type_key or "").partition(":")[2]
    if name not in unreadable:
        return violation
    # Only a comparison of two entities tells a value: the other E5 are about the input alone.
    if violation.rule == "E5" and violation.value is not None:
        return replace(
            violation,
            message=f"`@unique` of `{name}.({violation.property})` is violated: another entity holds {violation.value}"
            " as well; send another value",
        )
    if violation.rule == "E10":
        is_sent = violation.line is not None
        source = f" for source `{violation.value}`" if is_sent else ""
        return replace(
            violation,
            message=f"`@card` of `{name}` is violated{source}; write more or fewer edges",
            value=violation.value if is_sent else None,
        )
    if violation.rule == "E9" and violation.line is None:
        message = (
            f"an edge of `{name}` would have no node at `{violation.property}`; write the node as well, or keep it"
        )
        return replace(violation, message=message, entity_id=None, value=None)
    return violation
