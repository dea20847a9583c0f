"""Dates and instants of exports are ISO 8601, and every value of every type comes back from every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engine import export as exporting
from omnigraph.engine.json_text import json_text
from omnigraph.pipeline import export, load

SCALARS: dict[str, list[Any]] = {
    "String": ["", "a,b", 'say "hi"\n', "007", "2024-01-31", "null"],
    "Bool": [True, False],
    "I32": [-(2**31), 0, 2**31 - 1],
    "I64": [-(2**63), 2**53 + 1, 2**63 - 1],
    "U32": [0, 2**32 - 1],
    "U64": [0, 2**63 - 1],
    "F32": [0.5, -0.0, 3.4028234663852886e38],
    "F64": [0.1, -0.0, 1e300, 5e-324],
    "Date": [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)],
    "DateTime": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
        datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC),
    ],
}
FIELDS = "  ".join(f"x_{name}: {name}?  l_{name}: [{name}]?" for name in SCALARS)
SCHEMA = f"node T {{ k: I64 @key  {FIELDS} }}\n"
SCHEMA += "node D { d: Date  t: DateTime  @key(d, t) }\nedge E: T -> D { at: Date? }\n"


def spelled(value: Any) -> Any:
    """ISO 8601 as Python writes it, instants in UTC with milliseconds."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value


def records() -> list[dict[str, Any]]:
    """Each value alone, in a list, in a list with a null, an empty list, and nothing at all."""
    rows: list[dict[str, Any]] = [{}, {f"l_{name}": [] for name in SCALARS}]
    for name, values in SCALARS.items():
        texts = [spelled(value) for value in values]
        rows += [{f"x_{name}": text} for text in texts]
        rows += [{f"l_{name}": texts}, {f"l_{name}": [None, texts[0]]}]
    found = [{"type": "T", "data": {"k": number, **row}} for number, row in enumerate(rows)]
    day, instant = spelled(SCALARS["Date"][2]), spelled(SCALARS["DateTime"][2])
    to = json.dumps(
        [str((SCALARS["Date"][2] - date(1970, 1, 1)).days), str(int(SCALARS["DateTime"][2].timestamp() * 1000))]
    )
    found.append({"type": "D", "data": {"d": day, "t": instant}})
    return [*found, {"edge": "E", "from": "0", "to": to.replace(" ", ""), "data": {"id": "e", "at": day}}]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    graph.load(records())
    return graph


def content(graph: og.Graph) -> list[list[dict[str, Any]]]:
    """What is stored, as Arrow has it: not through the code that exports."""
    names = " ".join(f"$t.x_{name} $t.l_{name}" for name in SCALARS)
    queries = [
        f"match {{ $t: T }} return {{ $t.k {names} }} order {{ $t.k }}",
        "match { $t: D } return { $t.@id $t.d $t.t }",
        "match { $a $e: e $b } return { $a.@id $b.@id $e.@id $e.at }",
    ]
    return [graph.query(query).to_arrow().to_pylist() for query in queries]


def exported_data(text: bytes) -> dict[int, dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines()]
    return {line["data"]["k"]: line["data"] for line in lines if line.get("type") == "T"}


def test_export_has_dates_and_instants_in_iso_8601(graph: og.Graph) -> None:
    found = exported_data(b"".join(graph.export()))
    for record in records():
        if record.get("type") == "T":
            data = record["data"]
            expected = {f"{kind}_{name}": data.get(f"{kind}_{name}") for name in SCALARS for kind in "xl"}
            assert found[data["k"]] == {"id": str(data["k"]), "k": data["k"], **expected}


def test_integers_in_place_of_dates_are_caught(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "iso_json_text", json_text)
    with pytest.raises(AssertionError):
        test_export_has_dates_and_instants_in_iso_8601(graph)


WAYS: dict[str, Callable[[og.Graph, bytes, Path], object]] = {
    "load": lambda copy, text, _: copy.load(text, mode="append"),
    "strict": lambda copy, text, _: copy.ingest(text, mode="append"),
    "compatible": lambda copy, text, _: copy.ingest(text, mode="append", dialect="compatible"),
    "bulk": lambda copy, _, file: load(copy, file, mode="append", engine="local"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_ndjson_comes_back_whichever_reader_reads_it(graph: og.Graph, tmp_path: Path, way: str) -> None:
    text = b"".join(graph.export())
    (tmp_path / "g.ndjson").write_bytes(text)
    copy = og.init(tmp_path / "copy.omni", SCHEMA)
    WAYS[way](copy, text, tmp_path / "g.ndjson")
    assert content(copy) == content(graph)
    assert b"".join(copy.export()) == text


def test_exports_with_integers_are_still_read(graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "iso_json_text", json_text)
        text = b"".join(graph.export())
    copy = og.init(tmp_path / "copy.omni", SCHEMA)
    copy.load(text)
    assert content(copy) == content(graph)


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["ndjson", "csv", "parquet"])
def test_files_of_every_format_come_back(graph: og.Graph, tmp_path: Path, format_: Any) -> None:
    out = tmp_path / "out"
    export(graph, out, format_, engine="local")
    copy = og.init(tmp_path / "copy.omni", SCHEMA)
    if format_ == "ndjson":
        load(copy, out, mode="append", engine="local")
    else:
        nodes = {name: out / "nodes" / name for name in "TD"}
        load(copy, nodes=nodes, edges={"E": out / "edges" / "E"}, mode="append", engine="local")
    assert content(copy) == content(graph)
    if format_ == "csv":
        rows = next((out / "nodes" / "T").glob("*.csv")).read_text(encoding="utf-8")
        assert '"[""0001-01-01"",""1969-12-31"",""2024-02-29"",""9999-12-31""]"' in rows
