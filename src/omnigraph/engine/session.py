"""An open graph for one actor: authorized views of snapshots, compiled queries, and their caches.

Reading, writing, branches and maintenance are functions in other modules of the engine that take a `GraphSession`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import wraps
from threading import Lock
from typing import Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from omnigraph import public_values
from omnigraph.engine.arguments import check_type, parse_message, strip_name
from omnigraph.engine.authorization import (
    ALLOW_ALL,
    GRAPH,
    PolicyBranch,
    PolicyHook,
    Scope,
    on_branch,
    redact_commit,
    redact_state,
    restrict_schema,
    restrict_snapshot,
)
from omnigraph.engine.external_blobs import BlobReader, BlobRules
from omnigraph.engine.past_schemas import NOW, THEN, Naming, check_names, names_today, read_with, without_purged
from omnigraph.engine.revisions import AsOf, Revisions, check_version, commit_not_found
from omnigraph.engine.runners import Runners, ThisProcess
from omnigraph.engine.tasks import Progress, reporting_to
from omnigraph.errors import BranchNotFound, OmniGraphError, PolicyDenied, UsageError
from omnigraph.ids import BranchId, CommitId, is_ulid
from omnigraph.lang.catalog import Catalog, TypeKey
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.query import CompiledQuery, compile_query
from omnigraph.lang.query.compile import schema_key
from omnigraph.lang.schema import catalog_of
from omnigraph.lang.schema.render import with_their_edges
from omnigraph.limits import CATALOG_CACHE_MAX, QUERY_CACHE_BYTES_MAX, QUERY_CACHE_MAX, QUERY_LONG_BYTES
from omnigraph.lru import LruCache
from omnigraph.manifest.history import CommitSource
from omnigraph.manifest.intents import has_intents_on_disk
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import (
    MAIN,
    MAIN_NAMES,
    UNKNOWN_VERSION,
    AcceptedSchema,
    BranchNames,
    Commit,
    Snapshot,
)
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.read.live_rows import check_deletions

# Takes the catalogs before and after a change of schema, and raises when the change must not happen.
SchemaCheck: TypeAlias = Callable[[Catalog, Catalog], None]
# A type that no rule can name: only a rule for all types allows to read it.
_NO_TYPE: Final = ""
# Memory of a compiled query per byte of its text, measured; most of it is plan objects.
_COMPILED_BYTES: Final = 128
# Long texts are compiled one at a time, so that they do not hold the GIL against all other requests.
_compiling_long: Final = Lock()


def compiled_bytes(text: str) -> int:
    """Estimate the memory of a compiled query; its plan takes about as much again."""
    return len(text) * _COMPILED_BYTES


@dataclass(frozen=True)
class View:
    """A snapshot with its catalog; datasets are opened at the versions that the snapshot pins."""

    kernel: Kernel
    snapshot: Snapshot
    catalog: Catalog

    def dataset(self, table_key: TypeKey) -> Dataset:
        return self.kernel.dataset(self.snapshot, table_key)

    def sound_dataset(self, table_key: TypeKey) -> Dataset:
        """Open a dataset that a write depends on; `graph.corrupt` if its deletion files were replaced."""
        return check_deletions(self.dataset(table_key))


@dataclass
class GraphSession:
    """An open graph as used by one actor. Sessions of different actors share kernel and caches."""

    kernel: Kernel
    actor: str | None = None
    policy: PolicyHook = ALLOW_ALL
    # Checks every new schema of main, whether it is applied or comes with a merge.
    schema_check: SchemaCheck | None = None
    # External blobs that writes may copy; none by default.
    external_blobs: BlobRules | None = None
    # Where the tasks of long operations run, and who watches them.
    runners: Runners = field(default_factory=ThisProcess)
    progress: Progress | None = None
    _catalogs: LruCache[str, Catalog] = field(default_factory=lambda: LruCache(CATALOG_CACHE_MAX))
    _queries: LruCache[tuple[str, str | None, str], CompiledQuery] = field(
        default_factory=lambda: LruCache(QUERY_CACHE_MAX, QUERY_CACHE_BYTES_MAX)
    )
    _schemas: LruCache[tuple[str, frozenset[str]], AcceptedSchema] = field(
        default_factory=lambda: LruCache(CATALOG_CACHE_MAX)
    )

    def acting_as(self, actor: str | None, request_id: str | None = None) -> GraphSession:
        """Return a session of another actor; with a `request_id`, for a single write with that idempotency key."""
        kernel = self.kernel if request_id is None else self.kernel.with_request_id(request_id, actor)
        return replace(self, actor=actor, kernel=kernel)

    def with_message(self, message: str | None) -> GraphSession:
        if message is None:
            return self
        return replace(self, kernel=self.kernel.with_message(parse_message(message)))

    def blob_reader(self) -> BlobReader | None:
        """Return what reads the external blobs of one write; None if none are allowed."""
        return None if self.external_blobs is None else BlobReader(self.external_blobs)

    def without_policy(self) -> GraphSession:
        """Return a session for the background work of a server, which has no actor."""
        return replace(self, actor=None, policy=ALLOW_ALL)

    def require(self, action: str, scope: Scope) -> None:
        """Raise `PolicyDenied` unless the actor may perform the action; with a policy, an actor is required."""
        if self.policy is ALLOW_ALL:
            return
        if self.actor is None:
            raise PolicyDenied(
                f"`{action}` needs an actor, because this graph has a policy; open it with `actor=…`",
                action=action,
                branch=scope.branch,
                target_branch=scope.target,
            )
        self.policy.enforce(action, self._with_branch_names(scope), self.actor)

    def _with_branch_names(self, scope: Scope) -> Scope:
        """Return a scope with every name its branches ever had: a policy is not evaded by renaming a branch."""
        if scope.branch is not None and scope.branch_names is None:
            scope = replace(scope, branch_names=self.names_now(scope.branch))
        if scope.target is not None and scope.target_names is None:
            scope = replace(scope, target_names=self.names_now(scope.target))
        return scope

    def names_now(self, branch: str) -> BranchNames:
        """Return every name that a branch ever had; only `branch` if it does not exist."""
        return self.find_branch(branch)[1]

    def find_branch(self, name: str) -> tuple[BranchId | None, BranchNames]:
        """Return the id of a branch and every name it had; the id is None for main and for a missing branch."""
        name = strip_name(name)
        try:
            branch_id = self.kernel.resolve(name)
        except BranchNotFound:
            return None, BranchNames((name,))
        return branch_id, self.kernel.all_names_of([branch_id])[branch_id]

    def names_of(self, state: Snapshot | Commit) -> BranchNames:
        """Return every name of the branch that a snapshot or commit belongs to, which is what a policy checks."""
        branch_id = state.branch if isinstance(state, Commit) else state.state.branch_id
        return self.kernel.all_names_of([branch_id])[branch_id]

    def may(self, action: str, scope: Scope) -> bool:
        try:
            self.require(action, scope)
        except PolicyDenied:
            return False
        return True

    def would_allow(self, action: str, scope: Scope) -> bool:
        """Return `may` for a decision that only affects what a response shows; it is not logged."""
        return self.may(action, replace(scope, is_probe=True))

    def address_or(self, name: str) -> str:
        """Return the URI of the graph if the actor is an admin, otherwise `name`."""
        return self.kernel.store.root.uri if self.would_allow("admin", GRAPH) else name

    def head(self, branch: str, action: str = "read") -> Snapshot:
        """Return the newest snapshot of a branch; `PolicyDenied` if the actor may not perform the action on it."""
        branch = strip_name(branch)
        try:
            snapshot = self.kernel.snapshot(branch)
        except OmniGraphError:
            # Check permission first, so that "not found" does not leak what exists.
            self.require(action, on_branch(branch))
            raise
        if self.policy is not ALLOW_ALL:
            self.require(action, on_branch(self.names_of(snapshot)))
        return snapshot

    def view(
        self,
        branch: str = MAIN,
        at: AsOf | None = None,
        action: str = "read",
        names: Naming = NOW,
        today: Snapshot | None = None,
    ) -> View:
        """Return the part of a branch, or of a past state, that the actor may see.

        A past state is authorized by the branch it belongs to. It is read with the schema of `today`, by default the
        newest snapshot of `branch`; with `names="then"`, with its own schema.
        """
        check_names(names)
        if at is None:
            return self.visible_view(self.head(branch, action), action)
        snapshot = self.allowed_at(branch, at, action)
        if today is None:
            # The newest state of another branch has its own names.
            today = snapshot if at == snapshot.branch else self.kernel.snapshot(branch)
        return self.past_view(snapshot, today, names, action)

    def past_view(self, snapshot: Snapshot, today: Snapshot, names: Naming, *actions: str) -> View:
        """Return the visible part of a past snapshot under today's names or its own.

        Hard-dropped types and properties are left out either way.
        """
        purges = self.kernel.snapshot(MAIN).state.purges
        if names == THEN:
            hidden = self.hidden_then(snapshot, today, *actions)
            return self.view_without(without_purged(snapshot, self.catalog(snapshot), purges), hidden)
        today = without_purged(today, self.catalog(today), purges)
        if snapshot.state.schema.ir_hash != today.state.schema.ir_hash:
            snapshot = read_with(snapshot, self.catalog(snapshot), today, self.catalog(today))
        return self.visible_view(snapshot, *actions)

    def hidden_then(self, snapshot: Snapshot, today: Snapshot, *actions: str) -> frozenset[str]:
        """Return the types of a past snapshot that are hidden from the actor, under their names of that time.

        A type is authorized by its name of today. A dropped type has no rule: it is visible only to an actor who sees
        every type of today, and only if its old name is not hidden either.
        """
        if self.policy is ALLOW_ALL:
            return frozenset()
        then, now = self.catalog(snapshot), self.catalog(today)
        branch = self.names_of(snapshot)
        hidden_now = self.hidden_in(now, branch, *actions)
        hidden_by_name = self.hidden_in(then, branch, *actions)
        hidden = {
            name
            for name, today_name in names_today(then, now).items()
            if (today_name in hidden_now if today_name is not None else hidden_now or name in hidden_by_name)
        }
        return with_their_edges(then, hidden)

    def full_view(self, branch: str = MAIN, at: AsOf | None = None) -> View:
        """Return a state with all its types except hard-dropped ones; the caller has checked permission."""
        if at is None:
            return self.full_view_of(self.kernel.snapshot(branch))
        snapshot = self.at(branch, at)
        return self.full_view_of(
            without_purged(snapshot, self.catalog(snapshot), self.kernel.snapshot(MAIN).state.purges)
        )

    def full_view_of(self, snapshot: Snapshot) -> View:
        """Return a snapshot with all its types, as validation needs it."""
        return View(self.kernel, snapshot, self.catalog(snapshot))

    def visible_view(self, snapshot: Snapshot, *actions: str) -> View:
        """Return a snapshot without the types that are hidden from the actor."""
        return self.view_without(snapshot, self.hidden(snapshot, *actions))

    def view_without(self, snapshot: Snapshot, hidden: frozenset[str]) -> View:
        if hidden:
            full = snapshot.state.schema
            schema = self._schemas.get_or_create((full.ir_hash, hidden), lambda: restrict_schema(full, hidden))
            snapshot = replace(restrict_snapshot(snapshot, hidden, schema), is_partial=True)
        return View(self.kernel, snapshot, self.catalog(snapshot))

    def hidden(self, snapshot: Snapshot, *actions: str) -> frozenset[str]:
        """Return the types on which the actor may perform none of the actions (default: `read`), and their edges."""
        if self.policy is ALLOW_ALL:
            return frozenset()
        return self.hidden_in(self.catalog(snapshot), self.names_of(snapshot), *actions)

    def hidden_in(self, catalog: Catalog, branch: PolicyBranch, *actions: str) -> frozenset[str]:
        """Like `hidden`, for the types of a catalog on a branch."""
        forbidden = (self._forbidden_in(catalog, action, branch) for action in actions or ("read",))
        return with_their_edges(catalog, frozenset.intersection(*forbidden))

    def _forbidden_in(self, catalog: Catalog, action: str, branch: PolicyBranch) -> frozenset[str]:
        """Return the types that are forbidden by their name in a catalog or by the name that they have on main."""
        names = (*catalog.nodes, *catalog.edges)
        hidden = self.policy.hidden_types(self.actor, action, names, branch)
        # Rules follow main: a branch that has not seen a rename yet must not show under the old name what they hide.
        on_main = self._names_on_main(catalog)
        if not on_main:
            return hidden
        hidden_on_main = self.policy.hidden_types(self.actor, action, tuple(on_main.values()), branch)
        return hidden.union(name for name, name_on_main in on_main.items() if name_on_main in hidden_on_main)

    def _names_on_main(self, catalog: Catalog) -> dict[str, str]:
        """Return the names on main of the types that have another one there."""
        recent = self.kernel.recent_snapshot(MAIN)
        if recent is not None and recent.state.schema.ir_hash == catalog.ir_hash:
            return {}
        main = self.catalog(self.kernel.snapshot(MAIN))
        if main.ir_hash == catalog.ir_hash:
            return {}
        names = names_today(catalog, main)
        return {name: on_main for name, on_main in names.items() if on_main is not None and on_main != name}

    def forbidden(self, snapshot: Snapshot, action: str, branch: PolicyBranch | None = None) -> frozenset[str]:
        """Return the types on which the actor may not perform an action, on `branch` or the snapshot's own."""
        if self.policy is ALLOW_ALL:
            return frozenset()
        return self._forbidden_in(self.catalog(snapshot), action, branch or self.names_of(snapshot))

    def reads_all_types(self, *branches: PolicyBranch) -> bool:
        """Return True if the actor may read all types of branches, dropped ones too: by a rule without `types`."""
        if self.policy is ALLOW_ALL:
            return True
        return not any(self.policy.hidden_types(self.actor, "read", (_NO_TYPE,), branch) for branch in set(branches))

    def visible_commits(self, commits: Iterable[Commit]) -> Iterator[Commit]:
        """Yield the commits that were made on branches which the actor may read."""
        may_read: dict[BranchId | None, bool] = {}
        for commit in commits:
            if self.policy is not ALLOW_ALL and commit.branch not in may_read:
                may_read[commit.branch] = self.would_allow("read", on_branch(self.names_of(commit)))
            if may_read.get(commit.branch, True):
                yield commit

    def without_hidden_parents(self, commits: Iterable[Commit]) -> list[Commit]:
        """Return commits without ids and names of what they came from, as far as the actor may not read it.

        These are parents, the source of a merge, and the commit that was picked or reverted; an id tells a time.
        """
        commits = list(commits)
        if self.policy is ALLOW_ALL or not commits:
            return commits
        source = CommitSource(self.kernel, self.kernel.snapshot(MAIN))
        known = {commit.commit_id: commit for commit in commits}
        ids = {origin for commit in commits for origin in _origins(commit) if origin is not None}
        origins = [known.get(origin) or source.find(origin) for origin in sorted(ids)]
        visible = {origin.commit_id for origin in self.visible_commits(filter(None, origins))}
        return [_keep_origins(commit, visible) for commit in commits]

    def redact_commits(self, commits: Iterable[Commit]) -> list[Commit]:
        """Return commits as the actor may see them; see `redact_commit`."""
        commits = list(commits)
        # Without a policy nothing is hidden: skip reading the names.
        if self.policy is ALLOW_ALL:
            return commits
        names = self.kernel.all_names_of({commit.branch for commit in commits})
        full = {branch for branch in names if self.reads_all_types(MAIN_NAMES, names[branch])}
        return [
            commit if commit.branch in full else redact_commit(commit, is_own=commit.actor == self.actor)
            for commit in commits
        ]

    def redact_receipt(self, commit: Commit, branch: str) -> public_values.Commit:
        """Return a commit as its receipt shows it: without its place in a branch that the actor may not read."""
        if self.policy is ALLOW_ALL:
            return commit.public(branch)
        [commit] = self.redact_commits([commit])
        if not self.would_allow("read", on_branch(self.names_of(commit))):
            commit = replace(commit, parent=None, manifest_version=UNKNOWN_VERSION)
        return commit.public(branch)

    def redact_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """Return a visible snapshot as the actor may see it: commits redacted, without names that it may not list."""
        if self.policy is ALLOW_ALL:
            return snapshot
        hidden = {commit.commit_id for commit in snapshot.state.commits} - {
            commit.commit_id for commit in self.visible_commits(snapshot.state.commits)
        }
        # The head stays: it names the state that is shown, also if the branch has no commit of its own yet.
        listed = [commit for commit in snapshot.state.commits if commit.commit_id not in hidden - {snapshot.head}]
        commits = self.redact_commits(self.without_hidden_parents(listed))
        state = replace(snapshot.state, commits=tuple(commits))
        if not self.would_allow("read", GRAPH):
            state = replace(state, branches={}, tags={})
        if self.reads_all_types(MAIN_NAMES, self.names_of(snapshot)):
            return replace(snapshot, state=state)
        return replace(snapshot, state=redact_state(state), links=(), is_partial=True)

    def catalog(self, snapshot: Snapshot) -> Catalog:
        schema = snapshot.state.schema
        return self._catalogs.get_or_create(schema.ir_hash, lambda: catalog_of(schema.parse()))

    def compile(
        self, source: Source, catalog: Catalog, name: str | None = None, written: Catalog | None = None
    ) -> CompiledQuery:
        """Return a query compiled against a catalog, from the cache if possible; see `compile_query`."""
        check_type("name", name, str | None)
        key = (source.text, name, schema_key(catalog, written or catalog))

        def compile_source() -> CompiledQuery:
            with _compiling_long if len(source.text) > QUERY_LONG_BYTES else nullcontext():
                return compile_query(source, catalog, name=name, written=written)

        return self._queries.get_or_create(key, compile_source, compiled_bytes(source.text))

    def at(self, branch: str, at: AsOf) -> Snapshot:
        """Return a past snapshot as stored; the caller checks permission."""
        state = self._revisions.find(branch, at)
        return self.kernel.snapshot_of(state) if isinstance(state, Commit) else state

    def allowed_at(self, branch: str, at: AsOf, action: str = "read") -> Snapshot:
        """Return a past snapshot if the actor may perform the action on the branch it belongs to.

        A forbidden commit raises the same error as a missing one, so that its existence does not leak.
        """
        state = self._allowed_state(branch, at, action)
        return self.kernel.snapshot_of(state) if isinstance(state, Commit) else state

    def allowed_commit(self, branch: str, at: AsOf) -> Commit:
        """Return the commit that made a state, if the actor may read the branch it belongs to."""
        state = self._allowed_state(branch, at, "read")
        return state if isinstance(state, Commit) else state.head_commit

    def _allowed_state(self, branch: str, at: AsOf, action: str) -> Snapshot | Commit:
        branch = strip_name(branch)
        if isinstance(at, int):
            check_version(at)
            self.require(action, on_branch(branch))
        try:
            state = self._revisions.find(branch, at)
            if self.policy is not ALLOW_ALL and not self.may(action, on_branch(self.names_of(state))):
                raise commit_not_found(branch, at)
        except (UsageError, PolicyDenied):
            raise
        except OmniGraphError:
            # Check permission first, so that "not found" does not leak what exists.
            self.require(action, on_branch(branch))
            raise
        return state

    def expected_head(self, branch: str, text: str) -> CommitId:
        """Return the id of the commit that a writer expects; the text itself if it names none that it may read."""
        text = strip_name(text, "if_commit")
        if is_ulid(text):
            return CommitId(text)
        try:
            return self.allowed_commit(branch, text).commit_id
        except OmniGraphError as error:
            if error.code not in ("commit.not_found", "policy.denied"):
                raise
            return CommitId(text)

    @property
    def _revisions(self) -> Revisions:
        def may_read(state: Snapshot | Commit) -> bool:
            return self.policy is ALLOW_ALL or self.would_allow("read", on_branch(self.names_of(state)))

        return Revisions(self.kernel, may_read)


def _origins(commit: Commit) -> tuple[CommitId | None, ...]:
    replayed = commit.properties.get("commit")
    return commit.parent, commit.merged_parent, None if replayed is None else CommitId(replayed)


def _keep_origins(commit: Commit, visible: Collection[CommitId]) -> Commit:
    """Return a commit without those of its origins that are not visible."""
    parent, merged_parent, replayed = (
        origin if origin is None or origin in visible else None for origin in _origins(commit)
    )
    hidden = {"source"} if merged_parent != commit.merged_parent else set()
    hidden |= {"commit"} if replayed is None else set()
    properties = {name: value for name, value in commit.properties.items() if name not in hidden}
    return replace(commit, parent=parent, merged_parent=merged_parent, properties=properties)


def sweep_on_open(kernel: Kernel) -> None:
    """Make sure that there is a graph, and settle what crashed operations have left in it."""
    kernel.snapshot()
    if not kernel.read_only and has_intents_on_disk(kernel.store):
        from omnigraph.manifest.recovery import sweep_dead_intents

        sweep_dead_intents(kernel)


class HasSession(Protocol):
    """An open graph, or a part of one such as its branches."""

    @property
    def _session(self) -> GraphSession: ...


def session_of(graph: HasSession) -> GraphSession:
    """Return the session of an open graph, for other parts of this package; not a stable interface."""
    return graph._session


_G = TypeVar("_G", bound=HasSession)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def reports_progress(method: Callable[Concatenate[_G, _P], _R]) -> Callable[Concatenate[_G, _P], _R]:
    """Make a method of an open graph report to the `progress` of `Graph.on`."""

    @wraps(method)
    def run(self: _G, *arguments: _P.args, **options: _P.kwargs) -> _R:
        with reporting_to(self._session.progress):
            return method(self, *arguments, **options)

    return cast(Callable[Concatenate[_G, _P], _R], run)
