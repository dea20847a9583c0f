"""YAML that is nested deeply is refused before it is composed, by every reader: composing it would end the process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from omnigraph.errors import OmniGraphError
from omnigraph.limits import YAML_NESTING_MAX
from omnigraph.policy import parse_bundle
from omnigraph.yaml_document import Document, find_deep_nesting

SOURCES: Final = Path(__file__).parents[1] / "src" / "omnigraph"
LEVELS: Final = 30_000
DEEP: Final = {
    "lists": "a: " + "[" * LEVELS + "]" * LEVELS,
    "mappings": "a: " + "{b: " * LEVELS + "1" + "}" * LEVELS,
    "unclosed": "a: " + "[" * LEVELS,
    "keys": "? " * LEVELS + "a",
    "dashes": "- " * LEVELS + "a",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_document_nested_deeply_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(OmniGraphError, match=f"nested more than {YAML_NESTING_MAX} levels deep"):
        Document("policy.yaml").open(text)
    with pytest.raises(OmniGraphError, match=r":1:\d+"):
        parse_bundle(text)


def test_document_at_the_limit_is_read() -> None:
    depth = YAML_NESTING_MAX
    assert find_deep_nesting("[" * depth + "]" * depth) is None
    assert find_deep_nesting("[" * (depth + 1) + "]" * (depth + 1)) is not None
    # What counts is depth, not the number of lists.
    assert find_deep_nesting("- [a]\n" * 10 * depth) is None


def test_configuration_of_the_command_line_is_bounded(tmp_path: Path) -> None:
    from omnigraph.cli.config import parse_config

    with pytest.raises(OmniGraphError, match="nested more than"):
        parse_config(DEEP["lists"], "config.yaml", print)


@pytest.mark.slow
def test_process_survives_a_deep_bundle() -> None:
    """The stack that ends the process is that of C, so nothing inside it could report it."""
    source = f"from omnigraph.policy import parse_bundle\nparse_bundle({DEEP['lists']!r})"
    run = subprocess.run([sys.executable, "-"], input=source, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "PolicyError" in run.stderr


def yaml_calls(source: str) -> set[str]:
    """Return the functions of PyYAML that a module calls to build something of a text."""
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = {
        f"{node.value.id}.{node.attr}"
        for node in calls
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return {
        name for name in names if name.startswith("yaml.") and name.rpartition(".")[2].removeprefix("safe_") in BUILDERS
    }


BUILDERS: Final = {"load", "load_all", "full_load", "unsafe_load", "compose", "compose_all"}


def test_no_module_builds_yaml_without_the_bound() -> None:
    builders = {path for path in SOURCES.rglob("*.py") if yaml_calls(path.read_text())}
    assert all("find_deep_nesting" in path.read_text() for path in builders)
    assert {path.name for path in builders} == {"yaml_document.py", "config.py"}
    assert yaml_calls("import yaml\nyaml.safe_load(text)") == {"yaml.safe_load"}
