"""How much one write may hold per type.

Checked while rows are gathered, so that nothing large is built only to be refused.
"""

from __future__ import annotations

from omnigraph.errors import LimitExceeded
from omnigraph.lang.catalog import EdgeType, NodeType
from omnigraph.limits import WRITE_BYTES_MAX, WRITE_ENTITIES_MAX


def check_size(type_: NodeType | EdgeType, entities: int, size: int) -> None:
    """Refuse more entities or bytes of one type than one write may hold (E12); blobs that are kept do not count."""
    if entities > WRITE_ENTITIES_MAX:
        raise too_large(f"keyed entities for {type_.table_key}", WRITE_ENTITIES_MAX, entities, type_.name, "entities")
    if size > WRITE_BYTES_MAX:
        raise too_large(f"keyed write bytes for {type_.table_key}", WRITE_BYTES_MAX, size, type_.name, "bytes")


def too_large(resource: str, limit: int, actual: int, name: str, unit: str, rule: str = "E12") -> LimitExceeded:
    """Return the refusal of a write that holds too much of one type."""
    return LimitExceeded(
        f"this write holds at least {actual} {unit} of `{name}`, and one write may hold {limit}; split it, or load it"
        " with the pipeline",
        rule=rule,
        resource=resource,
        limit=limit,
        actual=actual,
    )
