"""The command line on a graph in a bucket: the same commands, the same answers, and a question before destruction."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.cli import main
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

SCHEMA = "node Person { name: String @key }\n"
COUNT = "query q() { match { $p: Person } return { count($p) as n } }"


@pytest.mark.s3
def test_graph_in_a_bucket_lives_from_init_to_overwrite(
    s3_server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = s3_server.uri("cli")
    files = {
        "a.pg": SCHEMA,
        "b.pg": SCHEMA.replace("}", " age: I32? }"),
        "d.ndjson": '{"type":"Person","data":{"name":"x"}}',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    data = ["ingest", uri, "--data", str(tmp_path / "d.ndjson"), "--mode"]
    assert main(["init", uri, "--schema", str(tmp_path / "a.pg")]) == 0
    assert main([*data, "append"]) == 0
    assert main(["schema", "apply", uri, "--schema", str(tmp_path / "b.pg")]) == 0
    assert f"omnigraph schema apply → {uri}" in capsys.readouterr().err
    assert main([*data, "overwrite"]) == 1
    assert "add `--yes`" in capsys.readouterr().err
    assert main([*data, "overwrite", "--yes"]) == 0
    assert main(["branch", "create", "x", "--store", uri]) == 0
    assert main(["branch", "delete", "x", "--store", uri, "--json"]) == 1
    assert main(["branch", "delete", "x", "--store", uri, "--yes"]) == 0
    capsys.readouterr()
    assert main(["query", "--store", uri, "-e", COUNT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"n": 1}]
    assert main(["export", uri]) == 0
    assert capsys.readouterr().out == '{"type":"Person","data":{"id":"x","age":null,"name":"x"}}\n'
