"""CSV means the same wherever it is read: a table of cases from RFC 4180, loaded in every way there is."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import pipeline
from omnigraph.errors import OmniGraphError
from omnigraph.pipelines.declaration.config import SourceDeclaration, parse_pipelines
from omnigraph.pipelines.sources import read as sources

pytestmark = pytest.mark.spark

SCHEMA = "node P { k: String @key  a: I64?  t: String? }"
# A field after `x,1,`, and the text that RFC 4180 says it is; None is null, for which the RFC has no form.
FIELDS: list[tuple[str, str | None]] = [
    ("plain", "plain"),
    ("", None),
    ('""', ""),
    ('" "', " "),
    (" pad ", " pad "),
    ('" pad "', " pad "),
    ('"say ""hi"" now"', 'say "hi" now'),
    ('"He said ""hi"", ok"', 'He said "hi", ok'),
    ('""""', '"'),
    ('"a,b"', "a,b"),
    ('"two\nlines"', "two\nlines"),
    ('"two\r\nlines"', "two\r\nlines"),
    ('"\n"', "\n"),
    ("back\\slash", "back\\slash"),
    ('"C:\\dir\\"', "C:\\dir\\"),
    ('"C:\\""x"', 'C:\\"x'),
    ("NULL", "NULL"),
    ("null", "null"),
    ("\\N", "\\N"),
    ("#no comment", "#no comment"),
    ("'single'", "'single'"),
    ("é€😀", "é€😀"),
]
HEAD = "k,a,t"


def text_of(line_end: str, *, is_closed: bool) -> str:
    lines = [HEAD, *(f"x{index:02},1,{field}" for index, (field, _) in enumerate(FIELDS))]
    return line_end.join(lines) + (line_end if is_closed else "")


FILES: dict[str, bytes] = {
    "lf": text_of("\n", is_closed=True).encode(),
    "crlf": text_of("\r\n", is_closed=True).encode(),
    "open_end": text_of("\n", is_closed=False).encode(),
    "bom": codecs.BOM_UTF8 + text_of("\r\n", is_closed=True).encode(),
}
EXPECTED = {f"x{index:02}": text for index, (_, text) in enumerate(FIELDS)}


def texts(graph: og.Graph) -> dict[str, str | None]:
    rows = graph.query("query q() { match { $p: P } return { $p.k as k, $p.t as t } }").rows()
    return {row["k"]: row["t"] for row in rows}


def run_pipeline(graph: og.Graph, spark: Any, path: Path, options: str = "") -> None:
    declared = f"""
pipelines:
  p:
    sources:
      s: {{ format: csv, path: {path.name}, header: true, schema: "k STRING, a BIGINT, t STRING"{options} }}
    nodes: {{ P: {{ from: s }} }}
"""
    pipeline.run(graph, parse_pipelines(declared, folder=path.parent), spark=spark)


def load_as(engine: str) -> Callable[[og.Graph, Any, Path], None]:
    def load(graph: og.Graph, spark: Any, path: Path) -> None:
        pipeline.load(graph, nodes={"P": str(path)}, engine=engine, spark=spark if engine == "spark" else None)  # type: ignore[call-overload]

    return load


READERS: dict[str, Callable[[og.Graph, Any, Path], None]] = {
    "local": load_as("local"),
    "spark": load_as("spark"),
    "pipeline": run_pipeline,
}


@pytest.mark.parametrize("reader", READERS)
def test_csv_is_read_as_the_rfc_defines_it(spark: Any, tmp_path: Path, reader: str) -> None:
    for name, content in FILES.items():
        path = tmp_path / f"{name}.csv"
        path.write_bytes(content)
        graph = og.init(tmp_path / f"{name}.omni", SCHEMA)
        READERS[reader](graph, spark, path)
        assert texts(graph) == EXPECTED, name


def test_csv_cases_catch_the_rules_of_spark(spark: Any, tmp_path: Path) -> None:
    """The mutant: Spark's own reader with its defaults, which a pipeline had before."""
    defaults = {"csv": {"mode": "FAILFAST"}}
    path = tmp_path / "rows.csv"
    for field, text in (('"say ""hi"" now"', 'say "hi" now'), ('""', ""), ('"C:\\dir\\"', "C:\\dir\\")):
        path.write_text(f"{HEAD}\nx,1,{field}\n")
        graph = og.init(tmp_path / f"{len(field)}.omni", SCHEMA)
        with (
            patch.object(sources, "parse_csv_options", lambda *_: None),
            patch.object(sources, "_STRICT_OPTIONS", defaults),
        ):
            try:
                run_pipeline(graph, spark, path)
            except OmniGraphError:
                continue
        assert texts(graph) != {"x": text}


def test_dialect_of_spark_keeps_the_rules_that_it_does_not_change(spark: Any, tmp_path: Path) -> None:
    """`comment` is an option that only Spark's reader has."""
    path = tmp_path / "rows.csv"
    rows = [(field, text) for field, text in FIELDS if not field.startswith("#")]
    path.write_bytes(
        "\n".join(["#a comment", HEAD, *(f"x{i},1,{field}" for i, (field, _) in enumerate(rows))]).encode()
    )
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    run_pipeline(graph, spark, path, ', comment: "#"')
    assert texts(graph) == {f"x{i}": text for i, (_, text) in enumerate(rows)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{HEAD}\nx,1,a\ny,2,b,c\n", r"rows.csv` line 3: this row has 4 fields, and the header has 3"),
        (f"{HEAD}\nx,1\n", r"rows.csv` line 2: this row has 2 fields"),
        (f'{HEAD}\nx,1,"two\nlines"\ny,old,b\n', r"rows.csv` line 4: column `a` is `old`, which is not a bigint"),
        (f'{HEAD}\nx,"",b\n', r"rows.csv` line 2: column `a` is ``, which is not a bigint"),
        ("k,t,a\nx,b,1\n", r"the header of `.*rows.csv` is k, t, a, and `schema` is k, a, t"),
        ("", None),
    ],
)
def test_mistake_in_csv_is_told_with_its_line(spark: Any, tmp_path: Path, content: str, message: str | None) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(content)
    graph = og.init(tmp_path / "g.omni", SCHEMA)
    if message is None:
        run_pipeline(graph, spark, path)
    else:
        with pytest.raises(OmniGraphError, match=message):
            run_pipeline(graph, spark, path)
    assert texts(graph) == {}


def test_options_of_csv(spark: Any, tmp_path: Path) -> None:
    """Separator, quote, null text, encoding, types that are inferred, partitions, and columns without a header."""
    folder = tmp_path / "rows" / "day=2026-01-02"
    folder.mkdir(parents=True)
    (folder / "1.csv").write_bytes("'ä;1';1;NA;true;2026-01-01\n'NA';2;'';false;2026-01-02\n".encode("latin-1"))
    (tmp_path / "rows" / "other").mkdir()
    (tmp_path / "rows" / "other" / "2.csv").write_text("not read")
    options = {"sep": ";", "quote": "'", "nullValue": "NA", "encoding": "ISO-8859-1", "inferSchema": "true"}
    source = SourceDeclaration("rows", "csv", "rows", options, None)
    frame = sources.read_source(spark, source, tmp_path)
    assert dict(frame.dtypes) == {
        "_c0": "string", "_c1": "int", "_c2": "string", "_c3": "boolean", "_c4": "date", "day": "date",
    }  # fmt: skip
    rows = [tuple(map(str, row)) for row in frame.collect()]
    assert rows == [
        ("ä;1", "1", "None", "True", "2026-01-01", "2026-01-02"),
        ("NA", "2", "", "False", "2026-01-02", "2026-01-02"),
    ]
