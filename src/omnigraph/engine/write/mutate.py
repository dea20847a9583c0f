"""Run the statements of a mutation query as one commit; none if nothing changes.

Statements run in memory against one snapshot. The result is validated by the rules, staged, and published.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from omnigraph import clock
from omnigraph.engine.arguments import decode_params, missing_parameter_error, strip_name
from omnigraph.engine.authorization import on_branch
from omnigraph.engine.session import GraphSession, View
from omnigraph.engine.write.committed_rows import ColumnTest, CommittedRows, comparison
from omnigraph.engine.write.pending import PendingType, incident_ids
from omnigraph.engine.write.staging import Stager
from omnigraph.engine.write.write_authorization import (
    WritePermissions,
    mask_hidden_type_errors,
    redact_findings,
    renew_permissions,
    write_permissions,
)
from omnigraph.errors import DataError, OmniGraphError
from omnigraph.ids import CommitId, new_ulid
from omnigraph.lang.catalog import FLOATS, NUMBERS, EdgeType, NodeType, PropertyType, Scalar, TypeKey
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.query import CompiledQuery, ir, require_kind
from omnigraph.lang.schema.key_ids import key_id, key_ids
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.requirements import IfCommit, SchemaIs
from omnigraph.public_values import MutationReceipt
from omnigraph.rules.arrow_typing import arrays
from omnigraph.rules.coerce import Misfit, fit, shown
from omnigraph.rules.delta import Changes, Ids
from omnigraph.rules.validate import validate


class Constants:
    """The parameter values of a mutation, and its single `now()`."""

    def __init__(self, params: tuple[ir.Parameter, ...], values: Mapping[str, object], now_us: int) -> None:
        self._values = decode_params(params, values)
        self._now = now_us // 1_000

    def value(self, expression: ir.Expr) -> Any:
        """Return the value of a literal, parameter or `now()`; E2 when a parameter was not given."""
        if isinstance(expression, ir.Now):
            return self._now
        if isinstance(expression, ir.Literal):
            return expression.value
        assert isinstance(expression, ir.ParameterRef), "a mutation holds constants only"
        if expression.name not in self._values:
            raise missing_parameter_error(expression.name)
        return self._values[expression.name]

    def fitted(self, expression: ir.Expr, type_: PropertyType, target: str, *, is_key: bool = False) -> Any:
        """Return a value in the form that a column stores; E4 when it does not fit, E6 for a non-finite key."""
        value = self.value(expression)
        if isinstance(expression, ir.Now):
            return value
        try:
            if type_.scalar in FLOATS and not type_.is_list and isinstance(value, int):
                raise Misfit(f"{shown(value)} is an integer, not a `{type_}`; write it with a decimal point")
            return fit(value, type_)
        except Misfit as misfit:
            rule = "E6" if is_key and isinstance(value, float) and type_.scalar in FLOATS else "E4"
            raise DataError(
                f"`{target}` cannot hold this value: {misfit.reason}", rule=rule, property=target, value=shown(value)
            ) from None


def mutate(
    session: GraphSession,
    source: Source,
    name: str | None = None,
    params: Mapping[str, object] | None = None,
    branch: str = MAIN,
    if_commit: str | None = None,
) -> MutationReceipt:
    """Run a mutation. With `if_commit`, only if that commit is the head of the branch."""
    branch = strip_name(branch)
    session.require("change", on_branch(branch))
    may, compiled = _compile_early(session, branch, source, name)
    condition = None
    if if_commit is not None:
        condition = IfCommit(CommitId(if_commit), is_head_told=session.would_allow("read", on_branch(branch)))
    mutation = _Mutation(session, source, name, params or {}, condition, may, compiled)
    work = CommitPolicy.INSERT if _is_insert_only(compiled) else CommitPolicy.CHANGE
    with mask_hidden_type_errors(mutation.hidden, session.actor):
        receipt = session.kernel.commit(branch, mutation.prepare, work)
    run = mutation.run
    assert run is not None
    commit = session.redact_receipt(receipt.commit, branch) if receipt and receipt.commit else None
    return MutationReceipt(branch, compiled.name, run.affected_nodes, run.affected_edges, session.actor, commit)


def _compile_early(
    session: GraphSession, branch: str, source: Source, name: str | None
) -> tuple[WritePermissions, CompiledQuery]:
    """Compile against the last known snapshot, to choose the commit policy; the write compiles again if that is old.

    This saves a storage request for the head. An error is raised only if the newest snapshot confirms it.
    """
    recent = session.kernel.recent_snapshot(branch)
    if recent is not None:
        with suppress(OmniGraphError):
            may = write_permissions(session, recent)
            return may, _compile(session, may, source, name)
    may = write_permissions(session, session.kernel.snapshot(branch))
    return may, _compile(session, may, source, name)


def _compile(session: GraphSession, may: WritePermissions, source: Source, name: str | None) -> CompiledQuery:
    """Compile a mutation against the visible types, and check the permissions that its statements need."""
    compiled = require_kind(session.compile(source, may.visible.catalog, name), "mutation")
    assert isinstance(compiled.ir, ir.MutationIR)
    may.check(statement.type_name for statement in compiled.ir.statements)
    may.check_conditions(
        condition_statement.type_name
        for condition_statement in compiled.ir.statements
        if not isinstance(condition_statement, ir.Insert)
    )
    return compiled


def _is_insert_only(query: CompiledQuery) -> bool:
    assert isinstance(query.ir, ir.MutationIR)
    return all(isinstance(statement, ir.Insert) for statement in query.ir.statements)


class _Mutation:
    """A mutation that may be prepared several times; what must not differ between attempts is settled here."""

    def __init__(
        self,
        session: GraphSession,
        source: Source,
        name: str | None,
        params: Mapping[str, object],
        if_commit: IfCommit | None,
        may: WritePermissions,
        compiled: CompiledQuery,
    ) -> None:
        self.session = session
        self.source = source
        self.name = name
        self.params = params
        self.if_commit = if_commit
        self.stager = Stager()
        self.run: Run | None = None
        self.hidden: set[str] = set(may.hidden)
        self._may = may
        self._compiled = compiled
        self._now_us = clock.now_us()
        self._fresh: dict[int, str] = {}

    def prepare(self, snapshot: Snapshot) -> Plan | None:
        """Run all statements on a snapshot and stage the result."""
        if self.if_commit is not None:
            # A mutation that changes nothing publishes nothing, but its condition still has to hold.
            self.if_commit.check(snapshot)
        may = renew_permissions(self.session, self._may, snapshot)
        if may is not self._may:
            self._may, self._compiled = may, _compile(self.session, may, self.source, self.name)
            self.hidden |= may.hidden
        compiled = self._compiled
        view = self.session.full_view_of(snapshot)
        if may.hidden:
            # Dangling edges must be deleted even if the writer may not see them.
            compiled = self.session.compile(self.source, view.catalog, self.name)
        assert isinstance(compiled.ir, ir.MutationIR)
        constants = Constants(compiled.params, self.params, self._now_us)
        self.run = Run(view, constants, self._fresh, may.hidden | may.unreadable)
        for index, statement in enumerate(compiled.ir.statements):
            self.run.execute(index, statement)
        changes = self.run.changes()
        if not changes.deltas:
            return None
        redact_findings(validate(changes, self.run.committed), may.unreadable).raise_if_any()
        effects = self.stager.stage(view, dict(changes.deltas), self.run.committed)
        requirements: list[Any] = [SchemaIs(view.catalog.ir_hash)]
        if self.if_commit is not None:
            requirements.append(self.if_commit)
        return Plan(
            "mutation",
            effects,
            requirements=tuple(requirements),
            actor=self.session.actor,
            reads=frozenset(self.run.committed.types_read | changes.deltas.keys()),
        )


class Run:
    """One execution of the statements over a view."""

    def __init__(self, view: View, constants: Constants, fresh: dict[int, str], uncounted: frozenset[str]) -> None:
        self.view = view
        self.committed = CommittedRows(view)
        self.affected_nodes = 0
        self.affected_edges = 0
        self._constants = constants
        self._fresh = fresh
        self._uncounted = uncounted
        self._pending: dict[TypeKey, PendingType] = {}

    def changes(self) -> Changes:
        """Return the changes of the statements, by type."""
        touched = sorted((key, pending) for key, pending in self._pending.items() if pending.is_touched)
        return Changes(self.view.catalog, {key: pending.delta() for key, pending in touched})

    def execute(self, index: int, statement: ir.Statement) -> None:
        """Run a statement, which sees the effects of earlier ones."""
        if isinstance(statement, ir.Insert):
            self._insert(index, statement)
        elif isinstance(statement, ir.Update):
            self._update(statement)
        else:
            self._delete(statement)

    def _insert(self, index: int, statement: ir.Insert) -> None:
        catalog = self.view.catalog
        type_ = (catalog.nodes if statement.kind == "node" else catalog.edges)[statement.type_name]
        values = {assignment.column: self._fitted(type_, assignment) for assignment in statement.assignments}
        if isinstance(type_, NodeType) and type_.key:
            values["id"] = key_id(type_, values)
        else:
            # Ids are reused by a retry, so that it inserts the same entity.
            values["id"] = self._fresh.setdefault(index, new_ulid())
        self._of(type_).insert(values)
        self._count(statement.kind, 1)

    def _update(self, statement: ir.Update) -> None:
        type_ = self.view.catalog.nodes[statement.type_name]
        pending = self._of(type_)
        test, lookup = self._test(type_, statement.predicate)
        values = {assignment.column: self._fitted(type_, assignment) for assignment in statement.assignments}
        _check_blobs_kept(type_, values)
        rows = pending.matching(test, lookup)
        if rows.num_rows:
            pending.update(rows, values)
        self._count("node", rows.num_rows)

    def _delete(self, statement: ir.Delete) -> None:
        catalog = self.view.catalog
        type_ = (catalog.nodes if statement.kind == "node" else catalog.edges)[statement.type_name]
        _, lookup = self._test(type_, statement.predicate)
        ids = self._of(type_).ids_matching(lookup)
        self._count(statement.kind, self._of(type_).delete(ids))
        for name in statement.cascades if len(ids) else ():
            self._cascade(catalog.edges[name], type_.name, ids)

    def _cascade(self, edge: EdgeType, node: str, ids: Ids) -> None:
        for column, end in (("src", edge.source), ("dst", edge.target)):
            if end == node:
                fallen = self._of(edge).delete(incident_ids(self.committed, edge, column, ids))
                # Incident edges of hidden types are deleted as well, but not counted.
                self._count("edge", 0 if edge.name in self._uncounted else fallen)

    def _test(self, type_: NodeType | EdgeType, predicate: ir.Predicate) -> tuple[ColumnTest, ColumnTest]:
        """Return the test of a predicate, and an equivalent test on committed rows that can use an index."""
        column, expected = predicate.column, predicate.type
        if expected.scalar in NUMBERS:
            value = self._constants.value(predicate.value)
        elif expected.is_list:
            value = None
        else:
            value = self._constants.fitted(predicate.value, expected, f"{type_.name}.{column}")
        test = comparison(column, expected, predicate.op, value)
        is_key = isinstance(type_, NodeType) and type_.key == (column,) and test.op is ir.CompareOp.EQ
        if is_key and isinstance(type_, NodeType):
            # The id is derived from the key, so a key test becomes a lookup by id.
            return test, ColumnTest("id", pa.string(), test.op, _id_of(type_, column, test))
        return test, test

    def _fitted(self, type_: NodeType | EdgeType, assignment: ir.Assignment) -> Any:
        in_tuple = any(assignment.column in columns for columns in type_.unique)
        is_key = isinstance(type_, NodeType) and (assignment.column in type_.key or in_tuple)
        target = f"{type_.name}.{assignment.column}"
        return self._constants.fitted(assignment.value, assignment.type, target, is_key=is_key)

    def _of(self, type_: NodeType | EdgeType) -> PendingType:
        if type_.table_key not in self._pending:
            self._pending[type_.table_key] = PendingType(type_, self.committed)
        return self._pending[type_.table_key]

    def _count(self, kind: str, entities: int) -> None:
        if kind == "node":
            self.affected_nodes += entities
        else:
            self.affected_edges += entities


def _id_of(type_: NodeType, column: str, test: ColumnTest) -> Any:
    """Return the id of the node whose only key member has the constant of a test."""
    return key_ids(type_, pa.table({column: arrays.repeat(test.constant, 1)}))[0]


def _check_blobs_kept(type_: NodeType, values: dict[str, Any]) -> None:
    for column, value in values.items():
        if value is None and type_.properties[column].type.scalar is Scalar.BLOB:
            raise DataError(
                f"`{type_.name}.{column}` is a Blob, which an update cannot set to null; insert the node again without"
                " it",
                rule="E4",
                property=f"{type_.name}.{column}",
            )
