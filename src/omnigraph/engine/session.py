"""The core that every engine part stands on: views of a graph as its actor may see it, compiled queries, and caches.

Owns no behaviour of its own; reading, writing and the rest are modules beside it that take a `Core`.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Final, TypeAlias

import orjson

from omnigraph.engine.authorization import (
    ALLOW_ALL,
    GRAPH,
    Checker,
    PolicyBranch,
    Scope,
    on,
    redact_commit,
    restrict_schema,
    restrict_snapshot,
)
from omnigraph.engine.past_names import NOW, THEN, Naming, check_names, names_today, read_with, without_purged
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied, UsageError
from omnigraph.ids import BranchId, CommitId
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.query import CompiledQuery, compile_query
from omnigraph.lang.schema import SchemaIR, catalog_of
from omnigraph.lang.schema.restrict import with_their_edges
from omnigraph.lang.source import Source
from omnigraph.limits import CATALOG_CACHE_MAX, QUERY_CACHE_BYTES_MAX, QUERY_CACHE_MAX, QUERY_LONG_BYTES
from omnigraph.lru import LruCache
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, AcceptedSchema, BranchNames, Commit, Snapshot
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.live_rows import check_deletions

# A state of the past: a commit or tag, a manifest version, or a point in time, which is UTC unless it says otherwise.
Moment: TypeAlias = str | int | datetime


# What a compiled query takes for each byte of its text, measured; most of it is the objects of its plan.
_COMPILED_BYTES: Final = 128
# Compilers of long texts run one at a time, so that they do not take the interpreter from everything else.
_compiling_long: Final = Lock()


def compiled_bytes(text: str) -> int:
    """Return about how much memory a query takes when it is compiled, and its plan as much again."""
    return len(text) * _COMPILED_BYTES


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
    _catalogs: LruCache[str, Catalog] = field(default_factory=lambda: LruCache(CATALOG_CACHE_MAX))
    _queries: LruCache[tuple[str, str | None, str], CompiledQuery] = field(
        default_factory=lambda: LruCache(QUERY_CACHE_MAX, QUERY_CACHE_BYTES_MAX)
    )
    _schemas: LruCache[tuple[str, frozenset[str]], AcceptedSchema] = field(
        default_factory=lambda: LruCache(CATALOG_CACHE_MAX)
    )

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
        self.policy.enforce(action, self._look_up(scope), self.actor)

    def _look_up(self, scope: Scope) -> Scope:
        """Return a scope with every name that its branches had, if they exist."""
        if scope.branch is not None and scope.branch_names is None:
            scope = replace(scope, branch_names=self.names_now(scope.branch))
        if scope.target is not None and scope.target_names is None:
            scope = replace(scope, target_names=self.names_now(scope.target))
        return scope

    def names_now(self, branch: str) -> BranchNames:
        """Return every name that the branch of this name had; if there is none, it would have only this one."""
        return self.find_branch(branch)[1]

    def find_branch(self, name: str) -> tuple[BranchId | None, BranchNames]:
        """Return the incarnation that has a name, and every name that it had; None also if there is no such branch."""
        try:
            branch_id = self.kernel.resolve(name)
        except GraphError as error:
            if error.code != "branch.not_found":
                raise
            return None, BranchNames((name.strip(),))
        return branch_id, self.kernel.all_names_of([branch_id])[branch_id]

    def names_of(self, state: Snapshot | Commit) -> BranchNames:
        """Return every name of the branch that a state or commit was made on: what a policy judges it by."""
        branch_id = state.branch if isinstance(state, Commit) else state.state.branch_id
        return self.kernel.all_names_of([branch_id])[branch_id]

    def may(self, action: str, scope: Scope) -> bool:
        """Tell whether the actor may do this there."""
        try:
            self.require(action, scope)
        except PolicyDenied:
            return False
        return True

    def address_or(self, name: str) -> str:
        """Return where the graph is stored, which is for those who may administer it, and else a name for it."""
        return self.kernel.store.root.uri if self.may("admin", GRAPH) else name

    def head(self, branch: str, action: str = "read") -> Snapshot:
        """Return the newest state of a branch, if the actor may do an action to it."""
        try:
            snapshot = self.kernel.snapshot(branch)
        except OmniGraphError:
            # Whoever may not read the branch is not told what it lacks.
            self.require(action, on(branch))
            raise
        if self.policy is not ALLOW_ALL:
            self.require(action, on(self.names_of(snapshot)))
        return snapshot

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
            return self.seen(self.head(branch, action), action)
        snapshot = self.allowed_at(branch, at, action)
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
        branch = self.names_of(snapshot)
        hidden_now = self.hidden_in(now, branch, *actions)
        hidden_by_name = self.hidden_in(then, branch, *actions)
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
            schema = self._schemas.get_or_create((whole.ir_hash, hidden), lambda: restrict_schema(whole, hidden))
            snapshot = replace(restrict_snapshot(snapshot, hidden, schema), is_partial=True)
        return View(self.kernel, snapshot, self.catalog(snapshot))

    def hidden(self, snapshot: Snapshot, *actions: str) -> frozenset[str]:
        """Return the types that the actor may do none of the actions to, and with them the edges that end there.

        Without actions, it is `read` that counts.
        """
        if self.policy is ALLOW_ALL:
            return frozenset()
        return self.hidden_in(self.catalog(snapshot), self.names_of(snapshot), *actions)

    def hidden_in(self, catalog: Catalog, branch: PolicyBranch, *actions: str) -> frozenset[str]:
        """Return what `hidden` does, of the types of a catalog on a branch."""
        names = (*catalog.nodes, *catalog.edges)
        forbidden = (self.policy.hidden_types(self.actor, one, names, branch) for one in actions or ("read",))
        return with_their_edges(catalog, frozenset.intersection(*forbidden))

    def forbidden(self, snapshot: Snapshot, action: str, branch: PolicyBranch | None = None) -> frozenset[str]:
        """Return the types that the actor may not do an action to, on the branch of a state or on another one."""
        if self.policy is ALLOW_ALL:
            return frozenset()
        catalog = self.catalog(snapshot)
        names = (*catalog.nodes, *catalog.edges)
        return self.policy.hidden_types(self.actor, action, names, branch or self.names_of(snapshot))

    def told(self, commits: Iterable[Commit]) -> list[Commit]:
        """Return what the actor may know of commits: who does not see all types is not told which they were about."""
        # Without a policy nothing is hidden, and no storage has to be asked for the types.
        is_partial = self.policy is not ALLOW_ALL and self.hidden(self.kernel.snapshot(MAIN))
        return [redact_commit(one) for one in commits] if is_partial else list(commits)

    def catalog(self, snapshot: Snapshot) -> Catalog:
        """Return the catalog of the schema that a snapshot holds."""
        schema = snapshot.state.schema
        return self._catalogs.get_or_create(
            schema.ir_hash, lambda: catalog_of(SchemaIR.from_json(orjson.loads(schema.ir)))
        )

    def compile(self, source: str, catalog: Catalog, name: str | None = None) -> CompiledQuery:
        """Return a query compiled against a catalog; the same text is compiled once."""
        key = (source, name, catalog.ir_hash)

        def compile_source() -> CompiledQuery:
            with _compiling_long if len(source) > QUERY_LONG_BYTES else nullcontext():
                return compile_query(Source("query.gq", source), catalog, name=name)

        return self._queries.get_or_create(key, compile_source, compiled_bytes(source))

    def at(self, branch: str, at: Moment) -> Snapshot:
        """Return a state of the past as it is stored; whoever shows it asks for the right to."""
        if isinstance(at, int):
            return self.kernel.at_version(branch, _checked_version(at))
        return self.kernel.snapshot_of(self.commit_at(branch, at))

    def allowed_at(self, branch: str, at: Moment, action: str = "read") -> Snapshot:
        """Return a state of the past, if the actor may do an action to the branch that it belongs to.

        If not, the answer is the same as for a commit that is not there: that there is one is not told.
        """
        try:
            if isinstance(at, int):
                version = _checked_version(at)
                self.require(action, on(branch))
                return self.kernel.at_version(branch, version)
            commit = self.commit_at(branch, at)
            if self.policy is not ALLOW_ALL and not self.may(action, on(self.names_of(commit))):
                raise no_moment(branch, at)
            return self.kernel.snapshot_of(commit)
        except (UsageError, PolicyDenied):
            raise
        except OmniGraphError:
            # Whoever may not read the branch is not told what it lacks.
            self.require(action, on(branch))
            raise

    def commit_at(self, branch: str, at: Moment) -> Commit:
        """Return the commit of a moment that is not a manifest version; whoever shows it asks for the right to."""
        if isinstance(at, bool) or not isinstance(at, str | datetime):
            raise UsageError("`at` takes a commit id, a tag, a manifest version or a datetime", at=str(at))
        if isinstance(at, datetime):
            return self._newest_until(branch, at)
        tag = self.kernel.snapshot(MAIN).state.tags.get(at)
        try:
            return self.kernel.find_commit(tag.commit_id if tag else CommitId(at))
        except GraphError as error:
            if error.code != "commit.not_found" or tag is not None:
                raise
            raise no_moment(branch, at) from error

    def _newest_until(self, branch: str, at: datetime) -> Commit:
        """Return the newest commit of a branch that is not after a point in time."""
        instant = _instant(at)
        # Only its own line counts: what a merge brought in was not on the branch before the merge.
        expected = self.kernel.snapshot(branch).head
        for commit in self.kernel.history(branch):
            if commit.commit_id == expected:
                if commit.created_at_us <= _microseconds(instant):
                    return commit
                expected = commit.parent
        raise no_moment(branch, at)


def _checked_version(at: int) -> int:
    if isinstance(at, bool):
        raise UsageError("`at` takes a commit id, a tag, a manifest version or a datetime", at=str(at))
    if not 0 < at < 1 << 63:
        raise UsageError(f"there is no version {at}; versions count from 1", at=at)
    return at


def no_moment(branch: str, at: str | int | datetime) -> GraphError:
    """Return the error of a commit, tag or time that is not there, or that the actor may not know of."""
    if isinstance(at, datetime):
        time = _instant(at).isoformat()
        return GraphError(
            f"branch `{branch.strip()}` has no commit as old as {time}; list them with `omnigraph commit list`",
            code="commit.not_found",
            at=time,
        )
    return GraphError(
        f"there is no commit or tag `{at}`; list them with `omnigraph commit list` and `omnigraph tag list`",
        code="commit.not_found",
        at=at,
    )


def _instant(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _microseconds(instant: datetime) -> int:
    # Whole microseconds, because a float of seconds cannot tell neighbouring ones apart.
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
