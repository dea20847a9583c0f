"""Hard drops: from then on nothing shows what was dropped, whatever commit is read, and cleanup removes its bytes.

Written from "Hard drops" in docs/schema.md. They happen in a clone, so the history goes on without them.
"""

from __future__ import annotations

import shutil
from random import Random

import omnigraph as og
from omnigraph.graph import Graph
from tests.world.checks import compare
from tests.world.foreign import leave_main
from tests.world.migrations import Migration
from tests.world.model import Commit, Model
from tests.world.schema_model import Schema, source_text
from tests.world.steps import Broken
from tests.world.world import World, read_state


def check_hard_drop(world: World, random: Random) -> None:
    """Drop a property or a type of a clone for good; read its past before and after its bytes are removed."""
    migration = Migration(world.model, random, "main")
    if not any(migration.drop() for _ in range(4)):
        return
    target = world.scratch / "dropped.omni"
    shutil.rmtree(target, ignore_errors=True)
    world.graph.clone(str(target))
    try:
        with og.open(target) as graph:
            leave_main(graph)
            text = source_text(migration.schema, migration.before)
            planned = graph.schema.plan(text, allow_data_loss=True)
            receipt = graph.schema.apply(text, allow_data_loss=True)
            if [one.render() for one in planned.steps] != [one.render() for one in receipt.steps]:
                raise Broken(f"a hard drop did {receipt.steps}, its plan said {planned.steps}")
            if not receipt.purge_pending:
                raise Broken(f"a hard drop purges nothing: {receipt}")
            check_reads(world.model, random, graph, migration)
            dry = graph.maintenance.cleanup(keep=1_000, dry_run=True).purged
            done = graph.maintenance.cleanup(keep=1_000, confirm=True).purged
            if {one.name for one in dry} != {one.name for one in done} or any(one.error for one in done):
                raise Broken(f"cleanup purged {done}, its preview said {dry}")
        with og.open(target) as graph:
            check_reads(world.model, random, graph, migration)
            report = graph.maintenance.verify(data=True)
            if not report.is_sound:
                raise Broken(f"after a hard drop and cleanup: {report.findings}")
    finally:
        shutil.rmtree(target)


def check_reads(model: Model, random: Random, graph: Graph, migration: Migration) -> None:
    """Main, and past states of it, are as before without what was dropped."""
    compare(
        "main after a hard drop", read_state(graph), model.show(migration.state, migration.schema, migration.schema)
    )
    line = [one for one in model.first_parents(model.head("main").number) if one.number not in model.doubtful]
    for commit in random.sample(line, min(len(line), 2)):
        for names in ("now", "then"):
            named = migration.schema if names == "now" else _without(commit, migration)
            found = read_state(graph, at=commit.id, names=names)
            what = f"commit {commit.number} after a hard drop, names {names}"
            compare(what, found, model.show(commit.state, commit.schema, named))


def _without(commit: Commit, migration: Migration) -> Schema:
    """Return the schema of a commit without what the migration has dropped."""
    left = {}
    for id_, type_ in commit.schema.items():
        before, after = migration.before.get(id_), migration.schema.get(id_)
        if before is not None and after is None:
            continue
        for one in before.properties if before and after else ():
            if after and after.find(one.id) is None:
                type_ = type_.without_property(one.id)
        left[id_] = type_
    return left
