"""Plans: which properties of which types are embedded, and which of their rows need it.

Pure: decides from columns and from what is known of the vectors that were made here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.embed.cache import Made, Space, among, pairs, text_digests, vector_prints
from omnigraph.engine.params import decode_params
from omnigraph.engine.query.embedders import Embedder, Matrix
from omnigraph.engine.write.committed_rows import ColumnTest, comparison
from omnigraph.errors import DataError, UsageError
from omnigraph.lang.catalog import NUMBERS, Catalog, NodeType, Property, PropertyType, Scalar
from omnigraph.lang.query.ir import CompareOp, Parameter
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.rules.arrow_typing import Column, pc
from omnigraph.rules.delta import one_array

Selected: TypeAlias = tuple[ColumnTest, ...]


def parse_selects(types: Sequence[NodeType], select: Sequence[str]) -> Mapping[str, Selected | None]:
    """Return the tests of each type by its name; None for a type that is left out."""
    found: dict[str, list[ColumnTest]] = {}
    for text in select:
        head, sign, value = text.partition("=")
        type_name, _, field = head.rpartition(":")
        meant = [one for one in types if not type_name or one.name == type_name]
        if not sign or not field or not meant:
            names = ", ".join(one.name for one in types)
            raise UsageError(
                f"`{text}` selects nothing; write `field=value`, or `Type:field=value` with one of {names}", select=text
            )
        for type_ in meant:
            found.setdefault(type_.name, []).append(_test(type_, field, value, text))
    left_out: Selected | None = None if select else ()
    return {one.name: tuple(found[one.name]) if one.name in found else left_out for one in types}


def _test(type_: NodeType, field: str, value: str, text: str) -> ColumnTest:
    known = {"id": PropertyType(Scalar.STRING)} | {name: one.type for name, one in type_.properties.items()}
    wanted = known.get(field)
    if wanted is None or wanted.is_list or wanted.scalar in (Scalar.VECTOR, Scalar.BLOB):
        hint = did_you_mean(field, known) or f"it has {', '.join(sorted(known))}"
        raise UsageError(f"`{type_.name}` has no property `{field}` to select by; {hint}", select=text)
    [decoded] = decode_params([Parameter(field, wanted, "")], {field: _plain(value, wanted)}).values()
    return comparison(field, wanted, CompareOp.EQ, decoded)


def _plain(text: str, type_: PropertyType) -> Any:
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
    space: Space | None


@dataclass(frozen=True, slots=True)
class TypePlan:
    """What is to be done to one type."""

    type: NodeType
    mode: Mode
    targets: tuple[Target, ...]
    selected: Selected

    @property
    def columns(self) -> list[str]:
        """The columns by which rows are judged."""
        names = [name for one in self.targets for name in (one.name, one.source)]
        return list(dict.fromkeys([*names, *(test.column for test in self.selected)]))


@dataclass(frozen=True, slots=True)
class Needs:
    """Which rows of a property get a vector, and which lose theirs."""

    filled: Mask
    cleared: Mask


def plan_types(
    catalog: Catalog, types: Sequence[str] | None, mode: Mode, select: Sequence[str], embedder: Embedder | None
) -> list[TypePlan]:
    """Return what is to be done, by type name; refuses names that are none and models that do not agree."""
    if mode not in get_args(Mode):
        raise UsageError(f"there is no mode `{mode}`; it is one of {', '.join(get_args(Mode))}", word=mode)
    known = {one.name: one for one in catalog.nodes.values() if _embeds(one)}
    if not known:
        raise UsageError("no type of the schema has a property with `@embed`; there is nothing to embed")
    chosen = sorted(set(types or known))
    for name in chosen:
        if name not in known:
            hint = did_you_mean(name, known) or f"those that have one are {', '.join(sorted(known))}"
            raise UsageError(f"`{name}` is no type with an `@embed` property; {hint}", type=name)
    selects = parse_selects([known[name] for name in chosen], select)
    plans: list[TypePlan] = []
    for name in chosen:
        tests, type_ = selects[name], known[name]
        if tests is not None:
            targets = tuple(_target(type_, one, mode, embedder) for one in _embeds(type_))
            plans.append(TypePlan(type_, mode, targets, tests))
    return plans


def _embeds(type_: NodeType) -> list[Property]:
    return [one for one in type_.properties.values() if one.embed is not None]


def _target(type_: NodeType, property_: Property, mode: str, embedder: Embedder | None) -> Target:
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
    space = None if embedder is None else Space.of(embedder, dimension)
    return Target(property_.name, property_.embed.source, dimension, property_.type.nullable, space)


def has_text(texts: Column) -> Mask:
    """Tell which rows have something to embed; a text of spaces has no meaning that a vector could hold."""
    return np.asarray(pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False), np.bool_)


def rows_in_need(plan: TypePlan, rows: pa.Table, made: dict[str, Made]) -> tuple[Mask, dict[str, Needs]]:
    """Return the rows that change, and by property why; `made` says by property which vectors were made here."""
    chosen = np.ones(rows.num_rows, np.bool_)
    for test in plan.selected:
        chosen &= test.mask(rows)
    needs: dict[str, Needs] = {}
    for target in plan.targets:
        found = _needs(plan.mode, target, rows, made.get(target.name))
        needs[target.name] = Needs(found.filled & chosen, found.cleared & chosen)
    changed = np.zeros(rows.num_rows, np.bool_)
    for one in needs.values():
        changed |= one.filled | one.cleared
    return changed, needs


def _needs(mode: Mode, target: Target, rows: pa.Table, made: Made | None) -> Needs:
    texts, vectors = one_array(rows.column(target.source)), one_array(rows.column(target.name))
    has_vector = np.asarray(pc.is_valid(vectors), np.bool_)
    if mode == "clean":
        return Needs(np.zeros(len(has_vector), np.bool_), has_vector)
    assert made is not None
    has_source = has_text(texts)
    is_ours, is_current = _provenance(texts, vectors, has_vector, target.dimension, made)
    # Without a text, a vector that was made here belongs to a text that is gone.
    cleared = is_ours & ~has_source if target.nullable else np.zeros(len(has_vector), np.bool_)
    if mode == "reembed_all":
        return Needs(has_source & ~is_current, cleared)
    # A vector that was not made here is somebody's own.
    return Needs(has_source & (~has_vector | (is_ours & ~is_current)), cleared)


def _provenance(texts: Column, vectors: Column, has_vector: Mask, dimension: int, made: Made) -> tuple[Mask, Mask]:
    """Tell which vectors were made here, and which of these from the very text that stands beside them."""
    is_ours, is_current = np.zeros((2, len(has_vector)), np.bool_)
    prints = vector_prints(matrix_of(vectors, dimension))
    ours = among(prints, made.prints)
    rows = np.flatnonzero(has_vector)[ours]
    is_ours[rows] = True
    own: Any = pc.fill_null(texts.take(pa.array(rows)), "").dictionary_encode()
    digests = text_digests(own.dictionary.to_pylist())[own.indices.to_numpy()]
    is_current[rows] = among(pairs(prints[ours], digests), made.pairs)
    return is_ours, is_current


def matrix_of(vectors: Column, dimension: int) -> Matrix:
    """Return the vectors of a column that are there, as rows."""
    numbers = vectors.drop_null().flatten().to_numpy(zero_copy_only=False)
    matrix: Matrix = np.ascontiguousarray(numbers, np.float32).reshape(-1, dimension)
    return matrix
