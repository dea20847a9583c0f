"""Embed stored rows as one commit; after a commit conflict only types that changed are staged again.

Plans and publishes; the runner decides where tasks run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from omnigraph.display import commit_note, summarize
from omnigraph.engine.arguments import check_name_list, strip_name
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.embed.cache import EmbedCounts, add_retry_counts, compact_caches, sum_counts
from omnigraph.engine.embed.embed_tasks import (
    EmbedSite,
    Mode,
    Part,
    TypePlan,
    embed_site,
    find_fragments_in_need,
    plan_types,
    stage_part,
)
from omnigraph.engine.query.embedders import Embedder
from omnigraph.engine.query.ranking import default_embedder
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Runner
from omnigraph.engine.write.staging import StagedCommit, require_unchanged
from omnigraph.engine.write.write_authorization import write_permissions
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import EMBED_LOCAL_BYTES_MAX
from omnigraph.manifest.model import MAIN, Pin, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.public_values import Commit, PublicValue, named
from omnigraph.store.write import fragments


@dataclass(frozen=True, slots=True)
class PropertyEmbedded:
    """Counts of one property: entities that got or lost a vector, and texts sent to the provider."""

    type_name: str
    property_name: str
    tally: EmbedCounts

    def to_json(self) -> dict[str, object]:
        return {"type": self.type_name, "property": self.property_name, **self.tally.to_json()}


@dataclass(frozen=True, slots=True)
class EmbedReceipt(PublicValue):
    """The result of an embedding; `commit` is None if every vector was up to date."""

    branch: str
    mode: str
    engine: str
    properties: tuple[PropertyEmbedded, ...]
    commit: Commit | None
    actor: str | None = field(default=None, metadata=named("actor_id"))

    def __repr__(self) -> str:
        counts = [f"{item.type_name}.{item.property_name}: {item.tally.filled:,} filled" for item in self.properties]
        return summarize(self, f"{self.mode} on {self.branch}", *counts, commit_note(self.commit))


def embed(
    session: GraphSession,
    branch: str = MAIN,
    types: Sequence[str] | None = None,
    mode: Mode = "fill_missing",
    select: Sequence[str] = (),
    *,
    embedder: Embedder | None = None,
) -> EmbedReceipt:
    """Give vectors to the `@embed` properties of a branch; see `Graph.embed`."""
    branch = strip_name(branch)
    check_name_list("types", types)
    check_name_list("select", select)
    session.require("change", on_branch(branch))
    runner = session.runners.by_size(_embedded_bytes(session, branch), EMBED_LOCAL_BYTES_MAX)
    if embedder is None and mode != "clean":
        embedder = default_embedder(session.full_view(branch))
    site = embed_site(session.kernel.store, new_ulid(), runner, embedder)
    transaction = _EmbedTransaction(session, types, mode, select, embedder, runner, site)
    commit = transaction.publish(branch)
    compact_caches(session.kernel.store, (target.space for plan in transaction.plans for target in plan.targets))
    rows = tuple(
        PropertyEmbedded(plan.type.name, target.name, transaction.tally(plan.type.table_key, target.name))
        for plan in transaction.plans
        for target in plan.targets
    )
    return EmbedReceipt(branch, mode, runner.engine, rows, commit, session.actor)


def _embedded_bytes(session: GraphSession, branch: str) -> int:
    """Return the size of all types that have an `@embed` property."""
    snapshot = session.kernel.snapshot(branch)
    nodes = session.catalog(snapshot).nodes.values()
    keys = [item.table_key for item in nodes if any(property_.embed for property_ in item.properties.values())]
    fragments = [item for key in keys for item in session.kernel.dataset(snapshot, key).fragments]
    return sum(file.file_size_bytes or 0 for item in fragments for file in item.files)


@dataclass(frozen=True, slots=True)
class _StagedType:
    """Staged work of a type at a pin; no effect if no row needed a vector."""

    pin: Pin
    effect: Effect | None
    tallies: dict[str, EmbedCounts]


@dataclass
class _EmbedTransaction:
    """One run, which may be prepared several times before it is published."""

    session: GraphSession
    types: Sequence[str] | None
    mode: Mode
    select: Sequence[str]
    embedder: Embedder | None
    runner: Runner
    site: EmbedSite
    plans: list[TypePlan] = field(default_factory=list)
    _staged: dict[TypeKey, _StagedType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._commit = StagedCommit(self.session, "embed")

    def tally(self, table_key: TypeKey, name: str) -> EmbedCounts:
        staged = self._staged.get(table_key)
        return staged.tallies.get(name, EmbedCounts()) if staged else EmbedCounts()

    def publish(self, branch: str) -> Commit | None:
        """Stage and publish; remove staged files that were not published."""
        receipt = self._commit.publish(branch, self.prepare, CommitPolicy.MAINTENANCE, self._files)
        return receipt.public_commit if receipt else None

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        permissions = write_permissions(self.session, snapshot)
        self.plans = plan_types(permissions.visible.catalog, self.types, self.mode, self.select, self.embedder)
        permissions.check(plan.type.name for plan in self.plans)
        # Tasks open versions by path, so the links of the last publish have to be finished.
        self.session.kernel.finish_links(snapshot)
        keys = {plan.type.table_key for plan in self.plans}
        self._staged = {key: staged_type for key, staged_type in self._staged.items() if key in keys}
        for plan in self.plans:
            key = plan.type.table_key
            pin, earlier = snapshot.state.pins[key], self._staged.get(key)
            # Staged work starts at a version; while the type is still there, it does not matter what else has moved.
            if earlier is None or earlier.pin != pin:
                staged = self._stage(snapshot, plan, pin)
                tallies = add_retry_counts(earlier.tallies if earlier else {}, staged.tallies)
                self._staged[key] = replace(staged, tallies=tallies)
        effects = [staged_type.effect for staged_type in self._staged.values() if staged_type.effect is not None]
        if not effects:
            return None
        properties = {"mode": self.mode} | ({"model": self.embedder.model} if self.embedder else {})
        return Plan(
            "embed",
            tuple(effects),
            requirements=require_unchanged(self.session, snapshot, effects),
            actor=self.session.actor,
            properties=properties,
            operation_id=self._commit.declare(snapshot),
        )

    def _stage(self, snapshot: Snapshot, plan: TypePlan, pin: Pin) -> _StagedType:
        kernel, name = self.session.kernel, plan.type.name
        # Checked on the inherited dataset first, so that a branch forks only datasets that change.
        inherited = kernel.dataset(snapshot, plan.type.table_key)
        runs = fragments.fragment_runs(inherited)
        parts = [Part(inherited.ref, run) for run in runs]
        fragment_ids = self.runner.run(
            f"finding missing vectors of {name}", partial(find_fragments_in_need, self.site, plan), parts
        )
        if not any(fragment_ids):
            return _StagedType(pin, None, {})
        operation_id = self._commit.declare(snapshot)
        dataset = self._commit.claim(kernel.writable(snapshot, plan.type.table_key))
        work = partial(stage_part, self.site, plan, operation_id)
        staged = self.runner.run(f"embedding {name}", work, [Part(dataset.ref, part) for part in fragment_ids if part])
        fragment_texts = [fragment_text for part in staged for fragment_text in part.fragments]
        if not fragment_texts:
            return _StagedType(pin, None, {})
        change = fragments.upserted(dataset, fragment_texts, [mark for part in staged for mark in part.marked])
        return _StagedType(
            pin, Effect(plan.type.table_key, dataset, (change,)), sum_counts(part.tallies for part in staged)
        )

    def _files(self) -> set[str]:
        """Return the files that the last plan consists of."""
        return {file for staged in self._staged.values() if staged.effect is not None for file in staged.effect.files}
