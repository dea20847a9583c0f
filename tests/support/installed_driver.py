"""Runs command lines of OmniGraph in one process of an installed environment; see `installed_commands.py`.

Standard library and OmniGraph only: this file is started by the interpreter of an environment without the tests.
Reads `[{"words": […], "stdin": "…"}, …]` and writes `[{"status": 0, "out": "…", "err": "…", "loaded": […]}, …]`.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any


def run_line(words: list[str], stdin: str) -> dict[str, Any]:
    from omnigraph.cli import main

    streams = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(stream, "utf-8", write_through=True) for stream in streams)
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
    shown, errors = (stream.getvalue().decode("utf-8", "replace") for stream in streams)
    loaded = sorted({name.partition(".")[0] for name in sys.modules})
    return {"status": status, "out": shown, "err": errors, "loaded": loaded}


if __name__ == "__main__":
    from omnigraph.cli.startup import tune_for_short_process

    tune_for_short_process()  # as in a process of one command
    lines = json.load(sys.stdin)
    answers = [run_line(line["words"], line["stdin"]) for line in lines]
    # The commands may have left threads of Spark behind, which must not print into the answer.
    sys.__stdout__.write(json.dumps(answers))  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]
