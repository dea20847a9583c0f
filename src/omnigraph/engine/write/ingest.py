"""Ingest: bounded NDJSON as one commit, checked by the same rules as a mutation.

Larger inputs belong to the pipeline, which takes the same files.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from omnigraph.engine.branch.tags import mask_hidden_tag
from omnigraph.engine.core import Core, View
from omnigraph.engine.scope import on
from omnigraph.engine.write.committed import CommittedRows
from omnigraph.engine.write.gate import admit, check_base, missing_base, rights, unheard
from omnigraph.engine.write.loaded import Loaded
from omnigraph.engine.write.ndjson import Data, is_records
from omnigraph.engine.write.receipt import IngestReceipt
from omnigraph.engine.write.records import Reader
from omnigraph.engine.write.stage import Stager
from omnigraph.errors import GraphError, UsageError
from omnigraph.lang.catalog import NodeType
from omnigraph.manifest.branches import create_branch
from omnigraph.manifest.model import MAIN, Snapshot
from omnigraph.manifest.plan import Plan, Work
from omnigraph.manifest.requirements import SchemaIs
from omnigraph.rules.delta import Changes, Delta, Intent, last_of_each
from omnigraph.rules.validate import validate

Mode = Literal["append", "merge", "overwrite"]
Dialect = Literal["strict", "compatible"]
_INTENTS: Final = {"append": Intent.INSERT, "merge": Intent.UPSERT, "overwrite": Intent.REPLACE}


def ingest(
    core: Core,
    data: Data,
    *,
    mode: Mode = "merge",
    branch: str = MAIN,
    from_branch: str | None = None,
    actor: str | None = None,
    dialect: Dialect = "strict",
) -> IngestReceipt:
    """Write NDJSON: a path, bytes, a file object, or dictionaries of the same shape.

    `append` adds entities that must be new, `merge` adds or replaces them by id, `overwrite` replaces every type that
    the input names. A branch that does not exist is made from `from_branch` first. One ingest is one commit; an input
    without entities makes none.
    """
    _check_word("mode", mode, get_args(Mode))
    _check_word("dialect", dialect, get_args(Dialect))
    branch = branch.strip()
    core = admit(core, "change", on(branch), actor)
    base = missing_base(core, branch, from_branch)
    if base is not None:
        check_base(core, base, branch)
    view = core.whole(base if base is not None else branch)
    may = rights(core, view.snapshot, branch if base is not None else None)
    unit = "line" if dialect == "strict" and not is_records(data) else "record"
    loaded = Reader(may.seen.catalog, dialect, unit, is_bounded=mode != "overwrite").read(data)
    may.check(one.type.name for one in loaded.values())
    changes = Changes(view.catalog, {key: _delta(one, mode) for key, one in loaded.items()}, unit)
    with unheard(may.hidden, core.actor):
        return _write(core, view, changes, mode, branch, base)


def _write(core: Core, view: View, changes: Changes, mode: Mode, branch: str, base: str | None) -> IngestReceipt:
    # What cannot be written must not leave an empty branch behind.
    created = base is not None and _create(core, view, branch, changes)
    if not changes.deltas:
        # An input without entities changes nothing, and what changes nothing is no commit.
        return IngestReceipt(branch, base, created, mode, {}, {}, None, core.actor)
    stager = Stager()

    def prepare(snapshot: Snapshot) -> Plan:
        schema = SchemaIs(view.catalog.ir_hash)
        schema.check(snapshot)
        # The name may belong to another branch by now.
        rights(core, snapshot).check(one.type.name for one in changes.deltas.values())
        now = View(core.kernel, snapshot, view.catalog)
        committed = CommittedRows(now)
        validate(changes, committed).raise_if_any()
        effects = stager.stage(now, dict(changes.deltas), committed)
        reads = frozenset(committed.types_read | changes.deltas.keys())
        return Plan("ingest", effects, (), (schema,), core.actor, properties={"mode": mode}, reads=reads)

    receipt = core.kernel.commit(branch, prepare, Work.CHANGE if mode == "overwrite" else Work.INSERT)
    assert receipt is not None
    assert receipt.commit is not None
    counts = {key: delta.rows.num_rows for key, delta in changes.deltas.items()}
    nodes, edges = ({key[5:]: n for key, n in counts.items() if key.startswith(kind)} for kind in ("node:", "edge:"))
    return IngestReceipt(branch, base, created, mode, nodes, edges, receipt.commit, core.actor)


def _delta(loaded: Loaded, mode: Mode) -> Delta:
    rows, lines = loaded.rows, loaded.lines
    is_keyed = isinstance(loaded.type, NodeType) and bool(loaded.type.key)
    if mode == "merge" and not is_keyed:
        # Of one id the last one wins; a key that comes twice is left for the rules to refuse.
        last = last_of_each(rows.column("id").combine_chunks())
        rows, lines = rows.take(last), lines[last]
    return Delta(loaded.type, rows, _INTENTS[mode], lines=lines)


def _create(core: Core, view: View, branch: str, changes: Changes) -> bool:
    validate(changes, CommittedRows(view)).raise_if_any()
    try:
        with mask_hidden_tag(core, branch):
            create_branch(core.kernel, branch, view.snapshot, core.actor)
    except GraphError as error:
        if error.code != "branch.exists":
            raise
        # Somebody made it meanwhile; the write itself is checked again on what it holds.
        return False
    return True


def _check_word(what: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise UsageError(f"there is no {what} `{word}`; it is one of {', '.join(known)}", word=word)
