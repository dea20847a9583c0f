"""A wrong master: refused at once and by name, before Spark is started, with nothing written."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from omnigraph.cli import main
from omnigraph.errors import PipelineError, UsageError
from omnigraph.spark.session import require_running_at, require_valid_master
from tests.support.pipeline_fixtures import lines_of, world


@pytest.mark.parametrize(
    ("master", "words"),
    [
        ("spark://127.0.0.1:1", "refused"),
        ("spark://127.0.0.1:1,127.0.0.1:2", "refused"),
        ("spark://127.0.0.1", "is not `host:port`"),
        ("spark://127.0.0.1:99999", "is not `host:port`"),
    ],
)
def test_master_that_nobody_listens_at_is_refused(master: str, words: str) -> None:
    with pytest.raises(PipelineError, match="no Spark master answers") as caught:
        require_valid_master(master)
    assert words in caught.value.message
    assert caught.value.context["master"] == master


@pytest.mark.parametrize("master", ["", "nonsense", "mesos://h:1", "127.0.0.1:7077"])
def test_master_of_no_known_kind_is_refused(master: str) -> None:
    with pytest.raises(UsageError, match="unknown Spark master"):
        require_valid_master(master)


def test_master_of_which_one_address_answers_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        require_valid_master(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")
    for other in ("local[2]", "yarn", "k8s://https://127.0.0.1:1"):
        require_valid_master(other)


def test_session_that_runs_elsewhere_is_not_taken_for_a_cluster() -> None:
    running = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    with pytest.raises(PipelineError, match=r"runs at `local\[2\]`.*not at `spark://host:7077`"):
        require_running_at(running, "spark://host:7077")
    for own, asked in (("spark://h:1", "spark://h:1"), ("k8s://https://h:1", "k8s://h:1")):
        require_running_at(SimpleNamespace(sparkContext=SimpleNamespace(master=own)), asked)


def test_load_command_with_a_wrong_master_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = world(tmp_path / "g.omni")
    (tmp_path / "in.ndjson").write_bytes(lines_of([{"type": "Person", "data": {"name": "cy"}}]))
    before = {path for path in Path(graph.uri).rglob("*") if path.is_file()}
    command = ["load", graph.uri, "--data", f"{tmp_path}/in.ndjson", "--mode", "append", "--quiet", "--json"]
    assert main([*command, "--master", "spark://127.0.0.1:1", "--branch", "b", "--from", "main"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["code"], said["effect"]) == ("pipeline.failed", "none")
    assert {path for path in Path(graph.uri).rglob("*") if path.is_file()} == before
