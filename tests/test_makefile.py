"""The Makefile offers what the documents promise."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from itertools import combinations
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).parent.parent
MARKS = ("slow", "s3", "spark", "long")
TARGETS = ("help", "setup", "demo", "test", "check", "bench", "docs", "clean")


@cache
def make_help() -> str:
    return subprocess.run(
        ["make", "PYTHON=python3", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def declared() -> set[str]:
    return set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("target", TARGETS)
def test_makefile_promised_target_exists(target: str) -> None:
    assert target in declared()


@pytest.mark.parametrize("target", [target for target in TARGETS if target != "help"])
def test_make_help_lists_target_with_a_sentence(target: str) -> None:
    assert re.search(rf"^  make {target} +\S.{{10,}}", make_help(), re.MULTILINE)


def test_make_help_lists_only_targets_that_exist() -> None:
    listed = set(re.findall(r"^  make ([a-z-]+)", make_help(), re.MULTILINE))
    assert listed <= declared()


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/cli.md", "docs/appendix/benchmarks.md"])
def test_document_names_only_targets_that_exist(document: str) -> None:
    named = set(re.findall(r"\bmake ([a-z-]+)(?=[`\s]*(?:#|`|$))", (ROOT / document).read_text(encoding="utf-8")))
    assert named <= declared()


def selection(*words: str) -> CodeType:
    """Return the marks of the tests that a command of make runs, as an expression."""
    commands = subprocess.run(
        ["make", "-n", "PYTHON=python3", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    [expression] = re.findall(r' -m "([^"]+)"', commands)
    return compile(expression, "Makefile", "eval")


def test_quick_tests_and_the_rest_are_all_tests() -> None:
    expressions = [selection("check"), selection("test", "SKIP_QUICK=1"), selection("test")]
    for marks in (marks for count in range(len(MARKS) + 1) for marks in combinations(MARKS, count)):
        quick, rest, everything = (eval(one, {}, {name: name in marks for name in MARKS}) for one in expressions)
        assert everything == (quick or rest) == ("long" not in marks), marks
        assert not (quick and rest), marks


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.lock")), ids=lambda path: path.name)
def test_locks_pin_every_package_with_hashes(lock: Path) -> None:
    pins = re.split(r"^(?=\S+==)", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert pins
    assert all("--hash=sha256:" in pin for pin in pins)


def test_setup_installs_hashed_wheels_with_a_locked_installer() -> None:
    text = (ROOT / "tools" / "setup.py").read_text(encoding="utf-8")
    assert '"--only-binary", ":all:", "--no-binary", "pyspark", "--no-build-isolation"' in text
    assert 'pip(venv, "install", "--require-hashes", *WHEELS,' in text
    assert "for lock in (INSTALLER, *locks)" in text
    installer = (ROOT / "requirements" / "pip.lock").read_text(encoding="utf-8")
    assert {"pip", "setuptools"} == set(re.findall(r"^([a-z-]+)==", installer, re.MULTILINE))
    # A package with one file alone publishes no wheel for all platforms, so it is built here.
    for lock in ("dev", "java", "bench"):
        pins = re.split(r"^(?=\S+==)", (ROOT / "requirements" / f"{lock}.lock").read_text(), flags=re.MULTILINE)[1:]
        single = {pin.partition("==")[0] for pin in pins if pin.count("--hash=") == 1}
        assert single <= {"pyspark"}
