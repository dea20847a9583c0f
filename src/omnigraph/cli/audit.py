"""`omnigraph audit list`: what was recovered, repaired, thrown away and upgraded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from omnigraph.cli.bind import ReadsUri
from omnigraph.cli.cleanup import duration
from omnigraph.cli.formats import table, when
from omnigraph.cli.options import Json
from omnigraph.cli.output import print_json
from omnigraph.cli.terminal import echo
from omnigraph.errors import UsageError

KindName = Annotated[
    str | None,
    typer.Option(
        "--kind",
        metavar="NAME",
        help="rolled_forward, rolled_back, branch_discarded, repaired, discarded or upgraded.",
    ),
]
By = Annotated[str | None, typer.Option("--actor", metavar="NAME", help="Only what concerns the work of this actor.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Only since this time, or this long ago: 90s, 15m, 6h, 7d."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Only before this time, or this long ago.")]
EntriesMax = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="The most entries to list.")]


def list_entries(
    target: ReadsUri,
    kind: KindName = None,
    by: By = None,
    since: Since = None,
    until: Until = None,
    limit: EntriesMax = None,
    as_json: Json = False,
) -> int:
    begins, ends = moment(since), moment(until)
    with target.store_to_read() as graph:
        entries = graph.audit(kind=kind, actor=by, since=begins, until=ends, limit=limit)
    if as_json:
        print_json({"uri": graph.uri, "entries": [one.to_json() for one in entries]})
        return 0
    rows = (
        [when(one.created_at_us), one.kind, one.operation, one.actor, one.commit_id, one.operation_id]
        for one in entries
    )
    for line in table(["when", "kind", "operation", "actor", "commit", "operation id"], rows):
        echo(line)
    return 0


def moment(text: str | None) -> datetime | None:
    """Return a point in time that is written in ISO 8601, in UTC unless it says otherwise, or as an age.

    >>> moment("2026-01-31"), moment("2026-01-31T12:00:00+02:00").hour
    (datetime.datetime(2026, 1, 31, 0, 0, tzinfo=datetime.timezone.utc), 12)
    """
    if text is None:
        return None
    try:
        written = datetime.fromisoformat(text.strip())
    except ValueError:
        pass
    else:
        return written if written.tzinfo else written.replace(tzinfo=UTC)
    from omnigraph import clock

    try:
        return datetime.fromtimestamp(clock.now_us() / 1_000_000, UTC) - duration(text)
    except UsageError:
        raise UsageError(
            f"`{text}` is no time; write one such as `2026-01-31` or `2026-01-31T12:00:00Z`, or an age such as `7d`"
        ) from None
