"""Row rules: constraints that each row satisfies on its own (required, enum, `@range`, `@check`).

Pure pyarrow kernels over whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.lang.catalog import NodeType, Type
from omnigraph.rules.arrow_typing import Column, Numbers, pc
from omnigraph.rules.delta import one_array

_FIELDS: Final[list[Any]] = [
    pa.field("rule", pa.string(), nullable=False),
    pa.field("row", pa.int64(), nullable=False),
    pa.field("property", pa.string()),
    pa.field("value", pa.string()),
    pa.field("message", pa.string(), nullable=False),
]
ERRORS: Final = pa.schema(_FIELDS)
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Breach:
    """Rows of a column that break a rule; the message is `before`, the value, `after`."""

    rule: str
    property: str
    rows: Numbers
    before: str
    after: str


RowRule: TypeAlias = Callable[[Type, pa.Table], Iterator[Breach]]


def required(type_: Type, batch: pa.Table) -> Iterator[Breach]:
    """E4: a required property has a value."""
    names = [name for name, item in type_.properties.items() if not item.type.nullable]
    for name in ("id", *type_.ends, *names):
        if batch.column(name).null_count:
            rows = _where(pc.is_null(batch.column(name)))
            yield Breach("E4", name, rows, f"`{type_.name}.{name}` is required but is ", "; set a value")


def finite_vectors(type_: Type, batch: pa.Table) -> Iterator[Breach]:
    """E4: a vector holds finite numbers only."""
    for name, item in type_.properties.items():
        if item.type.is_vector:
            column = one_array(batch.column(name))
            if pc.all(pc.fill_null(pc.is_finite(column.flatten()), False), min_count=0).as_py():
                continue
            present = pc.indices_nonzero(pc.is_valid(column)).to_numpy()
            elements = column.drop_null().flatten()
            fine = pc.fill_null(pc.is_finite(elements), False).to_numpy(zero_copy_only=False)
            bad = present[~fine.reshape(len(present), item.type.dimension or 1).all(axis=1)]
            if len(bad):
                yield Breach(
                    "E4", name, bad, f"`{type_.name}.{name}` holds finite numbers only, not ", "; correct them"
                )


def enum_values(type_: Type, batch: pa.Table) -> Iterator[Breach]:
    """E7: an enum property holds one of the values of the enum."""
    for name, item in type_.properties.items():
        allowed = item.type.enum_values
        if allowed is not None:
            column = batch.column(name)
            is_allowed = pc.is_in(column, value_set=pa.array(allowed, pa.string()))
            rows = _where(pc.and_(pc.is_valid(column), pc.invert(is_allowed)))
            if len(rows):
                after = f"; it is one of {', '.join(allowed)}"
                yield Breach("E7", name, rows, f"enum `{type_.name}.{name}` cannot be ", after)


def ranges(type_: Type, batch: pa.Table) -> Iterator[Breach]:
    """E8: a number lies within its `@range`, as a 64-bit float; NaN never does."""
    for rule in type_.ranges if isinstance(type_, NodeType) else ():
        if type_.properties[rule.property].type.is_list:
            continue
        numbers = one_array(batch.column(rule.property)).cast(pa.float64(), safe=False)
        fine = pc.is_valid(numbers)
        if rule.minimum is not None:
            fine = pc.and_kleene(fine, pc.greater_equal(numbers, float(rule.minimum)))
        if rule.maximum is not None:
            fine = pc.and_kleene(fine, pc.less_equal(numbers, float(rule.maximum)))
        rows = _where(pc.and_(pc.is_valid(numbers), pc.or_(pc.invert(pc.fill_null(fine, True)), pc.is_nan(numbers))))
        if len(rows):
            bounds = f"{_bound(rule.minimum)}..{_bound(rule.maximum)}"
            before = f"`@range({rule.property}, {bounds})` of `{type_.name}` is violated by "
            yield Breach("E8", rule.property, rows, before, "; keep it within the bounds")


def checks(type_: Type, batch: pa.Table) -> Iterator[Breach]:
    """E8: a string contains a match of its `@check`; an invalid regular expression is a breach as well."""
    for rule in type_.checks if isinstance(type_, NodeType) else ():
        if type_.properties[rule.property].type.is_list:
            continue
        column = batch.column(rule.property)
        before = f'`@check({rule.property}, "{rule.pattern}")` of `{type_.name}` '
        try:
            matched = pc.match_substring_regex(column, rule.pattern)
        except pa.ArrowInvalid as error:
            rows = _where(pc.is_valid(column))
            reason = str(error).partition(":")[2].strip() or "it is malformed"
            after = f", because the pattern is not a valid regular expression: {reason}; correct the schema"
            if len(rows):
                yield Breach("E8", rule.property, rows, before + "cannot be checked for ", after)
            continue
        rows = _where(pc.fill_null(pc.invert(matched), False))
        if len(rows):
            yield Breach("E8", rule.property, rows, before + "is violated by ", "; use a value that matches")


ROW_RULES: Final[tuple[RowRule, ...]] = (required, finite_vectors, enum_values, ranges, checks)


def errors_of(breach: Breach, batch: pa.Table, limit: int | None = None) -> pa.Table:
    """Return the errors of a breach as a table with a row per error, up to a limit."""
    rows = breach.rows[:limit]
    values = _texts(one_array(batch.column(breach.property)).take(pa.array(rows)))
    parts: list[Any] = [pa.scalar(breach.before), values, pa.scalar(breach.after), pa.scalar("")]
    messages = pc.binary_join_element_wise(*parts)
    count = len(rows)
    columns: list[Any] = [pa.repeat(breach.rule, count), pa.array(rows, pa.int64()), pa.repeat(breach.property, count)]
    return pa.Table.from_arrays([*columns, values, messages], schema=ERRORS)


def _texts(values: Column) -> Column:
    if pa.types.is_string(values.type):
        texts: Column = pc.binary_join_element_wise(
            pa.scalar('"'), pc.utf8_slice_codeunits(values, 0, _SHOWN), pa.scalar('"'), pa.scalar("")
        )
    elif pa.types.is_nested(values.type) or pa.types.is_large_binary(values.type):
        # Arrow cannot cast these to strings; few of them are ever shown.
        texts = pa.array([None if value is None else str(value)[:_SHOWN] for value in values.to_pylist()], pa.string())
    else:
        texts = values.cast(pa.string())
    return pc.fill_null(texts, "null")


def _where(mask: Any) -> Numbers:
    return np.asarray(pc.indices_nonzero(mask).to_numpy(), np.int64)


def _bound(value: float | int | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
