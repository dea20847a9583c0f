"""The `schema` of a graph: its source, and planning and applying a new one as one commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path

from omnigraph import clock
from omnigraph.display import html_text
from omnigraph.docstrings import inherit_docs
from omnigraph.engine.arguments import strip_name
from omnigraph.engine.authorization import GRAPH, on_target
from omnigraph.engine.past_schemas import THEN, Reshaping, compare, compare_columns
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.schema_data import DataCheck, SchemaRewrite, TypeChange, changed_keys
from omnigraph.engine.session import GraphSession, SchemaCheck, reports_progress
from omnigraph.engine.tasks import TaskStore, graph_access
from omnigraph.engine.write.staging import StagedCommit
from omnigraph.engine.write.write_authorization import write_permissions
from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.ids import BranchId, new_ulid
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, Type, TypeKey
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.migrate import MigrationPlan, plan_migration
from omnigraph.lang.schema import catalog_of
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.lang.schema.render import render_mermaid
from omnigraph.limits import MAINTAIN_LOCAL_ROWS_MAX
from omnigraph.manifest.branches import reserve_identity_space
from omnigraph.manifest.create import SCHEMA_COPY
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import HARD_DROPS, MAIN, AcceptedSchema, Pin, Purge, Snapshot, TypeIdentity
from omnigraph.manifest.plan import UNNAMED, CommitPolicy, Effect, Plan, Receipt
from omnigraph.manifest.requirements import BranchIs, HeadIs, SchemaIs
from omnigraph.manifest.updates import Drop, Register, Rename, SetPurges, SetSchema, Update
from omnigraph.part_protocols import SchemaProtocol
from omnigraph.public_values import SchemaReceipt
from omnigraph.source_files import schema_source
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.store import LostRace
from omnigraph.stored_queries import QueryFolder, read_queries


def plan(session: GraphSession, text: str | Source, allow_data_loss: bool = False, branch: str = MAIN) -> MigrationPlan:
    """Return the migration from the accepted schema to a new one; `LanguageError` if the new one is invalid."""
    branch = strip_name(branch)
    session.require("schema_apply", on_target(branch))
    return _plan(session.kernel.snapshot(branch), _source(text), allow_data_loss)


def apply(
    session: GraphSession,
    text: str | Source,
    allow_data_loss: bool = False,
    check: SchemaCheck | None = None,
    branch: str = MAIN,
    *,
    allow_drops: bool = True,
) -> SchemaReceipt:
    """Apply a schema to a branch as one commit, or not at all: if a step is unsupported or stored rows break a rule.

    Without `allow_drops` and `allow_data_loss`, a schema that takes something away is refused with `schema.drops`.

    `check` receives both catalogs before anything is staged, and may raise; so does that of the session, on main.
    """
    branch = strip_name(branch)
    branch_id, names = session.find_branch(branch)
    session.require("schema_apply", on_target(names))
    session.runners.require()
    work = _Apply(session, _source(text), allow_data_loss, check, branch_id, allow_drops or allow_data_loss)
    if branch_id is not None and work.needs_identities(session.kernel.snapshot(branch)):
        _, work.identity_space = reserve_identity_space(session.kernel, branch, session.actor)
    # CONTROL work queues behind writers of this process, so it never loses to them. After a commit of another process
    # it is planned again, as long as the schema it was planned against is unchanged.
    receipt = work.publish(branch)
    after = receipt.snapshot if receipt else work.base
    if branch_id is None:
        _refresh_copy(session.kernel, after.state.schema.source)
    return SchemaReceipt(
        True,
        receipt is not None,
        after.version,
        work.migration.steps,
        receipt.public_commit if receipt else None,
        _hard_drops(work.migration),
    )


@dataclass
class _Apply:
    """One apply, which may be prepared several times before it is published."""

    session: GraphSession
    source: Source
    allow_data_loss: bool
    check: SchemaCheck | None
    branch_id: BranchId | None
    allow_drops: bool = True
    identity_space: int = 0
    base: Snapshot = field(init=False)
    migration: MigrationPlan = field(init=False)
    _planned_on: str | None = None
    _created: dict[TypeKey, Pin] = field(default_factory=dict)
    _effects_staged: tuple[Effect, ...] = ()

    def __post_init__(self) -> None:
        self.kernel = self.session.kernel
        self._staged = StagedCommit(self.session, "schema_apply")

    def publish(self, branch: str) -> Receipt | None:
        """Stage and publish; remove staged files that were not published."""
        return self._staged.publish(branch, self.prepare, CommitPolicy.CONTROL, self._files)

    def _files(self) -> set[str]:
        return {file for effect in self._effects_staged for file in effect.files}

    def needs_identities(self, snapshot: Snapshot) -> bool:
        """Return True if the new schema adds types or properties."""
        planned = _plan(snapshot, self.source, self.allow_data_loss)
        return planned.compiled.ir.next_identity_id != snapshot.state.schema.parse().next_identity_id

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        BranchIs(self.branch_id).check(snapshot)
        self._planned_on = self._planned_on or snapshot.state.schema.ir_hash
        schema_unchanged = SchemaIs(self._planned_on)
        # Check before planning: against a schema applied concurrently, the steps would not be those the caller saw.
        schema_unchanged.check(snapshot)
        self.base = snapshot
        self.migration = _plan(snapshot, self.source, self.allow_data_loss, self.identity_space)
        if not self.migration.steps:
            return None
        if not self.migration.supported:
            raise LanguageError(diagnostics=self.migration.refusals)
        hard = _hard_drops(self.migration)
        before, after = catalog_of(snapshot.state.schema.parse()), self.migration.compiled.catalog
        for check in (self.check, self.session.schema_check if self.branch_id is None else None):
            if check is not None:
                check(before, after)
        if self.migration.drops and not self.allow_drops:
            raise _unconfirmed_drops(self.migration)
        reshaping = compare(before, after)
        if hard:
            _check_hard_drops(self.kernel, snapshot, reshaping)
        self._effects_staged = self._effects(snapshot, reshaping, after)
        return Plan(
            "schema_apply",
            self._effects_staged,
            (
                *self._renames(reshaping),
                SetSchema(AcceptedSchema.of(self.migration.compiled.source.text, self.migration.compiled.ir)),
                *_purges(self.kernel, snapshot, reshaping, hard),
            ),
            (schema_unchanged, HeadIs(snapshot.head)),
            actor=self.session.actor,
            properties={HARD_DROPS: ",".join(hard)} if hard else {},
            operation_id=self._staged.operation_id or UNNAMED,
        )

    def _effects(self, snapshot: Snapshot, reshaping: Reshaping, after: Catalog) -> tuple[Effect, ...]:
        """Check the stored rows against what the schema adds, then stage what it changes, node types first."""
        changes = sorted(starmap(TypeChange, reshaping.kept), key=lambda change: change.old.kind == "edge")
        touched = changed_keys(changes)
        operation_id = self._declare(snapshot, changes, touched)
        rows = sum(
            snapshot.state.pins[change.old.table_key].row_count
            for change in changes
            if change.is_checked or (self._staged.operation_id is not None and change.old.table_key in touched)
        )
        runner = self.session.runners.by_size(rows, MAINTAIN_LOCAL_ROWS_MAX)
        if self._staged.operation_id is not None or any(change.is_checked for change in changes):
            # Tasks open versions by path, so the links of the last publish have to be finished.
            self.kernel.finish_links(snapshot)
        store = TaskStore(graph_access(self.kernel.store.root.uri, operation_id), self.kernel.store)
        permissions = write_permissions(self.session, snapshot)
        check = DataCheck(after, runner, store, permissions.unreadable | permissions.hidden)
        for change in filter(lambda change: change.is_checked, changes):
            check.run(change, self.kernel.dataset(snapshot, change.old.table_key))
        rewrite = SchemaRewrite(store, runner, check, operation_id, clock.now_us() // 1_000)
        effects = []
        for change in changes:
            if change.old.table_key in touched:
                dataset = self.kernel.writable(snapshot, change.old.table_key)
                effects.append(rewrite.stage(change, self._staged.claim(dataset)))
        return tuple(effect for effect in effects if effect is not None)

    def _declare(self, snapshot: Snapshot, changes: Sequence[TypeChange], touched: Set[TypeKey]) -> str:
        """Declare an intent if rows are written; a change of metadata needs none."""
        is_rewriting = any(change.retyped or change.filled or change.is_rekeyed for change in changes)
        if is_rewriting and any(snapshot.state.pins[key].row_count for key in touched):
            return self._staged.declare(snapshot)
        return self._staged.operation_id or new_ulid()

    def _renames(self, reshaping: Reshaping) -> list[Update]:
        """Return the updates of type names. Drops come before renames and creations, so that a name can be reused."""
        updates: list[Update] = [Drop(type_.table_key) for type_ in reshaping.dropped]
        renamed = {old.table_key: new.table_key for old, new in reshaping.kept if old.name != new.name}
        updates += [Rename(renamed)] if renamed else []
        updates += [Register(self._create(type_)) for type_ in reshaping.added]
        return updates

    def _create(self, type_: Type) -> Pin:
        """Create the empty dataset of a new type; a retry reuses it."""
        if type_.table_key not in self._created:
            identity = TypeIdentity.of(type_)
            path = identity.path(type_.table_key)
            schema = physical_schema(arrow_schema(type_))
            try:
                created = self.kernel.store.create(path, schema)
            except LostRace:
                # A crashed or concurrent apply created this dataset. It may have another schema, and
                # a sweep may be about to remove it, so we neither use it nor wait for it.
                path = f"{path}-{new_ulid()}"
                created = self.kernel.store.create(path, schema)
            self._created[type_.table_key] = Pin(identity, type_.table_key, path, 1, None, 0, checksum=created.checksum)
        return self._created[type_.table_key]


def _source(text: str | Source) -> Source:
    return text if isinstance(text, Source) else Source("schema.pg", text)


def _plan(snapshot: Snapshot, source: Source, allow_data_loss: bool, identity_space: int = 0) -> MigrationPlan:
    return plan_migration(
        snapshot.state.schema.parse(), source, allow_data_loss=allow_data_loss, identity_space=identity_space
    )


def _unconfirmed_drops(migration: MigrationPlan) -> GraphError:
    drops = [step.render().removeprefix("- ") for step in migration.drops]
    return GraphError(
        f"the new schema leaves out what the graph has, so it would {', '.join(drops)}; nothing was applied. Keep it in"
        " the schema, rename it with `@rename_from`, or allow it with `--allow-drops` (`allow_drops`)",
        code="schema.drops",
        drops=[step.to_json() for step in migration.drops],
    )


def _check_hard_drops(kernel: Kernel, snapshot: Snapshot, reshaping: Reshaping) -> None:
    """Raise unless main drops what no other branch has: cleanup removes the bytes of every branch."""
    if snapshot.state.branch_id is not None:
        raise GraphError(
            f"data can only be removed for good on `main`, not on branch `{snapshot.branch}`; nothing was applied."
            " Apply it without `allow_data_loss` here, and with it on `main`",
            code="schema.branches_exist",
            branches=[snapshot.branch],
        )
    types = {(type_.type_id, type_.incarnation_id) for type_ in reshaping.dropped}
    properties = {
        old.properties[name].property_id for old, new in reshaping.kept for name in compare_columns(old, new).dropped
    }
    holders = [
        branch.branch
        for branch in kernel.snapshots_of(sorted(snapshot.state.branches))
        if _has_any(catalog_of(branch.state.schema.parse()), types, properties)
    ]
    if holders:
        quoted = ", ".join(f"`{name}`" for name in holders)
        raise GraphError(
            f"data that other branches still have cannot be removed for good: {quoted}; nothing was applied. Drop it"
            " on these branches first, or delete them",
            code="schema.branches_exist",
            branches=holders,
        )


def _has_any(catalog: Catalog, types: Collection[tuple[int, int]], properties: Collection[int]) -> bool:
    return any(
        (type_.type_id, type_.incarnation_id) in types
        or any(property_.property_id in properties for property_ in type_.properties.values())
        for type_ in catalog.types
    )


def _purges(kernel: Kernel, snapshot: Snapshot, reshaping: Reshaping, hard: Collection[str]) -> list[Update]:
    """Record hard drops, so that no read shows them and cleanup knows what to remove."""
    if not hard:
        # Drops are all soft or all hard.
        return []
    now, pins = clock.now_us(), snapshot.state.pins
    purges = []
    for type_ in reshaping.dropped:
        pin = pins[type_.table_key]
        purges.append(Purge(pin.identity, None, type_.table_key, pin.path, now, is_embedded=_embeds(type_)))
    for old, new in reshaping.kept:
        pin = pins[old.table_key]
        for name in compare_columns(old, new).dropped:
            property_ = old.properties[name]
            fields = kernel.dataset(snapshot, old.table_key).nested_field_ids(name)
            is_blob = property_.type.is_blob
            label = f"{old.table_key}.{name}"
            purges.append(
                Purge(pin.identity, property_.property_id, label, pin.path, now, fields, is_blob, _embeds(old, name))
            )
    return [SetPurges(tuple(purges))]


def _embeds(type_: Type, name: str | None = None) -> bool:
    """Return True if a property is the source or target of embeddings; without a name, if any property is."""
    return any(
        property_.embed is not None and name in (None, property_.name, property_.embed.source)
        for property_ in type_.properties.values()
    )


def _hard_drops(migration: MigrationPlan) -> tuple[str, ...]:
    return tuple(step.entity for step in migration.steps if step.mode == "hard")


def _refresh_copy(kernel: Kernel, source: str) -> None:
    """Update the human-readable copy of the schema; best effort, because the catalog is authoritative."""
    with suppress(OmniGraphError):
        if kernel.store.objects.read_if_exists(SCHEMA_COPY) != source.encode():
            kernel.store.objects.write(SCHEMA_COPY, source.encode())


@inherit_docs(SchemaProtocol)
class Schema(SchemaProtocol):
    """The schema of an open graph, always the newest; that of main unless a branch is named."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    @property
    def source(self) -> str:
        self._session.require("read", GRAPH)
        return self._session.visible_view(self._session.kernel.snapshot(MAIN)).snapshot.state.schema.source

    def read(self, branch: str = MAIN, *, at: AsOf | None = None) -> str:
        if at is not None:
            return self._session.view(branch, at, names=THEN).snapshot.state.schema.source
        if strip_name(branch) == MAIN:
            return self.source
        return self._session.view(branch).snapshot.state.schema.source

    @property
    def catalog(self) -> Catalog:
        return self._session.view().catalog

    @property
    def nodes(self) -> Mapping[str, NodeType]:
        return self.catalog.nodes

    @property
    def edges(self) -> Mapping[str, EdgeType]:
        return self.catalog.edges

    @property
    def types(self) -> tuple[NodeType | EdgeType, ...]:
        return self.catalog.types

    def __repr__(self) -> str:
        return "\n\n".join(map(str, self.types)) or "<Schema: no types>"

    def _repr_html_(self) -> str:
        return html_text(repr(self))

    def to_mermaid(self) -> str:
        """Return the schema as a mermaid entity-relationship diagram, which code hosts and notebooks draw.

        Returns:
            The text of the diagram.

        Raises:
            PolicyDenied: The actor may not read the graph.

        Example:
            >>> print(graph.schema.to_mermaid())
            erDiagram
              Person {
                I32 age "optional"
                String name PK
                Blob photo "optional"
              }
              Person }o--o{ Person : "Knows"
            <BLANKLINE>
        """
        return render_mermaid(self.catalog)

    def plan(self, schema: str | Path, *, allow_data_loss: bool = False, branch: str = MAIN) -> MigrationPlan:
        return plan(self._session, schema_source(schema), allow_data_loss, branch)

    @reports_progress
    def apply(
        self,
        schema: str | Path,
        *,
        allow_data_loss: bool = False,
        allow_drops: bool = True,
        queries: str | Path | Iterable[str | Path] | None = None,
        branch: str = MAIN,
        message: str | None = None,
    ) -> SchemaReceipt:
        """Apply a new schema as one commit; nothing is applied if a step is unsupported.

        Args:
            queries: The stored queries of the graph, as a directory of `.gq` files or a list of files. A schema that
                breaks one of them is rejected.
        """
        check = None if queries is None else QueryFolder(read_queries(queries)).reject_breakage
        session = self._session.with_message(message)
        source = schema_source(schema)
        return apply(session, source, allow_data_loss, check, branch=branch, allow_drops=allow_drops)
