"""Embedding plan and tasks: which `@embed` properties and rows need vectors, and staging of these rows with new ones.

Which rows are in need follows from their columns and the fingerprints of generated vectors. Tasks run in threads or on
Spark executors; an `EmbedSite` gives them the graph and the provider.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.arguments import check_choice, decode_params
from omnigraph.engine.embed.cache import (
    EmbedCounts,
    GeneratedVectors,
    VectorCache,
    VectorFetcher,
    VectorSpace,
    pair_fingerprints,
    read_generated,
    text_digests,
    vector_fingerprints,
)
from omnigraph.engine.key_buckets.hashes import is_among_sorted
from omnigraph.engine.query.embedders import Embedder, Matrix, embedding_error, from_settings
from omnigraph.engine.tasks import GraphAccess, Runner, Settings, graph_access
from omnigraph.engine.write.committed_rows import ColumnTest, comparison
from omnigraph.engine.write.staging import gather_rows, put_column, rewrite_rows
from omnigraph.errors import DataError, UsageError
from omnigraph.lang.catalog import NUMBERS, TEXT, Catalog, NodeType, Property, PropertyType
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.lang.query.ir import CompareOp, Parameter
from omnigraph.lang.scalars import PLAIN, Family
from omnigraph.lang.schema.arrow_schema import arrow_schema
from omnigraph.limits import EMBED_STAGE_BYTES, EMBED_WINDOW_TEXTS
from omnigraph.rules.arrow_typing import Column, arrays, pc
from omnigraph.rules.delta import one_array
from omnigraph.settings import SETTINGS
from omnigraph.store.read.dataset import Dataset, DatasetRef
from omnigraph.store.read.lookup import ROW_ADDRESS, ROW_ID
from omnigraph.store.store import Store
from omnigraph.store.write.fragments import FragmentText, Marked, mark_rows, scan_whole_rows

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
    columns = {"id": TEXT} | {name: property_.type for name, property_ in type_.properties.items()}
    type_of_column = columns.get(field)
    if type_of_column is None or type_of_column.is_list or type_of_column.scalar not in PLAIN:
        hint = did_you_mean(field, columns) or f"it has {', '.join(sorted(columns))}"
        raise UsageError(f"`{type_.name}` has no property `{field}` to select by; {hint}", select=selector)
    [decoded] = decode_params(
        [Parameter(field, type_of_column, "")], {field: _parse_json_value(value, type_of_column)}
    ).values()
    return comparison(field, type_of_column, CompareOp.EQ, decoded)


def _parse_json_value(text: str, type_: PropertyType) -> Any:
    """Return a value as JSON would give it: numbers and booleans are written without quotes."""
    if type_.scalar not in NUMBERS and type_.scalar.facts.family is not Family.TRUTH:
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
    """Return the rows that change, and by property why; `generated` says by property which vectors were made here."""
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
    is_generated_vector = is_among_sorted(prints, generated.prints)
    rows = np.flatnonzero(has_vector)[is_generated_vector]
    is_generated[rows] = True
    encoded: Any = pc.fill_null(texts.take(pa.array(rows)), "").dictionary_encode()
    digests = text_digests(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
    is_current[rows] = is_among_sorted(pair_fingerprints(prints[is_generated_vector], digests), generated.pairs)
    return is_generated, is_current


def vectors_to_matrix(vectors: Column, dimension: int) -> Matrix:
    """Return the non-null vectors of a column, as rows."""
    numbers = vectors.drop_null().flatten().to_numpy(zero_copy_only=False)
    matrix: Matrix = np.ascontiguousarray(numbers, np.float32).reshape(-1, dimension)
    return matrix


_API_KEYS: Final = ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
# Executors use the provider and API key of the driver.
_SETTING_NAMES: Final = (*(name for name in SETTINGS if name.startswith("OMNIGRAPH_EMBED")), *_API_KEYS)


class EmbedSite:
    """Access of embedding tasks to the graph, the provider and the vector cache; one per process and operation.

    Threads share the one they are called with. In another process, a pickled site is replaced by the site of that
    process, which opens the graph and the provider by the driver's settings, and shares the rate limit with `processes`
    others.
    """

    def __init__(
        self, access: GraphAccess, processes: int = 1, store: Store | None = None, embedder: Embedder | None = None
    ) -> None:
        self.access = access
        self._processes = processes
        # Opening the store sets the driver's settings in this process, those of the provider included.
        self.store = store or access.store()
        self._embedder = embedder
        self._fetchers: dict[VectorSpace, VectorFetcher] = {}
        self._generated: dict[tuple[int, VectorSpace | None], GeneratedVectors] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _site_of_process, (self.access, self._processes)

    def fetcher(self, space: VectorSpace) -> VectorFetcher:
        """Return what makes vectors of a space."""
        with self._lock:
            if space not in self._fetchers:
                embedder = self._embedder or _embedder_of_process(self.access.settings, self._processes)
                _check_space(embedder, space)
                self._fetchers[space] = VectorFetcher(VectorCache(self.store, space), embedder)
            return self._fetchers[space]

    def generated(self, dimension: int, space: VectorSpace | None) -> GeneratedVectors:
        """Return the record of vectors computed before."""
        with self._lock:
            if (dimension, space) not in self._generated:
                self._generated[dimension, space] = read_generated(self.store, dimension, space)
            return self._generated[dimension, space]


def embed_site(store: Store, operation_id: str, runner: Runner, embedder: Embedder | None = None) -> EmbedSite:
    """Return the access for the tasks of one operation; without an embedder, they use the one that settings name."""
    access = graph_access(store.root.uri, operation_id, _SETTING_NAMES)
    return EmbedSite(access, runner.processes, store, embedder)


@lru_cache(maxsize=4)
def _site_of_process(access: GraphAccess, processes: int) -> EmbedSite:
    return EmbedSite(access, processes)


@lru_cache(maxsize=4)
def _embedder_of_process(settings: Settings, processes: int) -> Embedder:
    return from_settings(processes)


def _check_space(embedder: Embedder, space: VectorSpace) -> None:
    if VectorSpace.of(embedder, space.dimension) != space:
        raise embedding_error(
            f"the graph was opened to embed with `{space.model}` of `{space.provider}`, but the settings now name"
            f" `{embedder.model}` of `{embedder.name}`; open the graph again",
            expected=space.model,
            actual=embedder.model,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Some fragments of one version of a type."""

    ref: DatasetRef
    fragment_ids: Sequence[int]


@dataclass(slots=True)
class StagedPart:
    """What a task staged: new fragments, deletion marks on the old ones, and counts by property."""

    fragments: list[FragmentText] = field(default_factory=list)
    marked: list[Marked] = field(default_factory=list)
    tallies: dict[str, EmbedCounts] = field(default_factory=dict)


def find_fragments_in_need(site: EmbedSite, plan: TypePlan, part: Part) -> list[int]:
    """Return the fragments with rows to embed."""
    generated, dataset = _generated_vectors(site, plan), site.store.open(part.ref)
    return [fragment_id for fragment_id in part.fragment_ids if _has_need(plan, generated, dataset, fragment_id)]


def _has_need(plan: TypePlan, generated: dict[str, GeneratedVectors], dataset: Dataset, fragment_id: int) -> bool:
    batches = scan_whole_rows(dataset, fragment_id, plan.columns, EMBED_WINDOW_TEXTS * 8)
    return any(find_rows_in_need(plan, pa.Table.from_batches([batch]), generated)[0].any() for batch in batches)


def stage_part(site: EmbedSite, plan: TypePlan, operation_id: str, part: Part) -> StagedPart:
    """Stage the rows of some fragments that are in need, with their vectors."""
    staged, dataset, generated = StagedPart(), site.store.open(part.ref), _generated_vectors(site, plan)
    in_need = _rows_in_need(plan, generated, dataset, part.fragment_ids, staged)
    windows = gather_rows(in_need, EMBED_STAGE_BYTES, EMBED_WINDOW_TEXTS)
    filled = (_fill_vectors(site, plan, generated, window, staged) for window in windows)
    for rows in gather_rows(filled, EMBED_STAGE_BYTES):
        staged.fragments += rewrite_rows(dataset, rows, operation_id)
    return staged


def _rows_in_need(
    plan: TypePlan,
    generated: dict[str, GeneratedVectors],
    dataset: Dataset,
    fragment_ids: Sequence[int],
    staged: StagedPart,
) -> Iterator[pa.Table]:
    """Yield complete rows that change, and mark them as deleted in `staged`."""
    layout = arrow_schema(plan.type)
    with_row_ids = layout.append(pa.field(ROW_ID, pa.uint64()))
    for fragment_id in fragment_ids:
        addresses: list[Any] = [np.empty(0, np.uint64)]
        for batch in scan_whole_rows(dataset, fragment_id, layout.names, EMBED_WINDOW_TEXTS):
            rows = pa.Table.from_batches([batch])
            changed, _ = find_rows_in_need(plan, rows, generated)
            if changed.any():
                rows = rows.filter(pa.array(changed))
                addresses.append(rows.column(ROW_ADDRESS).to_numpy())
                yield rows.select(with_row_ids.names).cast(with_row_ids)
        replaced = pa.table({ROW_ADDRESS: np.concatenate(addresses)})
        staged.marked.append(mark_rows(dataset, fragment_id, replaced))


def _fill_vectors(
    site: EmbedSite, plan: TypePlan, generated: dict[str, GeneratedVectors], rows: pa.Table, staged: StagedPart
) -> pa.Table:
    _, changes = find_rows_in_need(plan, rows, generated)
    for target in plan.targets:
        column, counts = updated_vectors(site, target, rows, changes[target.name])
        staged.tallies[target.name] = staged.tallies.get(target.name, EmbedCounts()) + counts
        rows = put_column(rows, target.name, column)
    return rows


def updated_vectors(
    site: EmbedSite, target: Target, rows: pa.Table, changes: VectorChanges
) -> tuple[Column, EmbedCounts]:
    """Return the vectors of a property with new ones where they are needed, and none where they are not wanted."""
    vectors, counts = one_array(rows.column(target.name)), EmbedCounts()
    has_vector = np.asarray(pc.is_valid(vectors), np.bool_)
    matrix = np.zeros((len(vectors), target.dimension), np.float32)
    matrix[has_vector] = vectors_to_matrix(vectors, target.dimension)
    if target.space is not None and changes.filled.any():
        texts = one_array(rows.column(target.source)).filter(pa.array(changes.filled))
        matrix[changes.filled], counts = site.fetcher(target.space).vectors(texts)
    is_null = pa.array((~has_vector & ~changes.filled) | changes.cleared)
    column = arrays.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), type=vectors.type, mask=is_null)
    return column, counts + EmbedCounts(cleared=int(changes.cleared.sum()))


def _generated_vectors(site: EmbedSite, plan: TypePlan) -> dict[str, GeneratedVectors]:
    """Return the record of vectors by property; a property that is only cleared needs none."""
    is_strict = plan.mode == "reembed_all"
    return {
        target.name: site.generated(target.dimension, target.space if is_strict else None)
        for target in plan.targets
        if target.space is not None
    }
