"""The `schema` of a graph: its source, and planning and applying a new one as one commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

import orjson

from omnigraph import clock
from omnigraph.display import commit_note, html_text, summarize
from omnigraph.engine.authorization import GRAPH, on_target
from omnigraph.engine.past_names import Reshaping, compare, compare_columns
from omnigraph.engine.session import GraphSession
from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog, EdgeType, NodeType, Scalar, TypeKey
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.migrate import MigrationPlan, Step, plan_migration
from omnigraph.lang.schema import SchemaIR, catalog_of
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.manifest.create import SCHEMA_COPY, accepted
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import HARD_DROPS, MAIN, Pin, Purge, Snapshot, TypeIdentity
from omnigraph.manifest.plan import CommitPolicy, Effect, Plan
from omnigraph.manifest.requirements import HeadIs, SchemaIs
from omnigraph.manifest.updates import Drop, Register, Rename, SetPurges, SetSchema, Update
from omnigraph.public_values import Commit, PublicValue
from omnigraph.source_files import schema_source
from omnigraph.store.lance_schema import physical_schema
from omnigraph.store.store import LostRace
from omnigraph.store.write.schema_change import reshape
from omnigraph.stored_queries import QueryFolder, read_queries


@dataclass(frozen=True, slots=True)
class SchemaPlan(PublicValue):
    """The steps to a new schema."""

    supported: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class SchemaReceipt(PublicValue):
    """The outcome of an apply; without steps nothing was applied and there is no commit.

    `purge_pending` lists what was hard-dropped: no commit, branch or tag shows it any more, and the next cleanup
    removes its bytes.
    """

    computed: ClassVar = {"step_count": "step_count"}
    supported: bool
    applied: bool
    graph_manifest_version: int
    steps: tuple[Step, ...]
    commit: Commit | None = None
    purge_pending: tuple[str, ...] = ()

    @property
    def step_count(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        return summarize(self, *(step.render() for step in self.steps), commit_note(self.commit))


def plan(session: GraphSession, text: str | Source, allow_data_loss: bool = False) -> MigrationPlan:
    """Return the migration from the accepted schema to a new one; `LanguageError` if the new one is invalid."""
    session.require("schema_apply", on_target(MAIN))
    return _plan(session.kernel.snapshot(MAIN), _source(text), allow_data_loss)


# Takes the catalogs before and after a change, and raises when the change must not happen.
SchemaCheck: TypeAlias = Callable[[Catalog, Catalog], None]


def apply(
    session: GraphSession,
    text: str | Source,
    allow_data_loss: bool = False,
    check: SchemaCheck | None = None,
) -> SchemaReceipt:
    """Apply a schema as one commit; nothing is applied if a step is unsupported.

    `check` receives both catalogs before anything is staged, and may raise.
    """
    session.require("schema_apply", on_target(MAIN))
    work = _Apply(session, _source(text), allow_data_loss, check)
    # CONTROL work queues behind writers of this process, so it never loses to them. After a commit of another process
    # it is planned again, as long as the schema it was planned against is unchanged.
    receipt = session.kernel.commit(MAIN, work.prepare, CommitPolicy.CONTROL)
    after = receipt.snapshot if receipt else work.base
    _refresh_copy(session.kernel, after.state.schema.source)
    return SchemaReceipt(
        True,
        receipt is not None,
        after.version,
        work.migration.steps,
        receipt.public_commit if receipt else None,
        _hard_drops(work.migration),
    )


class _Apply:
    """One apply, which may be prepared several times before it is published."""

    def __init__(self, session: GraphSession, source: Source, allow_data_loss: bool, check: SchemaCheck | None) -> None:
        self.kernel = session.kernel
        self.actor = session.actor
        self.source = source
        self.allow_data_loss = allow_data_loss
        self.check = check
        self.base: Snapshot
        self.migration: MigrationPlan
        self._planned_on: str | None = None
        self._created: dict[TypeKey, Pin] = {}

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        self._planned_on = self._planned_on or snapshot.state.schema.ir_hash
        schema_unchanged = SchemaIs(self._planned_on)
        # Check before planning: against a schema applied concurrently, the steps would not be those the caller saw.
        schema_unchanged.check(snapshot)
        self.base = snapshot
        self.migration = _plan(snapshot, self.source, self.allow_data_loss)
        if not self.migration.steps:
            return None
        if not self.migration.supported:
            raise LanguageError(diagnostics=self.migration.refusals)
        _check_no_branches(snapshot)
        before, after = catalog_of(_ir(snapshot)), self.migration.compiled.catalog
        if self.check is not None:
            self.check(before, after)
        reshaping = compare(before, after)
        hard = _hard_drops(self.migration)
        return Plan(
            "schema_apply",
            self._effects(snapshot, reshaping),
            (
                *self._renames(reshaping),
                SetSchema(accepted(self.migration.compiled)),
                *_purges(self.kernel, snapshot, reshaping, hard),
            ),
            (schema_unchanged, HeadIs(snapshot.head)),
            actor=self.actor,
            properties={HARD_DROPS: ",".join(hard)} if hard else {},
        )

    def _effects(self, snapshot: Snapshot, reshaping: Reshaping) -> tuple[Effect, ...]:
        effects = []
        for old, new in reshaping.kept:
            columns = compare_columns(old, new)
            if columns.changed:
                dataset = self.kernel.writable(snapshot, old.table_key)
                change = reshape(dataset, add=columns.added, drop=columns.dropped, rename=columns.renamed)
                assert change is not None, "columns that change are a change"
                effects.append(Effect(old.table_key, dataset, (change,)))
        return tuple(effects)

    def _renames(self, reshaping: Reshaping) -> list[Update]:
        """Return the updates of type names. Drops come before renames and creations, so that a name can be reused."""
        updates: list[Update] = [Drop(type_.table_key) for type_ in reshaping.dropped]
        updates += [Rename(old.table_key, new.table_key) for old, new in reshaping.kept if old.name != new.name]
        updates += [Register(self._create(type_)) for type_ in reshaping.added]
        return updates

    def _create(self, type_: NodeType | EdgeType) -> Pin:
        """Create the empty dataset of a new type; a retry reuses it."""
        if type_.table_key not in self._created:
            identity = TypeIdentity(type_.type_id, type_.incarnation_id)
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


def _ir(snapshot: Snapshot) -> SchemaIR:
    return SchemaIR.from_json(orjson.loads(snapshot.state.schema.ir))


def _plan(snapshot: Snapshot, source: Source, allow_data_loss: bool) -> MigrationPlan:
    return plan_migration(_ir(snapshot), source, allow_data_loss=allow_data_loss)


def _check_no_branches(main: Snapshot) -> None:
    names = sorted(main.state.branches)
    if names:
        quoted = ", ".join(f"`{name}`" for name in names)
        raise GraphError(
            f"the schema cannot change while other branches exist: {quoted}; merge or delete them first",
            code="schema.branches_exist",
            branches=names,
        )


def _purges(kernel: Kernel, snapshot: Snapshot, reshaping: Reshaping, hard: Collection[str]) -> list[Update]:
    """Record hard drops, so that no read shows them and cleanup knows what to remove."""
    if not hard:
        # Drops are all soft or all hard.
        return []
    now, pins = clock.now_us(), snapshot.state.pins
    purges = [
        Purge(
            pins[type_.table_key].identity,
            None,
            type_.table_key,
            pins[type_.table_key].path,
            now,
            is_embedded=_embeds(type_),
        )
        for type_ in reshaping.dropped
    ]
    for old, new in reshaping.kept:
        pin = pins[old.table_key]
        for name in compare_columns(old, new).dropped:
            property_ = old.properties[name]
            fields = kernel.dataset(snapshot, old.table_key).nested_field_ids(name)
            is_blob = property_.type.scalar is Scalar.BLOB
            label = f"{old.table_key}.{name}"
            purges.append(
                Purge(pin.identity, property_.property_id, label, pin.path, now, fields, is_blob, _embeds(old, name))
            )
    return [SetPurges(tuple(purges))]


def _embeds(type_: NodeType | EdgeType, name: str | None = None) -> bool:
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


class Schema:
    """The schema of an open graph, always the newest."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    @property
    def source(self) -> str:
        """The text of the accepted schema."""
        self._session.require("read", GRAPH)
        return self._session.visible_view(self._session.kernel.snapshot(MAIN)).snapshot.state.schema.source

    @property
    def catalog(self) -> Catalog:
        """The types and properties of the accepted schema that the actor may see."""
        return self._session.view().catalog

    @property
    def nodes(self) -> Mapping[str, NodeType]:
        """The node types by name, with their properties, key and constraints."""
        return self.catalog.nodes

    @property
    def edges(self) -> Mapping[str, EdgeType]:
        """The edge types by name, with the node types at their ends (`source` and `target`) and properties."""
        return self.catalog.edges

    @property
    def types(self) -> tuple[NodeType | EdgeType, ...]:
        """All node types, then all edge types; a node type and an edge type may have the same name."""
        return (*self.nodes.values(), *self.edges.values())

    def __repr__(self) -> str:
        return "\n\n".join(map(str, self.types)) or "<Schema: no types>"

    def _repr_html_(self) -> str:
        return html_text(repr(self))

    def plan(self, schema: str | Path, *, allow_data_loss: bool = False) -> MigrationPlan:
        """Return the migration steps to a new schema, given as text or as the path of a `.pg` file.

        Changes nothing, but needs permission to apply, because the steps reveal the accepted schema.
        """
        return plan(self._session, schema_source(schema), allow_data_loss)

    def apply(
        self,
        schema: str | Path,
        *,
        allow_data_loss: bool = False,
        queries: str | Path | Iterable[str | Path] | None = None,
    ) -> SchemaReceipt:
        """Apply a new schema as one commit; nothing is applied if a step is unsupported.

        Args:
            schema: The new schema, as text or as the path of a `.pg` file.
            allow_data_loss: Make drops permanent.
            queries: The stored queries of the graph, as a directory of `.gq` files or a list of files. A schema that
                breaks one of them is rejected.

        Raises:
            GraphError: `schema.breaks_queries`, with the queries that would not compile any more.
        """
        check = None if queries is None else QueryFolder(read_queries(queries)).reject_breakage
        return apply(self._session, schema_source(schema), allow_data_loss, check)
