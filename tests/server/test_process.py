"""A server as a process: how it stops, what its command refuses, and where it can listen."""

from __future__ import annotations

import http.client
import signal
import socket
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from unittest.mock import MagicMock

import orjson
import pytest

from omnigraph.cli import main
from omnigraph.errors import UsageError
from omnigraph.server import run
from omnigraph.server.run import bind
from tests.support.live_server import PEOPLE
from tests.support.mixed_calls import ask
from tests.support.server_process import running

OPEN = {"OMNIGRAPH_UNAUTHENTICATED": "1"}


def test_serve_shortens_the_turns_of_threads_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    before, turns = sys.getswitchinterval(), list[float]()
    server = MagicMock()
    server.return_value.run.side_effect = lambda sockets: turns.append(sys.getswitchinterval())
    monkeypatch.setattr(run, "Server", server)
    monkeypatch.setattr(run, "open_service", MagicMock())
    with socket.socket() as listening:
        run.serve(MagicMock(), listening, print, every=None)
    assert [turn < before for turn in turns] == [True]
    assert sys.getswitchinterval() == before


@pytest.mark.slow
def test_serve_told_to_stop_finishes_what_is_under_way(graph_uri: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running("--store", graph_uri, log=log, environment=OPEN) as server:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
        connection.putrequest("POST", "/graphs/graph/query")
        body = orjson.dumps({"query": PEOPLE})
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:10])
        # An answer to another request shows that the first half of this one has arrived.
        assert ask(server, "POST", "/query", {"query": PEOPLE})[0] == 200
        server.process.send_signal(signal.SIGTERM)
        connection.send(body[10:])
        assert connection.getresponse().status == 200
        connection.close()
        assert server.process.wait(30) == 0
    lines = [orjson.loads(line) for line in log.read_text().splitlines()]
    assert {"message": "stopping", "signal": "SIGTERM"}.items() <= next(
        line for line in lines if line["message"] == "stopping"
    ).items()
    assert lines[0]["level"].lower() == "warning"
    assert lines[0]["message"].startswith("access is anonymous")
    requests = [line for line in lines if line["message"] == "request"]
    assert [one["status"] for one in requests] == [200, 200]
    assert all(one["request_id"] and one["route"] == "/graphs/{graph_id}/query" for one in requests)
    assert "secret-place" not in log.read_text()


def test_omnigraph_server_is_omnigraph_serve(graph_uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    script = EntryPoint("omnigraph-server", project["project"]["scripts"]["omnigraph-server"], "console_scripts")
    assert script.load()(["--store", graph_uri]) == 1
    assert "--unauthenticated" in capsys.readouterr().err
    assert script.load()(["--help"]) == 0
    assert "Serve graphs over HTTP." in capsys.readouterr().out


def test_serve_open_without_being_told_so_is_refused(
    graph_uri: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["serve", "--store", graph_uri]) == 1
    assert "--unauthenticated" in capsys.readouterr().err
    monkeypatch.setenv("OMNIGRAPH_UNAUTHENTICATED", "false")
    assert main(["serve", "--store", graph_uri]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--graph", "people"], "form ID=URI"),
        (["--graph", "graphs=a.omni", "--unauthenticated"], "cannot be the id"),
        (["--graph", "a=a.omni", "--graph", "a=b.omni"], "two graphs"),
        (["--graph", "a=a.omni", "--graph", "b=b.omni", "--policy", "p.yaml"], "does not name its graph"),
        (["--graph", "a=a.omni", "--queries", "b=q"], "names an unknown graph"),
        (["--unauthenticated"], "no graph to serve"),
        (["--store", "none.omni", "--unauthenticated"], "no graph at"),
        (["none.omni", "--unauthenticated"], "no graph at"),
        (["a.omni", "--store", "b.omni", "--unauthenticated"], "two graphs were given"),
    ],
)
def test_serve_asked_badly_says_so(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *arguments]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("address", ["8080", "localhost:", "a:b", "127.0.0.1:99999", "256.0.0.1:1"])
def test_bind_address_that_cannot_be_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="listen"):
        bind(address)
