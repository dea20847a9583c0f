"""The core that every engine part stands on: views of a graph as its actor may see it, compiled queries, and caches.

Owns no behaviour of its own; reading, writing and the rest are modules beside it that take a `Core`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Generic, TypeAlias, TypeVar

import orjson

from omnigraph.engine.names import NOW, THEN, Naming, check_names, names_today, read_with, without_purged
from omnigraph.engine.scope import ALLOW_ALL, Checker, Scope, on
from omnigraph.engine.sight import restrict_schema, restrict_snapshot, without_drops
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied, UsageError
from omnigraph.ids import CommitId
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.query import CompiledQuery, compile_query
from omnigraph.lang.schema import SchemaIR, catalog_of
from omnigraph.lang.schema.restrict import with_their_edges
from omnigraph.lang.source import Source
from omnigraph.limits import CATALOG_CACHE_MAX, QUERY_CACHE_MAX
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, AcceptedSchema, Commit, Snapshot
from omnigraph.store.dataset import Dataset
from omnigraph.store.deletions import check_deletions

K = TypeVar("K")
V = TypeVar("V")

# A state of the past: a commit or tag, a manifest version, or a point in time, which is UTC unless it says otherwise.
Moment: TypeAlias = str | int | datetime


class Lru(Generic[K, V]):
    """A small thread-safe cache that forgets what was not used for longest."""

    def __init__(self, entries_max: int) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._entries_max = entries_max
        self._lock = Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key, making it when it is not there."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
                return self._entries[key]
        value = make()
        with self._lock:
            self._entries[key] = value
            while len(self._entries) > self._entries_max:
                self._entries.popitem(last=False)
        return value


@dataclass(frozen=True)
class View:
    """One snapshot, ready to be read: every dataset it opens is the one that the snapshot pins."""

    kernel: Kernel
    snapshot: Snapshot
    catalog: Catalog

    def dataset(self, table_key: str) -> Dataset:
        return self.kernel.dataset(self.snapshot, table_key)

    def sound_dataset(self, table_key: str) -> Dataset:
        """Open a type whose rows decide about a write; `graph.corrupt` when its deletions were exchanged."""
        return check_deletions(self.dataset(table_key))


@dataclass
class Core:
    """One opened graph as the engine sees it, for one actor."""

    kernel: Kernel
    actor: str | None = None
    policy: Checker = ALLOW_ALL
    _catalogs: Lru[str, Catalog] = field(default_factory=lambda: Lru(CATALOG_CACHE_MAX))
    _queries: Lru[tuple[str, str | None, str], CompiledQuery] = field(default_factory=lambda: Lru(QUERY_CACHE_MAX))
    _schemas: Lru[tuple[str, frozenset[str]], AcceptedSchema] = field(default_factory=lambda: Lru(CATALOG_CACHE_MAX))

    def acting_as(self, actor: str | None) -> Core:
        """Return this core for another actor; for the same one if none is named."""
        return self if actor is None else replace(self, actor=actor)

    def require(self, action: str, scope: Scope) -> None:
        """Raise `PolicyDenied` unless the actor may do this there; a policy lets nobody in without a name."""
        if self.policy is ALLOW_ALL:
            return
        if self.actor is None:
            raise PolicyDenied(
                f"`{action}` needs an actor, because this graph has a policy; open it with `actor=…`",
                action=action,
                branch=scope.branch,
                target_branch=scope.target,
            )
        self.policy.enforce(action, scope, self.actor)

    def view(
        self,
        branch: str = MAIN,
        at: Moment | None = None,
        action: str = "read",
        names: Naming = NOW,
        today: Snapshot | None = None,
    ) -> View:
        """Return what the actor may see of the newest state of a branch, or of a state of the past.

        The past is a commit, a tag, a manifest version or a time; it is judged by the branch that it belongs to. It is
        read with the schema of `today`, the newest state of `branch` by default; with `names="then"`, with its own.
        """
        check_names(names)
        if at is None:
            self.require(action, on(branch))
            return self.seen(self.kernel.snapshot(branch), action)
        try:
            snapshot = self.at(branch, at)
        except OmniGraphError:
            # Whoever may not read the branch is not told what it lacks.
            self.require(action, on(branch))
            raise
        self.require(action, on(snapshot.branch))
        return self.past(snapshot, today or self.kernel.snapshot(branch), names, action)

    def past(self, snapshot: Snapshot, today: Snapshot, names: Naming, *actions: str) -> View:
        """Return what the actor may see of a state of the past, with the names of today or with those of then.

        What was dropped for good is in neither.
        """
        purges = self.kernel.snapshot(MAIN).state.purges
        if names == THEN:
            hidden = self.hidden_then(snapshot, today, *actions)
            return self.without(without_purged(snapshot, self.catalog(snapshot), purges), hidden)
        today = without_purged(today, self.catalog(today), purges)
        if snapshot.state.schema.ir_hash != today.state.schema.ir_hash:
            snapshot = read_with(snapshot, self.catalog(snapshot), today, self.catalog(today))
        return self.seen(snapshot, *actions)

    def hidden_then(self, snapshot: Snapshot, today: Snapshot, *actions: str) -> frozenset[str]:
        """Return the types of a state of the past that are hidden from the actor, by their names of then.

        A type is judged by the name that it has today. One that is gone has no rule, so only an actor from whom
        nothing is hidden today sees it, if the name that it had is not hidden either.
        """
        if self.policy is ALLOW_ALL:
            return frozenset()
        then, now = self.catalog(snapshot), self.catalog(today)
        hidden_now = self._hidden_in(now, snapshot.branch, *actions)
        hidden_by_name = self._hidden_in(then, snapshot.branch, *actions)
        called = names_today(then, now)
        found = {
            name
            for name, today_name in called.items()
            if (today_name in hidden_now if today_name is not None else hidden_now or name in hidden_by_name)
        }
        return with_their_edges(then, found)

    def whole(self, branch: str = MAIN, at: Moment | None = None) -> View:
        """Return a state with all of its types, for work whose own right was asked for; without hard drops."""
        if at is None:
            return self.whole_of(self.kernel.snapshot(branch))
        snapshot = self.at(branch, at)
        return self.whole_of(without_purged(snapshot, self.catalog(snapshot), self.kernel.snapshot(MAIN).state.purges))

    def whole_of(self, snapshot: Snapshot) -> View:
        """Return all of a snapshot, as it has to be seen to keep it valid."""
        return View(self.kernel, snapshot, self.catalog(snapshot))

    def seen(self, snapshot: Snapshot, *actions: str) -> View:
        """Return what the actor may see of a snapshot: types that are hidden from it are not there at all."""
        return self.without(snapshot, self.hidden(snapshot, *actions))

    def without(self, snapshot: Snapshot, hidden: frozenset[str]) -> View:
        """Return a snapshot without the types that were found to be hidden."""
        if hidden:
            whole = snapshot.state.schema
            schema = self._schemas.get((whole.ir_hash, hidden), lambda: restrict_schema(whole, hidden))
            snapshot = restrict_snapshot(snapshot, hidden, schema)
        return View(self.kernel, snapshot, self.catalog(snapshot))

    def hidden(self, snapshot: Snapshot, *actions: str) -> frozenset[str]:
        """Return the types that the actor may do none of the actions to, and with them the edges that end there.

        Without actions, it is `read` that counts.
        """
        if self.policy is ALLOW_ALL:
            return frozenset()
        return self._hidden_in(self.catalog(snapshot), snapshot.branch, *actions)

    def _hidden_in(self, catalog: Catalog, branch: str, *actions: str) -> frozenset[str]:
        names = (*catalog.nodes, *catalog.edges)
        forbidden = (self.policy.hidden_types(self.actor, one, names, branch) for one in actions or ("read",))
        return with_their_edges(catalog, frozenset.intersection(*forbidden))

    def forbidden(self, snapshot: Snapshot, action: str) -> frozenset[str]:
        """Return the types that the actor may not do an action to."""
        catalog = self.catalog(snapshot)
        return self.policy.hidden_types(self.actor, action, (*catalog.nodes, *catalog.edges), snapshot.branch)

    def told(self, commits: Iterable[Commit]) -> list[Commit]:
        """Return what the actor may know of commits: whoever does not see all types is not told which were dropped."""
        # Without a policy nothing is hidden, and no storage has to be asked for the types.
        is_partial = self.policy is not ALLOW_ALL and self.hidden(self.kernel.snapshot(MAIN))
        return [without_drops(one) for one in commits] if is_partial else list(commits)

    def catalog(self, snapshot: Snapshot) -> Catalog:
        """Return the catalog of the schema that a snapshot holds."""
        schema = snapshot.state.schema
        return self._catalogs.get(schema.ir_hash, lambda: catalog_of(SchemaIR.from_json(orjson.loads(schema.ir))))

    def compile(self, source: str, catalog: Catalog, name: str | None = None) -> CompiledQuery:
        """Return a query compiled against a catalog; the same text is compiled once."""
        key = (source, name, catalog.ir_hash)
        return self._queries.get(key, lambda: compile_query(Source("query.gq", source), catalog, name=name))

    def at(self, branch: str, at: Moment) -> Snapshot:
        """Return a state of the past as it is stored; whoever shows it asks for the right to."""
        if isinstance(at, bool) or not isinstance(at, str | int | datetime):
            raise UsageError("`at` takes a commit id, a tag, a manifest version or a datetime", at=str(at))
        if isinstance(at, int):
            if not 0 < at < 1 << 63:
                raise UsageError(f"there is no version {at}; versions count from 1", at=at)
            return self.kernel.at_version(branch, at)
        if isinstance(at, datetime):
            return self.kernel.at_commit(self._newest_until(branch, at).commit_id)
        tag = self.kernel.snapshot(MAIN).state.tags.get(at)
        try:
            return self.kernel.at_commit(tag.commit_id if tag else CommitId(at))
        except GraphError as error:
            if error.code != "commit.not_found" or tag is not None:
                raise
            raise GraphError(
                f"there is no commit or tag `{at}`; list them with `omnigraph commit list` and `omnigraph tag list`",
                code="commit.not_found",
                at=at,
            ) from error

    def _newest_until(self, branch: str, at: datetime) -> Commit:
        """Return the newest commit of a branch that is not after a point in time."""
        instant = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        # Only its own line counts: what a merge brought in was not on the branch before the merge.
        expected = self.kernel.snapshot(branch).head
        for commit in self.kernel.history(branch):
            if commit.commit_id == expected:
                if commit.created_at_us <= _microseconds(instant):
                    return commit
                expected = commit.parent
        raise GraphError(
            f"branch `{branch.strip()}` has no commit as old as {instant.isoformat()}; list them with `omnigraph commit"
            " list`",
            code="commit.not_found",
            at=instant.isoformat(),
        )


def _microseconds(instant: datetime) -> int:
    # Whole microseconds, because a float of seconds cannot tell neighbouring ones apart.
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
