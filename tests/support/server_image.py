"""The server image without a container engine: the steps of the Dockerfile fill a root file system, which is then run.

Every `RUN` is run as it is written, in a mount namespace whose root is the new file system, over the programs of this
machine instead of those of the base image. One kind is not: locked packages are linked from the environment of the
tests (see `installed_environments.py`), as nothing may come from a network. What runs then is isolated as by
`docker run --read-only --tmpfs /tmp --cap-drop ALL`: another user, no capability, a root that is mounted read-only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.support.installed_environments import (
    FOLDER,
    ROOT,
    STAMP,
    link_package,
    locked,
    locked_folder,
    source_digest,
)

DOCKERFILE = ROOT / "Dockerfile"
# The stages of the image of the server: what is copied out of the first, and the other two, one upon the other.
BUILD, STAGES = "build", ("base", "server")
LOCKED = re.compile(r"(/opt/\w+)/bin/pip install --require-hashes .*--requirement requirements/(\w+)\.lock")
OFFLINE = {"PIP_NO_INDEX": "1"}
# Of the base image: programs, libraries and what they read.
PROGRAMS = ("usr", "bin", "sbin", "lib", "lib64")
SETTINGS = ("login.defs", "nsswitch.conf", "hosts", "ld.so.cache", "localtime", "ssl")
ACCOUNTS = {"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n", "shadow": "", "gshadow": ""}
PYTHON = Path(sys.base_prefix)
PATH = f"{PYTHON / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"


@cache
def why_impossible() -> str:
    """Return why this machine cannot isolate a process, or nothing."""
    if os.geteuid() != 0:
        return "only root can make a file system the root of a process"
    if not all(map(shutil.which, ("unshare", "chroot", "setpriv", "mount"))):
        return "unshare, chroot, setpriv and mount are needed"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        return "this machine does not let root make a mount namespace"
    if subprocess.run([str(PYTHON / "bin" / "python3"), "-c", "import ensurepip"], capture_output=True).returncode != 0:
        return "this Python has no `ensurepip`, which the image's has"
    return ""


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder of this machine in the file system of an image."""

    source: Path
    target: str
    is_read_only: bool = True


@dataclass(slots=True)
class Image:
    """A root file system, and how its processes are started."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)

    def isolated(
        self, words: Iterable[str], *, volumes: Iterable[Volume] = (), variables: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return a command line that starts a command as the image's user, on a root that cannot be written to."""
        user, _, group = self.user.partition(":")
        inner = [
            *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
            *_environment({**self.variables, **(variables or {})}),
            *words,
        ]
        return _in_root(self.root, inner, self.folder, volumes, is_read_only=True)

    def build_step(self, command: str, folder: str, variables: Mapping[str, str]) -> None:
        """Do a `RUN`, as root, on a root that can be written to."""
        inner = [*_environment({"PATH": PATH, "HOME": "/root", **variables}), "sh", "-euc", command]
        done = subprocess.run(
            _in_root(self.root, inner, folder, (), is_read_only=False), capture_output=True, text=True
        )
        assert done.returncode == 0, f"RUN {command}\n{done.stdout}{done.stderr}"


def _environment(variables: Mapping[str, str]) -> list[str]:
    return ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]


def _in_root(root: Path, words: list[str], folder: str, volumes: Iterable[Volume], *, is_read_only: bool) -> list[str]:
    """Return a command line that runs a command in a namespace of its own, with another root."""
    mounts = [Volume(Path("/") / name, f"/{name}") for name in PROGRAMS if not (Path("/") / name).is_symlink()]
    if not PYTHON.is_relative_to("/usr"):
        mounts.append(Volume(PYTHON, str(PYTHON)))
    for name in ("/proc", "/dev"):
        mounts.append(Volume(Path(name), name, is_read_only=False))
    mounts += volumes
    script = [f"mount --bind {root} {root}", f"mount -t tmpfs tmpfs {root}/tmp"]
    for mount in mounts:
        place = Path(f"{root}{mount.target}")
        place.mkdir(parents=True, exist_ok=True)
        script.append(f"mount --bind {shlex.quote(str(mount.source))} {shlex.quote(str(place))}")
        if mount.is_read_only:
            script.append(f"mount -o remount,bind,ro {shlex.quote(str(place))}")
    if is_read_only:
        script.append(f"mount -o remount,bind,ro {root}")
    moved = f"cd {shlex.quote(folder)} && exec {shlex.join(words)}"
    script.append(f"exec chroot {root} sh -c {shlex.quote(moved)}")
    return ["unshare", "--mount", "sh", "-euc", "\n".join(script)]


def server_image() -> Image:
    """Return the image of the server; builds it if the Dockerfile, a lock or the sources have changed."""
    image = Image(FOLDER / "image")
    wanted = f"{_digest()} {source_digest()}"
    with locked_folder("image"):
        stamp = image.root / STAMP
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(image.root, ignore_errors=True)
            _prepare(image.root)
            build(image)
            stamp.write_text(wanted)
    for word, rest in (step for stage in STAGES for step in stages()[stage]):
        _configure(image, word, rest)
    return image


def _digest() -> str:
    locks = sorted((ROOT / "requirements").glob("*.lock"))
    texts = b"".join(path.read_bytes() for path in (DOCKERFILE, Path(__file__), *locks))
    return hashlib.sha256(texts + sys.version.encode()).hexdigest()


@cache
def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the steps of every stage of the Dockerfile by its name."""
    result: dict[str, list[tuple[str, str]]] = {}
    text = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            result[rest.partition(" AS ")[2]] = current = []
        elif result and word and word != "#":
            current.append((word, rest))
    return result


def build(image: Image) -> None:
    """Do the steps of the stages; what later ones do not copy out of the first is removed before them."""
    _build_stage(image, stages()[BUILD])
    copied = {rest.split()[1] for stage in STAGES for word, rest in stages()[stage] if rest.startswith("--from=build ")}
    assert copied == {"/opt/omnigraph"}, copied
    for name in ("build", "wheels", "opt/build"):
        shutil.rmtree(image.root / name)
    for stage in STAGES:
        _build_stage(image, stages()[stage])


def _build_stage(image: Image, steps: list[tuple[str, str]]) -> None:
    folder, variables = "/", dict(OFFLINE)
    for word, rest in steps:
        if word == "ENV":
            variables |= _assignments(rest)
        elif word == "WORKDIR":
            folder = rest
            (image.root / folder.strip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY" and not rest.startswith("--from="):
            *sources, target = rest.split()
            for source in sources:
                _copy(ROOT / source, Path(f"{image.root}{folder}") / target)
        elif word == "RUN" and (locks := LOCKED.fullmatch(rest)):
            home, lock = locks.groups()
            for name, version in locked(lock).items():
                link_package(name, version, image.root / home.strip("/"), home)
        elif word == "RUN":
            image.build_step(rest, folder, variables)


def _copy(source: Path, target: Path) -> None:
    """Copy as `COPY` does: the content of a folder, or a file into a folder."""
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=ignored)
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _configure(image: Image, word: str, rest: str) -> None:
    if word == "ENV":
        image.variables |= _assignments(rest.replace("$PATH", PATH))
    elif word == "WORKDIR":
        image.folder = rest
    elif word == "USER":
        image.user = rest
    elif word == "ENTRYPOINT":
        image.entrypoint = json.loads(rest)
    elif word == "CMD":
        image.command = json.loads(rest)
    elif word == "HEALTHCHECK":
        image.health = json.loads(rest.partition(" CMD ")[2])


def _assignments(text: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(text))


def _prepare(root: Path) -> None:
    """Make what the base image brings: links to the folders of programs, settings, and places to mount at."""
    for name in ("tmp", "etc", "var", "root", "opt", *PROGRAMS):
        ours = Path("/") / name
        if name in PROGRAMS and ours.is_symlink():
            (root / name).symlink_to(ours.readlink())
        else:
            (root / name).mkdir(parents=True)
    for name in SETTINGS:
        ours = Path("/etc") / name
        if ours.is_dir():
            # Certificates, without what is private to this machine.
            shutil.copytree(ours, root / "etc" / name, ignore=shutil.ignore_patterns("private"))
        elif ours.exists():
            shutil.copy(ours, root / "etc" / name)
    for name, text in ACCOUNTS.items():
        (root / "etc" / name).write_text(text)
