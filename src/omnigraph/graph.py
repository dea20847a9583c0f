"""The graph: what users import. Every surface calls these methods and decides nothing that they do not.

import omnigraph as og
graph = og.init("graph.omni", schema="schema.pg")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from omnigraph import clock
from omnigraph.engine import export, history
from omnigraph.engine.arguments import check_type, strip_name
from omnigraph.engine.authorization import ALLOW_ALL, PolicyHook
from omnigraph.engine.blobs import Blob, blob
from omnigraph.engine.branches import Branches, Tags
from omnigraph.engine.indexes import IndexReport, ensure_indices
from omnigraph.engine.past_names import NOW, Naming
from omnigraph.engine.query import explain as explain_query
from omnigraph.engine.query import run as run_query
from omnigraph.engine.query.budget import DEFAULT_BUDGET, Budget
from omnigraph.engine.query.caches import Caches
from omnigraph.engine.query.explain import Explanation
from omnigraph.engine.query.result import Result
from omnigraph.engine.schema import Schema, schema_source
from omnigraph.engine.session import AsOf, GraphSession, View
from omnigraph.ids import new_ulid
from omnigraph.lang.query import CompiledQuery
from omnigraph.lang.schema import compile_schema
from omnigraph.limits import CHANGE_PAGE_BYTES, CHANGE_PAGE_CHANGES, FEED_COMMITS
from omnigraph.manifest.create import init as init_graph
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Commit, Snapshot
from omnigraph.store.objects.request_meter import NO_METER, Meter
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store

# A call loads the part of the engine that it needs: most processes read, and loading all takes longer than a query.
if TYPE_CHECKING:
    from omnigraph.engine.audit import AuditEntry
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.clone import CloneReport
    from omnigraph.engine.embed import EmbedReceipt
    from omnigraph.engine.embed.plan import Mode as EmbedMode
    from omnigraph.engine.history import Operation
    from omnigraph.engine.maintain.cleanup import CleanupReport
    from omnigraph.engine.maintain.optimize import OptimizeReport
    from omnigraph.engine.maintain.reconcile import Reconciler, ReconcileReport
    from omnigraph.engine.maintain.repair import RepairReport
    from omnigraph.engine.maintain.verify import VerifyReport
    from omnigraph.engine.merge import MergeReceipt
    from omnigraph.engine.merge.conflicts import ResolutionsInput
    from omnigraph.engine.query.embedders import Embedder
    from omnigraph.engine.write.ingest import Dialect, Mode
    from omnigraph.engine.write.ndjson.reader import Data
    from omnigraph.engine.write.write_receipts import IngestReceipt, MutationReceipt
    from omnigraph.manifest.upgrade import UpgradeReport


def init(uri: str | Path, schema: str | Path, *, actor: str | None = None, force: bool = False) -> Graph:
    """Create a graph and open it. `schema` is the text of a schema, or the path of a `.pg` file."""
    compiled = compile_schema(schema_source(schema), domain=new_ulid())
    store = Store(_location(uri))
    init_graph(store, compiled, actor=actor, force=force)
    return Graph(Kernel(store), actor=actor)


def open(  # noqa: A001 - `og.open` reads as it should
    uri: str | Path,
    *,
    read_only: bool = False,
    actor: str | None = None,
    policy: PolicyHook = ALLOW_ALL,
    meter: Meter = NO_METER,
) -> Graph:
    """Open a graph; a missing one is an error that says how to create it."""
    kernel = Kernel(Store(_location(uri), meter), read_only=read_only)
    kernel.snapshot()
    return Graph(kernel, actor=actor, policy=policy)


def upgrade(uri: str | Path, *, actor: str | None = None) -> UpgradeReport:
    """Bring a graph of an older format to the one of this release, where it lies and with its history."""
    from omnigraph.manifest.upgrade import upgrade as upgrade_graph

    return upgrade_graph(Store(_location(uri)), actor)


def _location(uri: str | Path) -> Location:
    check_type("uri", uri, str | PathLike)
    return Location.parse(str(uri))


class Graph:
    """One opened graph."""

    def __init__(self, kernel: Kernel, *, actor: str | None = None, policy: PolicyHook = ALLOW_ALL) -> None:
        self._attach(GraphSession(kernel, actor, policy), Caches())

    def _attach(self, session: GraphSession, caches: Caches) -> None:
        self.session = session
        self._caches = caches
        self.branches = Branches(session)
        self.tags = Tags(session)
        self.schema = Schema(session)

    def acting_as(self, actor: str | None, request_id: str | None = None) -> Graph:
        """Return this graph as another actor uses it: the caches are shared, and so is what `close` ends.

        With a `request_id`, a ULID, it is for one write, which is refused if it was done under this id before.
        """
        kernel = self.session.kernel if request_id is None else self.session.kernel.with_request_id(request_id)
        other = Graph.__new__(Graph)
        other._attach(replace(self.session, actor=actor, kernel=kernel), self._caches)
        return other

    @property
    def uri(self) -> str:
        return self.session.kernel.store.root.uri

    @property
    def cache_bytes(self) -> int:
        """How much memory is held for the next reads."""
        return self._caches.nbytes

    def snapshot(self, branch: str = MAIN) -> Snapshot:
        """Return the newest state of a branch."""
        return self.session.view(branch).snapshot

    def query(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        branch: str = MAIN,
        at: AsOf | None = None,
        *,
        names: Naming = NOW,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Result:
        """Run a read on the newest state of a branch, or at a commit, a tag, a manifest version or a point in time.

        An older state is asked with the names that `branch` has today; with `names="then"`, with its own.
        """
        started = clock.elapsed()
        view, compiled = self._prepare_read(source, name, branch, at, names)
        return run_query(
            view,
            compiled,
            params or {},
            started=started,
            now_us=clock.now_us(),
            budget=budget,
            caches=self._caches,
            embedder=embedder,
        )

    def explain(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        branch: str = MAIN,
        at: AsOf | None = None,
        *,
        names: Naming = NOW,
        profile: bool = False,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Explanation:
        """Return the plan of a read with estimates; with `profile` it is run, and the plan adds what happened."""
        started = clock.elapsed()
        view, compiled = self._prepare_read(source, name, branch, at, names)
        return explain_query(
            view,
            compiled,
            params or {},
            started=started,
            profile=profile,
            now_us=clock.now_us(),
            budget=budget,
            caches=self._caches,
            embedder=embedder,
        )

    def _prepare_read(
        self, source: str, name: str | None, branch: str, at: AsOf | None, names: Naming
    ) -> tuple[View, CompiledQuery]:
        view = self.session.view(branch, at, names=names)
        return view, self.session.compile(source, view.catalog, name)

    def mutate(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        branch: str = MAIN,
        if_commit: str | None = None,
    ) -> MutationReceipt:
        """Run a mutation as one commit. `if_commit` lets it through only while the branch is at that commit."""
        from omnigraph.engine.write.mutate import mutate

        return mutate(self.session, source, name, params, branch, None, if_commit)

    def ingest(
        self,
        data: Data,
        mode: Mode = "merge",
        branch: str = MAIN,
        from_branch: str | None = None,
        dialect: Dialect = "strict",
    ) -> IngestReceipt:
        """Write NDJSON from a path, bytes, a file object or dictionaries, as one commit."""
        from omnigraph.engine.write.ingest import ingest

        return ingest(self.session, data, mode=mode, branch=branch, from_branch=from_branch, dialect=dialect)

    def embed(
        self,
        branch: str = MAIN,
        types: Sequence[str] | None = None,
        mode: EmbedMode = "fill_missing",
        select: Sequence[str] = (),
        *,
        embedder: Embedder | None = None,
    ) -> EmbedReceipt:
        """Give vectors to `@embed` properties, as one commit: where they are missing, or made from another text.

        `reembed_all` replaces those of other models and of other hands as well, `clean` takes all of them away.
        `select` narrows it to entities with `field=value`, or `Type:field=value`. No text is asked for twice.
        """
        from omnigraph.engine.embed import embed

        return embed(self.session, branch, types, mode, select, embedder=embedder)

    def commits(self, branch: str = MAIN, *, limit: int | None = None, before: str | None = None) -> list[Commit]:
        """Return the commits that a branch is made of, newest first; a commit always comes before its parents.

        `limit` is the most to return; the next page is `before` the last commit of this one.
        """
        return history.commits(self.session, branch, self.session.actor, limit=limit, before=before)

    def commit(self, commit_id: str) -> Commit:
        """Return one commit of any branch."""
        return history.commit(self.session, commit_id, self.session.actor)

    def operation(self, operation_id: str) -> Operation:
        """Return what became of a write whose error names its `operation_id`, because nobody knew if it was done."""
        from omnigraph.engine.history import operation

        return operation(self.session, operation_id)

    def at(self, at: AsOf, branch: str = MAIN, *, names: Naming = NOW) -> GraphAt:
        """Return the graph as it was: at a commit or tag, or for a branch at a manifest version or a point in time.

        It is asked with the names that `branch` has today; with `names="then"`, with its own.
        """
        branch = strip_name(branch)
        return GraphAt(self, self.session.view(branch, at, names=names).snapshot, branch, names)

    def revert(
        self, commit_id: str, branch: str = MAIN, *, dry_run: bool = False, resolutions: ResolutionsInput = None
    ) -> MergeReceipt:
        """Take the change of a commit, or of one that a tag names, back; of a merge, all that it brought in."""
        from omnigraph.engine.merge import revert

        return revert(self.session, commit_id, branch, dry_run=dry_run, resolutions=resolutions)

    def cherry_pick(
        self, commit_id: str, branch: str = MAIN, *, dry_run: bool = False, resolutions: ResolutionsInput = None
    ) -> MergeReceipt:
        """Apply the change of a commit of another branch, or of one that a tag names, as a new commit."""
        from omnigraph.engine.merge import cherry_pick

        return cherry_pick(self.session, commit_id, branch, dry_run=dry_run, resolutions=resolutions)

    def export(
        self,
        branch: str = MAIN,
        at: AsOf | None = None,
        types: Sequence[str] | None = None,
        *,
        names: Naming = NOW,
    ) -> Iterator[bytes]:
        """Return the graph as NDJSON that a load takes back, in chunks of whole lines.

        A line with a large blob comes in several chunks. An older state has the names of today, so that today's schema
        takes it; with `names="then"`, its own.
        """
        return export.export(self.session, branch, at, types, self.session.actor, names)

    def diff(
        self,
        a: AsOf,
        b: AsOf,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        branch: str = MAIN,
        names: Naming = NOW,
    ) -> ChangeSet:
        """Return what differs between two branches, tags, commits, or earlier moments of `branch`.

        Both are read with the schema of today; with `names="then"`, each with its own.
        """
        from omnigraph.engine import changes

        return changes.diff(
            self.session, a, b, kinds=kinds, types=types, ops=ops, branch=branch, names=names, actor=self.session.actor
        )

    def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = CHANGE_PAGE_CHANGES,
        bytes_max: int = CHANGE_PAGE_BYTES,
        page_token: str | None = None,
        names: Naming = NOW,
    ) -> CommitPage:
        """Return a page of what a commit changed against its first parent, with images before and after.

        Naming are those that main has today; with `names="then"`, those of the commit.
        """
        from omnigraph.engine import changes

        return changes.commit_changes(
            self.session,
            commit_id,
            kinds=kinds,
            types=types,
            ops=ops,
            limit=limit,
            bytes_max=bytes_max,
            page_token=page_token,
            names=names,
            actor=self.session.actor,
        )

    def changes(
        self,
        branch: str = MAIN,
        *,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
        limit: int = CHANGE_PAGE_CHANGES,
        bytes_max: int = CHANGE_PAGE_BYTES,
        commits_max: int = FEED_COMMITS,
    ) -> FeedPage:
        """Return the next page of a branch's feed, from `start`, a `cursor` or a `page_token` on."""
        from omnigraph.engine import changes

        return changes.changes(
            self.session,
            branch,
            start=start,
            cursor=cursor,
            page_token=page_token,
            kinds=kinds,
            types=types,
            ops=ops,
            limit=limit,
            bytes_max=bytes_max,
            commits_max=commits_max,
            actor=self.session.actor,
        )

    def baseline(
        self,
        branch: str = MAIN,
        *,
        kinds: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        ops: Sequence[str] | None = None,
    ) -> Iterator[bytes]:
        """Return a branch as NDJSON, with a last record that names the cursor from which its feed goes on."""
        from omnigraph.engine import changes

        return changes.baseline(self.session, branch, kinds=kinds, types=types, ops=ops, actor=self.session.actor)

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = MAIN,
        at: AsOf | None = None,
        names: Naming = NOW,
    ) -> Blob:
        """Find a blob: its length, its tag, and ranges of its bytes."""
        return blob(
            self.session,
            type_name,
            entity_id,
            property_name,
            entity=entity,
            branch=branch,
            at=at,
            names=names,
            actor=self.session.actor,
        )

    def ensure_indices(self, branch: str = MAIN) -> IndexReport:
        """Build every index that the schema wants and the data does not have yet, as one commit."""
        return ensure_indices(self.session, branch, self.session.actor)

    def optimize(self, branch: str = MAIN) -> OptimizeReport:
        """Compact every type of a branch and bring its indexes up to date, as one commit; deletes nothing."""
        from omnigraph.engine.maintain.optimize import optimize

        return optimize(self.session, branch, self.session.actor)

    def repair(
        self, branch: str = MAIN, *, confirm: bool = False, force: bool = False, discard: bool = False
    ) -> RepairReport:
        """Show what foreign tools wrote by path; with `confirm`, take over or throw away what they did."""
        from omnigraph.engine.maintain.repair import repair

        return repair(self.session, branch, confirm=confirm, force=force, discard=discard, actor=self.session.actor)

    def audit(
        self,
        *,
        kind: str | None = None,
        actor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> list[AuditEntry]:
        """Return what was recovered, repaired, thrown away and upgraded, newest first.

        Args:
            kind: Only `rolled_forward`, `rolled_back`, `branch_discarded`, `repaired`, `discarded` or `upgraded`.
            actor: Only what concerns the work of this actor.
            since: Only what happened then or later.
            until: Only what happened before.
            limit: The most entries to return.
        """
        from omnigraph.engine.audit import list_audit

        return list_audit(
            self.session, kind=kind, by=actor, since=since, until=until, limit=limit, actor=self.session.actor
        )

    def verify(self, *, data: bool = False) -> VerifyReport:
        """Check every branch and tag without changing anything: all can be read, and what they hold agrees.

        Args:
            data: Also compare the bytes of all files with the checksums that were recorded when they were written.
        """
        from omnigraph.engine.maintain.verify import verify

        return verify(self.session, self.session.actor, data=data)

    def reconcile(self) -> ReconcileReport:
        """Finish links, settle the work of the dead, and optimize what is past a threshold; nothing while others do."""
        from omnigraph.engine.maintain.reconcile import Reconciliation

        return Reconciliation(self.session, self.session.actor).run()

    def reconciler(self, every: timedelta) -> Reconciler:
        """Return a thread that reconciles again and again while it is entered or started; see `Reconciler`."""
        from omnigraph.engine.maintain.reconcile import Reconciler, Reconciliation

        check_type("every", every, timedelta)
        return Reconciler(Reconciliation(self.session, self.session.actor).run, every.total_seconds())

    def cleanup(
        self, keep: int | None = None, older_than: timedelta | None = None, *, dry_run: bool = False
    ) -> CleanupReport:
        """Remove versions that are not among the newest `keep` and were not current within `older_than`.

        Tags, the places where branches begin and meet, live work and the last minutes are kept in any case.
        """
        from omnigraph.engine.maintain.cleanup import cleanup

        check_type("older_than", older_than, timedelta | None)
        seconds = None if older_than is None else older_than.total_seconds()
        return cleanup(self.session, keep, seconds, dry_run=dry_run, actor=self.session.actor)

    def clone(self, target: str | Path, *, update: bool = False) -> CloneReport:
        """Copy this graph whole to a path or address, with history, branches, tags and blobs, and verify the copy.

        With `update`, bring an earlier clone up to date, copying only what is new: an incremental backup. An
        interrupted call goes on where it stopped when it is made again. Cloning a backup to a new place restores it.
        """
        from omnigraph.engine.clone import clone_graph

        check_type("target", target, str | PathLike)
        return clone_graph(self.session, str(target), update=update, actor=self.session.actor)

    def close(self) -> None:
        """Finish work in the background."""
        self.session.kernel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class GraphAt:
    """A graph at one moment, for reading; no later write changes what it shows.

    Its names follow the schema of the branch, as those of every read of the past do.
    """

    def __init__(self, graph: Graph, snapshot: Snapshot, branch: str, names: Naming) -> None:
        assert snapshot.head is not None, "every state has a commit that made it"
        self._graph = graph
        self._snapshot = snapshot
        self._commit_id = snapshot.head
        self._branch = branch
        self._names = names

    @property
    def commit_id(self) -> str:
        return self._commit_id

    def snapshot(self) -> Snapshot:
        """Return the state that is shown."""
        return self._snapshot

    def query(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Result:
        """Run a read on this state."""
        return self._graph.query(
            source,
            name,
            params,
            self._branch,
            self._commit_id,
            names=self._names,
            budget=budget,
            embedder=embedder,
        )

    def explain(
        self,
        source: str,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        *,
        profile: bool = False,
        budget: Budget = DEFAULT_BUDGET,
        embedder: Embedder | None = None,
    ) -> Explanation:
        """Return the plan of a read on this state; see `Graph.explain`."""
        return self._graph.explain(
            source,
            name,
            params,
            self._branch,
            self._commit_id,
            names=self._names,
            profile=profile,
            budget=budget,
            embedder=embedder,
        )

    def export(self, types: Sequence[str] | None = None) -> Iterator[bytes]:
        """Return this state as NDJSON that a load takes back."""
        return self._graph.export(self._branch, self._commit_id, types, names=self._names)
