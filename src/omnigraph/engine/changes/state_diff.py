"""Compare two snapshots of a graph, entity by entity, without images.

Edges come before nodes, types are ordered by identity, entities by id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.display import SHOWN_ROWS, count_of, html_table, text_table
from omnigraph.engine.arguments import strip_name
from omnigraph.engine.changes import row_diff
from omnigraph.engine.changes.cursor import ALL, ChangeFilter
from omnigraph.engine.changes.row_diff import AFTER, BEFORE, RowChanges, differing, stored
from omnigraph.engine.past_schemas import NOW, Naming, check_names
from omnigraph.engine.revisions import AsOf
from omnigraph.engine.session import GraphSession, View
from omnigraph.errors import LimitExceeded
from omnigraph.lang.catalog import Type, TypeKey
from omnigraph.limits import CATALOG_CACHE_MAX, CHANGE_WINDOW_ROWS, DIFF_BYTES_MAX
from omnigraph.manifest.model import MAIN, Pin, Snapshot, TypeIdentity
from omnigraph.rules.arrow_typing import pc
from omnigraph.rules.delta import one_array
from omnigraph.store.read.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Side:
    """One type in one state."""

    view: View
    pin: Pin

    @property
    def type_(self) -> Type:
        return self.view.catalog.type_of(self.pin.table_key)

    @property
    def dataset(self) -> Dataset:
        return self.view.dataset(self.pin.table_key)


@dataclass(frozen=True, slots=True)
class Pair:
    """One type in both states; None where it does not exist."""

    type_id: str
    before: Side | None
    after: Side | None

    @property
    def known(self) -> Side:
        """The newer side if there is one; used for names."""
        side = self.after or self.before
        assert side is not None
        return side

    @property
    def kind(self) -> str:
        return self.known.pin.table_key.kind

    @property
    def is_same_data(self) -> bool:
        return self.before is not None and self.after is not None and self.before.pin.ref == self.after.pin.ref

    @property
    def changed_sides(self) -> list[Side]:
        """The sides whose data must be read."""
        return [] if self.is_same_data else [side for side in (self.before, self.after) if side is not None]

    def candidates(self) -> pa.Table:
        """Return the rows that may differ; see `row_diff.candidates`."""
        return row_diff.candidates(*self.datasets())

    def compare(self, candidates: pa.Table) -> RowChanges:
        """Return how candidate rows changed."""
        return row_diff.compare_candidates(*self.datasets(), candidates)

    def datasets(self) -> tuple[Dataset | None, Dataset | None]:
        """Open the dataset of the type in both states."""
        return self.before.dataset if self.before else None, self.after.dataset if self.after else None


def pairs(before: View, after: View) -> list[Pair]:
    """Return every type of both states: nodes before edges, then by identity."""
    old = {pin.identity: Side(before, pin) for pin in before.snapshot.state.pins.values()}
    new = {pin.identity: Side(after, pin) for pin in after.snapshot.state.pins.values()}
    key = identity_domain(after.snapshot).encode()
    type_pairs = [
        Pair(_public_id(identity, key), old.get(identity), new.get(identity))
        for identity in sorted(old.keys() | new.keys())
    ]
    return sorted(type_pairs, key=lambda pair: pair.kind != "node")


def _public_id(identity: TypeIdentity, key: bytes) -> str:
    # Identities are consecutive numbers: shown as they are, their gaps would count the types that a reader may not see.
    return blake2b(str(identity).encode(), key=key, digest_size=16).hexdigest()


def identity_domain(snapshot: Snapshot) -> str:
    """Return the random name under which a graph numbers its types; readers never receive it."""
    return _domain_of(snapshot.state.schema.ir)


@lru_cache(maxsize=CATALOG_CACHE_MAX)
def _domain_of(ir: str) -> str:
    return str(orjson.loads(ir)["identity_domain"])


_TEXT: Final = pa.string()
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "kind": _TEXT,
    "type_name": _TEXT,
    "id": _TEXT,
    "op": _TEXT,
    "published_dataset_version": pa.int64(),
    "from": _TEXT,
    "to": _TEXT,
}
CHANGE_SCHEMA: Final = pa.schema(_COLUMNS)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """All entities that differ between two states, as one Arrow table; edges have endpoints `from` and `to`."""

    from_graph_manifest_version: int
    to_graph_manifest_version: int
    graph_branch: str | None
    changes: pa.Table
    # The first changes once more, as the change feed shows them: with the entities before and after. None if not asked.
    images: tuple[Mapping[str, Any], ...] | None = None

    def stats(self) -> dict[str, int]:
        """Count the changes by operation, and the types that have any.

        Returns:
            `inserts`, `updates`, `deletes` and `types_affected`.

        Example:
            >>> graph.diff(1, 2, types=["Person"]).stats()["inserts"]
            2
        """
        counted = pc.value_counts(self.changes.column("op")).to_pylist()
        ops = Counter({entry["values"]: entry["counts"] for entry in counted})
        types = self.changes.select(["kind", "type_name"]).group_by(["kind", "type_name"]).aggregate([])
        return {
            "inserts": ops["insert"],
            "updates": ops["update"],
            "deletes": ops["delete"],
            "types_affected": types.num_rows,
        }

    def __repr__(self) -> str:
        return "\n".join([text_table(*self._head_rows()), self._summary()])

    def _repr_html_(self) -> str:
        return html_table(*self._head_rows(), self._summary())

    def _head_rows(self) -> tuple[list[str], list[list[object]]]:
        names = ["op", "kind", "type_name", "id", "from", "to"]
        head = self.changes.select(names).slice(0, SHOWN_ROWS)
        if head.num_rows and all(kind == "node" for kind in head.column("kind").to_pylist()):
            # Nodes have no ends.
            names = names[:4]
        return names, [[row[name] for name in names] for row in head.to_pylist()]

    def _summary(self) -> str:
        stats = self.stats()
        counted = ", ".join(count_of(stats[f"{op}s"], op) for op in ("insert", "update", "delete"))
        more = f"; the first {SHOWN_ROWS} shown" if self.changes.num_rows > SHOWN_ROWS else ""
        return f"{counted} from version {self.from_graph_manifest_version} to {self.to_graph_manifest_version}{more}"

    def to_json(self) -> dict[str, object]:
        """Return the change set as every surface shows it.

        Returns:
            A JSON object with `changes` and `stats`.

        Example:
            >>> graph.diff(1, 2).to_json()["changes"][0]["op"]
            'insert'
        """
        return {**self._head(), "changes": _changes_json(self.changes), **self._tail()}

    def json_chunks(self) -> Iterator[bytes]:
        """Yield the text of `to_json` in chunks, so that a large change set is never held as rows.

        Returns:
            The chunks.

        Example:
            >>> b"".join(graph.diff(1, 2).json_chunks())[:1]
            b'{'
        """
        yield orjson.dumps({**self._head(), **self._tail()})[:-1] + b',"changes":['
        for start in range(0, self.changes.num_rows, CHANGE_WINDOW_ROWS):
            rows = _changes_json(self.changes.slice(start, CHANGE_WINDOW_ROWS))
            yield (b"," if start else b"") + orjson.dumps(rows)[1:-1]
        yield b"]}"

    def _tail(self) -> dict[str, object]:
        images = {} if self.images is None else {"images": list(self.images)}
        return {**images, "stats": self.stats()}

    def _head(self) -> dict[str, object]:
        head: dict[str, object] = {
            "from_graph_manifest_version": self.from_graph_manifest_version,
            "to_graph_manifest_version": self.to_graph_manifest_version,
        }
        if self.graph_branch is not None:
            head["graph_branch"] = self.graph_branch
        return head


def diff(
    session: GraphSession,
    a: AsOf,
    b: AsOf,
    *,
    only: ChangeFilter = ALL,
    branch: str = MAIN,
    names: Naming = NOW,
) -> ChangeSet:
    """Return the changes that lead from state `a` to state `b`.

    A state is a branch, a tag, a commit, or a manifest version or timestamp of `branch`. Both are read under the schema
    of `b` if it is a branch, otherwise of `branch`; with `names="then"` each under its own.
    """
    return diff_views(*compared(session, a, b, only, branch, names))


def diff_views(before: View, after: View, selection: ChangeFilter) -> ChangeSet:
    """Return the changes that lead from one view to another."""
    tables: list[pa.Table] = []
    for pair in selected(before, after, selection):
        tables.append(_changes(pair, selection))
        _check_size(sum(table.nbytes for table in tables))
    is_one_branch = before.snapshot.state.branch_id == after.snapshot.state.branch_id
    return ChangeSet(
        before.snapshot.version,
        after.snapshot.version,
        after.snapshot.branch if is_one_branch else None,
        pa.concat_tables([CHANGE_SCHEMA.empty_table(), *tables]),
    )


def _check_size(size: int) -> None:
    if size > DIFF_BYTES_MAX:
        raise LimitExceeded(
            f"the two states differ in more than {DIFF_BYTES_MAX:,} bytes of changes; compare single types, kinds or"
            " operations, or read the changes of their commits page by page",
            resource="diff_bytes",
            limit=DIFF_BYTES_MAX,
            actual=size,
        )


def compared(
    session: GraphSession,
    a: AsOf,
    b: AsOf,
    only: ChangeFilter,
    branch: str,
    names: Naming,
) -> tuple[View, View, ChangeFilter]:
    """Return the visible views of two states, and the selection, checked against their types."""
    check_names(names)
    branch = strip_name(branch)
    # If `b` is a branch, its newest schema gives the names of both states.
    today = session.kernel.snapshot(_branch(session, b) or branch)
    before, after = (session.view(branch, state, names=names, today=today) for state in (a, b))
    return before, after, only.check_types(before.catalog, after.catalog)


def selected(before: View, after: View, selection: ChangeFilter) -> list[Pair]:
    """Return the types that may differ, edges before nodes."""
    type_pairs = sorted(pairs(before, after), key=lambda pair: pair.kind)
    return [pair for pair in type_pairs if not pair.is_same_data and selection.has_type(pair.known.pin.table_key)]


def _branch(session: GraphSession, name: AsOf) -> str | None:
    """Return the name of an existing branch, or None."""
    if not isinstance(name, str):
        return None
    name = name.strip()
    return name if name == MAIN or name in session.kernel.snapshot(MAIN).state.branches else None


def _changes(pair: Pair, selection: ChangeFilter) -> pa.Table:
    candidates = of_ops(pair.candidates(), selection)
    return changes_of(pair.known.pin.table_key, pair.known.pin.version, *pair.datasets(), candidates)


def changes_of(
    table_key: TypeKey, version: int, before: Dataset | None, after: Dataset | None, candidates: pa.Table
) -> pa.Table:
    """Return the candidates that really differ, as rows of a change set."""
    differences = differing(before, after, candidates)
    if differences.num_rows == 0:
        return CHANGE_SCHEMA.empty_table()
    columns: list[Any] = [
        pa.repeat(table_key.kind, differences.num_rows),
        pa.repeat(table_key.name, differences.num_rows),
        differences.column("id"),
        ops_of(differences),
        pa.repeat(pa.scalar(version, pa.int64()), differences.num_rows),
        *_ends(table_key.kind, before, after, differences),
    ]
    return pa.table(columns, schema=CHANGE_SCHEMA)


def of_ops(candidates: pa.Table, selection: ChangeFilter) -> pa.Table:
    """Return the candidates that could be changes of the selected operations."""
    if selection.ops is None:
        return candidates
    is_selected = pc.is_in(ops_of(candidates), value_set=pa.array(sorted(selection.ops), pa.string()))
    return candidates.filter(is_selected)


def ops_of(candidates: pa.Table) -> Any:
    """Return which operation each candidate would be, if it is a change."""
    was, is_ = (pc.is_valid(candidates.column(name)) for name in (BEFORE, AFTER))
    return pc.if_else(was, pc.if_else(is_, "update", "delete"), "insert")


def _ends(kind: str, before: Dataset | None, after: Dataset | None, rows: pa.Table) -> tuple[Any, Any]:
    """Return the endpoints of edges, of deleted ones as they were before."""
    if kind == "node":
        return pa.nulls(rows.num_rows, pa.string()), pa.nulls(rows.num_rows, pa.string())
    old, new = (_ends_at(dataset, rows.column(name)) for dataset, name in ((before, BEFORE), (after, AFTER)))
    return pc.coalesce(new[0], old[0]), pc.coalesce(new[1], old[1])


def _ends_at(dataset: Dataset | None, row_ids: Any) -> tuple[Any, Any]:
    present = pc.is_valid(row_ids)
    none: Any = pa.nulls(len(row_ids), pa.string())
    if dataset is None or not pc.any(present).as_py():
        return none, none
    stored_ends = stored(dataset, row_ids.filter(present), ["src", "dst"])
    mask = one_array(present)
    src, dst = (pc.replace_with_mask(none, mask, stored_ends.column(name).combine_chunks()) for name in ("src", "dst"))
    return src, dst


def _changes_json(changes: pa.Table) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = changes.to_pylist()
    for row in rows:
        ends = {"from": row.pop("from"), "to": row.pop("to")}
        if ends["from"] is not None:
            row["endpoints"] = ends
    return rows
