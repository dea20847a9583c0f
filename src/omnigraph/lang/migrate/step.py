"""The steps of a migration plan.

Pure values, and their JSON and text forms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from omnigraph.lang.schema.ast import Kind
from omnigraph.lang.source import Span

StepKind = Literal[
    "add_type",
    "rename_type",
    "update_type_metadata",
    "drop_type",
    "add_property",
    "rename_property",
    "extend_enum",
    "update_property_metadata",
    "drop_property",
    "add_constraint",
    "unsupported_change",
]
DropMode = Literal["soft", "hard"]

# Which members a step has in JSON, after `kind` and `type_kind`, and the field each comes from.
_MEMBERS: Final[Mapping[str, Mapping[str, str]]] = {
    "add_type": {"name": "type_name"},
    "rename_type": {"from": "old_name", "to": "type_name"},
    "update_type_metadata": {"name": "type_name"},
    "drop_type": {"name": "type_name", "mode": "mode"},
    "add_property": {"type_name": "type_name", "property_name": "property_name", "property_type": "property_type"},
    "rename_property": {"type_name": "type_name", "from": "old_name", "to": "property_name"},
    "extend_enum": {"type_name": "type_name", "property_name": "property_name", "added_values": "added_values"},
    "update_property_metadata": {"type_name": "type_name", "property_name": "property_name"},
    "drop_property": {"type_name": "type_name", "property_name": "property_name", "mode": "mode"},
    "add_constraint": {"type_name": "type_name", "constraint": "constraint"},
    "unsupported_change": {"entity": "entity", "reason": "reason", "code": "code"},
}


@dataclass(frozen=True, slots=True)
class Step:
    """A change. `span` is its position in the new source, if any; `code` is set for unsupported changes with a code."""

    kind: StepKind
    type_kind: Kind
    type_name: str
    property_name: str | None = None
    old_name: str | None = None
    property_type: str | None = None
    constraint: str | None = None
    added_values: tuple[str, ...] = ()
    mode: DropMode | None = None
    reason: str | None = None
    code: str | None = None
    span: Span = Span(0, 0)  # noqa: RUF009 - spans are immutable

    @property
    def entity(self) -> str:
        """Name what changes, such as `node:Port.berths`."""
        owner = f"{self.type_kind}:{self.type_name}"
        return f"{owner}.{self.property_name}" if self.property_name is not None else owner

    @property
    def message(self) -> str | None:
        """Why the step is not supported, with its code in front if it has one."""
        return f"[{self.code}] {self.reason}" if self.code is not None else self.reason

    def to_json(self) -> dict[str, object]:
        """Return the step as data; a refusal without a code has no member `code`."""
        encoded: dict[str, object] = {"kind": self.kind}
        if self.kind != "unsupported_change":
            encoded["type_kind"] = self.type_kind
        for member, field in _MEMBERS[self.kind].items():
            value = getattr(self, field)
            if value is not None:
                encoded[member] = list(value) if isinstance(value, tuple) else value
        return encoded

    def render(self) -> str:
        """Format the step as a line.

        >>> Step("rename_type", "node", "Ship", old_name="Vessel").render()
        '~ rename node Vessel to Ship'
        """
        owner = f"{self.type_kind} {self.type_name}"
        part = f"{self.type_name}.{self.property_name}"
        lines: dict[StepKind, str] = {
            "add_type": f"+ add {owner}",
            "rename_type": f"~ rename {self.type_kind} {self.old_name} to {self.type_name}",
            "update_type_metadata": f"~ update the annotations of {owner}",
            "drop_type": f"- drop {owner} ({self.mode})",
            "add_property": f"+ add {part}: {self.property_type}",
            "rename_property": f"~ rename {self.type_name}.{self.old_name} to {self.property_name}",
            "extend_enum": f"~ extend {part} by {', '.join(self.added_values)}",
            "update_property_metadata": f"~ update the annotations of {part}",
            "drop_property": f"- drop {part} ({self.mode})",
            "add_constraint": f"+ add {self.constraint} to {owner}",
            "unsupported_change": f"! {self.entity}: {self.message}",
        }
        return lines[self.kind]
