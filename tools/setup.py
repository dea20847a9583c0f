"""Make `.venv` hold exactly the locked dependencies, with a Java runtime if the machine has none.

With the word `bench` it fills `.venv-bench` with the peers that `make bench` compares us with; with `pythons` it runs
the quick tests under every other supported Python of this machine, each in an environment of its own in `.venvs/`.
Runs on any Python 3.11+ with the standard library alone; doing nothing when all is in place is its usual job.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JAVA_MINIMUM = 17
# What installs the rest is locked as well, and comes first.
INSTALLER = "requirements/pip.lock"
# Wheels alone: building a package runs its code. Those that publish no wheel are built with what is locked.
WHEELS = ("--only-binary", ":all:", "--no-binary", "pyspark", "--no-build-isolation")


def main(words: list[str]) -> int:
    if words == ["bench"]:
        # The peers may bring libraries that would replace ours, so they get an environment of their own.
        fill(ROOT / ".venv-bench", ["requirements/bench.lock"])
        return 0
    if words == ["pythons"]:
        return run_quick_tests()
    venv = ROOT / (words[0] if words else ".venv")
    locks = ["requirements/dev.lock"]
    if not find_java():
        locks.append("requirements/java.lock")
    fill(venv, locks, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    return 0


def run_quick_tests() -> int:
    """Run the quick tests under every other Python that the classifiers name; return 1 if they fail under one."""
    failed = []
    for version, python in find_other_pythons().items():
        if python is None:
            print(f"Python {version} is not on this machine: nothing was run under it", flush=True)
            continue
        print(f"the quick tests under Python {version}, {python}", flush=True)
        folder = f".venvs/python{version}"
        (ROOT / ".venvs").mkdir(exist_ok=True)
        own = str(ROOT / folder / "bin" / "python")
        quick = ["-q", "-n", "2", "-p", "no:cacheprovider", "-m", "not (slow or s3 or spark or long)"]
        steps = ([python, __file__, folder], [own, "-m", "pytest", *quick])
        if any(subprocess.run(step, cwd=ROOT).returncode for step in steps):
            failed.append(version)
    if failed:
        print(f"the quick tests failed under Python {', '.join(failed)}")
    return 1 if failed else 0


def find_other_pythons() -> dict[str, str | None]:
    """Return an interpreter for every version that the classifiers name but that of this one; None if there is none."""
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {version: find_python(version) for version in named if version != ours}


def find_python(version: str) -> str | None:
    """Return an interpreter of a version that really runs, which one of a version manager may not; None without one."""
    managed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(f"python{version}"), *map(str, managed.glob(f"{version}.*/bin/python{version}"))]
    ask = "import sys, venv; print('.'.join(map(str, sys.version_info[:2])))"
    for python in filter(None, candidates):
        try:
            answer = subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout.strip()
        except OSError:
            continue
        if answer == version:
            return python
    return None


def fill(venv: Path, locks: list[str], *last: str) -> None:
    """Install the locks and then, if any arguments remain, what these tell pip; nothing if all that is in place."""
    stamp = venv / "omnigraph-setup"
    wanted = fingerprint(locks)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not (venv / "bin" / "python").exists():
        create_venv(venv)
    for lock in (INSTALLER, *locks):
        print(f"installing {lock} into {venv.name}", flush=True)
        pip(venv, "install", "--require-hashes", *WHEELS, "--requirement", str(ROOT / lock))
    if last:
        pip(venv, "install", *last)
    stamp.write_text(wanted)


def fingerprint(locks: list[str]) -> str:
    inputs = [ROOT / "pyproject.toml", Path(__file__), *(ROOT / lock for lock in (INSTALLER, *locks))]
    digest = hashlib.sha256(str(ROOT).encode())
    for path in inputs:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def find_java() -> str | None:
    """Return a Java 17+ launcher of this machine, or None."""
    candidates = [os.path.join(os.environ["JAVA_HOME"], "bin", "java")] if os.environ.get("JAVA_HOME") else []
    candidates += [found] if (found := shutil.which("java")) else []
    for java in candidates:
        try:
            text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
        except (OSError, subprocess.CalledProcessError):
            continue
        match = re.search(r'version "(\d+)', text)
        if match and int(match.group(1)) >= JAVA_MINIMUM:
            return java
    return None


def create_venv(venv: Path) -> None:
    print(f"creating {venv.name}", flush=True)
    if subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True).returncode == 0:
        return
    # Debian ships Python without ensurepip; the machine's own pip can still fill the environment from outside.
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)


def pip(venv: Path, *arguments: str) -> None:
    python = str(venv / "bin" / "python")
    inside = subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0
    command = [python, "-m", "pip"] if inside else [sys.executable, "-m", "pip", "--python", python]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    completed = subprocess.run([*command, arguments[0], *quiet, *arguments[1:]])
    if completed.returncode != 0:
        shutil.rmtree(venv, ignore_errors=True)
        sys.exit(f"pip could not install the locked dependencies (exit {completed.returncode}); see its output above")


if __name__ == "__main__":
    if sys.version_info < (3, 11):
        sys.exit("OmniGraph needs Python 3.11 or newer; run make with PYTHON=/path/to/python3.11")
    sys.exit(main(sys.argv[1:]))
