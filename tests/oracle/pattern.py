"""What a block of a query says, resolved: which variable is of which type, and which way each traversal goes.

Part of the reference evaluator: reads the syntax tree and the declared types, and nothing of the compiler behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from omnigraph.lang.catalog import Catalog, EdgeType
from omnigraph.lang.query import ast

HOPS = "#hops"
PATH = "#path"
# A value that a `with` has bound; the maker of queries knows those that are texts, and takes the others for hops.
VALUE = "#value"
TEXT = "#text"
NO_ENTITY = (HOPS, PATH, VALUE, TEXT)
ANY_EDGE = "_"


@dataclass(frozen=True)
class Way:
    """An edge type that a walk may follow: along its edges (`out`), against them (`back`), or both."""

    edge: str
    source: str
    target: str
    out: bool
    back: bool

    def ends(self) -> list[tuple[str, str]]:
        """Return the pairs of types that it leads from and to."""
        return [(self.source, self.target)] * self.out + [(self.target, self.source)] * self.back

    def turned(self) -> Way:
        return Way(self.edge, self.source, self.target, self.back, self.out)


@dataclass(frozen=True)
class Scan:
    """Bind a variable to every node of a type, or hold the node it is already bound to against the matches."""

    variable: str
    type: str
    matches: tuple[ast.Match, ...]


@dataclass(frozen=True)
class Walk:
    """Follow edges from one variable to another; types are joined with `|` where there are several."""

    start: str
    end: str
    start_type: str
    end_type: str
    ways: tuple[Way, ...]
    minimum: int | str
    maximum: int | str | None
    edge_variable: str | None
    hops_variable: str | None
    # Walked from the right end as written to the left one.
    is_backwards: bool = False
    path: ast.Path | None = None


@dataclass(frozen=True)
class Member:
    """Bind a variable to each node of a path, or hold the node it is already bound to against them."""

    variable: str
    path: str


@dataclass
class Block:
    """A block: its steps in the order in which they run, then what holds of their rows."""

    steps: list[Scan | Walk | Member | ast.Unwind] = field(default_factory=list)
    conditions: list[ast.Expression] = field(default_factory=list)
    optionals: list[tuple[Block, list[str]]] = field(default_factory=list)
    negations: list[Block] = field(default_factory=list)
    scope: dict[str, str] = field(default_factory=dict)


class Patterns:
    """Resolves the blocks of one query."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._fresh = count(1)
        # The types of the nodes of each path.
        self.spaces: dict[str, str] = {}
        # The types that bindings leave to variables: walks lead from and to nodes of these.
        self.left: dict[str, str] = {}
        # The patterns in expressions, by the place in memory of what is written.
        self.subqueries: dict[int, Block] = {}

    def pattern(self, clauses: tuple[ast.Clause, ...], outer: Mapping[str, str]) -> Block:
        """Resolve the pattern of a read; what it leaves to variables holds behind it, too."""
        return self.block(clauses, outer, self.left)

    def block(self, clauses: tuple[ast.Clause, ...], outer: Mapping[str, str], left: dict[str, str]) -> Block:
        """Resolve a block against the variables around it, which map to their types; all bindings of a node hold."""
        block = Block(scope=dict(outer))
        scans: list[Scan] = []
        walks: list[Walk] = []
        members: list[Member] = []
        declared: dict[str, str] = {}
        for one in clauses:
            if isinstance(one, ast.Binding) and one.variable.text != "_":
                name, type_ = one.variable.text, self._binding_type(one)
                declared[name] = _common(declared.get(name, type_), type_)
        for name in declared.keys() & outer.keys():
            left[name] = _common(left.get(name, outer[name]), declared[name])
        for clause in clauses:
            if isinstance(clause, ast.Binding):
                name = self._name(clause.variable)
                type_ = self._binding_type(clause)
                type_ = type_ if name in outer else declared.get(name, type_)
                block.scope.setdefault(name, type_)
                scans.append(Scan(name, type_, clause.matches))
            elif isinstance(clause, ast.Traversal):
                walks.append(self._walk(clause, block.scope, declared, left))
            elif isinstance(clause, ast.Path):
                walks.append(replace(self._walk(clause.traversal, block.scope, declared, left), path=clause))
                block.scope[clause.variable.text] = PATH
                self.spaces[clause.variable.text] = self._space(walks[-1])
            elif (member := member_of(clause)) is not None:
                block.scope.setdefault(member.variable, self.spaces[member.path])
                members.append(member)
        unwinds = [clause for clause in clauses if isinstance(clause, ast.Unwind)]
        block.scope |= {unwind.variable.text: VALUE for unwind in unwinds}
        block.steps = [*_arranged(scans, walks, members, set(outer)), *unwinds]
        for clause in clauses:
            if isinstance(clause, ast.Optional):
                inner = self.block(clause.clauses, block.scope, dict(left))
                new = [name for name in inner.scope if name not in block.scope]
                block.scope.update({name: inner.scope[name] for name in new})
                block.optionals.append((inner, new))
        for clause in clauses:
            if isinstance(clause, ast.Negation):
                block.negations.append(self.block(clause.clauses, block.scope, dict(left)))
            elif not isinstance(
                clause, ast.Binding | ast.Traversal | ast.Path | ast.Unwind | ast.Optional
            ) and not member_of(clause):
                block.conditions.append(clause)
                self.resolve(clause, block.scope, left)
        return block

    def resolve(self, expression: ast.Expression, scope: Mapping[str, str], left: Mapping[str, str]) -> None:
        """Resolve the patterns in an expression against the variables around them."""
        if isinstance(expression, ast.Subquery):
            self.subqueries[id(expression)] = self.block(expression.clauses, scope, dict(left))
            return
        for part in ast.parts_of(expression):
            self.resolve(part, scope, left)

    def _space(self, walk: Walk) -> str:
        ends = (name for way in walk.ways for name in (way.source, way.target))
        return joined([*walk.start_type.split("|"), *ends])

    def _name(self, name: ast.Name) -> str:
        return name.text if name.text != "_" else f"~{next(self._fresh)}"

    def _binding_type(self, clause: ast.Binding) -> str:
        """Return the types that a binding means; an interface means all types that implement it."""
        nodes = self._catalog.nodes.values()
        return joined(
            node.name for node in nodes for word in clause.types if word.text in (node.name, *node.implements)
        )

    def _walk(
        self, clause: ast.Traversal, scope: dict[str, str], declared: Mapping[str, str], narrowed: Mapping[str, str]
    ) -> Walk:
        left, right = self._name(clause.left), self._name(clause.right)
        low, high = (_bound(clause.hops.minimum), _bound(clause.hops.maximum)) if clause.hops else (1, 1)
        assert low is not None
        is_plain = len(clause.edges) == 1 and clause.edge.text != ANY_EDGE
        known = {} if is_plain and "|" not in scope.get(left, "") + scope.get(right, "") and low != 0 else declared
        left_types, right_types = (
            _members(narrowed.get(end) or scope.get(end) or known.get(end)) for end in (left, right)
        )
        words = [word.text.lower() for word in clause.edges]
        edges = [
            one for one in self._catalog.edges.values() if clause.edge.text == ANY_EDGE or one.name.lower() in words
        ]
        ways = self._ways(clause, edges, left_types, right_types, is_chain=(low, high) != (1, 1))
        ends = [pair for way in ways for pair in way.ends()]
        scope.setdefault(left, joined(left_types or (near for near, _ in ends)))
        reached = [far for _, far in ends] + (sorted(left_types or scope[left].split("|")) if low == 0 else [])
        scope.setdefault(right, joined(right_types or reached))
        edge_variable = None
        if clause.edge_variable is not None and clause.edge_variable.text != "_":
            edge_variable = clause.edge_variable.text
            scope[edge_variable] = joined(way.edge for way in ways)
        hops_variable = clause.hops_variable.text if clause.hops_variable else None
        if hops_variable is not None:
            scope[hops_variable] = HOPS
        return Walk(left, right, scope[left], scope[right], tuple(ways), low, high, edge_variable, hops_variable)

    def _ways(
        self,
        clause: ast.Traversal,
        edges: list[EdgeType],
        left: set[str] | None,
        right: set[str] | None,
        is_chain: bool,
    ) -> list[Way]:
        """Return the ways of a walk. One hop: by the types of both ends, the stored direction first.

        Several hops: all edges along, or all against if none begins where the walk does; whatever can be reached.
        """

        def fits(types: set[str] | None, name: str) -> bool:
            return types is None or name in types

        is_any = clause.edge.text == ANY_EDGE
        if is_chain:
            against = not is_any and not any(fits(left, one.source) for one in edges)
            if right is not None and left is None and len(edges) == 1:
                against = edges[0].target not in right
            ways = [
                Way(one.name, one.source, one.target, clause.undirected or not against, clause.undirected or against)
                for one in edges
            ]
            types = {near for way in ways for near, _ in way.ends()} if left is None else set(left)
            for _ in ways:
                types |= {far for way in ways for near, far in way.ends() if near in types}
            return [way for way in ways if any(near in types for near, _ in way.ends())]
        ways = []
        for one in edges:
            out = fits(left, one.source) and fits(right, one.target)
            back = fits(left, one.target) and fits(right, one.source)
            if not clause.undirected:
                back = back and not out and not is_any
            if out or back:
                ways.append(Way(one.name, one.source, one.target, out, back))
        return ways


def joined(names: Iterable[str]) -> str:
    return "|".join(sorted(set(names)))


def _common(first: str, second: str) -> str:
    return joined(set(first.split("|")) & set(second.split("|")))


def _members(type_: str | None) -> set[str] | None:
    return None if type_ is None else set(type_.split("|"))


def _bound(bound: int | ast.Variable | None) -> int | str | None:
    return bound.name if isinstance(bound, ast.Variable) else bound


def member_of(clause: ast.Clause) -> Member | None:
    """Return what a clause `$v in nodes($p)` says."""
    if isinstance(clause, ast.Membership) and isinstance(clause.operand, ast.Variable):
        call = clause.collection
        if isinstance(call, ast.Call) and call.function == "nodes" and isinstance(call.arguments[0], ast.Variable):
            return Member(clause.operand.name, call.arguments[0].name)
    return None


def _arranged(
    scans: list[Scan], walks: list[Walk], members: list[Member], bound: set[str]
) -> Iterator[Scan | Walk | Member]:
    """Yield the steps in the documented order: each walk as soon as one of its ends is bound, scans as needed."""
    waiting, listed = list(walks), list(members)

    def members_of() -> Iterator[Member]:
        for member in [one for one in listed if one.path in bound]:
            listed.remove(member)
            yield member
            bound.add(member.variable)

    def walk_on() -> Iterator[Walk | Member]:
        yield from members_of()
        while (walk := next((one for one in waiting if one.start in bound or one.end in bound), None)) is not None:
            waiting.remove(walk)
            yield walk if walk.start in bound else _backwards(walk)
            bound.update((walk.start, walk.end))
            if walk.path is not None:
                bound.add(walk.path.variable.text)
                yield from members_of()

    # A variable's matches hold wherever it is bound; naming it first as a scan checks them once it has a node.
    yield from (scan for scan in scans if scan.variable in bound)
    yield from walk_on()
    for scan in scans:
        yield scan
        bound.add(scan.variable)
        yield from walk_on()
    for walk in walks:
        if walk in waiting:
            yield Scan(walk.start, walk.start_type, ())
            bound.add(walk.start)
            yield from walk_on()


def _backwards(walk: Walk) -> Walk:
    return Walk(
        walk.end, walk.start, walk.end_type, walk.start_type, tuple(way.turned() for way in walk.ways), walk.minimum,
        walk.maximum, walk.edge_variable, walk.hops_variable, True, walk.path,
    )  # fmt: skip
