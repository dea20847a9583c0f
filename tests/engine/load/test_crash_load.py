"""Loads that die: a real process is killed at the steps of a load, and a driver while Spark is at work for it.

Run again, the same job is done once, whatever it was doing, and a sweep takes the rest.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import session_of
from omnigraph.manifest import recovery
from omnigraph.manifest.intents import pending
from omnigraph.manifest.recovery import Outcome
from omnigraph.pipeline import load
from tests.support.crash_campaign import REPOSITORY, Campaign, LocalPlace, Zygote
from tests.support.crash_checks import essence_of
from tests.support.examples import IS_LONG
from tests.support.orphan_sweep import sweep
from tests.support.pipeline_fixtures import contents, lines_of, splits_of, world
from tests.support.spark_driver import SPLIT_BYTES

LOADS = ("load_append", "load_merge", "load_overwrite", "load_on_branch", "load_rejecting")
# What one step leaves is what the next one finds, so one side of each is enough.
PASSED_BY = ("sync", "sync.temporary", "durable.after")
# What every commit passes in the same way; one load dies there, and the long campaign all of them.
COMMON = ("commit.staged", "commit.synced")
# Of each kind of moment, drawn for each load.
MOMENTS_MAX = 2
PEOPLE = 8_000 if IS_LONG else 4_000


class LoadZygote(Zygote):
    """The process that forks those that die, with loads among its scenarios."""

    module = "tests.support.load_crash_child"


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with LoadZygote() as one:
        yield one


def prepared(zygote: Zygote, name: str, folder: Path) -> Campaign:
    campaign = Campaign(zygote, name, LocalPlace(folder))
    campaign.prepare()
    return campaign


def crash(zygote: Zygote, name: str, folder: Path, *passed_by: str, most: int | None = None) -> Campaign:
    """Die at storage operations of a load and at points of its commit: all, or of each kind so many."""
    campaign = prepared(zygote, name, folder)
    for moment, number in campaign.all_moments(most):
        if moment not in (*PASSED_BY, *passed_by):
            campaign.kill_at(moment, number)
    assert campaign.moments["durable.before"] > 30
    return campaign


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADS)
def test_crash_in_a_load_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    passed_by = () if name == LOADS[0] else COMMON
    assert crash(zygote, name, tmp_path, *passed_by, most=MOMENTS_MAX).violations == []


@pytest.mark.long
@pytest.mark.parametrize("name", LOADS)
def test_crash_anywhere_in_a_load_leaves_before_or_after(zygote: Zygote, tmp_path: Path, name: str) -> None:
    assert crash(zygote, name, tmp_path).violations == []


@pytest.mark.slow
def test_crash_never_beside_a_sweep_leaves_a_load_alone(zygote: Zygote, tmp_path: Path) -> None:
    campaign = prepared(zygote, "load_beside_sweep", tmp_path)
    campaign.kill_at("never", 1)
    assert campaign.violations == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        ("load_removes_what_it_published", "load_merge"),
        ("sweep_ignores_intents", "load_beside_sweep"),
        ("link_before_publish", "load_append"),
    ],
)
@pytest.mark.sampled(1)
def test_crash_oracle_catches_broken_loads(zygote: Zygote, tmp_path: Path, mutant: str, name: str) -> None:
    campaign = prepared(zygote, name, tmp_path)
    campaign.mutant = mutant
    campaign.kill_at("publish.before" if mutant == "link_before_publish" else "never", 1)
    assert campaign.violations


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADS)
def test_load_killed_after_its_publish_is_not_done_again(zygote: Zygote, tmp_path: Path, name: str) -> None:
    campaign = prepared(zygote, name, tmp_path)
    assert campaign.after != campaign.before
    campaign.place.restore()
    died = zygote.ask("run", campaign.request(kill=["publish.after", 1]))
    assert not died.get("acknowledged")
    again = zygote.ask("run", campaign.request())
    assert again["acknowledged"]
    assert "publish.before" not in again["moments"]
    assert zygote.ask("image", campaign.request())["image"] == campaign.after


@pytest.mark.slow
def test_crash_in_a_load_on_a_new_branch_is_finished_by_the_same_job(zygote: Zygote, tmp_path: Path) -> None:
    campaign = prepared(zygote, "load_on_new_branch", tmp_path)
    main = campaign.before["branches"]["main"]["types"]
    moments = [
        (moment, number)
        for moment, number in campaign.all_moments(None if IS_LONG else MOMENTS_MAX)
        if moment.startswith(("commit.", "publish.", "link.", "durable.before"))
    ]
    assert {moment for moment, _ in moments} >= {"commit.prepared", "publish.before", "publish.after", "durable.before"}
    for moment, number in moments:
        campaign.place.restore()
        zygote.ask("run", campaign.request(kill=[moment, number]))
        left = zygote.ask("image", campaign.request())["image"]
        # The branch may be there without the load, never with a part of it.
        made = left["branches"].get("made")
        whole = campaign.after["branches"]["made"]["types"]
        assert left["branches"]["main"]["types"] == main
        assert made is None or ids_in(made["types"]) in (ids_in(main), ids_in(whole)), (moment, number)
        again = zygote.ask("run", campaign.request())
        assert again.get("acknowledged"), (moment, number, again)
        done = zygote.ask("image", campaign.request())["image"]
        assert essence_of(done) == essence_of(campaign.after), (moment, number)
    graph = og.open(campaign.place.root)
    sweep(session_of(graph).kernel, 0.0)
    assert pending(session_of(graph).kernel.store) == ([], [])
    assert list(Path(graph.uri).rglob("_staging-*/*")) == []


def ids_in(types: dict[str, dict[str, object]]) -> dict[str, object]:
    return {key: one["ids"] for key, one in types.items()}


@pytest.mark.spark
@pytest.mark.slow
def test_driver_killed_while_executors_write_can_be_run_again(tmp_path: Path) -> None:
    people = [
        {"type": "Person", "data": {"name": f"p{place}", "email": "x" * 400 + str(place)}} for place in range(PEOPLE)
    ]
    file = tmp_path / "people.ndjson"
    file.write_bytes(lines_of(people))
    graph = world(tmp_path / "g")
    before = contents(graph)
    given = {"graph": graph.uri, "file": str(file), "master": "local[2]", "kill": [0]}
    # The pipes are closed only when the JVM is gone as well.
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.spark_driver", json.dumps(given)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert "struck at" in run.stdout
    kernel = session_of(graph).kernel
    [intent] = pending(kernel.store)[0]
    assert staged_by(graph, intent.operation_id)
    assert contents(graph) == before
    with splits_of(SPLIT_BYTES):
        report = load(graph, file, mode="append", job_id="job", engine="local")
    assert not report.already_applied
    assert len(contents(graph)) == len(before) + len(people)
    assert sweep(kernel, 0.0).rolled_back == 1
    assert staged_by(graph, intent.operation_id) == []
    assert [(row.operation_id, row.outcome) for row in recovery.read_audit(kernel.store)] == [
        (intent.operation_id, Outcome.ROLLED_BACK)
    ]
    with splits_of(SPLIT_BYTES):
        assert load(og.open(graph.uri), file, mode="append", job_id="job", engine="local").already_applied


def staged_by(graph: og.Graph, operation_id: str) -> list[Path]:
    """Return the files of an operation among those of the types, by their name or that of their folder."""
    files = (path for path in (Path(graph.uri) / "nodes").rglob("*") if path.is_file())
    return [path for path in files if operation_id in path.name or operation_id in path.parent.name]
