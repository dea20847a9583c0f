"""Embedding: vectors for what is stored, as one commit; whoever lost a race only looks again.

Plans and publishes; where the tasks run is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from omnigraph.engine.arguments import check_name_list, strip_name
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.embed.cache import tidy
from omnigraph.engine.embed.fetch import Tally, anew, total
from omnigraph.engine.embed.plan import Mode, TypePlan, plan_types
from omnigraph.engine.embed.tasks import Here, Part, Site, find_part, stage_part
from omnigraph.engine.query.embedders import Embedder
from omnigraph.engine.query.search import embedder_of
from omnigraph.engine.session import GraphSession
from omnigraph.engine.tasks import Runner, Threads
from omnigraph.engine.write.write_authorization import authorize, write_permissions
from omnigraph.errors import Effect as Outcome
from omnigraph.errors import OmniGraphError
from omnigraph.limits import LOAD_SPLIT_BYTES
from omnigraph.manifest.intents import Declared, declared
from omnigraph.manifest.model import MAIN, Commit, Pin, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.manifest.requirements import PinIs, SchemaIs
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.write import fragments


@dataclass(frozen=True, slots=True)
class PropertyEmbedded:
    """One property: how many entities got a vector or lost one, and for how many texts the provider was asked."""

    type_name: str
    property_name: str
    tally: Tally

    def to_json(self) -> dict[str, object]:
        return {"type": self.type_name, "property": self.property_name, **self.tally.to_json()}


@dataclass(frozen=True, slots=True)
class EmbedReceipt:
    """A finished embedding; `commit` is None when every vector was as it should be."""

    branch: str
    mode: str
    engine: str
    properties: tuple[PropertyEmbedded, ...]
    commit: Commit | None
    actor: str | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "branch": self.branch,
            "mode": self.mode,
            "engine": self.engine,
            "properties": [one.to_json() for one in self.properties],
            "actor_id": self.actor,
            "commit": self.commit.to_json(self.branch) if self.commit else None,
        }


@dataclass(frozen=True, slots=True)
class Wish:
    """What the caller wants to be embedded, and how."""

    types: Sequence[str] | None
    mode: Mode
    select: Sequence[str]


def embed(
    session: GraphSession,
    branch: str = MAIN,
    types: Sequence[str] | None = None,
    mode: Mode = "fill_missing",
    select: Sequence[str] = (),
    *,
    embedder: Embedder | None = None,
    runner: Runner | None = None,
    site: Site | None = None,
) -> EmbedReceipt:
    """Give vectors to the `@embed` properties of a branch; see `Graph.embed`."""
    branch = strip_name(branch)
    check_name_list("types", types)
    check_name_list("select", select)
    session = authorize(session, "change", on_branch(branch), None)
    runner = runner or Threads()
    if embedder is None and mode != "clean":
        embedder = embedder_of(session.full_view(branch))
    wish = Wish(types, mode, select)
    with ExitStack() as stack:
        work = _Embedding(session, wish, embedder, runner, site or Here(session.kernel.store, embedder), stack)
        commit = work.publish(branch)
    tidy(session.kernel.store, (target.space for plan in work.plans for target in plan.targets))
    rows = tuple(
        PropertyEmbedded(plan.type.name, target.name, work.tally(plan.type.table_key, target.name))
        for plan in work.plans
        for target in plan.targets
    )
    return EmbedReceipt(branch, mode, runner.engine, rows, commit, session.actor)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was staged of a type while it was at a pin; without an effect when no row was in need."""

    pin: Pin
    effect: Effect | None
    tallies: dict[str, Tally]


class _Embedding:
    """One run, which may be prepared several times before it is published."""

    def __init__(
        self,
        session: GraphSession,
        wish: Wish,
        embedder: Embedder | None,
        runner: Runner,
        site: Site,
        stack: ExitStack,
    ) -> None:
        self.session = session
        self.wish = wish
        self.embedder = embedder
        self.runner = runner
        self.site = site
        self.plans: list[TypePlan] = []
        self._stack = stack
        self._held: Declared | None = None
        self._known: dict[str, _Known] = {}
        self._targets: set[DatasetRef] = set()

    def tally(self, table_key: str, name: str) -> Tally:
        known = self._known.get(table_key)
        return known.tallies.get(name, Tally()) if known else Tally()

    def publish(self, branch: str) -> Commit | None:
        """Do the work, and remove what it staged in vain."""
        keep: set[str] = set()
        try:
            receipt = self.session.kernel.commit(branch, self.prepare, CommitPolicy.MAINTENANCE)
            keep = self._files()
            return receipt.commit if receipt else None
        except OmniGraphError as error:
            keep = set() if error.effect is Outcome.NONE else self._files()
            raise
        except BaseException:
            # Whatever interrupts us may come after the publish, which names these files.
            keep = self._files()
            raise
        finally:
            if self._held is not None:
                fragments.remove_staged(self.session.kernel.store, self._targets, self._held.operation_id, keep)

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        may = write_permissions(self.session, snapshot)
        self.plans = plan_types(may.visible.catalog, self.wish.types, self.wish.mode, self.wish.select, self.embedder)
        may.check(plan.type.name for plan in self.plans)
        # Tasks open versions by path alone, so what was just published must be in its place.
        self.session.kernel.finish_links(snapshot)
        keys = {plan.type.table_key for plan in self.plans}
        self._known = {key: one for key, one in self._known.items() if key in keys}
        for plan in self.plans:
            key = plan.type.table_key
            pin, known = snapshot.state.pins[key], self._known.get(key)
            # Staged work starts at a version; while the type is still there, it does not matter what else has moved.
            if known is None or known.pin != pin:
                staged = self._stage(snapshot, plan, pin)
                tallies = anew(known.tallies if known else {}, staged.tallies)
                self._known[key] = replace(staged, tallies=tallies)
        effects = [one.effect for one in self._known.values() if one.effect is not None]
        if not effects:
            return None
        pins = (PinIs(one.table_key, snapshot.state.pins[one.table_key].version) for one in effects)
        properties = {"mode": self.wish.mode} | ({"model": self.embedder.model} if self.embedder else {})
        return Plan(
            "embed",
            tuple(effects),
            requirements=(SchemaIs(self.session.catalog(snapshot).ir_hash), *pins),
            actor=self.session.actor,
            properties=properties,
            operation_id=self._declared(snapshot).operation_id,
        )

    def _declared(self, snapshot: Snapshot) -> Declared:
        if self._held is None:
            self.session.kernel.refuse_read_only()
            held = declared(self.session.kernel.store, "embed", snapshot, self.session.actor)
            self._held = self._stack.enter_context(held)
        return self._held

    def _stage(self, snapshot: Snapshot, plan: TypePlan, pin: Pin) -> _Known:
        kernel, name = self.session.kernel, plan.type.name
        # Asked of the inherited dataset first, so that a branch forks only what it really changes.
        inherited = kernel.dataset(snapshot, plan.type.table_key)
        runs = fragments.fragment_runs(inherited, LOAD_SPLIT_BYTES)
        parts = [Part(inherited.ref, run) for run in runs]
        found = self.runner.run(f"looking through {name}", partial(find_part, self.site, plan), parts)
        if not any(found):
            return _Known(pin, None, {})
        held, dataset = self._declared(snapshot), kernel.writable(snapshot, plan.type.table_key)
        if dataset.ref not in self._targets:
            held.staging(*fragments.claims(dataset.ref, held.operation_id))
            self._targets.add(dataset.ref)
        work = partial(stage_part, self.site, plan, held.operation_id)
        staged = self.runner.run(f"embedding {name}", work, [Part(dataset.ref, one) for one in found if one])
        texts = [text for one in staged for text in one.fragments]
        if not texts:
            return _Known(pin, None, {})
        change = fragments.upserted(dataset, texts, [mark for one in staged for mark in one.marked])
        return _Known(pin, Effect(plan.type.table_key, dataset, (change,)), total(one.tallies for one in staged))

    def _files(self) -> set[str]:
        """Return the files that the last plan consists of."""
        return {file for one in self._known.values() if one.effect is not None for file in one.effect.files}
