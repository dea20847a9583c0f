"""The steps of a migration as values: their JSON, their text, and what they do to stored rows.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NotRequired, TypedDict

from omnigraph.lang.diagnostic import Span
from omnigraph.lang.schema.ast import Kind

StepKind = Literal[
    "add_type",
    "rename_type",
    "update_type_metadata",
    "drop_type",
    "add_property",
    "rename_property",
    "extend_enum",
    "update_property_metadata",
    "widen_property",
    "make_optional",
    "make_required",
    "drop_property",
    "change_interfaces",
    "add_constraint",
    "drop_constraint",
    "unsupported_change",
]
DropMode = Literal["soft", "hard"]
# What a step does to stored rows: nothing (metadata alone), reads and checks them, or writes them again.
StepEffect = Literal["instant", "validates", "rewrites"]

# Constraints on one column, which is followed by bounds or a pattern.
_BOUNDED: Final = ("@range", "@check")

_TYPE: Final = {"type_name": "type_name"}
_PROPERTY: Final = {**_TYPE, "property_name": "property_name"}
# Which members a step has in JSON, after `kind` and `type_kind`, and the field each comes from.
_MEMBERS: Final[Mapping[str, Mapping[str, str]]] = {
    "add_type": {"name": "type_name"},
    "rename_type": {"from": "old_name", "to": "type_name"},
    "update_type_metadata": {"name": "type_name"},
    "drop_type": {"name": "type_name", "mode": "mode"},
    "add_property": {**_PROPERTY, "property_type": "property_type", "default": "default"},
    "rename_property": {**_TYPE, "from": "old_name", "to": "property_name"},
    "extend_enum": {**_PROPERTY, "added_values": "added_values"},
    "update_property_metadata": _PROPERTY,
    "widen_property": {**_PROPERTY, "from": "old_type", "property_type": "property_type"},
    "make_optional": _PROPERTY,
    "make_required": _PROPERTY,
    "drop_property": {**_PROPERTY, "mode": "mode"},
    "change_interfaces": _TYPE,
    "add_constraint": {**_TYPE, "constraint": "constraint"},
    "drop_constraint": {**_TYPE, "constraint": "constraint"},
    "unsupported_change": {"entity": "entity", "reason": "reason", "code": "code"},
}


class SchemaStep(TypedDict):
    """One step of a migration; which members it has follows from its kind."""

    kind: StepKind
    type_kind: NotRequired[Kind]
    name: NotRequired[str]
    type_name: NotRequired[str]
    property_name: NotRequired[str]
    from_: NotRequired[str]
    to: NotRequired[str]
    property_type: NotRequired[str]
    default: NotRequired[str]
    constraint: NotRequired[str]
    added_values: NotRequired[list[str]]
    mode: NotRequired[DropMode]
    entity: NotRequired[str]
    reason: NotRequired[str]
    code: NotRequired[str]
    effect: NotRequired[StepEffect]
    touches: NotRequired[list[str]]


@dataclass(frozen=True, slots=True)
class Step:
    """A change. `span` is its position in the new source, if any; `code` is set for unsupported changes with a code.

    `touches` are the types whose rows a step validates or rewrites, by their new names, such as `edge:Knows`.
    """

    json_type: ClassVar = SchemaStep
    kind: StepKind
    type_kind: Kind
    type_name: str
    property_name: str | None = None
    old_name: str | None = None
    property_type: str | None = None
    old_type: str | None = None
    default: str | None = None
    constraint: str | None = None
    added_values: tuple[str, ...] = ()
    mode: DropMode | None = None
    reason: str | None = None
    code: str | None = None
    effect: StepEffect = "instant"
    touches: tuple[str, ...] = ()
    span: Span = Span(0, 0)  # noqa: RUF009 - spans are immutable

    @property
    def entity(self) -> str:
        """Name what changes, such as `node:Port.berths`."""
        owner = f"{self.type_kind}:{self.type_name}"
        return f"{owner}.{self.property_name}" if self.property_name is not None else owner

    @property
    def is_rule(self) -> bool:
        """Whether a constraint restricts data; an index only makes it fast to find."""
        return self.constraint is not None and not self.constraint.startswith("@index")

    @property
    def rule_subject(self) -> tuple[str, str, str]:
        """The type of a constraint, its kind, and the columns that it is about, without bounds.

        >>> Step("drop_constraint", "node", "Port", constraint="@range(depth, 0..9)").rule_subject
        ('node:Port', '@range', 'depth')
        """
        kind, _, arguments = (self.constraint or "").rstrip(")").partition("(")
        # A type has one key and one cardinality, whatever they are about.
        columns = "" if kind in ("@key", "@card") else arguments
        return f"{self.type_kind}:{self.type_name}", kind, columns.partition(",")[0] if kind in _BOUNDED else columns

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
        if self.kind != "unsupported_change":
            encoded["effect"] = self.effect
        if self.touches:
            encoded["touches"] = list(self.touches)
        return encoded

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Step:
        """Return the step of its JSON, which has no position."""
        values = {field: data[member] for member, field in _MEMBERS[data["kind"]].items() if member in data}
        if "entity" in values:
            owner, _, property_name = values.pop("entity").partition(".")
            type_kind, _, values["type_name"] = owner.partition(":")
            return cls(data["kind"], type_kind, property_name=property_name or None, **values)
        if "added_values" in values:
            values["added_values"] = tuple(values["added_values"])
        # Releases that knew instant steps alone did not write an effect.
        values["effect"], values["touches"] = data.get("effect", "instant"), tuple(data.get("touches", ()))
        return cls(data["kind"], data["type_kind"], **values)

    def render(self) -> str:
        """Format the step as a line.

        >>> Step("rename_type", "node", "Ship", old_name="Vessel").render()
        '~ rename node Vessel to Ship'
        """
        work = {"instant": "", "validates": "; checks the rows of ", "rewrites": "; rewrites "}[self.effect]
        return self._change + (work + ", ".join(self.touches) if work else "")

    @property
    def _change(self) -> str:
        owner = f"{self.type_kind} {self.type_name}"
        part = f"{self.type_name}.{self.property_name}"
        lines: dict[StepKind, str] = {
            "add_type": f"+ add {owner}",
            "rename_type": f"~ rename {self.type_kind} {self.old_name} to {self.type_name}",
            "update_type_metadata": f"~ update the annotations of {owner}",
            "drop_type": f"- drop {owner}" + (f" ({self.mode})" if self.mode else ""),
            "add_property": f"+ add {part}: {self.property_type}" + (f" {self.default}" if self.default else ""),
            "rename_property": f"~ rename {self.type_name}.{self.old_name} to {self.property_name}",
            "extend_enum": f"~ extend {part} by {', '.join(self.added_values)}",
            "update_property_metadata": f"~ update the annotations of {part}",
            "widen_property": f"~ widen {part} from {self.old_type} to {self.property_type}",
            "make_optional": f"~ make {part} optional",
            "make_required": f"~ make {part} required",
            "drop_property": f"- drop {part} ({self.mode})",
            "change_interfaces": f"~ change the interfaces of {owner}",
            "add_constraint": f"+ add {self.constraint} to {owner}",
            "drop_constraint": f"- drop {self.constraint} from {owner}",
            "unsupported_change": f"! {self.entity}: {self.message}",
        }
        return lines[self.kind]
