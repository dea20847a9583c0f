"""A client of the language server over standard input and output: the framing of the protocol, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


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
