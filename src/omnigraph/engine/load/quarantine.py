"""Entities that a quarantine leaves out, and where rows of frames come from."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from omnigraph.engine.input.frame_rows import FrameRows, RowOrigin
from omnigraph.engine.load.job import LoadOptions
from omnigraph.engine.load.report import RejectedLine, write_rejected
from omnigraph.engine.load.staged_input import StagedInput
from omnigraph.engine.write.hidden_type_errors import redact_violation
from omnigraph.errors import DataError, OmniGraphError
from omnigraph.rules.delta import Findings, Violation


def lines_to_reject(staged: StagedInput, violations: Sequence[Violation], unreadable: Set[str]) -> dict[int, Violation]:
    """Return the lines to leave out for violations of set rules: all edges of a source that breaks a cardinality."""
    by_line: dict[int, Violation] = {}
    for violation in violations:
        assert violation.line is not None
        lines = [violation.line]
        if violation.rule == "E10" and violation.type_key is not None and violation.value is not None:
            lines = staged.lines_of_source(violation.type_key, violation.value)
        redacted = redact_violation(violation, unreadable)
        for line in lines:
            by_line.setdefault(line, replace(redacted, line=line))
    return by_line


def require_few_rejected(options: LoadOptions, staged: StagedInput) -> None:
    """Write what is rejected so far; raise `DataError` if it is more than may be."""
    rejected = rejected_lines(staged)
    assert options.report_folder is not None
    write_rejected(options.report_folder, rejected[: options.errors_max])
    if len(rejected) > options.errors_max:
        first = rejected[0]
        raise DataError(
            f"more than {options.errors_max} entities are invalid, so nothing was loaded; the first is in"
            f" `{first.file}`, line {first.line}: {first.violation.message}. All invalid entities so far are in"
            f" `{options.report_folder}`; correct them, or allow more with `max_errors`",
            rule=first.violation.rule,
            line=first.line,
            rejected=len(rejected),
        )


def rejected_lines(staged: StagedInput) -> list[RejectedLine]:
    """Return what is rejected so far, with the places in its files."""
    rows, lines = FrameRows(), staged.lines
    return [
        RejectedLine(
            *lines.in_file(entity.violation.line or 1),
            entity.violation,
            entity.text,
            lines.splits[lines.in_split(entity.violation.line or 1)[0]].table_key,
            _find_origin(staged, rows, entity.violation.line),
        )
        for entity in staged.outcome.rejected
    ]


def name_origins(error: OmniGraphError, findings: Findings, staged: StagedInput) -> None:
    """Replace the lines of rows that were staged from a frame by where these rows come from."""
    rows = FrameRows()
    origins = [_find_origin(staged, rows, violation.line) for violation in findings.violations]
    violations = error.context["violations"]
    assert isinstance(violations, list)
    for violation, origin in zip(violations, origins, strict=True):
        if origin is not None:
            violation.pop("file", None)
            violation |= {name: value for name, value in origin.to_json().items() if value is not None}
            violation["line"] = origin.line
    if origins[0] is not None:
        error.message = f"{origins[0]}: {error.message.partition(': ')[2]}"
        error.args = (error.message,)
        error.context.pop("file", None)
        error.context |= origins[0].to_json()


def _find_origin(staged: StagedInput, rows: FrameRows, line: int | None) -> RowOrigin | None:
    """Return where the row of a global line comes from; None if it is a line of a file."""
    if line is None:
        return None
    index, split_line = staged.lines.in_split(line)
    split = staged.lines.splits[index]
    if split.table_key is None:
        return None
    return rows.find(split, split_line - split.first_line, staged.job.catalog.type_of(split.table_key))
