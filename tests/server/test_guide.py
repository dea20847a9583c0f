"""The guide to the server is run: its files are written, its commands and its program print what it shows."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "server.md"
BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
ADDRESS, MARK = "127.0.0.1:8080", "@@@"
CHANGING = re.compile(r"\b0[0-9A-Z]{25}\b")
INSTANT = re.compile(r"\b17\d{14}\b")


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def script_of(folder: Path, address: str) -> tuple[str, list[str]]:
    """Write the files of the guide; return its commands as one script, and what each part of it shows."""
    lines, shown = ["set -u"], []
    for block in BLOCK.finditer(GUIDE.read_text(encoding="utf-8")):
        if block["file"]:
            (folder / block["file"]).parent.mkdir(exist_ok=True)
            (folder / block["file"]).write_text(block["text"], encoding="utf-8")
        elif block["language"] == "text":
            shown.append(block["text"])
            lines.append(f"echo; echo '{MARK}'")
        elif block["language"] == "sh":
            lines.append(block["text"].replace(ADDRESS, address))
        elif block["language"] == "python":
            (folder / "program.py").write_text(block["text"], encoding="utf-8")
            lines.append(f"SERVER=http://{address} {sys.executable} program.py")
    return "\n".join(lines), shown


@pytest.mark.slow
def test_server_guide_prints_what_it_shows(tmp_path: Path) -> None:
    address = free_address()
    script, shown = script_of(tmp_path, address)
    home = {"OMNIGRAPH_HOME": str(tmp_path / "home"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, **home},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, errors = shell.communicate(timeout=240)
    finally:
        # Whatever the guide left running goes with it.
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    parts = [
        INSTANT.sub("17…", CHANGING.sub("01…", part)).replace(address, ADDRESS).strip()
        for part in printed.split(MARK)[:-1]
    ]
    log = (tmp_path / "server.log").read_text()
    for part, text in zip(parts, shown, strict=True):
        assert sorted(part.splitlines()[-len(text.splitlines()) :]) == sorted(text.splitlines()), (errors, log)
    assert "token-of" not in log
