"""What a write reads follows the write: the same rows whatever the size of the type, and no scan once it is warm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.store.objects.backend import Meter
from omnigraph.store.read import lookup
from omnigraph.store.read.dataset import Dataset
from tests.support.write_fixtures import create, load, rows, run

pytestmark = pytest.mark.slow

SCHEMA = """
node N { k: String @key  u: I64? @unique  v: I32? }
edge E: N -> N @card(0..3)
"""
WRITES = {
    "insert": 'insert N {k: "new" u: -1}',
    "replace": 'insert N {k: "k7" u: -2}',
    "update": 'update N set {v: 1} where k = "k9"',
    "update by unique": "update N set {v: 1} where u = 11",
    "edge": 'insert E {from: "k3" to: "k4"}',
    "delete with edges": 'delete N where k = "k5"',
    "delete edges": 'delete E where from = "k21"',
}


class Count:
    """Counts the rows that datasets hand out, other than by scans."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        for name in ("take", "read_fragments"):
            patch.setattr(Dataset, name, self._counting(getattr(Dataset, name)))

    def _counting(self, work: Any) -> Any:
        def counted(dataset: Dataset, *given: Any, **named: Any) -> pa.Table:
            found: pa.Table = work(dataset, *given, **named)
            self.rows += 0 if "__manifest" in dataset.ref.path else found.num_rows
            return found

        return counted


def people(numbers: Sequence[int]) -> list[str]:
    nodes = [f'{{"type":"N","data":{{"k":"k{number}","u":{number}}}}}' for number in numbers]
    edges = [f'{{"edge":"E","from":"k{number}","to":"k{number // 2 * 2}"}}' for number in numbers]
    return nodes + edges


def rows_read(root: Path, size: int) -> dict[str, int]:
    """Return how many rows each write reads in a warm graph of a size; none of them scans."""
    create(root, SCHEMA, *people(range(size))).close()
    log: list[tuple[str, str]] = []
    graph = og.open(root, meter=Meter(log))
    run(graph, 'insert N {k: "warm" u: -9} insert E {from: "warm" to: "k1"}')
    run(graph, 'delete N where k = "warm"')
    found = {}
    for name, body in WRITES.items():
        with pytest.MonkeyPatch.context() as patch:
            count = Count(patch)
            log.clear()
            run(graph, body)
            found[name] = count.rows
            assert [target for kind, target in log if kind == "scan" and "__manifest" not in target] == [], name
    return found


def test_writes_read_the_same_rows_whatever_the_size(tmp_path: Path) -> None:
    small, large = rows_read(tmp_path / "a", 40), rows_read(tmp_path / "b", 4_000)
    assert small == large
    assert max(large.values()) <= 24, large


def test_warm_inserts_scan_nothing(tmp_path: Path) -> None:
    create(tmp_path / "g", SCHEMA, *people(range(20))).close()
    log: list[tuple[str, str]] = []
    graph = og.open(tmp_path / "g", meter=Meter(log))
    run(graph, 'insert N {k: "a" u: -1} insert E {from: "a" to: "k1"}')
    log.clear()
    for number in range(5):
        run(graph, f'insert N {{k: "a{number}" u: {100 + number}}} insert E {{from: "a{number}" to: "k2"}}')
        load(graph, f'{{"type":"N","data":{{"k":"l{number}"}}}}', mode="merge")
    assert [one for one in log if one[0] in ("scan", "open", "fragments") and "__manifest" not in one[1]] == []
    assert len(rows(graph, "node:N")) == 31


@pytest.mark.parametrize("indexed", [False, True])
def test_large_cold_type_is_read_only_when_that_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    made = create(tmp_path / "g", SCHEMA, *people(range(2_000)))
    if indexed:
        made.maintenance.ensure_indices()
    monkeypatch.setattr(lookup, "POSITION_BUILD_ROWS_MAX", 10)
    log: list[tuple[str, str]] = []
    graph = og.open(tmp_path / "g", meter=Meter(log))
    kinds = []
    for number in range(4):
        log.clear()
        run(graph, f'insert N {{k: "k{number}" v: 7}}')
        kinds.append({kind for kind, target in log if kind in ("scan", "fragments") and "__manifest" not in target})
    assert kinds == [{"scan"}] * 4 if indexed else [{"scan"}, {"fragments"}, {"fragments"}, {"fragments"}]
    assert [rows(graph, "node:N")[f"k{number}"]["v"] for number in range(5)] == [7, 7, 7, 7, None]


def test_commits_of_others_are_seen(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA)
    foreign = og.open(tmp_path / "g")
    run(graph, 'insert N {k: "a" v: 1}')
    run(foreign, 'insert N {k: "b"}')
    run(graph, 'insert N {k: "b" v: 2} insert E {from: "b" to: "a"}')
    run(foreign, 'delete N where k = "a"')
    run(graph, 'insert N {k: "a" v: 3}')
    assert {key: row["v"] for key, row in rows(graph, "node:N").items()} == {"a": 3, "b": 2}


def test_branches_share_what_they_inherit_and_nothing_else(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", SCHEMA, '{"type":"N","data":{"k":"a"}}', '{"type":"N","data":{"k":"c"}}')
    graph.branches.create("x", from_="main")
    graph.mutate('query q() { insert N {k: "b"} }', branch="x")
    graph.mutate('query q() { delete N where k = "a" }', branch="x")
    run(graph, 'insert N {k: "b" v: 1} insert N {k: "a" v: 1} insert N {k: "c" v: 1}')
    graph.mutate('query q() { insert N {k: "a" v: 2} insert N {k: "b" v: 2} insert N {k: "c" v: 2} }', branch="x")
    assert {row["v"] for row in rows(graph, "node:N").values()} == {1}
    assert {row["v"] for row in rows(graph, "node:N", "x").values()} == {2}


def test_deletes_on_a_branch_leave_the_keys_of_main(tmp_path: Path) -> None:
    """What is kept of a fragment after a delete on one branch must not hide the row from another."""
    made = create(tmp_path / "g", SCHEMA, '{"type":"N","data":{"k":"a"}}', '{"type":"N","data":{"k":"b"}}')
    made.branches.create("x", from_="main")
    made.mutate('query q() { delete N where k = "a" }', branch="x")
    graph: Graph = og.open(tmp_path / "g")
    graph.mutate('query q() { insert N {k: "b" v: 1} }', branch="x")
    with pytest.raises(OmniGraphError, match="entity with the id `a`"):
        graph.ingest(b'{"type":"N","data":{"k":"a"}}', mode="append")
