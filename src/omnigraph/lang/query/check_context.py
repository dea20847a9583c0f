"""State of the query checker (catalog, parameters, variable scopes, findings), and the types that a query uses.

Pure. An inner block copies the `Scope` around it and never changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from omnigraph.lang.catalog import Catalog, Property, PropertyType
from omnigraph.lang.diagnostic import Diagnostic, Source, Span, did_you_mean
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.ir import Bound, Parameter
from omnigraph.limits import DIAGNOSTICS_MAX

if TYPE_CHECKING:
    from omnigraph.lang.query.check_patterns import Block
    from omnigraph.lang.query.lower import Lowering

T = TypeVar("T")


class Kind(StrEnum):
    NODE = "node"
    EDGE = "edge"
    HOPS = "hops"
    PATH = "path"
    ITEM = "item"
    VALUE = "value"
    # The clause that binds the variable has an error; errors in its uses would only be consequences of that.
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Variable:
    """The meaning of a name in a block."""

    name: str
    kind: Kind
    type_name: str | None = None
    nullable: bool = False
    # The type of an item of a list, or of a value that a `with` binds.
    value_type: PropertyType | None = None
    # The types that bindings leave of the union `type_name`, which rows of the variable are still numbered by.
    narrowed: str | None = None

    @property
    def types(self) -> str | None:
        """The types that a bound node may have."""
        return self.narrowed or self.type_name

    @property
    def owner(self) -> str:
        """The type of a node or an edge, or the types that a path visits."""
        assert self.type_name is not None
        return self.type_name

    def bound(self) -> Bound:
        type_name = str(self.value_type) if self.kind is Kind.VALUE else self.type_name
        return Bound(self.name, self.kind.value, type_name)


class Scope(dict[str, Variable]):
    """The variables bound so far, by name; `declared` are the types that bindings of the block will give to others."""

    def __init__(self, variables: Mapping[str, Variable] | None = None) -> None:
        super().__init__(variables or {})
        self.declared: dict[str, str] = {}

    def bind(self, name: str, kind: Kind, type_name: str | None = None) -> None:
        self[name] = Variable(name, kind, type_name)
        if kind is Kind.NODE and name in self.declared:
            self.narrow(name, self.declared[name])

    def narrow(self, name: str, type_name: str) -> None:
        """Restrict a bound node to those of its types that are also types of `type_name`, if there are any."""
        variable = self[name]
        if variable.kind is Kind.NODE and variable.types is not None:
            common = ir.common_types(variable.types, type_name)
            if common not in (None, variable.types):
                self[name] = replace(variable, narrowed=common)

    def mark_broken(self, names: Iterable[str]) -> None:
        """Bind names whose clause has an error, unless they are bound already."""
        for name in names:
            self.setdefault(name, Variable(name, Kind.BROKEN))

    def adopt(self, variables: Iterable[Variable]) -> None:
        """Add the variables of an optional block, which are nullable outside it."""
        for variable in variables:
            self[variable.name] = replace(variable, nullable=True)


@dataclass(frozen=True, slots=True)
class Counted:
    """A pattern whose matches are counted beside each row, and the names that it mentions."""

    variable: str
    block: Block
    names: frozenset[str]
    is_existence: bool


class TooManyFindings(Exception):
    """The limit of findings is reached; they are in the context."""


@dataclass
class Context:
    """The state of checking a query."""

    source: Source
    catalog: Catalog
    # The types that statements may name as their target; patterns match those of `catalog` only.
    written: Catalog
    lowering: Lowering
    params: dict[str, Parameter] = field(default_factory=dict)
    findings: list[Diagnostic] = field(default_factory=list)
    pattern_clauses: int = 0
    # The returned columns, once they are known; `order` and `having` may name them.
    columns: dict[str, ir.Column] = field(default_factory=dict)
    # In a `with` they are variables, written with `$`.
    is_stage: bool = False
    # Variables of earlier stages that a `with` did not pass on.
    dropped: set[str] = field(default_factory=set)
    # The patterns of `exists` and `count` that the expressions checked last have, until a block or a result takes them.
    counts: list[Counted] = field(default_factory=list)
    count_number: int = 0

    def report(self, code: str, span: Span, message: str, hint: str | None = None) -> T | None:
        """Record an error; what is returned is None, the result of a check that ends with it."""
        self.findings.append(Diagnostic(code, message, self.source, span, hint))
        if len(self.findings) >= DIAGNOSTICS_MAX:
            raise TooManyFindings
        return None

    def report_unknown_parameter(self, code: str, variable: ast.Variable, type_: object) -> T | None:
        """Report a variable that had to be a parameter of a type."""
        name = variable.name
        hint = did_you_mean(name, self.params, prefix="$", otherwise=f"declare it: `query …(${name}: {type_})`")
        return self.report(code, variable.span, f"`${name}` is not a parameter of this query", hint)

    def properties(self, variable: Variable) -> Mapping[str, Property]:
        """Return the properties of a bound node or edge, by name."""
        return shared_properties(self.catalog, variable.kind.value, variable.owner)


def shared_properties(catalog: Catalog, kind: str, type_name: str) -> Mapping[str, Property]:
    """Return the properties of a type; of a union, those that all its types have, with the same value type."""
    types = catalog.nodes if kind == Kind.NODE else catalog.edges
    first, *others = (types[name].properties for name in ir.split_type(type_name))
    if not others:
        return first
    return {
        name: item
        for name, item in first.items()
        if all(name in other and other[name].type == item.type for other in others)
    }


def with_null(type_: PropertyType, nullable: bool) -> PropertyType:
    """Return the type, made nullable if `nullable` is set.

    >>> from omnigraph.lang.catalog import Scalar
    >>> str(with_null(PropertyType(Scalar.I32), True))
    'I32?'
    """
    return replace(type_, nullable=True) if nullable else type_


@dataclass(frozen=True, slots=True, order=True)
class TypeUse:
    """A type that a query uses."""

    kind: str
    type_name: str

    def to_json(self) -> dict[str, str]:
        return {"kind": self.kind, "type_name": self.type_name}


def types_read(query: ir.QueryIR, catalog: Catalog, written: Catalog) -> tuple[TypeUse, ...]:
    """Return the types a query reads, the endpoints of its edges included; see `compile_query` for the catalogs."""
    if isinstance(query, ir.ReadIR):
        patterns = (read.pipeline for read in ir.reads_of(query))
        return tuple(sorted({use for pattern in patterns for use in _pipeline_reads(pattern, catalog)}))
    return tuple(sorted(set(_statement_reads(query.statements, catalog, written))))


def types_written(query: ir.QueryIR) -> tuple[TypeUse, ...]:
    """Return the types a mutation writes, including edges that are deleted or re-pointed with their nodes."""
    if isinstance(query, ir.ReadIR):
        return ()
    return tuple(sorted(set(statement_writes(query.statements))))


def _pipeline_reads(pipeline: Iterable[ir.Operator], catalog: Catalog) -> Iterator[TypeUse]:
    for operator in pipeline:
        if isinstance(operator, ir.NodeScan):
            yield from (TypeUse("node", name) for name in ir.split_type(operator.node_type))
        elif isinstance(operator, ir.Expand):
            for name in ir.split_type(operator.edge):
                yield from _edge_reads(name, catalog)
        elif isinstance(operator, ir.Join):
            yield from _pipeline_reads(operator.inner, catalog)


def _edge_reads(name: str, catalog: Catalog) -> Iterator[TypeUse]:
    edge = catalog.edges[name]
    yield TypeUse("edge", name)
    yield TypeUse("node", edge.source)
    yield TypeUse("node", edge.target)


def _statement_reads(statements: Iterable[ir.Statement], catalog: Catalog, written: Catalog) -> Iterator[TypeUse]:
    for statement in statements:
        if isinstance(statement, ir.Matched):
            yield from pattern_reads(statement, catalog)
        if isinstance(statement, ir.Insert | ir.InsertMatched) and statement.kind == "edge":
            yield from _edge_reads(statement.type_name, written)
        else:
            yield from statement_writes([statement])


def pattern_reads(statement: ir.Matched, catalog: Catalog) -> Iterator[TypeUse]:
    """Yield the types that the pattern of a statement reads."""
    yield from _pipeline_reads(statement.read.pipeline, catalog)


def statement_writes(statements: Iterable[ir.Statement]) -> Iterator[TypeUse]:
    """Yield the types that statements write, with the edges of deleted and renamed nodes."""
    for statement in statements:
        kind = "node" if isinstance(statement, ir.Update) else statement.kind
        yield TypeUse(kind, statement.type_name)
        if isinstance(statement, ir.Delete | ir.DeleteMatched):
            yield from (TypeUse("edge", edge) for edge in statement.cascades)
        elif isinstance(statement, ir.Rename | ir.RenameMatched):
            yield from (TypeUse("edge", edge) for edge in statement.repointed)
