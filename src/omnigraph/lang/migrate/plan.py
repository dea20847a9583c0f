"""Plans the migration from an accepted schema to a new source.

Pure. Compares by identity, so a rename is a rename and never a drop and an add.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from omnigraph.lang.diagnostic import Diagnostic, Source, Span
from omnigraph.lang.migrate.compare import Pair, compare_types
from omnigraph.lang.migrate.step import DropMode, Step
from omnigraph.lang.schema.ast import Kind
from omnigraph.lang.schema.compile import CompiledSchema, compile_schema
from omnigraph.lang.schema.ir import KINDS, SchemaIR
from omnigraph.lang.schema.lower import Origins, PropertyOrigin, TypeOrigin

_HINTS: Final[Mapping[str | None, str]] = {
    "OG-MF-103": "make it nullable, or give it a default that existing data gets: `@default(…)`",
    "OG-MF-106": "add a property of the new type under another name, fill it, then drop the old one",
    None: "keep it as it was accepted, or declare a new type beside the old one and move the data",
}


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """All steps in the order in which they apply; no step at all means that nothing changes."""

    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        steps = "".join(f"\n  {step.render()}" for step in self.steps) or " no changes"
        return f"<{type(self).__name__}{'' if self.supported else ', unsupported'}:{steps}>"

    @property
    def unsupported(self) -> tuple[Step, ...]:
        """The steps that cannot be applied."""
        return tuple(step for step in self.steps if step.kind == "unsupported_change")

    @property
    def supported(self) -> bool:
        """Whether every step can be applied."""
        return not self.unsupported

    def to_json(self) -> dict[str, object]:
        """Return the plan as a JSON object.

        Returns:
            Whether it is supported, and the steps.

        Example:
            >>> graph.schema.plan(graph.schema.source).to_json()
            {'supported': True, 'steps': []}
        """
        return {"supported": self.supported, "steps": [step.to_json() for step in self.steps]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SchemaPlan:
        """Return the plan of its JSON, whose steps have no positions.

        Args:
            data: The JSON object.

        Returns:
            The plan.

        Example:
            >>> og.SchemaPlan.from_json({"supported": True, "steps": []}).steps
            ()
        """
        return SchemaPlan(tuple(map(Step.from_json, data["steps"])))

    def render(self) -> str:
        """Format the plan: the verdict first, then a line per step.

        Returns:
            The text.

        Example:
            >>> graph.schema.plan(graph.schema.source).render()
            'No changes.'
        """
        if not self.steps:
            return "No changes."
        refused = len(self.unsupported)
        count = f"{len(self.steps)} step{'s' if len(self.steps) > 1 else ''}"
        instant = sum(step.effect == "instant" for step in self.steps)
        speed = "all instant" if instant == len(self.steps) else f"{instant} instant"
        head = f"Not supported: {refused} of {count} refused." if refused else f"Supported: {count}, {speed}."
        return "\n".join([head, *(f"  {step.render()}" for step in self.steps)])


@dataclass(frozen=True, slots=True, repr=False)
class MigrationPlan(SchemaPlan):
    """A plan with the compiled schema that it leads to, as an opened graph returns it."""

    compiled: CompiledSchema

    @property
    def refusals(self) -> tuple[Diagnostic, ...]:
        """Why the plan is not supported, with positions in the new source; steps without a code get `OG-MF-100`."""
        return tuple(
            Diagnostic(
                step.code or "OG-MF-100",
                step.reason or "",
                self.compiled.source,
                step.span,
                hint=_HINTS[step.code],
                # A dropped part has no position in the new source.
                is_placed=step.span != Span(0, 0),
            )
            for step in self.unsupported
        )

    @property
    def notes(self) -> tuple[Diagnostic, ...]:
        """Remarks on the new source that stop nothing, such as a rename hint that did its work."""
        return self.compiled.notes


def plan_migration(
    accepted: SchemaIR, source: Source, *, allow_data_loss: bool = False, identity_space: int = 0
) -> MigrationPlan:
    """Compile the source as the successor of the accepted schema and plan the change; raises `LanguageError`."""
    compiled = compile_schema(source, domain=accepted.domain, accepted=accepted, identity_space=identity_space)
    mode: DropMode = "hard" if allow_data_loss else "soft"
    steps = _steps(accepted, compiled.ir, compiled.origins, mode)
    # Every difference must show in a step: a plan that is empty by mistake would lose a change in silence.
    assert steps or accepted.shape == compiled.shape
    return MigrationPlan(steps, compiled)


def list_steps(before: SchemaIR, after: SchemaIR) -> tuple[Step, ...]:
    """Return the steps between two accepted schemas, without positions; drops count as soft."""
    nowhere = PropertyOrigin(Span(0, 0), Span(0, 0))
    origins = {
        (kind, name): TypeOrigin(Span(0, 0), {item.name: nowhere for item in shape.properties}, {})
        for kind in KINDS
        for name, shape in after.types(kind).items()
    }
    return _steps(before, after, origins, "soft")


def _steps(accepted: SchemaIR, ir: SchemaIR, origins: Origins, mode: DropMode) -> tuple[Step, ...]:
    return (*_changed(accepted, ir, origins, mode), *_dropped(accepted, ir, mode))


def _changed(accepted: SchemaIR, ir: SchemaIR, origins: Origins, mode: DropMode) -> Iterator[Step]:
    for kind in KINDS:
        old_names = {ids.type_id: name for name, ids in accepted.ids(kind).items()}
        for name, ids in ir.ids(kind).items():
            origin = origins[kind, name]
            if ids.type_id in old_names:
                pair = Pair(kind, accepted, old_names[ids.type_id], ir, name, origin)
                yield from compare_types(pair, mode)
            else:
                yield Step("add_type", kind, name, span=origin.span)


def _dropped(accepted: SchemaIR, ir: SchemaIR, mode: DropMode) -> Iterator[Step]:
    for kind in KINDS:
        new_ids = {ids.type_id for ids in ir.ids(kind).values()}
        for name, ids in accepted.ids(kind).items():
            if ids.type_id not in new_ids:
                yield _drop(kind, name, mode)


def _drop(kind: Kind, name: str, mode: DropMode) -> Step:
    # An interface has no data that could be lost.
    return Step("drop_type", kind, name, mode=None if kind == "interface" else mode)
