"""What a case may expect of a step that compiles or runs, and how it is compared.

Each check raises `CaseFailure` with the expectation's line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from omnigraph.errors import OmniGraphError
from omnigraph.lang.diagnostic import Diagnostic, Severity
from omnigraph.lang.schema import SchemaIR
from tests.support.case_file import Step

if TYPE_CHECKING:
    from tests.support.case_engine import Ran

_PLACE = re.compile(r"(?P<code>\S+)(?: (?P<line>\d+):(?P<column>\d+))?")


class CaseFailure(AssertionError):
    """The product and the case disagree; `line` is the place in the case file, if not the step itself."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step gave: what it compiled to and what running it did, or why it was refused."""

    result: Any
    diagnostics: tuple[Diagnostic, ...] = ()
    ran: Ran | None = None
    failure: OmniGraphError | None = None

    def part(self, name: str, step: Step) -> Any:
        """Return an attribute of the result, or say that this expectation does not go with this step."""
        if not hasattr(self.result, name):
            raise CaseFailure(f"`-- {step.verb}` cannot be expected of a {type(self.result).__name__}", step.line)
        return getattr(self.result, name)


def check(outcome: Outcome, expectations: Sequence[Step]) -> None:
    """Compare an outcome with everything expected of it; nothing expected means success."""
    errors = [e for e in expectations if e.verb == "error"]
    notes = [e for e in expectations if e.verb == "note"]
    if outcome.failure is not None:
        _check_failure(outcome.failure, errors)
        return
    _check_diagnostics(_errors(outcome, expectations), errors)
    if notes:
        _check_diagnostics(outcome.part("notes", notes[0]), notes)
    for expectation in expectations:
        if expectation.verb not in {"error", "note", "ok"}:
            _CHECKS[expectation.verb](outcome, expectation)


def _errors(outcome: Outcome, expectations: Sequence[Step]) -> Sequence[Diagnostic]:
    """Return all that is wrong, also where a result carries it instead of an exception."""
    verbs = {e.verb for e in expectations}
    if "findings" not in verbs and hasattr(outcome.result, "findings"):
        return [f for f in outcome.result.findings if f.severity is Severity.ERROR]
    if "steps" not in verbs and hasattr(outcome.result, "supported"):
        return list(outcome.result.refusals)
    return outcome.diagnostics


def _check_failure(failure: OmniGraphError, expected: Sequence[Step]) -> None:
    """Compare an error of execution with the one that is expected; its code is the broken rule's, if it has one."""
    code = str(failure.context.get("rule", failure.code))
    if not expected or [step.arguments for step in expected] != [code]:
        wanted = ", ".join(step.arguments for step in expected) or "nothing wrong"
        raise CaseFailure(f"expected {wanted}, found {code}: {failure.message}")
    for words in expected[0].lines:
        if words not in failure.message:
            raise CaseFailure(f"expected the words `{words}`: {failure.message}", expected[0].line)


def _check_diagnostics(found: Sequence[Diagnostic], expected: Sequence[Step]) -> None:
    shown = "\n".join(diagnostic.render() for diagnostic in found) or "(nothing)"
    if len(found) != len(expected):
        wanted = ", ".join(step.arguments for step in expected) or "nothing wrong"
        raise CaseFailure(f"expected {wanted}, found {len(found)}:\n{shown}")
    for diagnostic, step in zip(found, expected, strict=True):
        place = _PLACE.fullmatch(step.arguments)
        if place is None:
            raise CaseFailure(f"`-- {step.verb}` takes `CODE [LINE:COL]`, not `{step.arguments}`", step.line)
        start = diagnostic.source.position(diagnostic.span.start)
        if diagnostic.code != place["code"]:
            raise CaseFailure(f"expected {place['code']}, found {diagnostic.code}:\n{shown}", step.line)
        if place["line"] and (start.line, start.column) != (int(place["line"]), int(place["column"])):
            raise CaseFailure(f"expected it at {place['line']}:{place['column']}:\n{shown}", step.line)
        for words in step.lines:
            if words not in diagnostic.message and words not in (diagnostic.hint or ""):
                raise CaseFailure(f"expected the words `{words}`:\n{shown}", step.line)


def _same(found: Sequence[object], expected: Sequence[object], step: Step) -> None:
    if list(found) != list(expected):
        shown = "\n".join(f"  {item}" for item in found) or "  (nothing)"
        raise CaseFailure(f"`-- {step.verb}` differs; found:\n{shown}", step.line)


def _check_steps(outcome: Outcome, step: Step) -> None:
    found = outcome.part("to_json", step)()["steps"]
    # Most steps are instant; a case states the effect of the others.
    found = [{key: value for key, value in item.items() if (key, value) != ("effect", "instant")} for item in found]
    shown = [json.dumps(item, sort_keys=True) for item in found]
    _same(shown, [json.dumps(json.loads(line), sort_keys=True) for line in step.lines], step)


def _check_ids(outcome: Outcome, step: Step) -> None:
    holder = outcome.part("compiled", step) if hasattr(outcome.result, "compiled") else outcome.result
    known = identities(holder.ir)
    found = [f"{line.rpartition(' ')[0]} {known.get(line.rpartition(' ')[0])}" for line in step.lines]
    _same(found, step.lines, step)


def identities(ir: SchemaIR) -> dict[str, int]:
    """Return every identity of a schema under the name that `-- ids` gives it."""
    known = {"next": ir.next_identity_id}
    for kind in (ir.identities.interfaces, ir.identities.nodes, ir.identities.edges):
        for name, ids in kind.items():
            known[name] = ids.type_id
            known |= {f"{name}.{prop}": number for prop, number in ids.property_ids.items()}
            if ids.incarnation_id is not None:
                known[f"incarnation {name}"] = ids.incarnation_id
    return known


def _check_types(outcome: Outcome, step: Step) -> None:
    uses = outcome.part(step.verb, step)
    _same([f"{use.kind} {use.type_name}" for use in uses], step.lines, step)


def _check_descriptor(outcome: Outcome, step: Step) -> None:
    columns = outcome.part("descriptor", step)
    _same([f"{column.name} {column.type}" for column in columns], step.lines, step)


def _check_plan(outcome: Outcome, step: Step) -> None:
    from omnigraph.lang.query import format_plan

    _same(format_plan(outcome.part("ir", step)).splitlines(), step.body.splitlines(), step)


def _check_findings(outcome: Outcome, step: Step) -> None:
    findings = outcome.part("findings", step)
    _same([f"{f.code} {f.severity} {f.name}".rstrip() for f in findings], step.lines, step)


def _check_key(outcome: Outcome, step: Step) -> None:
    _same([outcome.result], [step.arguments], step)


def _ran(outcome: Outcome, step: Step, part: str) -> Any:
    found = getattr(outcome.ran, part, None)
    if found is None:
        raise CaseFailure(f"`-- {step.verb}` needs an engine and a step that gives {part}", step.line)
    return found


def _check_rows(outcome: Outcome, step: Step) -> None:
    found = [_canonical(row) for row in _ran(outcome, step, "rows")]
    expected = [_canonical(json.loads(line)) for line in step.lines]
    if step.verb == "ordered":
        _same(found, expected, step)
    else:
        _same(sorted(found), sorted(expected), step)


def _canonical(row: object) -> str:
    """Return a row as text in which floats that agree to nine digits are the same.

    >>> _canonical([0.1 + 0.2, 3, None]), _canonical([0.3, 3.0, None])
    ('[0.3, 3, null]', '[0.3, 3.0, null]')
    """
    if isinstance(row, list):
        return f"[{', '.join(_canonical(item) for item in row)}]"
    if isinstance(row, float):
        return json.dumps(float(f"{row:.9g}"))
    return json.dumps(row, sort_keys=True, ensure_ascii=False)


def _check_columns(outcome: Outcome, step: Step) -> None:
    _same(_ran(outcome, step, "table").column_names, [name.strip() for name in step.arguments.split(",")], step)


def _check_arrow_types(outcome: Outcome, step: Step) -> None:
    types = [_ARROW_NAMES.get(str(field.type), str(field.type)) for field in _ran(outcome, step, "table").schema]
    _same(types, [name.strip() for name in step.arguments.split(",")], step)


def _check_affected(outcome: Outcome, step: Step) -> None:
    _same([" ".join(map(str, _ran(outcome, step, "affected")))], [step.arguments], step)


def _check_commits(outcome: Outcome, step: Step) -> None:
    _same([str(_ran(outcome, step, "commits"))], [step.arguments], step)


def _check_export(outcome: Outcome, step: Step) -> None:
    found, expected = _ran(outcome, step, "lines"), step.lines
    # A fresh id is different every time; where the case says so, any will do.
    found = [
        _ULID.sub('"<ulid>"', line) if position < len(expected) and "<ulid>" in expected[position] else line
        for position, line in enumerate(found)
    ]
    in_order = partial(json.loads, object_pairs_hook=list)
    _same([str(in_order(line)) for line in found], [str(in_order(line)) for line in expected], step)


_ULID = re.compile(r'"[0-9A-HJKMNP-TV-Z]{26}"')
_ARROW_NAMES: Mapping[str, str] = {
    "int32": "Int32",
    "int64": "Int64",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float": "Float32",
    "double": "Float64",
    "string": "Utf8",
    "bool": "Boolean",
    "date32[day]": "Date32",
    "date64[ms]": "Date64",
}
_CHECKS: Mapping[str, Callable[[Outcome, Step], None]] = {
    "steps": _check_steps,
    "ids": _check_ids,
    "reads": _check_types,
    "writes": _check_types,
    "descriptor": _check_descriptor,
    "plan": _check_plan,
    "findings": _check_findings,
    "key": _check_key,
    "rows": _check_rows,
    "ordered": _check_rows,
    "columns": _check_columns,
    "types": _check_arrow_types,
    "affected": _check_affected,
    "commits": _check_commits,
    "export-lines": _check_export,
}
