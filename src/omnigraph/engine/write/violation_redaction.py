"""Redaction of rule violations for writers who may change a type but not read it.

Pure. What repeats the caller's own input stays: the line, the property, the value sent. That a key is taken (E11), a
value is held (E5), an end is missing (E9) or a source has too many edges (E10) cannot be hidden from an actor who may
write it, but each costs an attempt that could have succeeded: beside other violations E11, E5 and E10 are left out.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import Final

from omnigraph.rules.violations import Findings, Violation

# Rules that compare an input with stored rows of its own type.
_STORED_RULES: Final = ("E11", "E5", "E10")


def redact_findings(findings: Findings, unreadable: Set[str]) -> Findings:
    """Return findings without stored rows of unreadable types, and without their number."""
    if not unreadable or not findings.violations:
        return findings
    ranks = [_rank(violation, unreadable) for violation in findings.violations]
    told = [violation for violation, rank in zip(findings.violations, ranks, strict=True) if rank == min(ranks)]
    redacted = Findings(len(told) + 1, unit=findings.unit)
    for violation in dict.fromkeys(redact_violation(violation, unreadable) for violation in told):
        redacted.add(violation)
    return redacted


def _rank(violation: Violation, unreadable: Set[str]) -> int:
    """Return 0 for a violation that is always told; of those about stored rows only the lowest rank is.

    Otherwise an input that is surely refused, for another reason, could ask about any number of stored rows.
    """
    is_unreadable = (violation.type_key or "").partition(":")[2] in unreadable
    return _STORED_RULES.index(violation.rule) + 1 if is_unreadable and violation.rule in _STORED_RULES else 0


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
