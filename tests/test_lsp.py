"""The language server: which schema it finds, and the protocol over a real connection."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli import main


class LspClient:
    """Sends messages to a server process and reads its answers; notifications are kept until they are asked for."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._next_id = 0
        self._notifications: list[dict[str, Any]] = []

    def request(self, method: str, params: object) -> Any:
        """Return the result of a request."""
        self._next_id += 1
        self._send({"id": self._next_id, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == self._next_id and "method" not in message:
                assert "error" not in message, message
                return message["result"]
            self._notifications.append(message)

    def notify(self, method: str, params: object) -> None:
        self._send({"method": method, "params": params})

    def diagnostics(self, uri: str) -> list[dict[str, Any]]:
        """Return the next diagnostics that the server publishes for a document."""
        while True:
            for message in self._notifications:
                if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == uri:
                    self._notifications.remove(message)
                    published: list[dict[str, Any]] = message["params"]["diagnostics"]
                    return published
            self._notifications.append(self._receive())

    def _send(self, message: dict[str, object]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self._process.stdin is not None
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        while (line := self._process.stdout.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        assert length, "the server ended"
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        return message


@contextmanager
def running_server(root: Path, options: object = None) -> Iterator[LspClient]:
    """Start `omnigraph lsp` for a folder, and end it as an editor does."""
    command = [sys.executable, "-m", "omnigraph", "lsp"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            client = LspClient(process)
            client.request(
                "initialize",
                {"processId": None, "rootUri": root.as_uri(), "capabilities": {}, "initializationOptions": options},
            )
            client.notify("initialized", {})
            yield client
            client.request("shutdown", None)
            client.notify("exit", None)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()


SCHEMA = 'node Port {\n  code: String @key @description("UN/LOCODE 🚢")\n  berths: I32?\n}\n'
QUERY = 'query q() {\n  match { $p: Port $p.code = "🚢🚢" and $p.berths > 1 }\n  return { $p.code }\n}\n'


def test_find_schema_takes_the_nearest_and_the_setting_wins(tmp_path: Path) -> None:
    from omnigraph.lsp import find_schema  # which takes a while to import

    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    query = below / "q.gq"
    assert find_schema(query, tmp_path, None) is None
    (tmp_path / "z.pg").touch()
    (tmp_path / "other.pg").touch()
    assert find_schema(query, tmp_path, None) == tmp_path / "other.pg"
    (tmp_path / "schema.pg").touch()
    assert find_schema(query, tmp_path, None) == tmp_path / "schema.pg"
    assert find_schema(query, tmp_path / "a", None) is None
    assert find_schema(query, None, None) is None
    (below / "near.pg").touch()
    assert find_schema(query, None, None) == below / "near.pg"
    assert find_schema(query, tmp_path, "z.pg") == tmp_path / "z.pg"
    assert find_schema(query, tmp_path, "/x/y.pg") == Path("/x/y.pg")


def test_lsp_without_pygls_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.setitem(sys.modules, "lsprotocol", None)
    monkeypatch.delitem(sys.modules, "omnigraph.lsp", raising=False)
    assert main(["lsp"]) == 1
    assert "pip install 'omnigraph[lsp]'" in capsys.readouterr().err


def open_document(client: LspClient, path: Path, text: str) -> str:
    document = {"uri": path.as_uri(), "languageId": path.suffix[1:], "version": 1, "text": text}
    client.notify("textDocument/didOpen", {"textDocument": document})
    return path.as_uri()


def at(uri: str, line: int, character: int) -> dict[str, object]:
    return {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}


def change(client: LspClient, uri: str, text: str) -> None:
    document = {"uri": uri, "version": 2}
    client.notify("textDocument/didChange", {"textDocument": document, "contentChanges": [{"text": text}]})


@pytest.mark.slow
def test_server_answers_an_editor(tmp_path: Path) -> None:
    pytest.importorskip("pygls", reason="the extra `lsp` is not installed")
    (tmp_path / "schema.pg").write_text(SCHEMA)
    with running_server(tmp_path) as client:
        query = open_document(client, tmp_path / "q.gq", QUERY)
        assert client.diagnostics(query) == []
        # Two emoji are four units of UTF-16, in which clients count unless they say otherwise.
        line = QUERY.splitlines()[1]
        column = len(line[: line.index("berths")].encode("utf-16-le")) // 2
        hover = client.request("textDocument/hover", at(query, 1, column))
        assert "Port.berths: I32?" in hover["contents"]["value"]
        assert hover["range"]["start"] == {"line": 1, "character": column}
        definition = client.request("textDocument/definition", at(query, 1, column))
        assert definition["uri"] == (tmp_path / "schema.pg").as_uri()
        assert definition["range"]["start"] == {"line": 2, "character": 2}
        completions = client.request("textDocument/completion", at(query, 1, column))
        assert {"code", "berths"} <= {item["label"] for item in completions["items"]}
        edits = client.request(
            "textDocument/formatting", {"textDocument": {"uri": query}, "options": {"tabSize": 2, "insertSpaces": True}}
        )
        assert edits[0]["newText"].startswith("query q() {\n  match {\n    $p: Port\n")
        change(client, query, QUERY.replace("berths", "births"))
        [finding] = client.diagnostics(query)
        assert (finding["code"], finding["range"]["start"]) == ("T6", {"line": 1, "character": column})
        assert "berths" in finding["message"]
        # The schema is read from the editor once it is open there.
        schema = open_document(client, tmp_path / "schema.pg", SCHEMA.replace("berths", "births"))
        assert client.diagnostics(schema) == []
        assert client.diagnostics(query) == []
        empty = open_document(client, tmp_path / "empty.gq", "")
        assert client.diagnostics(empty) == []
        assert client.request("textDocument/hover", at(empty, 0, 0)) is None
        offered = client.request("textDocument/completion", at(empty, 0, 0))["items"]
        assert "query" in {item["label"] for item in offered}


@pytest.mark.slow
def test_server_uses_the_schema_of_its_setting(tmp_path: Path) -> None:
    pytest.importorskip("pygls", reason="the extra `lsp` is not installed")
    (tmp_path / "other.pg").write_text("node Ship { code: String @key }")
    (tmp_path / "schema.pg").write_text(SCHEMA)
    with running_server(tmp_path, {"schema": "other.pg"}) as client:
        query = open_document(client, tmp_path / "q.gq", QUERY)
        assert [finding["code"] for finding in client.diagnostics(query)][:1] == ["T1"]
        client.notify("workspace/didChangeConfiguration", {"settings": {"omnigraph": {"schema": ""}}})
        assert client.diagnostics(query) == []
