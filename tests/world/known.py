"""Faults that are known and being mended elsewhere: the world leaves out, or lets pass, what would run into them.

Take an entry out as soon as its fault is mended; an empty set is the goal.
"""

from __future__ import annotations

KNOWN: set[str] = {
    # Adding a required property with a default fails on types with a built index; no such step is drawn.
    "V3",
    # `log` and `blame` of types that a schema change added: such entities are not asked for.
    "V4",
    # `verify(data=True)` raises a raw error when a killed writer left a detached version.
    "V5",
    # A required property with a default conflicts with deletes, and the feed shows updates of every entity.
    "V7",
    # `cleanup --dry-run` reports less than the same cleanup removes.
    "X-2",
    # A Blob cannot be written by a statement that also writes a null: "cannot be set for each row of a pattern".
    "W1",
    # A merge of a type that the other side widened is refused when the target has only indexed or compacted it, or
    # when it has the entities of the base again.
    "W3",
    # Overwriting with an empty table does nothing.
    "X-3",
}
