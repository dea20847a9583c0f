"""The page about the client is run: its programs print what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.server.auth import Tokens
from omnigraph.server.registry import GraphConfig, open_registry
from tests.server.conftest import POLICY
from tests.support.live_server import TOKENS, Live, serving

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "client.md"
BLOCK = re.compile(r"^```(?P<language>python|text)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def supply(tmp_path: Path) -> Path:
    uri = tmp_path / "supply.omni"
    with og.init(uri, ROOT / "examples" / "supply" / "schema.pg") as graph:
        graph.ingest(ROOT / "examples" / "supply" / "data.ndjson", mode="append")
    return uri


@pytest.mark.slow
def test_client_page_prints_what_it_shows(
    supply: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    house = open_registry(
        [GraphConfig("supply", str(supply), policy, None)], Tokens.of(TOKENS), is_unauthenticated=False
    )
    with serving(house, TOKENS) as live:
        run(live, monkeypatch, capsys)


def run(live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SUPPLY_URL", f"http://{live.host}:{live.port}")
    monkeypatch.setenv("SUPPLY_TOKEN", TOKENS["ada"])
    names: dict[str, object] = {}
    printed, checked = "", 0
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if block["language"] == "python":
            exec(compile(block["text"], PAGE.name, "exec"), names)  # what a reader would paste
            printed = capsys.readouterr().out
        else:
            assert printed == block["text"]
            checked += 1
    assert checked >= 4
