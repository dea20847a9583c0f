"""Random `with` stages: what they pass on, group, keep and cut. Which rows they leave is never open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.oracle.expressions import Expressions
from tests.oracle.pattern import HOPS, NO_ENTITY, PATH, TEXT
from tests.oracle.walks import Bound

if TYPE_CHECKING:
    from tests.oracle.queries import Maker


class Stages:
    """Writes one stage for a maker of queries, and leaves in the scope what the stage binds."""

    def __init__(self, maker: Maker, scope: list[Bound]) -> None:
        self.maker = maker
        self.scope = scope
        self.shown: list[str] = []
        self.bound: list[Bound] = []
        self.order: list[str] = []
        # What is passed on under its own name.
        self.passed: list[str] = []

    def write(self) -> str:
        """Return the stage."""
        maker, is_grouped = self.maker, self.maker.often(1, 2)
        self.pass_on()
        for _ in range(maker.below(2)):
            self.value()
        for _ in range(1 + maker.below(2) if is_grouped else 0):
            self.measure()
        if not self.shown:
            self.measure()
            is_grouped = True
        kind = self.kind(is_grouped)
        parts = [f"with {kind}{{ {', '.join(self.shown)} }}"]
        measures = [key for key in self.order if is_grouped]
        if measures and maker.often(1, 3):
            parts.append(
                f"having {maker.pick((*measures, 'count(*)'))} {maker.pick(('>', '<=', '!='))} {maker.below(4)}"
            )
        parts += self.cut(is_grouped or kind == "distinct ")
        self.scope[:] = self.bound
        return " ".join(parts)

    def kind(self, is_grouped: bool) -> str:
        if self.maker.often(1, 5):
            return "distinct "
        entities = [f"${one.name}" for one in self.scope if one.type not in NO_ENTITY and not one.is_edge]
        if not is_grouped and entities and self.maker.often(1, 4):
            return f"distinct on ({self.maker.pick(entities)}) "
        return ""

    def pass_on(self) -> None:
        """Pass some variables on, perhaps under another name."""
        maker = self.maker
        for one in self.scope:
            if maker.often(1, 4):
                continue
            if maker.often(1, 6) and one.type not in (HOPS, TEXT):
                renamed = replace(one, name=maker.fresh())
                if one.type == PATH:
                    maker.spaces[renamed.name] = maker.spaces[one.name]
                self.add(f"${one.name} as ${renamed.name}", renamed)
            else:
                self.add(f"${one.name}", one)
                # Paths are told apart by their nodes, not by what they are.
                self.passed += [f"${one.name}"] if one.type != PATH else []

    def add(self, text: str, one: Bound) -> None:
        self.shown.append(text)
        self.bound.append(one)

    def value(self) -> None:
        """Bind a number or a text that is computed from a row; beside an aggregate it is a group key."""
        written = Expressions(self.maker, self.scope)
        matches = self.maker.subquery(self.scope, "count") if self.maker.often(1, 5) else None
        if matches is not None:
            name = self.maker.fresh()
            self.add(f"{matches} as ${name}", Bound(name, HOPS))
            return
        is_text = self.maker.often(1, 2)
        text = written.text() if is_text else written.integer()
        if any(f"${one.name}." in text for one in self.scope):
            name = self.maker.fresh()
            self.add(f"{text} as ${name}", Bound(name, TEXT if is_text else HOPS))

    def measure(self) -> None:
        """Bind an aggregate that is exact, since the next stage may compare it."""
        maker, written = self.maker, Expressions(self.maker, self.scope)
        nodes = [f"${one.name}" for one in self.scope if one.type not in NO_ENTITY and not one.is_edge]
        kind = maker.below(5)
        if kind == 0 or (kind == 1 and not nodes):
            text = "count(*)"
        elif kind == 1:
            text = f"count({'distinct ' * maker.often(1, 2)}{maker.pick(nodes)})"
        elif kind == 2:
            text = f"sum({written.integer()})"
        else:
            text = f"{maker.pick(('min', 'max'))}({written.integer()})"
        name = maker.fresh()
        self.add(f"{text} as ${name}", Bound(name, HOPS))
        self.order.append(f"${name}")

    def cut(self, is_by_columns: bool) -> list[str]:
        """Return an order and what it cuts; without an order only pages are certain."""
        maker = self.maker
        keys = self.order if is_by_columns else maker.sortable(self.scope) + self.order
        parts: list[str] = []
        if keys and maker.often(1, 3):
            parts.append(f"order {{ {maker.pick(keys)}{maker.pick(('', ' desc'))} }}")
        groups = self.passed if is_by_columns else maker.sortable(self.scope) + maker.identities(self.scope)
        if groups and maker.often(1, 5):
            parts.append(maker.limit_per(groups))
        if parts and maker.often(1, 4):
            parts.append(f"skip {maker.below(3)}")
        if parts and maker.often(1, 2):
            parts.append(f"limit {maker.below(5)}")
        return parts
