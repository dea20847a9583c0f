"""Which types a query reads and writes, as sorted sets.

Pure; derived from the typed IR, so that it cannot disagree with what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.query import ir


@dataclass(frozen=True, slots=True, order=True)
class TypeUse:
    """A type a query touches."""

    kind: str
    type_name: str

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "type_name": self.type_name}


def types_read(query: ir.QueryIR, catalog: Catalog) -> tuple[TypeUse, ...]:
    """Return the types a query reads, the endpoints of its edges included."""
    if isinstance(query, ir.ReadIR):
        return tuple(sorted(set(_pipeline_reads(query.pipeline, catalog))))
    return tuple(sorted(set(_statement_reads(query.statements, catalog))))


def types_written(query: ir.QueryIR) -> tuple[TypeUse, ...]:
    """Return the types a mutation writes, the edges that fall with their nodes included."""
    if isinstance(query, ir.ReadIR):
        return ()
    return tuple(sorted(set(_statement_writes(query.statements))))


def _pipeline_reads(pipeline: Iterable[ir.Operator], catalog: Catalog) -> Iterator[TypeUse]:
    for operator in pipeline:
        if isinstance(operator, ir.NodeScan):
            yield TypeUse("node", operator.node_type)
        elif isinstance(operator, ir.Expand):
            yield from _edge_reads(operator.edge, catalog)
        elif isinstance(operator, ir.AntiJoin | ir.OptionalJoin):
            yield from _pipeline_reads(operator.inner, catalog)


def _edge_reads(name: str, catalog: Catalog) -> Iterator[TypeUse]:
    edge = catalog.edges[name]
    yield TypeUse("edge", name)
    yield TypeUse("node", edge.source)
    yield TypeUse("node", edge.target)


def _statement_reads(statements: Iterable[ir.Statement], catalog: Catalog) -> Iterator[TypeUse]:
    for statement in statements:
        if isinstance(statement, ir.Insert) and statement.kind == "edge":
            yield from _edge_reads(statement.type_name, catalog)
        else:
            yield from _statement_writes([statement])


def _statement_writes(statements: Iterable[ir.Statement]) -> Iterator[TypeUse]:
    for statement in statements:
        kind = "node" if isinstance(statement, ir.Update) else statement.kind
        yield TypeUse(kind, statement.type_name)
        if isinstance(statement, ir.Delete):
            yield from (TypeUse("edge", edge) for edge in statement.cascades)
