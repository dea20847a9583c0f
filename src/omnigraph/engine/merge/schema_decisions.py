"""Resolutions of conflicts between schemas: which side each conflict takes.

Pure. A decision may bring other conflicts to light, such as values of a property that it drops; the same resolution
then settles these as well.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from omnigraph.engine.merge.conflicts import SchemaResolution, refuse
from omnigraph.engine.merge.schema_merge import OpenConflict
from omnigraph.lang.schema.merge import Key, Side
from omnigraph.public_values import Conflict


class SchemaDecisions:
    """The resolutions of one merge, and the sides that they have decided on so far."""

    def __init__(self, resolutions: Sequence[SchemaResolution], hidden: Collection[str]) -> None:
        self.takes: dict[Key, Side] = {}
        self._by_subject: dict[tuple[str, str | None], SchemaResolution] = {}
        for item in resolutions:
            if self._by_subject.setdefault((item.type_key, item.property_name), item) is not item:
                raise refuse(f"the schema of `{item.subject}` is resolved twice; keep one resolution of it")
        self._unused = dict(self._by_subject)
        self._hidden = hidden

    def decide(self, conflicts: Sequence[OpenConflict]) -> bool:
        """Take a side for each conflict that a resolution is about; return whether that decided anything new."""
        before = len(self.takes)
        for item in conflicts:
            resolution = None if item.conflict.type_key.name in self._hidden else self._find(item.conflict)
            if resolution is None:
                continue
            if item.key is None or resolution.take not in item.sides:
                raise refuse(_refusal(item, resolution), type_key=resolution.type_key)
            self.takes[item.key] = resolution.take
        return len(self.takes) > before

    def reject_unused(self) -> None:
        """Raise if a resolution is about no conflict."""
        reject_unused(tuple(self._unused.values()))

    def _find(self, conflict: Conflict) -> SchemaResolution | None:
        subject = (conflict.type_key, conflict.properties[0] if conflict.properties else None)
        self._unused.pop(subject, None)
        return self._by_subject.get(subject)


def reject_unused(resolutions: Sequence[SchemaResolution]) -> None:
    """Raise if there are resolutions of schemas that have no conflict."""
    if resolutions:
        first = resolutions[0]
        raise refuse(
            f"there is no conflict about the schema of `{first.subject}`; run the merge dry again and leave the"
            " resolution out",
            type_key=first.type_key,
        )


def _refusal(item: OpenConflict, resolution: SchemaResolution) -> str:
    if item.sides:
        return (
            f"{item.conflict.message}; taking `{resolution.take}` would bring back what was dropped, without its data."
            f" Take `{item.sides[0]}`, or revert the drop on its branch first"
        )
    return f"{item.conflict.message}; no side settles this, change the schema of one of them with `schema apply`"
