"""The wheel and the sdist: what is inside. `tests/installed/` installs and runs them."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

import omnigraph
from tests.support.installed_environments import built_wheel

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SDIST_BYTES_MAX = 2_000_000


@pytest.fixture(scope="module")
def dist() -> Path:
    """Return the folder of the sdist, and of the wheel that was built from what is in it."""
    return built_wheel().parent


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Iterator[zipfile.ZipFile]:
    [path] = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist_names(dist: Path) -> set[str]:
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}


def package_files() -> set[str]:
    """Return every file of the package that is kept in the repository, code or not."""
    paths = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(ROOT / "src").as_posix() for path in paths if ".egg-info" not in str(path)}


def test_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == package_files()
    assert "omnigraph/py.typed" in names
    assert "pyspark_omnigraph.py" in names
    assert sum(name.endswith("grammar.lark") for name in names) == 2
    assert {name.rpartition("/")[2] for name in names if "/server/page/" in name} == {
        "index.html",
        "page.css",
        "page.js",
    }
    assert any(name.endswith("log4j2.properties") for name in names)


def test_wheel_carries_licence_entry_points_and_metadata(wheel: zipfile.ZipFile) -> None:
    [folder] = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    inside = {name.removeprefix(f"{folder}/") for name in wheel.namelist() if name.startswith(folder)}
    assert {"licenses/LICENSE", "licenses/NOTICE", "entry_points.txt"} <= inside
    entries = wheel.read(f"{folder}/entry_points.txt").decode()
    assert all(f"{name} = {target}" in entries for name, target in PROJECT["scripts"].items())
    metadata = Parser().parsestr(wheel.read(f"{folder}/METADATA").decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])
    assert metadata["Version"] == omnigraph.__version__


def test_sdist_holds_package_and_docs_without_tests_and_large_data(dist: Path, sdist_names: set[str]) -> None:
    assert {f"src/{name}" for name in package_files()} <= sdist_names
    assert {"LICENSE", "NOTICE", "README.md", "pyproject.toml", "docs/index.md", "mkdocs.yml"} <= sdist_names
    assert not [name for name in sdist_names if name.startswith(("tests/", "benchmarks/", "examples/debian/"))]
    assert next(dist.glob("*.tar.gz")).stat().st_size < SDIST_BYTES_MAX


def test_classifiers_name_the_pythons_that_the_makefile_looks_for() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert all(f"python{version}" in makefile for version in named)
    assert PROJECT["requires-python"] == f">={named[0]}"
