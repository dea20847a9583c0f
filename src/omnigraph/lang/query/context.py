"""What the checker knows while it reads a query: the catalog, the parameters, the variables, the findings so far.

Pure. A `Scope` is never changed by an inner block; an inner block copies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from omnigraph.lang.catalog import Catalog, Property
from omnigraph.lang.diagnostic import Diagnostic
from omnigraph.lang.query.ir import Bound, Parameter
from omnigraph.lang.source import Source, Span
from omnigraph.lang.types import PropertyType
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

    >>> from omnigraph.lang.types import Scalar
    >>> str(with_null(PropertyType(Scalar.I32), True))
    'I32?'
    """
    return replace(type_, nullable=True) if nullable else type_
