"""`omnigraph commit …`, `log`, `blame`, `diff` and `changes …`: history, differences and the change feed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from omnigraph.cli.app import Reads
from omnigraph.cli.history_output import DateProperties, date_properties, draw_history, readable_change, shorten_ids
from omnigraph.cli.options import (
    CommitId,
    Json,
    Names,
    OptionGroup,
    ReadBranch,
    Snapshot,
    Types,
    argument,
    option,
    switch,
)
from omnigraph.cli.output import (
    Output,
    echo,
    echo_lines,
    format_time,
    plural,
    print_json,
    short_json,
    table,
    terminal_width,
    write_atomically,
)
from omnigraph.display import format_value, printable, truncate
from omnigraph.errors import UsageError
from omnigraph.limits import CHANGE_PAGE_CHANGES, ENTITY_LOG_COMMITS, FEED_COMMITS

if TYPE_CHECKING:
    from omnigraph.public_values import Commit


Limit = Annotated[int | None, option("--limit", "N", "Show at most N changes.")]
PageToken = Annotated[
    str | None, option("--page-token", "TOKEN", "Continue where the last page ended; `--json` shows the token.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(OptionGroup):
    """The changes that a command shows."""

    kinds: Annotated[list[str] | None, option("--kind", "NAME", "Only `node` or only `edge` entities.")] = None
    types: Types = None
    ops: Annotated[list[str] | None, option("--op", "NAME", "Only `insert`, `update` or `delete`; repeatable.")] = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a graph's method."""
        return {"kinds": self.kinds, "types": self.types, "ops": self.ops}


def block_lines(block: Mapping[str, Any], dates: DateProperties, *, is_continued: bool = False) -> Iterator[str]:
    """Yield the line of a commit, unless an earlier page had it, and one line per step of its schema and per change."""
    if not is_continued:
        cause = block["cause"]
        authored = (cause.get("actor_id"), cause["authored_branch"], cause["authored_at"])
        yield _commit_line(cause["graph_commit_id"], *authored, cause.get("message"))
    if "schema" in block:
        from omnigraph.lang.migrate import Step

        yield from (f"  schema: {Step.from_json(step).render()}" for step in block["schema"]["steps"])
    yield from (f"  {change_line(readable_change(change, dates))}" for change in block["changes"])


def first_line(message: str | None) -> str:
    """Return the first line of a commit message; nothing if there is none."""
    return (message or "").partition("\n")[0]


def _suffix(message: str | None) -> str:
    return "" if message is None else f": {first_line(message)}"


def change_line(change: Mapping[str, Any]) -> str:
    """Format a change as a line: the values of an insert, or the old and new values of an update.

    >>> before, after = {"properties": {"age": 40, "name": "ann"}}, {"properties": {"age": 41, "name": "ann"}}
    >>> change = {"kind": "node", "type": {"id": "t1", "name": "Person"}, "id": "ann", "op": "update"}
    >>> change_line({**change, "before": before, "after": after})
    'update node Person ann: age 40 → 41'
    """
    before, after = change.get("before"), change.get("after")
    image = after or before
    assert image is not None, "a change has a state before it or after it"
    ends = image.get("endpoints")
    line = f"{change['op']} {change['kind']} {change['type']['name']} {printable(change['id'])}"
    if ends is not None:
        line += f" ({printable(ends['from'])} → {printable(ends['to'])})"
    values = values_text(change)
    return f"{line}: {values}" if values else line


def values_text(change: Mapping[str, Any]) -> str:
    """Return the values that an insert brings, or that an update changes."""
    before, after = change.get("before"), change.get("after")
    if before and after:
        # A commit that changed a type's properties has no row images, so both have the same members.
        old, new = ({**image.get("endpoints", {}), **image["properties"]} for image in (before, after))
        texts = [f"{name} {short_json(old[name])} → {short_json(new[name])}" for name in new if old[name] != new[name]]
    else:
        members = after["properties"].items() if after else ()
        texts = [f"{name} {short_json(value)}" for name, value in members if value is not None]
    return ", ".join(texts)


CommitsMax = Annotated[int | None, option("--limit", "N", "Maximum number of commits.", min=1)]
Before = Annotated[str | None, option("--before", "ID", "List commits before this one: the next page.")]
Drawn = Annotated[bool, switch("--draw", "Draw how the commits follow from each other.")]


def list_commits(
    target: Reads, branch: ReadBranch = None, limit: CommitsMax = None, before: Before = None, drawn: Drawn = False
) -> Output:
    with target.open_to_read() as graph:
        commits = [commit.to_json() for commit in graph.commits(branch or "main", limit=limit, before=before)]
    return Output({"commits": commits}, _drawn_lines(commits) if drawn else _commit_table(commits))


def _commit_table(commits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    ids = shorten_ids([commit["graph_commit_id"] for commit in commits])
    columns = ["commit", "kind", "branch", "actor", "created"]
    rows = [
        [
            ids[commit["graph_commit_id"]],
            commit["kind"],
            commit["graph_branch"],
            commit["actor_id"] or "",
            format_time(commit["created_at"]),
        ]
        for commit in commits
    ]
    if any(commit["message"] for commit in commits):
        columns.append("message")
        rows = [[*row, first_line(commit["message"])] for row, commit in zip(rows, commits, strict=True)]
    return table(columns, rows)


def _drawn_lines(commits: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    ids = shorten_ids([commit["graph_commit_id"] for commit in commits])
    for line, commit in draw_history(commits):
        if commit is None:
            yield line
            continue
        actor = f" by {commit['actor_id']}" if commit["actor_id"] is not None else ""
        day = format_time(commit["created_at"])[:16].replace("T", " ")
        text = f"{line}  {ids[commit['graph_commit_id']]} {day} {commit['kind']}{actor} ({commit['graph_branch']})"
        text += _suffix(commit["message"])
        yield text if (width := terminal_width()) is None else truncate(text, width)


def show(target: Reads, commit_id: CommitId) -> Output:
    with target.open_to_read() as graph:
        commit = graph.commit(commit_id).to_json()
    return Output(commit, _member_lines(commit))


def _member_lines(commit: Mapping[str, Any]) -> Iterator[str]:
    width = max(map(len, commit))
    for name, value in commit.items():
        text = format_time(value) if name == "created_at" else format_value(value)
        # A message may have several lines.
        yield f"{name:<{width}}  {text}".replace("\n", f"\n{'':<{width}}  ")


def changes(
    target: Reads,
    commit_id: CommitId,
    selection: Selection,
    limit: Limit = None,
    page_token: PageToken = None,
    names: Names = "now",
    as_json: Json = False,
) -> int:
    dates: DateProperties | None = None
    with target.open_to_read() as graph:
        read = partial(graph.commit_changes, commit_id, **selection.arguments, names=names)
        for page in _pages(read, limit, as_json, page_token=page_token):
            if as_json:
                print_json(page.to_json())
                return 0
            is_continued = dates is not None
            dates = date_properties(graph) if dates is None else dates
            echo_lines(block_lines(page.block.to_json(), dates, is_continued=is_continued))
    if page.next_page_token is not None:
        echo_page_token(page.next_page_token)
    return 0


def _pages(
    read: Callable[..., Any], limit: int | None, as_json: bool, *, page_token: str | None, **begin: Any
) -> Iterator[Any]:
    """Yield the pages of changes: with paging options or JSON output one, otherwise all."""
    is_one_page = as_json or limit is not None or page_token is not None
    read = partial(read, limit=CHANGE_PAGE_CHANGES if limit is None else limit)
    page = read(page_token=page_token, **begin)
    yield page
    while page.next_page_token is not None and not is_one_page:
        page = read(page_token=page.next_page_token)
        yield page


def echo_page_token(token: str | None) -> None:
    """Print the token of the next page; at a terminal only that there is one, because it is hundreds of characters."""
    hint = "more changes follow: raise --limit, or page with --json, which shows the page token"
    echo(hint if sys.stdout.isatty() else f"page token {token}")


OldState = Annotated[str, argument("A", "A branch, tag, commit, `HEAD~1` or time.")]
NewState = Annotated[str, argument("B", "The state to compare with.")]


def diff(
    target: Reads, a: OldState, b: NewState, selection: Selection, names: Names = "now", as_json: Json = False
) -> int:
    with target.open_to_read() as graph:
        difference = graph.diff(a, b, **selection.arguments, names=names, images=not as_json)
        dates = date_properties(graph) if difference.images else {}
    if as_json:
        print_json(difference.to_json())
        return 0
    changes = difference.changes.select(["op", "kind", "type_name", "id", "from", "to"]).to_pylist()
    if changes:
        rows = [["" if value is None else value for value in row.values()] for row in changes]
        columns = ["op", "kind", "type", "id", "from", "to"]
        if all(change["kind"] == "node" for change in changes):
            rows, columns = [row[:4] for row in rows], columns[:4]
        values = {
            (change["kind"], change["type"]["name"], change["id"]): values_text(readable_change(change, dates))
            for change in difference.images or ()
        }
        if values:
            columns.append("values")
            rows = [[*row, values.get((row[1], row[2], row[3]), "")] for row in rows]
        echo_lines(table(columns, rows))
    stats = difference.stats()
    counts = ", ".join(plural(stats[f"{op}s"], op) for op in ("insert", "update", "delete"))
    echo(f"{counts} in {plural(stats['types_affected'], 'type')}")
    return 0


TypeName = Annotated[str, argument("TYPE", "The type of the entity.")]
Key = Annotated[str, argument("KEY", "Its key or id; a JSON object for a key of several properties.")]


def log(
    target: Reads,
    type_name: TypeName,
    key: Key,
    branch: ReadBranch = None,
    at: Snapshot = None,
    limit: Annotated[int, option("--limit", "N", "Maximum number of commits.", min=1)] = ENTITY_LOG_COMMITS,
    as_json: Json = False,
) -> int:
    with target.open_to_read() as graph:
        entity_log = graph.log(type_name, _parse_key(key), branch=branch or "main", at=at, limit=limit)
    if as_json:
        print_json(entity_log.to_json())
        return 0
    for change in entity_log:
        commit = change.commit
        authored = (commit.actor, commit.branch, commit.created_at_us)
        echo(_commit_line(commit.commit_id, *authored, commit.message))
        values = values_text({"before": change.before, "after": change.after})
        echo(f"  {change.op}: {values}" if values else f"  {change.op}")
    if not entity_log.changes:
        echo(f"{entity_log.type_name} {entity_log.entity_id} has no history on {branch or 'main'}")
    elif not entity_log.is_complete:
        echo("earlier changes are not listed: raise --limit, or they are hidden or were removed by cleanup", err=True)
    return 0


def blame(target: Reads, type_name: TypeName, key: Key, branch: ReadBranch = None, at: Snapshot = None) -> Output:
    with target.open_to_read() as graph:
        entity_blame = graph.blame(type_name, _parse_key(key), branch=branch or "main", at=at)
    document = entity_blame.to_json()
    if not entity_blame.properties:
        missing = f"there is no {entity_blame.type_name} {entity_blame.entity_id} on {branch or 'main'}"
        return Output(document, [missing])
    ids = shorten_ids([item.commit.commit_id for item in entity_blame.properties if item.commit is not None])
    rows = ([item.name, short_json(item.value), *_origin_cells(item.commit, ids)] for item in entity_blame.properties)
    return Output(document, table(["property", "value", "commit", "actor", "created", "message"], rows))


def _origin_cells(commit: Commit | None, ids: Mapping[str, str]) -> list[str]:
    if commit is None:
        return ["", "", "", ""]
    created = format_time(commit.created_at_us)
    return [ids[commit.commit_id], commit.actor or "", created, first_line(commit.message)]


def _parse_key(text: str) -> str | dict[str, Any]:
    with suppress(ValueError):
        if text.startswith("{"):
            return dict(json.loads(text))
    return text


def _commit_line(commit_id: str, actor: str | None, branch: str, created_at_us: int, message: str | None) -> str:
    by = "" if actor is None else f" by {actor}"
    return f"commit {commit_id}{by} on {branch} at {format_time(created_at_us)}{_suffix(message)}"


Out = Annotated[Path, option("--out", "FILE", "Output file; written atomically.")]


def poll(
    target: Reads,
    branch: ReadBranch = None,
    start: Annotated[
        str | None, option("--start", "PLACE", "`now`, `beginning` or `after:COMMIT`; default `now`.")
    ] = None,
    cursor: Annotated[str | None, option("--cursor", "CURSOR", "Continue after this cursor.")] = None,
    cursor_file: Annotated[
        Path | None, option("--cursor-file", "FILE", "Continue after the cursor in this file, and keep the next one.")
    ] = None,
    page_token: PageToken = None,
    *,
    selection: Selection,
    limit: Limit = None,
    commits_max: Annotated[int, option("--max-commits", "N", "Maximum number of commits to read.")] = FEED_COMMITS,
    as_json: Json = False,
) -> int:
    last_commit_id: str | None = None
    dates: DateProperties | None = None
    if cursor_file is not None:
        cursor, start = read_cursor(cursor_file, cursor or page_token, start)
    with target.open_to_read() as graph:
        read = partial(graph.changes, branch or "main", **selection.arguments, commits_max=commits_max)
        for page in _pages(read, limit, as_json, page_token=page_token, start=start, cursor=cursor):
            if as_json:
                print_json(page.to_json())
                keep_cursor(cursor_file, page.cursor)
                return 0
            dates = date_properties(graph) if dates is None and page.blocks else dates
            for block in page.blocks:
                commit_id = str(block.cause["graph_commit_id"])
                echo_lines(block_lines(block.to_json(), dates or {}, is_continued=commit_id == last_commit_id))
                last_commit_id = commit_id
    if page.cursor is None:
        echo_page_token(page.next_page_token)
    else:
        if cursor_file is None:
            echo(f"cursor {page.cursor}")
        keep_cursor(cursor_file, page.cursor)
        echo("caught up" if page.caught_up else "more changes are available: poll again with this cursor")
    return 0


def read_cursor(file: Path, other: str | None, start: str | None) -> tuple[str | None, str | None]:
    """Return the cursor of a file, and where to start if it has none."""
    if other is not None:
        raise UsageError("`--cursor-file` keeps the cursor; leave out `--cursor` and `--page-token`")
    with suppress(FileNotFoundError):
        cursor = file.read_text(encoding="utf-8").strip()
        # `--start` is for the first time.
        return (cursor, None) if cursor else (None, start)
    return None, start


def keep_cursor(file: Path | None, cursor: str | None) -> None:
    """Write a cursor to its file, after the changes before it were printed."""
    if file is None:
        return
    if cursor is None:
        raise UsageError(
            "this page ends inside a commit, so there is no cursor to keep; leave out `--limit` and `--json`"
        )
    write_atomically(file, iter([f"{cursor}\n".encode()]))


def baseline(target: Reads, out: Out, branch: ReadBranch = None, *, selection: Selection) -> Output:
    handshake = b""

    def records(stream: Iterator[bytes]) -> Iterator[bytes]:
        # The last record holds the cursor to continue from. It is left out, so that ingest accepts the file.
        nonlocal handshake
        for chunk in stream:
            if handshake:
                yield handshake
            handshake = chunk

    with target.open_to_read() as graph:
        write_atomically(out, records(graph.baseline(branch or "main", **selection.arguments)))
    position = json.loads(handshake)["baseline"]
    written = f"{branch or 'main'} at commit {position['snapshot_commit_id']} is in {out}"
    return Output({"path": str(out), **position}, [written, f"cursor {position['resume_cursor']}"])
