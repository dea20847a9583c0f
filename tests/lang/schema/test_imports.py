"""Compiling and planning start fast: they load no Arrow."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_compile_path_does_not_import_pyarrow() -> None:
    code = "import sys, omnigraph.lang.schema, omnigraph.lang.migrate; print({'pyarrow', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
