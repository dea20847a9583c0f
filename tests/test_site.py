"""The site: every page is in the navigation, guides run, pictures are current, and the strict build passes."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import omnigraph as og
from omnigraph import client, pipeline
from tests.support.guide_runner import SHOWN, run_guide
from tools import architecture, draw

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
# Pages whose commands and programs are run here, with how many answers they show at least.
GUIDES = {
    "howto/backup.md": 1,
    "howto/idempotent-loads.md": 3,
    "howto/import-csv.md": 2,
    "howto/incremental-jobs.md": 1,
    "howto/rag.md": 2,
    "howto/review-with-branches.md": 2,
    "howto/schedules.md": 1,
}


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose one Python object is the function that makes anchors."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def listed(nav: object) -> list[str]:
    if isinstance(nav, dict):
        return [page for part in nav.values() for page in listed(part)]
    return [page for part in nav for page in listed(part)] if isinstance(nav, list) else [str(nav)]


def test_navigation_lists_every_page_once() -> None:
    assert sorted(listed(SITE["nav"])) == sorted(PAGES)


def test_api_pages_describe_everything_public() -> None:
    pages = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES if page.startswith("api"))
    items = [getattr(module, name) for module in (og, pipeline, pipeline.algo, client) for name in module.__all__]
    described = {*re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE)}
    missing = [
        f"{item.__module__}.{item.__name__}"
        for item in items
        if hasattr(item, "__module__") and not {item.__module__, f"{item.__module__}.{item.__name__}"} & described
    ]
    assert missing == []


def test_navigation_titles_every_page() -> None:
    assert all(
        isinstance(page, dict)
        for section in SITE["nav"]
        for part in section.values()
        if isinstance(part, list)
        for page in part
    )


def test_site_fetches_nothing_from_the_network() -> None:
    assert SITE["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript", "repo_url"} & SITE.keys()
    assert not [page for page in PAGES if "```mermaid" in (DOCS / page).read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not installed; `make setup` installs it")
def test_strict_build_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    limits = (tmp_path / "site" / "limits.html").read_text(encoding="utf-8")
    assert "WRITE_ENTITIES_MAX" in limits, "references are built"
    assert "/mutate" in (tmp_path / "site" / "openapi.json").read_text(encoding="utf-8")
    graph = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert "Return the commits of a branch, newest first" in graph, "inherited docstrings are shown"
    served = (tmp_path / "site" / "api-pipeline.html").read_text(encoding="utf-8")
    assert served.count("Run a read query against one snapshot of the graph") == 1
    for path in (tmp_path / "site").rglob("*.html"):
        assert not re.findall(r'<(?:script|img|link)[^>]* (?:src|href)="https?:', path.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(GUIDES))
def test_howto_prints_what_it_shows_twice_in_a_row(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "mock")
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        monkeypatch.chdir(tmp_path / run)
        assert run_guide(page, capsys) >= GUIDES[page]


@pytest.mark.slow
def test_tutorial_runs_twice_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        monkeypatch.chdir(tmp_path / run)
        assert run_guide("tutorial.md", capsys) >= 5


def test_every_howto_is_run() -> None:
    assert {page for page in PAGES if page.startswith("howto/")} == GUIDES.keys()


@pytest.mark.parametrize("page", ["tutorial.md", "deployment.md", *sorted(GUIDES)])
def test_page_has_only_blocks_that_are_run_or_known(page: str) -> None:
    languages = set(re.findall(r"^```(\w*)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)) - {""}
    assert languages <= {*SHOWN, "sh", "python", "json", "text"}


@pytest.mark.parametrize("name", sorted(draw.draw_all()))
def test_picture_is_current_and_well_formed(name: str) -> None:
    text = (DOCS / "pictures" / name).read_text(encoding="utf-8")
    assert text == draw.draw_all()[name], "run `python tools/draw.py`"
    assert ElementTree.fromstring(text).tag.endswith("svg")


@pytest.mark.slow
def test_picture_of_layers_shows_imports_pointing_down() -> None:
    rows = {name: row for row, layer in enumerate(draw.LAYERS) for name, _ in layer.boxes}
    edges = architecture.import_edges(architecture.modules())
    folders = {path.name for path in architecture.PACKAGE.iterdir() if (path / "__init__.py").exists()}
    # The protocol is what graphs and clients have in common; modules beside the folders are part of the library.
    assert rows.keys() == {"graph", *folders} - {"protocol"}
    drawn = [(a, b) for a in rows for b in edges[a] if b in rows]
    wrong = [(a, b) for a, b in drawn if rows[a] > rows[b] or (rows[a] == rows[b] and rows[a] > 0)]
    assert wrong == []


def test_bars_show_every_line_of_the_warm_reads() -> None:
    page = (DOCS / "appendix" / "benchmarks.md").read_text(encoding="utf-8")
    ratios = draw.read_ratios(page)
    assert len(ratios) == page.partition("| Line | Ours | Best peer |")[2].partition("\n\n")[0].count("\n") - 1 > 10
    assert any(ratio < 1 for *_, ratio in ratios), "lines where a peer is faster are shown, too"


def test_bars_show_every_load_with_two_cores() -> None:
    page = (DOCS / "appendix" / "benchmarks.md").read_text(encoding="utf-8")
    rates = draw.load_rates(page)
    table = page.partition("| What | From | Cores | Time | Rows / s |")[2].partition("\n\n")[0]
    assert len(rates) == len(re.findall(r"\| 2 \| [\d.]+ s", table)) > 5
    assert {ours for *_, ours in rates} == {True, False}
