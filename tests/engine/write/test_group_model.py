"""Group commit against its definition: what is published together is what the same writes make one by one."""

from __future__ import annotations

import random
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import session_of
from omnigraph.ids import CommitId
from omnigraph.lang.catalog import TypeKey
from tests.engine.write.group_model import SCHEMA, Request, replayed_feed, request, state_of
from tests.support.grouped_writes import groups_of, write_together


def outcome(write: Any) -> tuple[object, ...]:
    """Return what a write says of itself, but for what is new each time."""
    if isinstance(write, OmniGraphError):
        return write.code, write.message
    if isinstance(write, BaseException):
        raise write
    return write.affected_nodes, write.affected_edges, write.commit is None


def attempt(graph: og.Graph, wanted: Request) -> Any:
    try:
        return graph.mutate(wanted[0], params=wanted[1])
    except OmniGraphError as error:
        return error


def check_states(graph: og.Graph) -> None:
    """Every commit has the state that the feed up to it adds up to, counted by type and with all properties."""
    kernel = session_of(graph).kernel
    for commit_id, images in replayed_feed(graph):
        snapshot = kernel.at_commit(commit_id)
        for key in snapshot.state.pins:
            rows = kernel.dataset(snapshot, key).read()
            stored = {row["id"]: row for row in rows.to_pylist()}
            named = {name.split(" ", 1)[1]: image for name, image in images.items() if name.startswith(f"{key.name} ")}
            assert stored.keys() == named.keys()
            for entity_id, image in named.items():
                assert all(stored[entity_id][name] == value for name, value in image["properties"].items())


@pytest.mark.parametrize("seed", range(8))
def test_groups_equal_the_same_writes_one_by_one(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with og.init(tmp_path / "grouped.omni", SCHEMA) as grouped, og.init(tmp_path / "serial.omni", SCHEMA) as serial:
        for _ in range(6):
            requests = [request(chance) for _ in range(chance.randrange(2, 12))]
            together = write_together(grouped, [partial(attempt, grouped, wanted) for wanted in requests])
            alone = [attempt(serial, wanted) for wanted in requests]
            assert [outcome(write) for write in together] == [outcome(write) for write in alone]
            commits = [
                (write.commit.commit_id, other.commit.commit_id)
                for write, other in zip(together, alone, strict=True)
                if not isinstance(write, BaseException) and write.commit is not None
            ]
            for mine, other in commits:
                assert state_of(grouped, CommitId(mine)) == state_of(serial, CommitId(other))
        assert any(len(group) > 2 for group in groups_of(grouped)), "nothing was grouped"
        check_states(grouped)
        assert grouped.maintenance.verify(data=True).is_sound


@pytest.mark.parametrize("seed", range(3))
def test_free_writers_equal_the_order_of_their_commits(tmp_path: Path, seed: int) -> None:
    written: dict[str, Request] = {}

    def write(graph: og.Graph, number: int) -> None:
        chance = random.Random(seed * 100 + number)
        for _ in range(12):
            wanted = request(chance)
            receipt = attempt(graph, wanted)
            if not isinstance(receipt, OmniGraphError) and receipt.commit is not None:
                written[receipt.commit.commit_id] = wanted

    with og.init(tmp_path / "grouped.omni", SCHEMA) as grouped, og.init(tmp_path / "serial.omni", SCHEMA) as serial:
        writers = [threading.Thread(target=write, args=(grouped, number)) for number in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        commits = [commit.commit_id for group in groups_of(grouped) for commit in group][1:]
        assert set(commits) == written.keys()
        for commit_id in commits:
            receipt = attempt(serial, written[commit_id])
            assert state_of(grouped, commit_id) == state_of(serial, CommitId(receipt.commit.commit_id))
        check_states(grouped)
        assert grouped.maintenance.verify(data=True).is_sound
        assert TypeKey("node:Person") in session_of(grouped).kernel.snapshot().state.pins
