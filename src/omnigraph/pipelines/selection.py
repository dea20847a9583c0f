"""What a run reads: new rows, all rows, a range, a sample, or rows that were rejected; and what contradicts what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from omnigraph import clock
from omnigraph.errors import UsageError
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.limits import SCHEDULE_AHEAD_SECONDS_MAX
from omnigraph.pipelines.declaration.config import PipelineDeclaration
from omnigraph.pipelines.declaration.cron import moment_of
from omnigraph.pipelines.sources.read import Window


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Which rows a run reads: new ones, all (`is_full`), a range of a source (`backfill`), or a few (`sample`).

    A run for a due time (`scheduled_for`) is done once. A retry reads no source, but rows that runs have rejected:
    those of one, or of all.
    """

    is_dry: bool = False
    is_full: bool = False
    backfill: Window | None = None
    backfill_source: str = ""
    sample: int | None = None
    scheduled_for: datetime | None = None
    is_retry: bool = False
    retried_run: str | None = None


def find_backfill(
    pipeline: PipelineDeclaration, bounds: tuple[str | None, str | None] | None, source: str | None
) -> tuple[Window | None, str]:
    """Return the range of a backfill and the source that it reads; None without a backfill."""
    if bounds == (None, None):
        raise UsageError("a backfill needs a range; give a lower bound, an upper bound, or both")
    if bounds is not None:
        return Window(*bounds), _find_incremental_source(pipeline, source)
    if source is not None:
        raise UsageError("`source` is that of a backfill; give its range, or leave out `source`", source=source)
    return None, ""


def _find_incremental_source(pipeline: PipelineDeclaration, name: str | None) -> str:
    names = [source.name for source in pipeline.sources.values() if source.incremental is not None]
    if not names:
        raise UsageError(f"`{pipeline.name}` has no incremental source, so a range selects nothing; run it without one")
    if name is None and len(names) > 1:
        raise UsageError(
            f"name the `source` of the backfill; {', '.join(f'`{item}`' for item in names)} are incremental"
        )
    if name is not None and name not in names:
        hint = did_you_mean(name, names) or f"there are {', '.join(names)}"
        raise UsageError(f"`{pipeline.name}` has no incremental source `{name}`; {hint}", source=name)
    return name or names[0]


def check_options(pipeline: PipelineDeclaration, options: RunOptions, report: object) -> None:
    """Refuse options that contradict each other or the declaration."""
    if options.is_full and options.backfill is not None:
        raise UsageError("a full refresh reads everything, a backfill a range; choose one of them")
    if pipeline.mode == "append" and (options.is_full or options.backfill is not None) and not options.is_dry:
        raise UsageError(
            f"`{pipeline.name}` appends, so rows that were loaded before would be there twice; use `mode: merge`"
        )
    if options.is_retry and pipeline.mode == "overwrite":
        raise UsageError(
            f"`{pipeline.name}` replaces all entities of its types, so a few rejected rows cannot be loaded alone;"
            " correct the source and run it"
        )
    if options.scheduled_for is not None:
        _check_due_time(options.scheduled_for)
    if options.scheduled_for is not None and options.backfill is not None:
        raise UsageError("a backfill is not part of a schedule; leave out `scheduled_for`")
    if options.sample is not None and options.sample < 1:
        raise UsageError(f"`sample` is a number of rows, 1 or more; got {options.sample}", sample=options.sample)
    outcomes = (
        *(item.outcome for item in pipeline.expectations),
        *(item.otherwise for item in pipeline.mappings),
    )
    is_quarantining = pipeline.is_rejecting or "quarantine" in outcomes
    if is_quarantining and report is None and not options.is_dry:
        raise UsageError(f"`{pipeline.name}` leaves rows out; give `report`, a directory to write them to")


def _check_due_time(due: datetime) -> None:
    if due.tzinfo is None:
        raise UsageError(f"`scheduled_for` needs a time zone, and {due.isoformat()} has none")
    if due > moment_of(clock.now_us()) + timedelta(seconds=SCHEDULE_AHEAD_SECONDS_MAX):
        raise UsageError(
            f"`scheduled_for` {due.isoformat()} is in the future; all runs until then would count as done. Nothing was"
            " written; give the time that this run was due"
        )
