"""The wheel and the sdist: what is inside, and that the wheel works in a new environment without extras."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest

import omnigraph

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BUILD = "import sys, hatchling.build as b; b.build_wheel(sys.argv[1]); b.build_sdist(sys.argv[1])"
SDIST_BYTES_MAX = 2_000_000


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both with the locked backend, as `pip wheel --no-build-isolation` would."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True, text=True)
    return folder


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


def test_wheel_runs_in_a_new_environment(dist: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    [path] = dist.glob("*.whl")
    # No network: the wheel alone is installed, and its dependencies are those of the environment of the tests.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(path)], check=True, cwd=tmp_path)
    [packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    dependencies = [entry for entry in sys.path if entry.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(dependencies), encoding="utf-8")
    ask = [str(python), "-P", "-c", "import omnigraph; print(omnigraph.__file__)"]
    shown = subprocess.run(ask, check=True, cwd=tmp_path, capture_output=True, text=True, env={}).stdout
    assert Path(shown.strip()).is_relative_to(packages), shown
    command = [str(python.parent / "omnigraph"), "--version"]
    printed = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True, env={}).stdout
    assert printed.startswith(f"omnigraph {omnigraph.__version__}\n")


def test_base_install_works_without_the_libraries_of_extras(tmp_path: Path) -> None:
    program = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in "cedarpy duckdb httptools mkdocs pandas pyspark uvloop".split():
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import omnigraph as og
graph = og.init("a.omni", schema="node A { name: String @key }")
graph.mutate('query q() { insert A { name: "a" } }')
print(graph.query("query q() { match { $a: A } return { $a.name as name } }").rows())
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ran.stdout == "[{'name': 'a'}]\n"


def test_classifiers_name_the_pythons_that_the_makefile_looks_for() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert all(f"python{version}" in makefile for version in named)
    assert PROJECT["requires-python"] == f">={named[0]}"
