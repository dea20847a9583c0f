"""Plans the migration from an accepted schema to a new source.

Pure. Compares by identity, so a rename is a rename and never a drop and an add.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.lang.diagnostic import Diagnostic, Source, Span
from omnigraph.lang.migrate.compare import DropMode, Pair, Step, compare_types
from omnigraph.lang.schema.ast import Kind
from omnigraph.lang.schema.compile import CompiledSchema, compile_schema
from omnigraph.lang.schema.ir import KINDS, SchemaIR

_HINTS: Final[Mapping[str | None, str]] = {
    "OG-MF-103": "make it nullable; data that has no value for it then holds null",
    "OG-MF-106": "add a property of the new type under another name, fill it, then drop the old one",
    None: "keep it as it was accepted, or declare a new type beside the old one and move the data",
}


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """All steps in the order in which they apply; no step at all means that nothing changes."""

    compiled: CompiledSchema
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        steps = "".join(f"\n  {step.render()}" for step in self.steps) or " no changes"
        return f"<MigrationPlan{'' if self.supported else ', unsupported'}:{steps}>"

    @property
    def supported(self) -> bool:
        return not any(step.kind == "unsupported_change" for step in self.steps)

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
            for step in self.steps
            if step.kind == "unsupported_change"
        )

    @property
    def notes(self) -> tuple[Diagnostic, ...]:
        """Remarks on the new source that stop nothing, such as a rename hint that did its work."""
        return self.compiled.notes

    def to_json(self) -> dict[str, object]:
        return {"supported": self.supported, "steps": [step.to_json() for step in self.steps]}

    def render(self) -> str:
        """Format the plan: the verdict first, then a line per step."""
        if not self.steps:
            return "No changes."
        refused = len(self.refusals)
        count = f"{len(self.steps)} step{'s' if len(self.steps) > 1 else ''}"
        head = f"Not supported: {refused} of {count} refused." if refused else f"Supported: {count}."
        return "\n".join([head, *(f"  {step.render()}" for step in self.steps)])


def plan_migration(accepted: SchemaIR, source: Source, *, allow_data_loss: bool = False) -> MigrationPlan:
    """Compile the source as the successor of the accepted schema and plan the change; raises `LanguageError`."""
    compiled = compile_schema(source, domain=accepted.domain, accepted=accepted)
    mode: DropMode = "hard" if allow_data_loss else "soft"
    steps = (*_changed(accepted, compiled, mode), *_dropped(accepted, compiled, mode))
    # Every difference must show in a step: a plan that is empty by mistake would lose a change in silence.
    assert steps or accepted.shape == compiled.shape
    return MigrationPlan(compiled, steps)


def _changed(accepted: SchemaIR, compiled: CompiledSchema, mode: DropMode) -> Iterator[Step]:
    for kind in KINDS:
        old_names = {ids.type_id: name for name, ids in accepted.ids(kind).items()}
        for name, ids in compiled.ir.ids(kind).items():
            origin = compiled.origins[kind, name]
            if ids.type_id in old_names:
                pair = Pair(kind, accepted, old_names[ids.type_id], compiled.ir, name, origin)
                yield from compare_types(pair, mode)
            else:
                yield Step("add_type", kind, name, span=origin.span)


def _dropped(accepted: SchemaIR, compiled: CompiledSchema, mode: DropMode) -> Iterator[Step]:
    for kind in KINDS:
        new_ids = {ids.type_id for ids in compiled.ir.ids(kind).values()}
        for name, ids in accepted.ids(kind).items():
            if ids.type_id not in new_ids:
                yield _drop(kind, name, mode)


def _drop(kind: Kind, name: str, mode: DropMode) -> Step:
    if kind == "interface":
        reason = f"interface `{name}` cannot be removed or renamed"
        return Step("unsupported_change", kind, name, reason=reason, span=Span(0, 0))
    return Step("drop_type", kind, name, mode=mode)
