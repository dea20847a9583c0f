"""The list of rules that every write is checked against, in the order in which violations are reported.

Row rules first, then identity, then endpoints, then cardinality. This is the only list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import VIOLATIONS_MAX
from omnigraph.rules import row_rules
from omnigraph.rules.arrow_typing import Column
from omnigraph.rules.delta import Changes, Committed, Findings, Ids, Intent, Violation
from omnigraph.rules.set_rules import cardinality, distinct_ids, endpoints, new_ids, orphans, unique

Rule: TypeAlias = Callable[[Changes, Committed, Findings], None]


def _in_every_row(rule: row_rules.RowRule) -> Rule:
    """Adapt a row rule to all rows of a write."""

    def check(changes: Changes, committed: Committed, findings: Findings) -> None:
        for delta in changes.deltas.values():
            for breach in rule(delta.type, delta.rows) if delta.rows.num_rows else ():
                for error in row_rules.errors_of(breach, delta.rows, findings.room).to_pylist():
                    entity, line = delta.ids[error["row"]].as_py(), delta.line(error["row"])
                    message, value = error["message"], error["value"]
                    findings.add(Violation(breach.rule, message, delta.key, entity, breach.property, value, line))

    check.__name__ = rule.__name__
    return check


ROW_CHECKS: Final[tuple[Rule, ...]] = tuple(map(_in_every_row, row_rules.ROW_RULES))
SET_RULES: Final[tuple[Rule, ...]] = (distinct_ids, new_ids, unique, endpoints, orphans, cardinality)
RULES: Final[tuple[Rule, ...]] = (*ROW_CHECKS, *SET_RULES)
# Set rules that rows break whatever else is in an input. Where lines of it cannot be read, the others would report what
# only follows from that, such as edges of a node whose line is malformed.
SET_RULES_OF_ROWS_ALONE: Final[tuple[Rule, ...]] = (distinct_ids, new_ids, unique)


@dataclass(frozen=True, slots=True)
class UnlessReplaced:
    """Committed rows that no row of an input replaces, also none of those that cannot be read."""

    changes: Changes
    committed: Committed

    def existing(self, table_key: TypeKey, ids: Ids) -> Ids:
        return self.committed.existing(table_key, ids)

    def matching(self, table_key: TypeKey, columns: Sequence[str], where: Mapping[str, Column]) -> pa.Table:
        delta = self.changes.deltas[table_key]
        if delta.intent is Intent.UPSERT:
            # Any of them may be replaced by a row that cannot be read.
            return delta.rows.slice(0, 0).select(list(columns))
        return self.committed.matching(table_key, columns, where)


def merge_by_line(
    malformed: Sequence[Violation], broken: Sequence[Violation], violations_max: int = VIOLATIONS_MAX
) -> list[Violation]:
    """Return malformed lines and the rules that other lines break in the order of lines, up to `violations_max`."""
    unread = {violation.line for violation in malformed}
    both = [*malformed, *(violation for violation in broken if violation.line not in unread)]
    return sorted(both, key=lambda violation: violation.line or 0)[:violations_max]


# A violation with the index of its rule, by which violations of several tasks are ordered.
IndexedViolation: TypeAlias = tuple[int, Violation]


def run_rules(
    rules: Sequence[Rule], changes: Changes, committed: Committed, violations_max: int
) -> list[IndexedViolation]:
    """Return the violations of some rules, up to `violations_max` of each."""
    violations: list[IndexedViolation] = []
    for rule in rules:
        findings = Findings(violations_max, unit=changes.unit)
        rule(changes, committed, findings)
        violations += [(RULES.index(rule), violation) for violation in findings.violations]
    return violations


def validate(changes: Changes, committed: Committed, violations_max: int = VIOLATIONS_MAX) -> Findings:
    """Return the violations of a write in the order of the rules, up to `violations_max`."""
    findings = Findings(violations_max, unit=changes.unit, locate=changes.locate)
    for rule in RULES:
        if findings.is_full:
            break
        rule(changes, committed, findings)
    return findings
