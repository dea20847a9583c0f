"""Loads that die and are run again: the same job is done once, whatever it was doing, and a sweep takes the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.graph import session_of
from omnigraph.manifest.intents import pending
from tests.pipeline.test_crash_load import LOADS, LoadZygote, crash
from tests.support.crash_campaign import Campaign, LocalPlace, Zygote
from tests.support.crash_checks import essence_of
from tests.support.examples import IS_LONG
from tests.support.orphan_sweep import sweep

# Of the operations on storage only every so many-th; each point of a commit counts by itself.
STRIDE = 5 if IS_LONG else 20


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with LoadZygote() as one:
        yield one


def prepared(zygote: Zygote, name: str, folder: Path) -> Campaign:
    campaign = Campaign(zygote, name, LocalPlace(folder))
    campaign.prepare()
    return campaign


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LOADS, "load_rejecting"])
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
def test_crash_in_a_load_that_rejects_leaves_before_or_after(zygote: Zygote, tmp_path: Path) -> None:
    assert crash(zygote, "load_rejecting", tmp_path, STRIDE).violations == []


@pytest.mark.slow
def test_crash_in_a_load_on_a_new_branch_is_finished_by_the_same_job(zygote: Zygote, tmp_path: Path) -> None:
    campaign = prepared(zygote, "load_on_new_branch", tmp_path)
    main = campaign.before["branches"]["main"]["types"]
    moments = [
        (moment, number)
        for moment, number in campaign.all_moments()
        if moment.startswith(("commit.", "publish.", "link.")) or (moment == "durable.before" and number % STRIDE == 0)
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
