"""One of several writing processes: `python -m tests.engine.write.racing_writer ROOT NAME COUNT KIND`.

Inserts `COUNT` notes with ids of its own (`disjoint`) or ids that all processes share (`same`), once a line of input
tells it to start, and prints as JSON which of them it got.
"""

from __future__ import annotations

import json
import sys
from subprocess import PIPE

import omnigraph.graph
from omnigraph.errors import KeyConflict
from tests.support.forked_python import ForkedPython


def main(root: str, name: str, count: str, kind: str) -> None:
    won: list[str] = []
    with omnigraph.graph.open(root, actor=name) as graph:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(int(count)):
            entity = f"{name}-{number}" if kind == "disjoint" else f"{number}"
            line = json.dumps({"type": "Note", "data": {"id": entity, "text": name}})
            try:
                graph.ingest(line.encode(), mode="append")
            except KeyConflict:
                continue
            won.append(entity)
    print(json.dumps(won), flush=True)


def race(root: str, names: list[str], count: int, kind: str) -> dict[str, list[str]]:
    """Let processes write at once; return the ids that each of them got."""
    command = [sys.executable, "-m", "tests.engine.write.racing_writer", root]
    racers = {
        name: ForkedPython([*command, name, str(count), kind], stdin=PIPE, stdout=PIPE, text=True) for name in names
    }
    for one in racers.values():
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in racers.values():
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    answers = {name: one.communicate()[0] for name, one in racers.items()}
    assert [one.returncode for one in racers.values()] == [0] * len(racers)
    return {name: json.loads(text) for name, text in answers.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
