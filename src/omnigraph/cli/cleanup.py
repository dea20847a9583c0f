"""`omnigraph cleanup`: old versions removed, after a look or at once."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.bind import DestroysUri
from omnigraph.cli.formats import table
from omnigraph.cli.options import Json
from omnigraph.cli.output import plural, print_json
from omnigraph.cli.progress import bar
from omnigraph.cli.terminal import echo
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.engine.maintain.purge import Purged

Keep = Annotated[int | None, typer.Option("--keep", metavar="N", help="Keep the newest commits of each branch.")]
OlderThan = Annotated[
    str | None, typer.Option("--older-than", metavar="AGE", help="Keep what was current since: 90s, 15m, 6h, 7d, 2w.")
]
Confirm = Annotated[bool, typer.Option("--confirm", help="Really remove; without it, only the policy is shown.")]
Preview = Annotated[bool, typer.Option("--dry-run", help="Say what would go and how large it is; remove nothing.")]
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def cleanup(
    target: DestroysUri,
    keep: Keep = None,
    older_than: OlderThan = None,
    dry_run: Preview = False,
    confirmed: Confirm = False,
    as_json: Json = False,
) -> int:
    age = None if older_than is None else duration(older_than)
    if keep is None and age is None:
        raise UsageError("say what stays: `--keep N`, `--older-than AGE` or both")
    if keep is not None and keep < 1:
        raise UsageError(f"`--keep {keep}`: the newest commit of each branch always stays; keep 1 or more", keep=keep)
    if not confirmed and not dry_run:
        kept = [f"the newest {keep} of each branch"] if keep is not None else []
        kept += [f"what was current within {older_than}"] if older_than is not None else []
        stays = f"would clean {target.address} and keep {' and '.join(kept)}"
        echo(f"{stays}; nothing was removed. Add --dry-run to see what would go, or --confirm", err=True)
        return 0
    if not dry_run:
        target.announce()
        target.confirm("cleanup", as_json=as_json)
    with target.store_to_read() if dry_run else target.store_to_write() as graph, bar():
        report = graph.cleanup(keep, age, dry_run=dry_run)
    if as_json:
        print_json({"uri": graph.uri, **report.to_json()})
    else:
        rows = (
            [one.type_key, one.versions_removed, one.files_removed, one.bytes_removed, one.error or ""]
            for one in report.datasets
        )
        for line in table(["dataset", "versions", "files", "bytes", "error"], rows):
            echo(line)
        verb = "would go" if dry_run else "removed"
        for count, outcome in ((report.swept.rolled_back, "back"), (report.swept.rolled_forward, "forward")):
            if count:
                echo(f"{plural(count, 'dead operation')} {'would be ' if dry_run else ''}rolled {outcome}")
        for purged in report.purged:
            echo(_purged_line(purged, dry_run=dry_run))
        echo(f"{report.bytes_removed} bytes {verb}, {report.swept.bytes_removed} of them named by nothing")
    errors = [*(one.error for one in report.datasets), *(one.error for one in report.purged)]
    return 1 if any(errors) else 0


def _purged_line(purged: Purged, *, dry_run: bool) -> str:
    if purged.error is not None:
        return f"{purged.name} was dropped for good, but not all of its bytes are gone: {purged.error}"
    if dry_run:
        return f"{purged.name} was dropped for good; its bytes would be overwritten"
    later = "" if purged.is_done else "; the next cleanup looks for files of writers from before the drop"
    return f"{purged.name} was dropped for good: its bytes are gone from {plural(purged.files, 'file')}{later}"


def duration(text: str) -> timedelta:
    """Return an age as people write it.

    >>> duration("90s"), duration("7d")
    (datetime.timedelta(seconds=90), datetime.timedelta(days=7))
    """
    found = re.fullmatch(r"(\d+)([smhdw])", text.strip())
    if found is None:
        raise UsageError(f"`{text}` is not an age; write for example `90s`, `15m`, `6h`, `7d` or `2w`", age=text)
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])
