"""Masks errors and findings of a write that would reveal types hidden from its actor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from omnigraph.errors import OmniGraphError, PolicyDenied
from omnigraph.rules.delta import Findings, Violation


@contextmanager
def mask_hidden_type_errors(hidden: Set[str], actor: str | None) -> Iterator[None]:
    """Replace errors about a hidden type with `PolicyDenied`; keeps `effect`."""
    try:
        yield
    except OmniGraphError as error:
        if is_about_any(hidden, error):
            raise hidden_data_error(actor, error) from None
        raise


def is_about_any(hidden: Set[str], error: OmniGraphError) -> bool:
    """Return True if an error is about one of the hidden types.

    The context decides, not the text: that holds words of the caller, and answering them differently if they happen to
    be names of hidden types would confirm those.

    >>> broken = OmniGraphError("`Paid` of ann", type_key="edge:Paid")
    >>> is_about_any({"Paid"}, broken), is_about_any({"Paid"}, OmniGraphError("no `Paid`", value="Paid"))
    (True, False)
    """
    return not hidden.isdisjoint(_type_names(error.context))


def _type_names(context: Mapping[str, object]) -> Iterator[str]:
    """Yield the types that the context of an error or violation names."""
    for member in ("type_key", "type_name", "resource"):
        value = context.get(member)
        if isinstance(value, str):
            # `node:Person`, `Person`, or `keyed entities for node:Person`.
            yield value.rpartition(":")[2]
    violations = context.get("violations")
    for violation in violations if isinstance(violations, list) else ():
        yield from _type_names(violation)


def hidden_data_error(actor: str | None, cause: OmniGraphError | None = None) -> PolicyDenied:
    """Return the error of a write that would change hidden data or violate a rule about it."""
    message = f"this write would touch, or break a rule of, data that `{actor}` may not see; ask an actor who may"
    if cause is None:
        return PolicyDenied(message, actor=actor)
    operation = {key: value for key, value in cause.context.items() if key == "operation_id"}
    return PolicyDenied(message, effect=cause.effect, actor=actor, **operation)


# Rules that compare an input with stored rows of the same type.
_STORED_RULES: Final = ("E11", "E5", "E10")


def redact_findings(findings: Findings, unreadable: Set[str]) -> Findings:
    """Return findings without stored rows of unreadable types, and without their number."""
    if not unreadable or not findings.violations:
        return findings
    ranks = [_rank(violation, unreadable) for violation in findings.violations]
    reported = [violation for violation, rank in zip(findings.violations, ranks, strict=True) if rank == min(ranks)]
    redacted = Findings(len(reported) + 1, unit=findings.unit, locate=findings.locate)
    for violation in dict.fromkeys(redact_violation(violation, unreadable) for violation in reported):
        redacted.add(violation)
    return redacted


def _rank(violation: Violation, unreadable: Set[str]) -> int:
    """Return 0 for a violation that is always reported; of those about stored rows only the lowest rank is.

    Otherwise an input that is surely refused, for another reason, could ask about any number of stored rows.
    """
    is_unreadable = violation.type_key is not None and violation.type_key.name in unreadable
    return _STORED_RULES.index(violation.rule) + 1 if is_unreadable and violation.rule in _STORED_RULES else 0


def redact_violation(violation: Violation, unreadable: Set[str]) -> Violation:
    """Return a violation that reveals nothing about stored rows if its type is unreadable.

    >>> from omnigraph.lang.catalog import TypeKey
    >>> stored = Violation("E5", "`ann` and `bob` both hold 'x'", TypeKey("node:Person"), "bob", "mail", "'x'")
    >>> redact_violation(stored, {"Person"}).message
    "`@unique` of `Person.(mail)` is violated: another entity holds 'x' as well; send another value"
    """
    if violation.type_key is None or violation.type_key.name not in unreadable:
        return violation
    name = violation.type_key.name
    # Only a comparison of two entities reveals a value: other E5 violations are about the input alone.
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
