"""Embedding plan: the `@embed` properties to fill, and which rows need a new vector.

Pure: decides from columns and the fingerprints of generated vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.arguments import check_choice, decode_params
from omnigraph.engine.embed.cache import (
    GeneratedVectors,
    VectorSpace,
    is_among,
    pair_fingerprints,
    text_digests,
    vector_fingerprints,
)
from omnigraph.engine.query.embedders import Embedder, Matrix
from omnigraph.engine.write.committed_rows import ColumnTest, comparison
from omnigraph.errors import DataError, UsageError
from omnigraph.lang.catalog import NUMBERS, Catalog, NodeType, Property, PropertyType, Scalar
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.query.ir import CompareOp, Parameter
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.rules.delta import one_array

RowTests: TypeAlias = tuple[ColumnTest, ...]


def parse_selects(types: Sequence[NodeType], select: Sequence[str]) -> Mapping[str, RowTests | None]:
    """Return the tests of each type by its name; None for a type that is left out."""
    tests: dict[str, list[ColumnTest]] = {}
    for selector in select:
        head, sign, value = selector.partition("=")
        type_name, _, field = head.rpartition(":")
        matching = [type_ for type_ in types if not type_name or type_.name == type_name]
        if not sign or not field or not matching:
            names = ", ".join(type_.name for type_ in types)
            raise UsageError(
                f"`{selector}` selects nothing; write `field=value`, or `Type:field=value` with one of {names}",
                select=selector,
            )
        for type_ in matching:
            tests.setdefault(type_.name, []).append(_parse_test(type_, field, value, selector))
    left_out: RowTests | None = None if select else ()
    return {type_.name: tuple(tests[type_.name]) if type_.name in tests else left_out for type_ in types}


def _parse_test(type_: NodeType, field: str, value: str, selector: str) -> ColumnTest:
    columns = {"id": PropertyType(Scalar.STRING)} | {
        name: property_.type for name, property_ in type_.properties.items()
    }
    type_of_column = columns.get(field)
    if type_of_column is None or type_of_column.is_list or type_of_column.scalar in (Scalar.VECTOR, Scalar.BLOB):
        hint = did_you_mean(field, columns) or f"it has {', '.join(sorted(columns))}"
        raise UsageError(f"`{type_.name}` has no property `{field}` to select by; {hint}", select=selector)
    [decoded] = decode_params(
        [Parameter(field, type_of_column, "")], {field: _parse_json_value(value, type_of_column)}
    ).values()
    return comparison(field, type_of_column, CompareOp.EQ, decoded)


def _parse_json_value(text: str, type_: PropertyType) -> Any:
    """Return a value as JSON would give it: numbers and booleans are written without quotes."""
    if type_.scalar not in NUMBERS and type_.scalar is not Scalar.BOOL:
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


Mode = Literal["fill_missing", "reembed_all", "clean"]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Target:
    """One `@embed` property: where its texts are, and the space of its vectors; without one it is only cleared."""

    name: str
    source: str
    dimension: int
    nullable: bool
    space: VectorSpace | None


@dataclass(frozen=True, slots=True)
class TypePlan:
    """The vectors to compute or clear of one type."""

    type: NodeType
    mode: Mode
    targets: tuple[Target, ...]
    selected: RowTests

    @property
    def columns(self) -> list[str]:
        """The columns by which rows are judged."""
        names = [name for target in self.targets for name in (target.name, target.source)]
        return list(dict.fromkeys([*names, *(test.column for test in self.selected)]))


@dataclass(frozen=True, slots=True)
class VectorChanges:
    """Which rows of a property get a vector, and which lose theirs."""

    filled: Mask
    cleared: Mask


def plan_types(
    catalog: Catalog, types: Sequence[str] | None, mode: Mode, select: Sequence[str], embedder: Embedder | None
) -> list[TypePlan]:
    """Return the plan of each type; rejects unknown names and vectors of other models."""
    check_choice("mode", mode, get_args(Mode))
    embedding_types = {item.name: item for item in catalog.nodes.values() if _embed_properties(item)}
    if not embedding_types:
        raise UsageError("no type of the schema has a property with `@embed`; there is nothing to embed")
    names = sorted(set(types or embedding_types))
    for name in names:
        if name not in embedding_types:
            hint = (
                did_you_mean(name, embedding_types) or f"those that have one are {', '.join(sorted(embedding_types))}"
            )
            raise UsageError(f"`{name}` is not a type with an `@embed` property; {hint}", type=name)
    selects = parse_selects([embedding_types[name] for name in names], select)
    plans: list[TypePlan] = []
    for name in names:
        row_tests, type_ = selects[name], embedding_types[name]
        if row_tests is not None:
            targets = tuple(_plan_target(type_, item, mode, embedder) for item in _embed_properties(type_))
            plans.append(TypePlan(type_, mode, targets, row_tests))
    return plans


def _embed_properties(type_: NodeType) -> list[Property]:
    return [property_ for property_ in type_.properties.values() if property_.embed is not None]


def _plan_target(type_: NodeType, property_: Property, mode: str, embedder: Embedder | None) -> Target:
    assert property_.embed is not None
    dimension, model = property_.type.dimension or 0, property_.embed.model
    if mode == "clean" and not property_.type.nullable:
        raise UsageError(
            f"`{type_.name}.{property_.name}` cannot be without a vector; use `reembed_all`, or declare it nullable",
            property=f"{type_.name}.{property_.name}",
        )
    if embedder is not None and model is not None and model != embedder.model:
        raise DataError(
            f"`{type_.name}.{property_.name}` holds vectors of the model `{model}`, but texts would be embedded with"
            f" `{embedder.model}`; set OMNIGRAPH_EMBED_MODEL to `{model}`",
            rule="E13",
            expected=model,
            actual=embedder.model,
        )
    space = None if embedder is None else VectorSpace.of(embedder, dimension)
    return Target(property_.name, property_.embed.source, dimension, property_.type.nullable, space)


def has_text(texts: Column) -> Mask:
    """Return the mask of rows with a non-blank text."""
    return np.asarray(pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False), np.bool_)


def find_rows_in_need(
    plan: TypePlan, rows: pa.Table, generated: dict[str, GeneratedVectors]
) -> tuple[Mask, dict[str, VectorChanges]]:
    """Return the rows that change, and by property why; `made` says by property which vectors were made here."""
    is_selected = np.ones(rows.num_rows, np.bool_)
    for test in plan.selected:
        is_selected &= test.mask(rows)
    changes_by_property: dict[str, VectorChanges] = {}
    for target in plan.targets:
        changes = _property_needs(plan.mode, target, rows, generated.get(target.name))
        changes_by_property[target.name] = VectorChanges(changes.filled & is_selected, changes.cleared & is_selected)
    changed = np.zeros(rows.num_rows, np.bool_)
    for changes in changes_by_property.values():
        changed |= changes.filled | changes.cleared
    return changed, changes_by_property


def _property_needs(mode: Mode, target: Target, rows: pa.Table, generated: GeneratedVectors | None) -> VectorChanges:
    texts, vectors = one_array(rows.column(target.source)), one_array(rows.column(target.name))
    has_vector = np.asarray(pc.is_valid(vectors), np.bool_)
    if mode == "clean":
        return VectorChanges(np.zeros(len(has_vector), np.bool_), has_vector)
    assert generated is not None
    has_source = has_text(texts)
    is_ours, is_current = _check_provenance(texts, vectors, has_vector, target.dimension, generated)
    # The text was removed, so a computed vector is outdated.
    cleared = is_ours & ~has_source if target.nullable else np.zeros(len(has_vector), np.bool_)
    if mode == "reembed_all":
        return VectorChanges(has_source & ~is_current, cleared)
    # A vector that was not generated here was supplied by the user: keep it.
    return VectorChanges(has_source & (~has_vector | (is_ours & ~is_current)), cleared)


def _check_provenance(
    texts: Column, vectors: Column, has_vector: Mask, dimension: int, generated: GeneratedVectors
) -> tuple[Mask, Mask]:
    """Return which vectors were generated here, and which of these from the row's current text."""
    is_generated, is_current = np.zeros((2, len(has_vector)), np.bool_)
    prints = vector_fingerprints(vectors_to_matrix(vectors, dimension))
    is_generated_vector = is_among(prints, generated.prints)
    rows = np.flatnonzero(has_vector)[is_generated_vector]
    is_generated[rows] = True
    encoded: Any = pc.fill_null(texts.take(pa.array(rows)), "").dictionary_encode()
    digests = text_digests(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
    is_current[rows] = is_among(pair_fingerprints(prints[is_generated_vector], digests), generated.pairs)
    return is_generated, is_current


def vectors_to_matrix(vectors: Column, dimension: int) -> Matrix:
    """Return the non-null vectors of a column, as rows."""
    numbers = vectors.drop_null().flatten().to_numpy(zero_copy_only=False)
    matrix: Matrix = np.ascontiguousarray(numbers, np.float32).reshape(-1, dimension)
    return matrix
