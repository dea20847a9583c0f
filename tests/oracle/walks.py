"""Random walks, paths and nodes of paths, and what every part of a random query is drawn with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from omnigraph.lang.catalog import Catalog, EdgeType
from tests.oracle.pattern import HOPS, NO_ENTITY, PATH, joined

T = TypeVar("T")
NAMES = ("p", "a", "z", "m", "b", "q", "c", "x", "k", "y", "d", "n", "e", "w", "f", "g", "h", "i", "j", "l")


@dataclass(frozen=True)
class Bound:
    """A variable in scope: a node or edge of a type, or hops; a loose one may be null."""

    name: str
    type: str
    is_edge: bool = False
    is_loose: bool = False
    # What further bindings leave of its types, for walks.
    left: str = ""

    @property
    def ends(self) -> str:
        return self.left or self.type


@dataclass
class Walks:
    """What a query is drawn with, and its walks.

    `below(n)` decides everything, so that whoever supplies it can shrink.
    """

    below: Callable[[int], int]
    catalog: Catalog
    declared: list[str] = field(default_factory=list)
    given: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    used: int = 0
    # The types of the nodes of each path.
    spaces: dict[str, str] = field(default_factory=dict)
    # How deep patterns are nested in expressions.
    nested: int = 0

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def often(self, times: int, of: int) -> bool:
        # Zero is where shrinking ends, so zero leaves things out.
        return self.below(of) >= of - times

    def fresh(self) -> str:
        self.used += 1
        return NAMES[self.used - 1] if self.used <= len(NAMES) else f"v{self.used}"

    def filter(self, scope: list[Bound], depth: int) -> str:
        """Return a condition, where there is nothing to walk."""
        raise NotImplementedError

    def traversal(self, scope: list[Bound], ends: Sequence[Bound]) -> str:
        """Walk from something in `ends`, or from nowhere when there is nothing."""
        nodes = [one for one in ends if not one.is_edge and one.type not in NO_ENTITY]
        start = self.pick(nodes) if nodes else None
        if start is not None and start.type == "Person" and self.often(1, 6):
            return self.path(scope, start, nodes)
        if start is not None and start.left and "|" not in start.left and self.often(1, 2):
            return self.narrow_walk(scope, start)
        if start is not None and ("|" in start.type or self.often(1, 4)):
            return self.union_walk(scope, start, nodes)
        edges = [e for e in self.catalog.edges.values() if start is None or start.type in (e.source, e.target)]
        if not edges:
            return self.filter(scope, 0)
        edge = self.pick(edges)
        left_type, right_type, starts_left = self.orientation(edge, start)
        left = start.name if start is not None and starts_left else None
        right = start.name if start is not None and not starts_left else None
        others = {True: left_type, False: right_type}
        if left is None:
            left = self.end(scope, nodes, others[True])
        if right is None:
            right = self.end(scope, nodes, others[False])
        return self.walk(scope, edge, left, right)

    def narrow_walk(self, scope: list[Bound], start: Bound) -> str:
        """Walk one edge from a node of several types of which one is left, in the direction that fits this one."""
        edges = [edge for edge in self.catalog.edges.values() if start.left in (edge.source, edge.target)]
        if not edges:
            return self.filter(scope, 0)
        edge = self.pick(edges)
        end = Bound(self.fresh(), edge.target if edge.source == start.left else edge.source)
        scope.append(end)
        return f"${start.name} {edge.name[0].lower()}{edge.name[1:]} ${end.name}"

    def orientation(self, edge: EdgeType, start: Bound | None) -> tuple[str, str, bool]:
        """Return the types of the left and right end, and whether the start is the left one."""
        if start is None:
            return edge.source, edge.target, True
        is_left = self.often(2, 3)
        if edge.source == edge.target:
            return edge.source, edge.target, is_left
        forward = (start.type == edge.source) == is_left
        ends = (edge.source, edge.target) if forward else (edge.target, edge.source)
        return (*ends, is_left)

    def end(self, scope: list[Bound], nodes: Sequence[Bound], type_: str) -> str:
        same = [one for one in nodes if one.type == type_]
        if same and self.often(1, 4):
            return self.pick(same).name
        if nodes and self.often(1, 6):
            return "_"
        one = Bound(self.fresh(), type_)
        scope.append(one)
        return one.name

    def walk(self, scope: list[Bound], edge: EdgeType, left: str, right: str) -> str:
        word = self.pick((edge.name[0].lower() + edge.name[1:], edge.name.lower()))
        if edge.source == edge.target and self.often(1, 4):
            word = f"<{word}>"
        elif self.often(1, 6):
            word = f"({word})"
        if self.often(1, 5):
            name = "_" if self.often(1, 6) else self.fresh()
            if name != "_":
                scope.append(Bound(name, edge.name, is_edge=True))
            return f"${left} ${name}:{word} ${right}"
        hops = suffix = ""
        if self.often(1, 3):
            low = 1 + max(0, self.below(5) - 2)
            hops = f"{{{low},{low + self.below(3)}}}"
            if edge.source == edge.target and self.often(1, 3):
                hops = self.hops()[1]
        if self.often(1, 4):
            name = self.fresh()
            scope.append(Bound(name, HOPS))
            suffix = f" as ${name}"
        return f"${left} {word}{hops} ${right}{suffix}"

    def union_walk(self, scope: list[Bound], start: Bound, nodes: Sequence[Bound]) -> str:
        """Walk several edge types, or any, or from a node of several types."""
        left = set(start.ends.split("|"))
        is_both = self.often(1, 4)
        every = list(self.catalog.edges.values())
        leaving = [one for one in every if one.source in left or (is_both and one.target in left)]
        if not leaving:
            return self.filter(scope, 0)
        is_any = self.often(1, 2)
        named = list({(one := self.pick(leaving)).name: one for _ in range(1 + self.below(3))}.values())
        if len(named) == 1 and named[0].source != named[0].target and "|" not in start.type:
            is_both = False
            named = [one for one in named if one.source in left] or [self.pick(leaving)]
        word = "_" if is_any else "|".join(one.name[0].lower() + one.name[1:] for one in named)
        word = f"<{word}>" if is_both else f"({word})" if not is_any and self.often(1, 2) else word
        if not is_any and not is_both and not all(one.source in left for one in named):
            return self.filter(scope, 0)
        edges = every if is_any else named
        low, hops = self.hops() if self.often(1, 2) else (1, "")
        reached = self.reached(edges, left, is_both, bool(hops), low)
        if not hops and self.often(1, 4):
            name = self.fresh()
            used = {one.name for one in edges if one.source in left or (is_both and one.target in left)}
            scope.append(Bound(name, joined(used), is_edge=True))
            right = Bound(self.fresh(), joined(reached))
            scope.append(right)
            return f"${start.name} ${name}:{word} ${right.name}"
        ends = [
            one for one in nodes if is_any and set(one.ends.split("|")) & self.reached(every, left, is_both, False, 1)
        ]
        right = self.pick(ends) if ends and self.often(1, 3) else Bound(self.fresh(), joined(reached))
        if right not in scope:
            scope.append(right)
        suffix = ""
        if self.often(1, 4):
            name = self.fresh()
            scope.append(Bound(name, HOPS))
            suffix = f" as ${name}"
        return f"${start.name} {word}{hops} ${right.name}{suffix}"

    def path(self, scope: list[Bound], start: Bound, nodes: Sequence[Bound]) -> str:
        """Bind a path between persons, or from a person to a city."""
        word = self.pick(("knows", "likes", "<knows>", "knows|likes", "<likes|knows>", "knows|livesIn", "livesIn"))
        is_mixed, is_chain = word in ("knows|livesIn", "livesIn"), word != "livesIn"
        low = self.below(2) if is_chain and not is_mixed else 1
        hops = self.pick((f"{{{low},}}", f"{{{low},{low + self.below(4)}}}")) if is_chain else ""
        search = self.pick(("", "shortest ", "all shortest ", "shortest 2 ", "shortest 3 ", "all shortest "))
        if search == "shortest 3 ":
            name = f"k{len(self.declared)}"
            self.declared.append(f"${name}: I32")
            self.params[name] = self.given[name] = 1 + self.below(3)
            search = f"shortest(${name}) "
        weight = " by toll" if hops.endswith(",}") and self.often(1, 2) else ""
        type_ = "Person" if not is_mixed else "City|Person" if is_chain else "City"
        same = [one for one in nodes if one.type == type_ and one != start]
        if same and self.often(1, 2):
            end = self.pick(same)
        else:
            end = Bound(self.fresh(), type_)
            scope.append(end)
        ends = (start, end) if is_mixed or self.often(3, 4) else (end, start)
        one = Bound(self.fresh(), PATH)
        self.spaces[one.name] = "City|Person" if is_mixed else "Person"
        scope.append(one)
        return f"path ${one.name} = {search}${ends[0].name} {word}{hops} ${ends[1].name}{weight}"

    def member(self, scope: list[Bound], path: Bound, nodes: Sequence[Bound]) -> str:
        """Bind a node of a path, or ask whether a node is one."""
        space = self.spaces[path.name]
        same = [one for one in nodes if one.type == space]
        if same and self.often(1, 2):
            return f"${self.pick(same).name} in nodes(${path.name})"
        scope.append(Bound(self.fresh(), space))
        return f"${scope[-1].name} in nodes(${path.name})"

    def hops(self) -> tuple[int, str]:
        """Return a lower bound and the text of a hop range, which may be open or end at a parameter."""
        low = max(0, self.below(5) - 1)
        if self.often(1, 3):
            return low, f"{{{low},}}"
        high = low + self.below(3)
        if self.often(1, 3):
            name = f"k{len(self.declared)}"
            self.declared.append(f"${name}: I64")
            self.params[name] = self.given[name] = high
            return low, f"{{{low},${name}}}"
        return low, f"{{{low},{high}}}"

    def reached(self, edges: Sequence[EdgeType], left: set[str], is_both: bool, is_chain: bool, low: int) -> set[str]:
        pairs = [(one.source, one.target) for one in edges]
        pairs += [(one.target, one.source) for one in edges] if is_both else []
        types = set(left)
        for _ in pairs if is_chain else ():
            types |= {far for near, far in pairs if near in types}
        return {far for near, far in pairs if near in types} | (left if low == 0 else set())
