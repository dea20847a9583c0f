"""The page about the command line: its generated parts are what `tools/cli_reference.py` makes."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any


def load_tool() -> Any:
    path = Path(__file__).parent.parent / "tools" / "cli_reference.py"
    spec = spec_from_file_location("cli_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()
PAGE: str = TOOL.PAGE.read_text(encoding="utf-8")


def test_page_is_current() -> None:
    assert TOOL.render_page(PAGE) == PAGE, "run `python tools/cli_reference.py`"
    assert list(TOOL.missing_sections(PAGE)) == []


def test_page_follows_help_texts() -> None:
    """A changed help text changes the page: the oracle of the test above can fail."""
    other = PAGE.replace("Print the result, or the error, as JSON.", "Print JSON.")
    assert other != PAGE
    assert TOOL.render_page(other) == PAGE


def test_page_keeps_what_is_written_by_hand() -> None:
    table = "| A | table |\n|---|---|\n| by | hand |\n"
    section = f"## omnigraph version\n\n```sh\nomnigraph version\n```\n\nBy hand.\n\n{table}\n"
    assert TOOL.render_section(section, []) == section
