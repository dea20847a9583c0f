"""What the checker knows while it reads a query: the catalog, the parameters, the variables, the findings so far.

Pure. A `Scope` is never changed by an inner block; an inner block copies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from omnigraph.lang.catalog import Catalog, Property, PropertyType
from omnigraph.lang.diagnostic import Diagnostic
from omnigraph.lang.query import ir
from omnigraph.lang.query.ir import Bound, Parameter
from omnigraph.lang.source import Source, Span
from omnigraph.limits import DIAGNOSTICS_MAX

# Blocks copy the variables around them, so their number is bounded to keep that cheap.


class Kind(StrEnum):
    NODE = "node"
    EDGE = "edge"
    HOPS = "hops"
    # The variable's own clause was refused; whatever else is said about it would only repeat that.
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Variable:
    """What a name stands for in a block."""

    name: str
    kind: Kind
    type_name: str | None = None
    nullable: bool = False

    def bound(self) -> Bound:
        return Bound(self.name, self.kind.value, self.type_name)


class Scope(dict[str, Variable]):
    """The variables bound so far, by name."""

    def inner(self) -> Scope:
        return Scope(self)

    def bind(self, name: str, kind: Kind, type_name: str | None = None) -> None:
        self[name] = Variable(name, kind, type_name)

    def adopt(self, variables: Iterable[Variable]) -> None:
        """Take over the variables of an optional block, which may be missing out here."""
        for variable in variables:
            self[variable.name] = replace(variable, nullable=True)


class EnoughFound(Exception):
    """Enough is wrong to stop looking; the findings are in the context."""


@dataclass
class Context:
    """One check of one query."""

    source: Source
    catalog: Catalog
    params: dict[str, Parameter] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    pattern_clauses: int = 0

    def report(self, code: str, span: Span, message: str, hint: str | None = None) -> None:
        self.findings.append(Diagnostic(code, message, self.source, span, hint))
        if len(self.findings) >= DIAGNOSTICS_MAX:
            raise EnoughFound

    def properties(self, variable: Variable) -> Mapping[str, Property]:
        """Return the properties of a bound node or edge, by name."""
        assert variable.type_name is not None
        if variable.kind is Kind.NODE:
            return self.catalog.nodes[variable.type_name].properties
        return self.catalog.edges[variable.type_name].properties


def with_null(type_: PropertyType, nullable: bool) -> PropertyType:
    """Return the type, nullable when the claim holds.

    >>> from omnigraph.lang.catalog import Scalar
    >>> str(with_null(PropertyType(Scalar.I32), True))
    'I32?'
    """
    return replace(type_, nullable=True) if nullable else type_


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
