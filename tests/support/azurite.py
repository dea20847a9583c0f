"""Azurite, the emulator of Azure Blob Storage, on loopback: installed from the npm registry once, and run for tests."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest

from omnigraph.manifest import commit_loop
from omnigraph.store.objects import conditional_puts
from omnigraph.store.objects.client_settings import _EMULATOR_ACCOUNT as ACCOUNT
from omnigraph.store.objects.client_settings import _EMULATOR_KEY as KEY

VERSION: Final = "3.35.0"
CONTAINER: Final = "graphs"
# Read when the module is loaded: tests take the home directory away.
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "omnigraph"
_INSTALL_SECONDS: Final = 300
_START_SECONDS: Final = 60


def installed() -> Path:
    """Return the program of Azurite, installed below the cache of this user; skips the test if it cannot be had."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("Azurite needs `node` and `npm`, which this machine lacks")
    folder = _CACHE / f"azurite-{VERSION}"
    program = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "azurite.lock").open("w") as lock:
        # Workers of one run install it once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            part = _CACHE / f"azurite-{VERSION}.part"
            shutil.rmtree(part, ignore_errors=True)
            command = [
                npm,
                "install",
                "--prefix",
                str(part),
                "--no-save",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
            ]
            try:
                subprocess.run(
                    [*command, f"azurite@{VERSION}"], check=True, capture_output=True, timeout=_INSTALL_SECONDS
                )
            except (subprocess.SubprocessError, OSError) as error:
                pytest.skip(f"Azurite {VERSION} cannot be installed from the npm registry: {error}")
            part.rename(folder)
    return program


class Azurite:
    """A running Azurite with an empty container `graphs`; everything is in its memory."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def uri(self, name: str) -> str:
        return f"az://{CONTAINER}/{name}"

    def settings(self) -> dict[str, str]:
        """The settings with which a process reaches this server."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
            "AZURE_ALLOW_HTTP": "true",
        }

    def shared_access_signature(self) -> str:
        """Return a token for everything in the account, for an hour."""
        end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        fields = {"sp": "rwdlacup", "ss": "b", "srt": "sco", "se": end, "spr": "https,http", "sv": "2021-12-02"}
        lines = [ACCOUNT, fields["sp"], fields["ss"], fields["srt"], "", end, "", fields["spr"], fields["sv"], "", ""]
        return urlencode(fields | {"sig": _sign("\n".join(lines))})

    def create_container(self, name: str) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        signed = "".join(f"{header}:{value}\n" for header, value in headers.items())
        text = "PUT" + 12 * "\n" + f"{signed}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        headers |= {"Authorization": f"SharedKey {ACCOUNT}:{_sign(text)}", "Content-Length": "0"}
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == 201, answer.status


def _sign(text: str) -> str:
    return base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()


@contextmanager
def running_azurite() -> Iterator[Azurite]:
    """Run Azurite for the block; its program is stopped at the end."""
    program = installed()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    command = ["node", str(program), "--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    # Without the first, it would send reports of its use to its makers.
    options = ["--disableTelemetry", "--skipApiVersionCheck", "--silent"]
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        server = Azurite(port)
        server.create_container(CONTAINER)
        yield server
    finally:
        process.terminate()
        process.wait(30)
        commit_loop._turns.clear()
        conditional_puts.forget_proven()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "Azurite has stopped"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("Azurite does not listen")
