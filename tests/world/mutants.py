"""Faults of earlier releases, put back one by one: the world must find each of them.

`python -m tests.world.mutants` runs all of them and prints after how many operations each was found.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from omnigraph.client import frame_lines
from omnigraph.engine import clone, entity_history, exact_conversion
from omnigraph.engine.changes import row_diff
from omnigraph.engine.input import column_mapping
from omnigraph.engine.load import plan_input
from omnigraph.engine.load.plan_input import LoadPlan
from omnigraph.engine.load.report import prepare_folder
from omnigraph.engine.maintain import cleanup, repair, retention, verify_files
from omnigraph.engine.merge import row_merge, type_merge
from omnigraph.engine.write import write_authorization
from omnigraph.lang.query import ast, check_context, check_patterns, check_traversals, ir
from omnigraph.manifest.links import Links
from omnigraph.pipelines import rejected_rows, run
from omnigraph.pipelines.sources import read as sources
from omnigraph.store.dataset_cache import DatasetCache
from omnigraph.store.objects import control_objects
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.read.dataset import MAX_VERSION, DatasetRef
from tests.world.generator import BUCKET, LOCAL, PIPELINES, Failure, flavour_of, run_history

# A module or class, the name of what is replaced, and by what.
Patch = tuple[Any, str, Any]
HISTORIES_MAX = 20


def _convert_anything(column: Any, type_: Any) -> Any:
    return np.zeros(len(column), bool)


def _divide_decimals(decimals: Any) -> Any:
    return decimals.cast(pa.float64())


def _plan_without_names(splits: Any, frames: Any, table_keys: Any, named: Any, *rest: Any) -> LoadPlan:
    return LoadPlan(splits, frames, table_keys, [], *rest)


def _see_everything(session: Any, snapshot: Any, _: Any) -> Any:
    return session.full_view_of(snapshot)


def _loses_nothing(decimals: Any, floats: Any) -> Any:
    return np.zeros(len(decimals), bool)


def _open_with_indexes(cache: Any, ref: Any, manifest: str) -> Any:
    dataset = cache._open_version(ref, cache._rebased(ref, cache.objects.read(manifest)))
    dataset.staged_as = manifest
    return dataset


def _cover_detached(path: str) -> bool:
    parts = path.split("/")
    is_file = parts[0] in ("nodes", "edges", "__manifest") and not set(parts).isdisjoint(verify_files._FOLDERS)
    return is_file and ("_versions" not in parts or path.endswith(".manifest"))


def _number_detached(path: str) -> Any:
    branch = path.split("/")[2] if path.startswith("__manifest/tree/") else None
    number = int(path.rpartition("/")[2].partition(".")[0])
    return DatasetRef("__manifest", branch, MAX_VERSION - number)


_log_of = verify_files._log_of


def _log_of_numbered(path: str, manifest: bytes) -> str | None:
    int(path.rpartition("/")[2].partition(".")[0])
    return _log_of(path, manifest)


def _declare_last(ctx: Any, clauses: Any) -> Any:
    bindings = [clause for clause in clauses if isinstance(clause, ast.Binding)]
    declared = {clause.variable.text: check_patterns._binding_type(ctx, clause) for clause in bindings}
    return {name: type_name for name, type_name in declared.items() if type_name is not None}


def _types_as_bound(scope: Any, end: Any) -> Any:
    name = check_traversals._type_of(scope, end) or scope.declared.get(end.text)
    return None if name is None else set(ir.split_type(name))


def _probe_next(kernel: Any, snapshot: Any, pin: Any) -> Any:
    is_displaced = kernel.links.is_displaced(snapshot, pin)
    is_next = kernel.store.has_version(pin.ref.at(pin.version + 1))
    if pin.owner != snapshot.state.branch_id or not (is_displaced or is_next):
        return None
    return repair.Drift(kernel.store.open_latest(pin.path, pin.fork).version, is_displaced)


def _newest_date(kernel: Any) -> int:
    if not kernel.read_only:
        return int(kernel.store.objects.read_time())
    return max((info.modified_us for info in kernel.store.objects.list("")), default=0)


@contextmanager
def _share_folder(self: Any) -> Iterator[Path]:
    yield prepare_folder(self.recorder.folder / "rejected" / "all")


# What pipelines asked of Spark's reader of CSV.
_LENIENT = {**sources._STRICT_OPTIONS, "csv": {"mode": "FAILFAST", "columnPruning": "false", "enforceSchema": "false"}}

MUTANTS: dict[str, list[Patch]] = {
    # A cherry-pick narrows values unchecked.
    "V1": [(module, "find_inexact", _convert_anything) for module in (exact_conversion, type_merge)],
    # Cleanup forgets merge bases that lie on deleted branches.
    "V2": [
        (retention.KeptStates, "_keep_deleted_branches", lambda *_: {}),
        (retention, "check_mergeable", lambda *_: None),
    ],
    # A version that is published and not linked yet is opened with its indexes, which Lance looks for by path.
    "V3": [(DatasetCache, "open_unlinked", _open_with_indexes)],
    # The history of an entity skips schema changes, before which its type was not there.
    "V4": [(entity_history, "_SCHEMA_KINDS", frozenset())],
    # Verify takes a detached version for a numbered one.
    "V5": [
        (verify_files, "_is_covered", _cover_detached),
        (verify_files, "_version", _number_detached),
        (verify_files, "_log_of", _log_of_numbered),
    ],
    # Walks do not see the types that further bindings leave.
    "V6": [
        (check_patterns, "_declared_types", _declare_last),
        (check_context.Scope, "narrow", lambda *_: None),
        (check_traversals, "_types_of", _types_as_bound),
    ],
    # A required property that is added with a default changes every entity.
    "V7": [(row_diff, "fill_added", lambda dataset, rows: rows)],
    # Repair looks for the next version alone, and not whether the published one is there.
    "X-1": [(repair, "find_drift", _probe_next), (repair, "_missing_files", lambda *_: [])],
    # A preview of cleanup by a handle that cannot write takes the date of the newest file for the time.
    "X-2": [(cleanup, "read_time", _newest_date)],
    # A table without rows names no type, so that an overwrite leaves it alone.
    "X-3": [(plan_input, "LoadPlan", _plan_without_names)],
    # Patterns of mutations match types that the actor does not see.
    "F1": [(write_authorization, "readable_view", _see_everything)],
    # Decimals become floats that are not the nearest.
    "P1": [
        patch
        for module in (frame_lines, column_mapping)
        for patch in ((module, "floats_of_decimals", _divide_decimals), (module, "loses_digits", _loses_nothing))
    ],
    # Pipelines read CSV with the rules that Spark has for quotes, backslashes and null.
    "P2": [(sources, "parse_csv_options", lambda *_: None), (sources, "_STRICT_OPTIONS", _LENIENT)],
    # Progress belongs to the name of a pipeline or source.
    "P3": [(run, "require_own_progress", lambda *_: None)],
    # Rows that a run rejects are written to its report alone, which the next run empties.
    "P4": [(rejected_rows, "_write_rows", lambda *_: {}), (run._Run, "_load_folder", _share_folder)],
    # A store is trusted with commits before it has proven that it honours conditions.
    "S1": [(control_objects, "require_conditional_puts", lambda *_: None), (Objects, "is_proven", True)],
    # The checksums of copies from a bucket are not recorded, and their ETags are others.
    "S2": [(clone, "record_copied", lambda *_: None)],
    # A branch is forked from a version that this process has published and not linked.
    "S3": [(Links, "finish_pin", lambda *_: None)],
    # A merge of two lists loses what the other side added.
    "union": [(row_merge, "union_lists", lambda base, ours, theirs: ours)],
}


# Where mutants live, by the letter of their finding; P1 and the others are found anywhere.
FLAVOURS = {"P": PIPELINES, "S": BUCKET}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """Put a fault back."""
    patches = [mock.patch.object(target, attribute, new) for target, attribute, new in MUTANTS[name]]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def told(line: str) -> None:
    print(line, flush=True)


def hunt(
    name: str,
    *,
    root: Path | None = None,
    histories: int = HISTORIES_MAX,
    report: Callable[[str], None] = told,
) -> Failure | None:
    """Run histories until one finds the mutant; the same operations must pass without it."""
    operations, started = 0, time.process_time()
    # Those first in which the feature is used.
    seeds = sorted(range(1, histories + 1), key=lambda seed: flavour_of(seed) is not FLAVOURS.get(name[0], LOCAL))
    for seed in seeds:
        with mutated(name):
            result = run_history(seed, root=root)
        operations += result.operations
        if result.failure is None:
            continue
        reason = result.failure.reason.strip().splitlines()
        seconds = time.process_time() - started
        if run_history(seed, only=result.failure.operations, root=root).failure is not None:
            report(f"{name}: seed {seed} fails without it, too: {reason[0][:150]}")
            return None
        report(f"{name}: found after {operations} operations, {seconds:.0f} s (seed {seed}): {reason[0][:150]}")
        report(f"    {reason[-1][:200]}")
        return result.failure
    report(f"{name}: not found in {operations} operations")
    return None


def main() -> int:
    names = sys.argv[1:] or list(MUTANTS)
    root = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    return sum(hunt(name, root=root) is None for name in names)


if __name__ == "__main__":
    sys.exit(main())
