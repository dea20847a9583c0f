"""What a row of a stream of changes does: upsert its entity, delete it, or nothing. The list of operations is closed.

A row whose operation is not declared must not be taken for an upsert: a delete that is written `D` instead of `d` would
clear the properties of its entity. It stops the run, or goes to the quarantine, unless `otherwise` says what it does.
"""

from __future__ import annotations

from typing import Any, Final

from omnigraph.pipelines.declaration.config import TypeMapping
from omnigraph.pipelines.frame_columns import NUMBER_TYPES, column_of, type_of

# Those of Debezium, their words, and the counterpart of a mark that is 1 or true; in any case.
WELL_KNOWN_UPSERTS: Final = (
    "c", "r", "u", "i", "create", "insert", "update", "upsert", "read", "snapshot", "0", "false", "n", "no",
)  # fmt: skip


def classify_rows(frame: Any, mapping: TypeMapping) -> Any:
    """Return a column with `delete`, `upsert` or `ignore`; null where the operation is not declared."""
    from pyspark.sql import functions

    mark, kind = column_of(str(mapping.delete_when)), type_of(frame, str(mapping.delete_when))
    if not mapping.delete_values:
        operation = functions.when(mark, "delete").when(~mark, "upsert")
        if mapping.otherwise is None:
            # As in SQL, a condition that is unknown does not hold.
            return functions.coalesce(operation, functions.lit("upsert"))
    else:
        # As numbers, 1 is 1.0.
        compared = "decimal(38,18)" if kind == "decimal" else "double" if kind in NUMBER_TYPES else "string"
        value = mark.cast(compared)

        def is_one_of(values: tuple[str, ...], value: Any = value) -> Any:
            return value.isin(*(functions.lit(item).try_cast(compared) for item in values))

        operation = functions.when(is_one_of(mapping.delete_values), "delete")
        operation = operation.when(is_one_of(mapping.ignore_values), "ignore") if mapping.ignore_values else operation
        if mapping.upsert_values is None:
            known = functions.lower(value) if compared == "string" else value
            operation = operation.when(is_one_of(WELL_KNOWN_UPSERTS, known), "upsert")
        else:
            operation = operation.when(is_one_of(mapping.upsert_values), "upsert")
    if mapping.otherwise in ("upsert", "ignore"):
        return functions.coalesce(operation, functions.lit(mapping.otherwise))
    return operation


def keep_known_rows(frame: Any, mapping: TypeMapping) -> Any:
    """Return the rows that upsert or delete an entity."""
    return frame if mapping.delete_when is None else frame.filter(classify_rows(frame, mapping) != "ignore")
