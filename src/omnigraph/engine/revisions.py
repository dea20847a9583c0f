"""Revisions: what names a state, resolved for every surface, and past snapshots read under today's schema or their own.

A text is, in this order: a branch or tag; `HEAD`, the newest state of the branch in question; the id of a commit;
`REVISION~N`, its Nth first parent; a manifest version; a timestamp in ISO 8601; or the beginning of the id of a commit.

Pure. Types and properties are matched by identity: a renamed type shows its older rows under the new name, a type
created later has no rows, and a property added later is null. Hard drops are left out of every schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, get_args

import pyarrow as pa

from omnigraph.engine.authorization import restrict_snapshot
from omnigraph.errors import CommitNotFound, GraphError, UsageError
from omnigraph.ids import ULID_LENGTH, CommitId, is_ulid
from omnigraph.lang.catalog import Catalog, Type, TypeKey
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.lang.schema.render import restrict_ir, with_their_edges, without_properties
from omnigraph.limits import AMBIGUOUS_COMMITS_SHOWN, COMMIT_ID_CHARACTERS_MIN, REVISION_CHARACTERS_MAX
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, AcceptedSchema, Commit, Pin, Purge, Snapshot, TypeIdentity
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.read.dataset import shape_of

# A state: a revision as text, a manifest version, or a timestamp (naive means UTC).
AsOf: TypeAlias = str | int | datetime
HEAD: Final = "HEAD"
_AT_EXPECTED: Final = (
    "`at` must be a branch, a tag, a commit id, `HEAD~1`, a manifest version, or a timestamp as text or datetime"
)
_SHORT_ID: Final = re.compile(f"[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{{{COMMIT_ID_CHARACTERS_MIN},{ULID_LENGTH}}}")
_ANCESTOR: Final = re.compile(r"(?P<start>.+)~(?P<steps>\d{0,6})")
_VERSION: Final = re.compile(f"[0-9]{{1,{COMMIT_ID_CHARACTERS_MIN - 1}}}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")


@dataclass(frozen=True, slots=True)
class Revisions:
    """Finds states for one actor.

    `may_read` decides about the branch that a state belongs to. What the actor may not read is never listed as a
    candidate, and its history is not measured; that a state which was found is hidden is for the caller to check.
    """

    kernel: Kernel
    may_read: Callable[[Snapshot | Commit], bool]

    def find(self, branch: str, at: AsOf) -> Snapshot | Commit:
        """Return the state of a branch or version, or the commit that made a state."""
        if isinstance(at, datetime):
            return self._newest_until(branch, at)
        if isinstance(at, int):
            return self.kernel.at_version(branch, check_version(at))
        if not isinstance(at, str):
            raise UsageError(_AT_EXPECTED, at=str(at))
        text = at.strip()
        if is_ulid(text):
            # Neither a branch nor a tag can have such a name, so main need not be read.
            return self._commit(branch, text)
        if not text or len(text) > REVISION_CHARACTERS_MAX:
            raise commit_not_found(branch, text[:REVISION_CHARACTERS_MAX])
        return self._find_text(branch, text, self.kernel.snapshot(MAIN))

    def _find_text(self, branch: str, text: str, main: Snapshot) -> Snapshot | Commit:
        if (tag := main.state.tags.get(text)) is not None:
            return self.kernel.find_commit(tag.commit_id)
        if text == MAIN or text in main.state.branches:
            return self.kernel.snapshot(text)
        if text == HEAD:
            return self.kernel.snapshot(branch)
        if (ancestor := _ANCESTOR.fullmatch(text)) is not None:
            start = self._find_start(branch, text, ancestor["start"], main)
            return self._ancestor(text, start, int(ancestor["steps"] or "1"))
        if _VERSION.fullmatch(text):
            return self.kernel.at_version(branch, check_version(int(text)))
        if _TIME.fullmatch(text) and (instant := _parse_time(text)) is not None:
            return self._newest_until(branch, instant)
        if _SHORT_ID.fullmatch(text):
            return self._commit(branch, self._expand(branch, text))
        raise commit_not_found(branch, text)

    def _commit(self, branch: str, commit_id: str) -> Commit:
        commit = self.kernel.look_for_commit(CommitId(commit_id))
        if commit is None:
            raise commit_not_found(branch, commit_id)
        return commit

    def _find_start(self, branch: str, text: str, start: str, main: Snapshot) -> Snapshot | Commit:
        """Return the state that a walk starts from; hidden and missing ones raise the same error."""
        try:
            state = self._commit(branch, start) if is_ulid(start) else self._find_text(branch, start, main)
        except CommitNotFound:
            raise commit_not_found(branch, text) from None
        if not self.may_read(state):
            raise commit_not_found(branch, text)
        return state

    def _ancestor(self, text: str, start: Snapshot | Commit, steps: int) -> Commit:
        snapshots = (start,) if isinstance(start, Snapshot) else ()
        commits = CommitSource(self.kernel, *snapshots)
        commit = start.head_commit if isinstance(start, Snapshot) else start
        for step in range(steps):
            if commit.parent is None:
                raise GraphError(
                    f"there is no `{text}`: that history has only {step} earlier commits; list them with"
                    " `omnigraph commit list`",
                    code="commit.not_found",
                    at=text,
                )
            commit = commits[commit.parent]
        return commit

    def _newest_until(self, branch: str, at: datetime) -> Commit:
        """Return the newest commit of a branch that is not after a timestamp."""
        until = microseconds_of(_instant(at))
        # Follow first parents only: merged commits were not on the branch before the merge.
        expected = self.kernel.snapshot(branch).head
        for commit in self.kernel.history(branch):
            if commit.commit_id == expected:
                if commit.created_at_us <= until:
                    return commit
                expected = commit.parent
        raise commit_not_found(branch, at)

    def _expand(self, branch: str, text: str) -> str:
        """Return the only id of a readable commit that begins with a text."""
        commits = self.kernel.commits_starting_with(text.upper())
        matches = sorted(commit_id for commit_id, commit in commits.items() if self.may_read(commit))
        if not matches:
            raise commit_not_found(branch, text)
        if len(matches) > 1:
            shown = matches[:AMBIGUOUS_COMMITS_SHOWN]
            more = f" and {len(matches) - len(shown)} more" if len(matches) > len(shown) else ""
            raise GraphError(
                f"`{text}` is the beginning of {len(matches)} commits: {', '.join(shown)}{more}; write more characters",
                code="commit.ambiguous",
                commits=shown,
            )
        return matches[0]


def check_version(at: int) -> int:
    """Return a manifest version; `UsageError` if there cannot be one of that number."""
    if isinstance(at, bool):
        raise UsageError(_AT_EXPECTED, at=str(at))
    if not 0 < at < 1 << 63:
        raise UsageError(f"there is no version {at}; versions count from 1", at=at)
    return at


def commit_not_found(branch: str, at: AsOf) -> GraphError:
    """Return the error for a state that is missing or hidden from the actor."""
    if isinstance(at, datetime):
        time = _instant(at).isoformat()
        return GraphError(
            f"branch `{branch}` has no commit as old as {time}; list them with `omnigraph commit list`",
            code="commit.not_found",
            at=time,
        )
    return GraphError(
        f"there is no branch, tag or commit `{at}`; list them with `omnigraph branch list`, `omnigraph tag list` and"
        " `omnigraph commit list`",
        code="commit.not_found",
        at=at,
    )


def _parse_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _instant(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def microseconds_of(instant: datetime) -> int:
    """Return a timestamp as microseconds since 1970, exactly."""
    # Integer arithmetic: a float of seconds cannot represent every microsecond.
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns of a dataset change. Names are those before the change, except for added fields."""

    added: tuple[pa.Field[Any], ...]
    dropped: tuple[str, ...]
    renamed: Mapping[str, str]

    @property
    def changed(self) -> bool:
        return bool(self.added or self.dropped or self.renamed)


@dataclass(frozen=True, slots=True)
class Reshaping:
    """Types grouped by their change, each in name order; `kept` pairs every old type with its successor."""

    added: tuple[Type, ...]
    kept: tuple[tuple[Type, Type], ...]
    dropped: tuple[Type, ...]


def compare(old: Catalog, new: Catalog) -> Reshaping:
    """Pair the types of two catalogs by identity."""
    before, after = _by_identity(old), _by_identity(new)
    return Reshaping(
        tuple(type_ for identity, type_ in after.items() if identity not in before),
        tuple((before[identity], type_) for identity, type_ in after.items() if identity in before),
        tuple(type_ for identity, type_ in before.items() if identity not in after),
    )


def compare_columns(old: Type, new: Type) -> Columns:
    """Pair the properties of two versions of a type by identity."""
    before = {property_.property_id: property_.name for property_ in old.properties.values()}
    after = {property_.property_id: property_.name for property_ in new.properties.values()}
    fields = physical_schema(arrow_schema(new))
    return Columns(
        tuple(fields.field(name) for identity, name in after.items() if identity not in before),
        tuple(name for identity, name in before.items() if identity not in after),
        {name: after[identity] for identity, name in before.items() if after.get(identity, name) != name},
    )


def _by_identity(catalog: Catalog) -> dict[TypeIdentity, Type]:
    return {TypeIdentity.of(type_): type_ for type_ in catalog.types}


Naming: TypeAlias = Literal["now", "then"]
NOW: Final[Naming] = "now"
THEN: Final[Naming] = "then"


def check_names(names: str) -> Naming:
    """Return a valid `names` option; raises for anything but `now` and `then`."""
    if names not in get_args(Naming):
        raise UsageError(f"`names` must be `now` or `then`, got `{names}`", value=str(names))
    return names  # type: ignore[return-value]  # just checked


def read_with(snapshot: Snapshot, then: Catalog, today: Snapshot, now: Catalog) -> Snapshot:
    """Return a past snapshot under the schema of today; `then` and `now` are the two catalogs."""
    stored = {pin.identity: pin for pin in snapshot.state.pins.values()}
    pins: dict[TypeKey, Pin] = {}
    for key, pin in today.state.pins.items():
        old = stored.get(pin.identity)
        if old is None:
            # The type did not exist yet: use today's version for its columns, without rows.
            pins[key] = replace(pin, row_count=0, shape=replace(pin.shape, is_empty=True))
            continue
        columns = compare_columns(then.type_of(old.table_key), now.type_of(key))
        pins[key] = replace(old, table_key=key, shape=shape_of(columns.renamed, columns.dropped, columns.added))
    state = replace(snapshot.state, schema=today.state.schema, pins=pins, tombstones=())
    return replace(snapshot, state=state)


def without_purged(snapshot: Snapshot, catalog: Catalog, purges: Collection[Purge]) -> Snapshot:
    """Return a snapshot without the types, their edges, and properties that were hard-dropped since."""
    if not purges:
        return snapshot
    types = {purge.identity for purge in purges if purge.property_id is None}
    hidden = with_their_edges(catalog, {key.name for key, pin in snapshot.state.pins.items() if pin.identity in types})
    purged_ids = {(purge.identity, purge.property_id) for purge in purges}
    pins: dict[TypeKey, Pin] = {}
    dropped: set[int] = set()
    for key, pin in snapshot.state.pins.items():
        purged = [
            property_
            for property_ in catalog.type_of(key).properties.values()
            if (pin.identity, property_.property_id) in purged_ids
        ]
        dropped |= {property_.property_id for property_ in purged}
        pins[key] = replace(pin, shape=shape_of({}, [property_.name for property_ in purged], [])) if purged else pin
    if not hidden and not dropped:
        return snapshot
    schema = _restricted(snapshot.state.schema, hidden, dropped)
    state = replace(snapshot.state, pins=pins)
    return restrict_snapshot(replace(snapshot, state=state), hidden, schema)


def names_today(then: Catalog, now: Catalog) -> dict[str, str | None]:
    """Map each type of an older schema to its name of today; None if it was dropped."""
    today = {identity: type_.name for identity, type_ in _by_identity(now).items()}
    return {type_.name: today.get(identity) for identity, type_ in _by_identity(then).items()}


def _restricted(schema: AcceptedSchema, hidden: Collection[str], dropped: Collection[int]) -> AcceptedSchema:
    ir = without_properties(restrict_ir(schema.parse(), frozenset(hidden)), frozenset(dropped))
    # The source text is kept as written: it names what was dropped, but contains no values.
    return AcceptedSchema.of(schema.source, ir)
