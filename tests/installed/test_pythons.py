"""The wheel under every other Python that the classifiers name, where the machine has it.

`make test-pythons` runs the quick tests there.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from tests.installed.test_environments import mistakes
from tests.support.installed_commands import LINES, run_lines, write_files
from tests.support.installed_environments import ROOT, Installed, RegistryUnreachable, environment_of_python

pytestmark = pytest.mark.slow

SETUP = runpy.run_path(str(ROOT / "tools" / "setup.py"))
PYTHONS: dict[str, str | None] = SETUP["find_other_pythons"]()
# Every module is compiled, with warnings as errors, and imported, unless it needs an extra.
IMPORT_ALL = """
import importlib, pkgutil, sys, omnigraph
from omnigraph.extras import EXTRA_OF
count = 0
for module in pkgutil.walk_packages(omnigraph.__path__, "omnigraph."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
        count += 1
    except ModuleNotFoundError as error:
        assert (error.name or "").partition(".")[0] in EXTRA_OF, error
print(count)
"""


@pytest.fixture(params=sorted(PYTHONS))
def installed(request: pytest.FixtureRequest) -> Installed:
    """The base environment of a version; says so where it cannot be had."""
    version: str = request.param
    python = PYTHONS[version]
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    try:
        return environment_of_python(version, python)
    except RegistryUnreachable as error:
        pytest.skip(f"the packages for Python {version} cannot be fetched: {error}")


def test_commands_work_under_another_python(installed: Installed, tmp_path: Path) -> None:
    write_files(tmp_path)
    lines = tuple(line for line in LINES if line.is_core)
    answers = run_lines(installed, lines, tmp_path)
    assert [text for line, answer in zip(lines, answers, strict=True) for text in mistakes("base", line, answer)] == []


def test_modules_compile_and_load_under_another_python(installed: Installed, tmp_path: Path) -> None:
    [package] = installed.folder.glob("lib/python*/site-packages/omnigraph")
    words = ["-W", "error", "-m", "compileall", "-q", "-f", str(package)]
    done = installed.run("python", *words, cwd=tmp_path, variables={"PYTHONPYCACHEPREFIX": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    done = installed.run("python", "-P", "-c", IMPORT_ALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 200


def test_interpreter_of_another_version_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version manager leaves programs on the path that only say that the version is not there."""
    program = tmp_path / "python3.99"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    for text, expected in (("echo 3.98", None), ("exit 127", None), ("echo 3.99", str(program))):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        assert SETUP["find_python"]("3.99") == expected
