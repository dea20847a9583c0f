"""Ingests: what they write in each mode and dialect, every error with its line, and that a refusal changes nothing."""

from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnigraph.engine.input.ndjson import reader
from omnigraph.errors import GraphError, KeyConflict, LimitExceeded, UsageError
from omnigraph.graph import Graph
from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import VIOLATIONS_MAX, WRITE_ENTITIES_MAX
from tests.support.write_fixtures import DATA, create, fixture, load, refused, rows, unchanged

V, P, C, T = TypeKey("node:Vessel"), TypeKey("node:Port"), TypeKey("edge:CallsAt"), TypeKey("edge:TowedBy")
GOOD = '{"type":"Port","data":{"code":"P7","country":"NL"}}'


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return fixture(tmp_path / "g.omni")


def port(code: str, **values: object) -> str:
    return json.dumps({"type": "Port", "data": {"code": code, "country": "NL", **values}})


def test_ingest_is_one_commit_with_exact_counts(graph: Graph) -> None:
    before = graph.snapshot()
    receipt = load(graph, port("P8"), "", '{"edge":"callsat","from":"V3","to":"P8"}\r', mode="merge")
    assert (dict(receipt.nodes), dict(receipt.edges), receipt.total_entities) == ({"Port": 1}, {"CallsAt": 1}, 2)
    after = graph.snapshot()
    assert (after.version, receipt.commit.commit_id, receipt.commit.parent) == (
        before.version + 1,
        after.head,
        before.head,
    )
    [new] = set(rows(graph, C)) - {"c1", "c2", "c3", "c4"}
    assert len(new) == 26


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_ingest_of_nothing_is_no_commit(graph: Graph, mode: Any) -> None:
    before = graph.snapshot()
    receipt = graph.ingest(b"\n\n", mode=mode)
    assert (receipt.total_entities, receipt.commit, receipt.to_json()["commit"]) == (0, None, None)
    assert graph.snapshot() == before


def test_ingest_of_nothing_makes_a_missing_branch(graph: Graph) -> None:
    receipt = graph.ingest([], branch="new", from_branch="main")
    assert (receipt.branch_created, receipt.commit_id) == (True, None)
    assert "new" in graph.branches.list()


@pytest.mark.parametrize(
    "form", ["path", "text path", "bytes", "binary file", "text file", "dictionaries", "generator"]
)
def test_ingest_takes_every_form_of_input(tmp_path: Path, form: str) -> None:
    graph = create(tmp_path / "g", (DATA.parent / "F.pg").read_text())
    records = [json.loads(line) for line in DATA.read_text().splitlines() if line]
    data: dict[str, Any] = {
        "path": DATA,
        "text path": str(DATA),
        "bytes": DATA.read_bytes(),
        "binary file": io.BytesIO(DATA.read_bytes()),
        "text file": io.StringIO(DATA.read_text()),
        "dictionaries": records,
        "generator": (record for record in records),
    }
    assert graph.ingest(data[form], mode="append").total_entities == 13
    assert set(rows(graph, V)) == {"V1", "V2", "V3", "V4"}


def test_ingest_dictionaries_take_python_values(graph: Graph) -> None:
    data = {
        "imo": "V9",
        "kind": "tug",
        "built": dt.date(2020, 1, 1),
        "seen": dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        "manual": b"bytes",
        "vec": np.array([1, 2, 3], np.float32),
        "teu": np.int64(5),
    }
    graph.ingest([{"type": "Vessel", "data": data}])
    found = rows(graph, V)["V9"]
    assert (str(found["built"]), found["manual"], found["vec"], found["teu"]) == ("2020-01-01", b"bytes", [1, 2, 3], 5)
    refused(
        graph,
        "N10",
        lambda: graph.ingest([{"type": "Vessel", "data": {"imo": "W", "kind": "tug", "draft": float("nan")}}]),
    )


def test_merge_replaces_whole_entities_and_adds_new_ones(graph: Graph) -> None:
    load(
        graph,
        '{"type":"Vessel","data":{"imo":"V1","kind":"tug"}}',
        '{"type":"Vessel","data":{"imo":"V9","kind":"bulk"}}',
        mode="merge",
    )
    found = rows(graph, V)
    assert (len(found), found["V1"]["teu"], found["V9"]["kind"]) == (5, None, "bulk")


def test_merge_of_one_id_twice_keeps_the_last(tmp_path: Path) -> None:
    graph = create(tmp_path / "g", "node Note { text: String }")
    lines = [f'{{"type":"Note","data":{{"id":"k","text":"{word}"}}}}' for word in ("first", "last")]
    load(graph, *lines, mode="merge")
    assert rows(graph, "node:Note")["k"]["text"] == "last"
    error = refused(graph, "E11", lambda: load(graph, *(line.replace('"k"', '"j"') for line in lines)))
    assert isinstance(error, KeyConflict)
    refused(graph, "E11", lambda: load(graph, *lines, mode="overwrite"))
    refused(graph, "E11", lambda: load(graph, lines[0]))


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_one_key_twice_is_refused_in_every_mode(graph: Graph, mode: str) -> None:
    error = refused(graph, "E5", lambda: load(graph, port("P9"), "", port("P9"), mode=mode))
    assert error.context["line"] == 3
    assert "lines 1 and 3" in error.message


def test_append_of_an_existing_key_is_a_conflict(graph: Graph) -> None:
    error = refused(graph, "E11", lambda: load(graph, GOOD, port("P1")))
    assert isinstance(error, KeyConflict)
    assert (error.context["type_key"], error.context["entity_id"], error.context["line"]) == (P, "P1", 2)


def test_overwrite_replaces_the_types_it_names(graph: Graph) -> None:
    load(
        graph,
        port("P1"),
        port("P2"),
        port("P3"),
        '{"edge":"CallsAt","from":"V4","to":"P3","data":{"id":"only"}}',
        mode="overwrite",
    )
    assert set(rows(graph, P)) == {"P1", "P2", "P3"}
    assert set(rows(graph, C)) == {"only"}
    assert set(rows(graph, V)) == {"V1", "V2", "V3", "V4"}
    load(graph, port("P4"), mode="merge")
    assert set(rows(graph, P)) == {"P1", "P2", "P3", "P4"}


def test_overwrite_may_not_strand_edges_of_other_types(graph: Graph) -> None:
    error = refused(graph, "E9", lambda: load(graph, port("P1"), mode="overwrite"))
    assert "`c3`" in error.message


@pytest.mark.slow
def test_limits_hold_append_and_merge_but_not_overwrite(graph: Graph) -> None:
    lines = [port(f"P{number}") for number in range(WRITE_ENTITIES_MAX + 1)]
    for mode in ("append", "merge"):
        error = refused(graph, "E12", lambda: load(graph, *lines, mode=mode))  # noqa: B023 - run at once
        assert isinstance(error, LimitExceeded)
    load(graph, *lines, mode="overwrite")
    assert len(rows(graph, P)) == WRITE_ENTITIES_MAX + 1
    load(graph, *(line.replace('"P', '"Q').replace("Qort", "Port") for line in lines[1:]), mode="merge")


def test_too_many_bytes_of_one_type_are_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.load.load.WRITE_BYTES_MAX", 1_000)
    lines = [port("a" * 600), port("b" * 600)]
    for mode in ("append", "overwrite"):
        refused(graph, "N11", lambda: load(graph, *lines, mode=mode))  # noqa: B023 - run at once
    refused(graph, "E12", lambda: load(graph, *lines, dialect="compatible"))


VESSEL = '{"type":"Vessel","data":{"imo":"V9","kind":"tug",%s}}'
EDGE = '{"edge":"CallsAt","from":"V1","to":"P1","data":{%s}}'


@pytest.mark.parametrize(
    ("line", "strict", "compatible"),
    [
        ("{", "N1", "N1"),
        ("{'type':1}", "N1", "N1"),
        (VESSEL % '"draft":NaN', "N1", "N1"),
        (VESSEL % '"draft":1e999', "N1", "N10"),
        ('{"type":"Port"', "N1", "N1"),
        (GOOD + " " + port("P6"), "N2", None),
        ('{"type":"Port","data":{"code":"P7","country":"A","country":"B"}}', "N2", None),
        ('{"type":"Port","data":{"code":"P7","country":"a:b","country" :"c:d"}}', "N2", None),
        ('{"type":"Port","type":"Port","data":{"code":"P7","country":"A"}}', "N2", None),
        (VESSEL % '"tags":[{"a":1,"a":2}]', "N2", None),
        ('{"data":{}}', "N3", "N3"),
        ("[1]", "N3", "N3"),
        ('{"type":"Port","edge":"CallsAt","data":{"code":"P7","country":"A"}}', "N3", None),
        ('{"type":"Prot","data":{}}', "N4", "N4"),
        ('{"type":"port","data":{}}', "N4", "N4"),
        ('{"type":7,"data":{}}', "N4", "N4"),
        ('{"edge":"Calls","from":"V1","to":"P1"}', "N4", "N4"),
        ('{"edge":"CallsAt","from":"V1"}', "N4", "N4"),
        ('{"edge":"CallsAt","from":1,"to":"P1"}', "N4", "N4"),
        ('{"type":"Port","x":1,"data":{"code":"P7","country":"A"}}', "N5", None),
        ('{"type":"Port","data":[]}', "N5", "N10"),
        ('{"edge":"CallsAt","from":"V1","to":"P1","data":null}', "N5", None),
        ('{"type":"Port","data":{"code":"P7","country":"A","zip":1}}', "N6", None),
        ('{"type":"Port","data":{"code":"P7","country":"A","_rowid":1}}', "N6", None),
        (EDGE % '"src":"V1"', "N6", None),
        ('{"type":"Port","data":{"code":"P7","country":"A","id":7}}', "N7", "N7"),
        (EDGE % '"id":7', "N7", None),
        ('{"type":"Port","data":{"code":"P7","country":"A","id":"P8"}}', "N8", "N8"),
        (VESSEL % '"teu":"7"', "N9", None),
        (VESSEL % '"teu":7.0', "N9", None),
        (VESSEL % '"teu":true', "N9", None),
        (VESSEL % '"label":7', "N9", None),
        (VESSEL % '"seen":1.5', "N9", None),
        (VESSEL % '"tags":["a",1]', "N9", None),
        (VESSEL % '"teu":{"a":1}', "N9", None),
        (VESSEL % '"teu":3000000000', "N10", "N10"),
        (VESSEL % '"tags":"a"', "N10", "N10"),
        (VESSEL % '"vec":[1,2]', "N10", "N10"),
        (VESSEL % '"vec":[1,2,"3"]', "N10", "N10"),
        (VESSEL % '"vec":[1,2,1e39]', "N10", "N10"),
        (VESSEL % '"built":"2020-02-30"', "N10", "N10"),
        (VESSEL % '"seen":"12:00"', "N10", "N10"),
        (VESSEL % '"manual":"base64:?"', "N10", "N10"),
        (VESSEL % '"manual":"https://example.org/x"', "N10", "N10"),
        ('{"type":"Port","data":{"code":"P7"}}', "N10", "N10"),
        ('{"type":"Port","data":{"code":"P7","country":null}}', "N10", "N10"),
        ('{"type":"Port","data":{"code":7,"country":"A"}}', "N10", "N10"),
        ('{"type":"Port"}', "N10", "N10"),
        ('{"type":"Vessel","data":{"imo":"V9","kind":"ferry"}}', "E7", "E7"),
        (port("P9", berths=501), "E8", "E8"),
        ('{"edge":"CallsAt","from":"V1","to":"P9"}', "E9", "E9"),
    ],
)
def test_refused_line_is_named_and_changes_nothing(
    graph: Graph, line: str, strict: str, compatible: str | None
) -> None:
    before = ["", port("A1")]
    error = refused(graph, strict, lambda: load(graph, *before, line, port("A2")))
    assert error.context["line"] == 3
    assert "line 3" in error.message
    if compatible is None:
        with_line = load(graph, *before, line, port("A2"), dialect="compatible")
        assert with_line.total_entities >= 3
    else:
        error = refused(graph, compatible, lambda: load(graph, *before, line, port("A2"), dialect="compatible"))
        assert error.context["line"] == 2
        assert "record 2" in error.message


def test_all_errors_are_told_in_the_order_of_their_lines(graph: Graph) -> None:
    lines = ["{", GOOD, VESSEL % '"teu":"7"', '{"type":"Prot"}', VESSEL.replace("V9", "V8") % '"vec":[1],"built":"x"']
    error = refused(graph, "N1", lambda: load(graph, *lines))
    found = error.context["violations"]
    assert isinstance(found, list)
    assert [(one["rule"], one["line"]) for one in found] == [("N1", 1), ("N9", 3), ("N4", 4), ("N10", 5), ("N10", 5)]
    assert found[1] | {"message": ""} == {
        "rule": "N9", "line": 3, "property": "teu", "value": '"7"', "message": "", "type_key": V,
    }  # fmt: skip


def test_errors_beyond_the_bound_are_not_gathered(graph: Graph) -> None:
    error = refused(graph, "N1", lambda: load(graph, *["{"] * (VIOLATIONS_MAX * 3)))
    found = error.context["violations"]
    assert isinstance(found, list)
    assert len(found) == VIOLATIONS_MAX


def test_long_lines_and_crowded_lines_are_refused(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "INGEST_LINE_BYTES_MAX", 1_000)
    monkeypatch.setattr(reader, "INGEST_LINE_TOKENS_MAX", 100)
    fits = port("x" * (1_000 - len(port(""))))
    assert len(fits) == 1_000
    error = refused(graph, "N11", lambda: load(graph, GOOD, port("x" * 1_001), port("P9")))
    assert error.context["line"] == 2
    crowded = VESSEL % ('"tags":[' + ",".join(['"a"'] * 101) + "]")
    error = refused(graph, "N11", lambda: load(graph, crowded))
    assert "brackets" in error.message
    load(graph, fits, VESSEL % ('"label":"' + ",:[]" * 40 + '"'))
    load(graph, crowded, dialect="compatible", mode="merge")


def test_colons_and_escapes_in_texts_are_no_members(graph: Graph) -> None:
    tricky = ["a:b", '"', "\\", '\\":', ':"', '{"a":1,"a":2}', "é:\n\t", ""]
    load(graph, *(port(f"T{number}", country=text) for number, text in enumerate(tricky)))
    assert [rows(graph, P)[f"T{number}"]["country"] for number in range(len(tricky))] == tricky


def test_compatible_dialect_reads_objects_over_several_lines(graph: Graph) -> None:
    text = json.dumps(json.loads(port("A1")), indent=2) + port("A2") + "\n\n" + port("A3") + " " + port("A4")
    assert load(graph, port("A0"), text, dialect="compatible").total_entities == 5


def test_legacy_ids_are_stored_canonically_and_edges_follow(tmp_path: Path) -> None:
    graph = create(
        tmp_path / "g", "node Day { at: Date @key } node Both { a: I32  b: String  @key(a, b) } edge Next: Day -> Both"
    )
    lines = [
        '{"edge":"Next","from":"2024-01-01","to":"007"}',
        '{"type":"Day","data":{"id":"2024-01-01","at":"2024-01-01"}}',
        '{"type":"Both","data":{"id":"007","a":7,"b":"x"}}',
    ]
    refused(graph, "N8", lambda: load(graph, *lines))
    load(graph, *lines, dialect="compatible")
    assert set(rows(graph, "node:Day")) == {"19723"}
    [edge] = rows(graph, "edge:Next").values()
    assert (edge["src"], edge["dst"]) == ("19723", '["7","x"]')
    clash = ['{"type":"Both","data":{"id":"7","a":7,"b":"y"}}', '{"type":"Both","data":{"id":"7","a":7,"b":"z"}}']
    error = refused(graph, "N8", lambda: load(graph, *clash, dialect="compatible"))
    assert "more than one node" in error.message
    refused(graph, "N8", lambda: load(graph, '{"type":"Day","data":{"id":"x","at":1}}', dialect="compatible"))


def test_missing_branch_is_made_from_another(graph: Graph) -> None:
    with pytest.raises(GraphError) as caught:
        graph.ingest(GOOD.encode(), branch="review")
    assert caught.value.code == "branch.not_found"
    refused(
        graph,
        "E9",
        lambda: graph.ingest(b'{"edge":"CallsAt","from":"no","to":"P1"}', branch="review", from_branch="main"),
    )
    refused(graph, "N1", lambda: graph.ingest(b"{", branch="review", from_branch="main"))
    receipt = graph.ingest(GOOD.encode(), branch="review", from_branch="main")
    assert (receipt.branch, receipt.base_branch, receipt.branch_created) == ("review", "main", True)
    assert "P7" in rows(graph, P, "review")
    assert "P7" not in rows(graph, P)
    receipt = graph.ingest(port("P8").encode(), branch="review", from_branch="main")
    assert (receipt.base_branch, receipt.branch_created) == (None, False)


def test_wrong_words_and_paths_are_usage_errors(graph: Graph, tmp_path: Path) -> None:
    with unchanged(graph):
        for arguments in ({"mode": "upsert"}, {"dialect": "loose"}):
            with pytest.raises(UsageError):
                graph.ingest(b"", **arguments)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no such file"):
            graph.ingest(tmp_path / "none.ndjson")


def test_byte_order_mark_and_last_line_without_end_are_fine(graph: Graph) -> None:
    assert graph.ingest(b"\xef\xbb\xbf" + GOOD.encode(), mode="append").total_entities == 1


def test_columns_of_many_chunks_are_put_together(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.engine.input.read_split.INGEST_CHUNK_RECORDS", 7)
    load(graph, *(port(f"Z{number}") for number in range(50)))
    assert len(rows(graph, P)) == 52
    error = refused(
        graph, "N10", lambda: load(graph, *(port(f"Y{number}", berths=2**40 * (number == 33)) for number in range(50)))
    )
    assert error.context["line"] == 34
