"""Damage, foreign rows, full disks, moved roots and jumping clocks: typed errors, nothing lost, nothing adopted."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import lance
import orjson
import pyarrow as pa
import pytest

from omnigraph import clock, failpoints
from omnigraph.errors import Effect, GraphError, OmniGraphError, StorageError, StorageKind, UsageError
from omnigraph.failpoints import Point
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.schema import compile_schema
from omnigraph.manifest import branches, encoding
from omnigraph.manifest.create import init
from omnigraph.manifest.kernel import Kernel
from omnigraph.store.files.manifest_file import rebase_manifest, write_message
from omnigraph.store.objects import durability
from omnigraph.store.objects.uri import Location
from omnigraph.store.store import Store
from tests.support.examples import IS_LONG
from tests.support.failpoint_actions import Park
from tests.support.fleet_operations import in_thread, manifest_file
from tests.support.forked_python import ForkedPython
from tests.support.kernel_fixtures import (
    CITY,
    PERSON,
    SCHEMA,
    check_invariants,
    create,
    ids_of,
    insert,
    open_graph,
)

pytestmark = pytest.mark.slow

DAY_US = 24 * 3_600 * 1_000_000


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "graph.omni")


def begin(root: str) -> None:
    """Create a graph at `root`, whatever comes of it."""
    init(Store(Location.parse(root)), compile_schema(Source("schema.pg", SCHEMA), domain="01ARZ3NDEKTSV4RRFFQ69G5FAV"))


def refused(work: Callable[[], object]) -> OmniGraphError:
    """Return the typed refusal of some work; anything else fails the test."""
    with pytest.raises(OmniGraphError) as caught:
        work()
    return caught.value


# -- damaged and foreign manifests -----------------------------------------------------------------------------


def test_truncated_manifest_file_is_corruption_and_the_past_still_reads(root: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    newest = insert(kernel, {PERSON: ["b"]}).snapshot
    path = manifest_file(root, newest, newest.version)
    path.write_bytes(path.read_bytes()[:-40])
    for read_only in (False, True):
        error = refused(lambda read_only=read_only: open_graph(root, read_only=read_only).snapshot())  # type: ignore[misc]
        assert error.code in ("graph.corrupt", "storage.failed")
        assert "__manifest" in error.message
    assert open_graph(root).at_version("main", newest.version - 1).state.pins[PERSON].row_count == 1


def test_truncated_manifest_rows_are_corruption_that_names_the_version(root: str) -> None:
    kernel = create(root)
    before = set(Path(root, "__manifest/data").iterdir())
    newest = insert(kernel, {PERSON: ["a"]}).snapshot
    (path,) = set(Path(root, "__manifest/data").iterdir()) - before
    path.write_bytes(path.read_bytes()[:100])
    error = refused(lambda: open_graph(root).snapshot())
    assert error.code == "graph.corrupt"
    assert f"version {newest.version}" in error.message


def rewrite_manifest(
    root: str, change: Callable[[list[dict[str, object]]], object], metadata: dict[bytes, bytes] | None = None
) -> None:
    """Commit a version of `__manifest` past the product, with its rows or its metadata changed."""
    uri = str(Path(root, "__manifest"))
    table = lance.dataset(uri).to_table()
    listed = table.to_pylist()
    change(listed)
    schema = table.schema.with_metadata(table.schema.metadata if metadata is None else metadata)
    lance.write_dataset(pa.Table.from_pylist(listed, schema=schema), uri, mode="overwrite")


def edit(kind: str, column: str, value: object) -> Callable[[list[dict[str, object]]], object]:
    def change(listed: list[dict[str, object]]) -> None:
        next(row for row in listed if row["object_type"] == kind)[column] = value

    return change


CONTRADICTIONS: dict[str, Callable[[list[dict[str, object]]], object]] = {
    "a version under a foreign id": edit("table_version", "table_version", 77),
    "a path under a foreign id": edit("table", "stable_table_id", 77),
    "two versions of a type": lambda listed: listed.append(dict(_first(listed, "table_version"))),
    "a type without a version": lambda listed: listed.remove(_first(listed, "table_version")),
    "a type without a kind": edit("table_version", "table_key", "Person"),
    "no head": lambda listed: listed.remove(_first(listed, "graph_head")),
    "two heads": lambda listed: listed.append(dict(_first(listed, "graph_head"))),
    "no schema": lambda listed: listed.remove(_first(listed, "schema")),
    "broken metadata": edit("schema", "metadata", "{"),
    "a commit without its members": edit("graph_commit", "metadata", "{}"),
}


def _first(listed: list[dict[str, object]], kind: str) -> dict[str, object]:
    return next(row for row in listed if row["object_type"] == kind)


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradicting_manifest_rows_are_corruption_and_stop_writes(root: str, name: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    rewrite_manifest(root, CONTRADICTIONS[name])
    files = sorted(Path(root).rglob("*"))
    for work in (lambda: open_graph(root).snapshot(), lambda: insert(kernel, {PERSON: ["b"]})):
        error = refused(work)
        assert error.code == "graph.corrupt"
        assert "`__manifest` version 3" in error.message
        assert "restore" in error.message
    assert sorted(Path(root).rglob("*")) == files


def test_foreign_rows_of_an_unknown_kind_are_refused_or_kept(root: str) -> None:
    create(root)

    def add(listed: list[dict[str, object]]) -> None:
        listed.append({**_first(listed, "schema"), "object_id": "policy:x", "object_type": "policy", "metadata": "{}"})

    rewrite_manifest(root, add)
    try:
        insert(open_graph(root), {PERSON: ["a"]})
    except GraphError as error:
        assert error.code == "graph.corrupt"  # noqa: PT017 - refusing and keeping are both right
        return
    assert "policy" in lance.dataset(str(Path(root, "__manifest"))).to_table()["object_type"].to_pylist()


def stamped(value: bytes | None) -> dict[bytes, bytes]:
    kept = {encoding.OPERATION_KEY: b"x", encoding.PREVIOUS_KEY: b"", encoding.LINKS_KEY: b"[]"}
    return kept if value is None else {**kept, encoding.STAMP_KEY: value}


@pytest.mark.parametrize(
    ("stamp", "found", "says"),
    [
        (b"8", 8, "Upgrade omnigraph"),
        (b"6", 6, "omnigraph init"),
        (b"seven", "seven", "backup"),
        (b"-7", "-7", "backup"),
        (b"", "", "backup"),
        (None, None, "backup"),
    ],
)
def test_other_format_stamps_are_refused_with_their_remedy(
    root: str, stamp: bytes | None, found: object, says: str
) -> None:
    kernel = create(root)
    rewrite_manifest(root, lambda _: None, stamped(stamp))
    for work in (
        lambda: open_graph(root).snapshot(),
        lambda: open_graph(root, read_only=True).snapshot(),
        lambda: insert(kernel, {PERSON: ["a"]}),
    ):
        error = refused(work)
        assert (error.code, error.context["found"]) == ("graph.format", found)
        assert says in error.message
        assert root in error.message


def test_missing_version_of_a_pinned_dataset_is_named(root: str) -> None:
    kernel = create(root)
    pin = insert(kernel, {PERSON: ["a"], CITY: ["x"]}).snapshot.state.pins[PERSON]
    kernel.close()
    Path(root, pin.ref.manifest_path).unlink()
    fresh = open_graph(root)
    for work in (lambda: ids_of(fresh, PERSON), lambda: insert(fresh, {PERSON: ["b"]})):
        error = refused(work)
        assert error.code in ("graph.version_lost", "graph.version_reclaimed", "graph.corrupt")
        assert "Person" in error.message or pin.path in error.message
    assert ids_of(fresh, CITY) == ["x"]


# -- addresses -------------------------------------------------------------------------------------------------


def test_no_graph_at_the_address_says_how_to_make_one(root: str) -> None:
    for read_only in (False, True):
        error = refused(lambda read_only=read_only: open_graph(root, read_only=read_only).snapshot())  # type: ignore[misc]
        assert (error.code, error.context["uri"]) == ("graph.not_found", root)
        assert "omnigraph init" in error.message
    assert not Path(root).exists()


@pytest.mark.parametrize("address", ["gcs://bucket/graph", "http://host/graph", "", "s3://", "ftp://x/y"])
def test_unknown_scheme_is_a_usage_error_that_lists_the_forms(address: str) -> None:
    with pytest.raises(UsageError, match="s3://bucket/prefix"):
        open_graph(address)


def test_moved_root_opens_with_its_branches(root: str, tmp_path: Path) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    branches.create_branch(kernel, "x", kernel.snapshot())
    insert(kernel, {PERSON: ["b"]}, "x")
    branches.create_branch(kernel, "y", kernel.snapshot("x"))
    insert(kernel, {PERSON: ["c"]}, "y")
    kernel.close()
    # A name of which the old one is a prefix, in a folder that is called like the folder of forks.
    moved = str(tmp_path / "tree" / f"{Path(root).name}2")
    shutil.move(root, moved)
    reader = open_graph(moved, read_only=True)
    assert (ids_of(reader, PERSON, "x"), ids_of(reader, PERSON, "y")) == (["a", "b"], ["a", "b", "c"])
    handle = open_graph(moved)
    insert(handle, {PERSON: ["d"]}, "y")
    branches.create_branch(handle, "z", handle.snapshot("y"))
    insert(handle, {PERSON: ["e"]}, "z")
    handle.close()
    shutil.move(moved, root)
    back = open_graph(root)
    expected = {"main": ["a"], "x": ["a", "b"], "y": ["a", "b", "c", "d"], "z": ["a", "b", "c", "d", "e"]}
    assert {name: ids_of(back, PERSON, name) for name in expected} == expected


def test_copied_root_and_its_original_go_their_own_ways(root: str, tmp_path: Path) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    branches.create_branch(kernel, "x", kernel.snapshot())
    insert(kernel, {PERSON: ["b"]}, "x")
    copied = shutil.copytree(root, str(tmp_path / "copy.omni"))
    insert(kernel, {PERSON: ["original"]}, "x")
    other = open_graph(copied)
    insert(other, {PERSON: ["copy"]}, "x")
    assert ids_of(other, PERSON, "x") == ["a", "b", "copy"]
    assert ids_of(kernel, PERSON, "x") == ["a", "b", "original"]


def test_fork_that_inherits_from_outside_the_graph_is_refused() -> None:
    entry = write_message([(4, b"/elsewhere/other/9")])
    with pytest.raises(StorageError, match="not in this graph"):
        rebase_manifest(write_message([(18, entry)]), "nodes/1", "/here/nodes/1")


# -- disks -----------------------------------------------------------------------------------------------------

FULL = OSError(errno.ENOSPC, "No space left on device")


def count_durable(work: Callable[[], object]) -> int:
    seen: list[str] = []
    with failpoints.armed({Point.DURABLE_BEFORE: seen.append}):
        work()
    return len(seen)


def fail_at(place: int, error: Callable[[], Exception]) -> failpoints.Action:
    """Return an action that raises when the given durable operation is about to happen, and ever after."""
    seen: list[str] = []

    def action(detail: str) -> None:
        seen.append(detail)
        if len(seen) >= place:
            raise error()

    return action


def full() -> StorageError:
    return StorageError("the disk is full: free some space", kind=StorageKind.FULL, errno="ENOSPC")


def test_disk_full_at_any_durable_operation_loses_nothing(root: str) -> None:
    kernel = create(root)
    operations = count_durable(lambda: insert(kernel, {PERSON: ["p00"], CITY: ["c00"]}))
    assert operations >= 5
    expected = {"p00"}
    for place in range(1, operations + 1):
        name = f"p{place:02d}"
        error = None
        with failpoints.armed({Point.DURABLE_BEFORE: fail_at(place, full)}):
            try:
                insert(kernel, {PERSON: [name], CITY: [f"c{place:02d}"]})
            except OmniGraphError as caught:
                error = caught
        found = set(ids_of(open_graph(root), PERSON))
        assert found in (expected, expected | {name})
        if error is None or error.effect is Effect.APPLIED:
            assert name in found
        elif error.effect is Effect.NONE:
            assert name not in found, f"operation {place} was applied, but the error says it was not: {error.message}"
        expected = found
        insert(kernel, {PERSON: [f"next{place:02d}"]})
        expected = expected | {f"next{place:02d}"}
    check_invariants(open_graph(root))


@pytest.mark.usefixtures("power_durability")
def test_sync_that_fails_after_the_publish_does_not_deny_the_effect(root: str) -> None:
    kernel = create(root)
    armed = threading.Event()
    original = durability._fsync

    def failing(path: str) -> None:
        if armed.is_set():
            raise FULL
        original(path)

    def passed(detail: str) -> None:
        if detail.startswith("publish"):
            armed.set()

    with durability.replaced(failing), failpoints.armed({Point.DURABLE_AFTER: passed}):
        error = refused(lambda: insert(kernel, {PERSON: ["a"]}))
    assert ids_of(open_graph(root), PERSON) == ["a"]
    assert error.effect in (Effect.UNKNOWN, Effect.APPLIED)
    assert "operation_id" in error.context
    insert(kernel, {PERSON: ["b"]})
    check_invariants(open_graph(root))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of one megabyte."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs more rights than this user has")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_really_full_disk_refuses_commits_and_heals_when_there_is_space(small_disk: Path) -> None:
    root = str(small_disk / "graph.omni")
    kernel = create(root)
    acknowledged: list[str] = []
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 600_000)
    error = None
    for number in range(200):
        try:
            insert(kernel, {PERSON: [f"p{number:03d}"]})
        except OmniGraphError as caught:
            error = caught
            break
        acknowledged.append(f"p{number:03d}")
    assert isinstance(error, StorageError)
    assert error.effect is Effect.NONE
    assert ids_of(open_graph(root), PERSON) == acknowledged
    ballast.unlink()
    insert(kernel, {PERSON: ["healed"]})
    assert ids_of(open_graph(root), PERSON) == sorted([*acknowledged, "healed"])
    check_invariants(open_graph(root))


def unlinked(root: str) -> Kernel:
    """Return a graph whose last publish was not linked, as after a crash right there."""

    class Stopped(BaseException):
        pass

    def stop(_: str) -> None:
        raise Stopped

    kernel = create(root)
    with failpoints.armed({Point.LINK_BEFORE: stop}), pytest.raises(Stopped):
        insert(kernel, {PERSON: ["a"], CITY: ["x"]})
    return kernel


def test_read_only_handle_reads_pending_links_through_and_writes_nothing(root: str) -> None:
    unlinked(root)
    files = {path: path.stat().st_mtime_ns for path in Path(root).rglob("*")}
    handle = open_graph(root, read_only=True)
    assert (ids_of(handle, PERSON), ids_of(handle, CITY)) == (["a"], ["x"])
    assert {path: path.stat().st_mtime_ns for path in Path(root).rglob("*")} == files
    check_invariants(open_graph(root))


def test_read_only_media_with_pending_links_can_be_read_but_not_written(small_disk: Path) -> None:
    root = str(small_disk / "graph.omni")
    unlinked(root)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert ids_of(open_graph(root, read_only=True), PERSON) == ["a"]
    error = refused(lambda: insert(open_graph(root), {PERSON: ["b"]}))
    assert isinstance(error, StorageError)
    assert error.effect is Effect.NONE
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    insert(open_graph(root), {PERSON: ["b"]})
    assert ids_of(open_graph(root), PERSON) == ["a", "b"]


# -- clocks ----------------------------------------------------------------------------------------------------


def test_clock_that_jumps_by_a_day_keeps_history_linear_and_ids_unique(root: str) -> None:
    kernel = create(root)
    now = clock.now_us()
    jumps = (0, -DAY_US, DAY_US, 0, -DAY_US)
    for number, jump in enumerate(jumps):
        with clock.replaced(wall=lambda jump=jump: now + jump):  # type: ignore[misc]
            insert(kernel, {PERSON: [f"p{number}"]})
            insert(open_graph(root), {PERSON: [f"q{number}"]})
            branches.create_branch(kernel, f"b{number}", kernel.snapshot())
    fresh = open_graph(root)
    history = list(fresh.history())
    assert len({one.commit_id for one in history}) == len(history) == 2 * len(jumps) + 1
    versions = [one.manifest_version for one in history]
    assert versions == sorted(versions, reverse=True)
    check_invariants(fresh)


# -- birth -----------------------------------------------------------------------------------------------------


def race(works: list[Callable[[], None]]) -> list[str]:
    """Run initialisers side by side; return `created` or the code of the refusal for each."""
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> str:
        barrier.wait()
        try:
            work()
        except GraphError as error:
            return error.code
        return "created"

    futures = [in_thread(lambda work=work: run(work)) for work in works]  # type: ignore[misc]
    return [future.result(60) for future in futures]


LOST = {"graph.already_initialized", "graph.initialization_claimed"}


def test_racing_initialisers_in_threads_make_exactly_one_graph(tmp_path: Path) -> None:
    for number in range(5):
        root = str(tmp_path / f"graph{number}")
        outcomes = race([lambda root=root: begin(root)] * 4)  # type: ignore[misc]
        assert outcomes.count("created") == 1, outcomes
        assert set(outcomes) <= {"created", *LOST}
        kernel = open_graph(root)
        assert len(list(kernel.history())) == 1
        insert(kernel, {PERSON: ["a"]})
        check_invariants(kernel)
        assert not list(Path(root).glob("__init_claim*"))


_BEGIN = """
import sys
from omnigraph.errors import GraphError
from tests.kernel.test_faults import begin
print("ready", flush=True)
sys.stdin.readline()
try:
    begin(sys.argv[1])
    print("created")
except GraphError as error:
    print(error.code)
"""


def test_racing_initialisers_in_processes_make_exactly_one_graph(tmp_path: Path) -> None:
    for number in range(4 if IS_LONG else 1):
        root = str(tmp_path / f"graph{number}")
        racers = [
            ForkedPython([sys.executable, "-c", _BEGIN, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        outcomes = [racer.communicate(timeout=60)[0].strip() for racer in racers]
        assert outcomes.count("created") == 1, outcomes
        assert set(outcomes) <= {"created", *LOST}
        check_invariants(open_graph(root))


def test_init_over_a_graph_is_refused_also_by_force(root: str) -> None:
    kernel = create(root)
    insert(kernel, {PERSON: ["a"]})
    schema = compile_schema(Source("schema.pg", SCHEMA), domain="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    for force in (False, True):
        error = refused(lambda force=force: init(Store(Location.parse(root)), schema, force=force))  # type: ignore[misc]
        assert (error.code, error.context["uri"]) == ("graph.already_initialized", root)
    assert ids_of(open_graph(root), PERSON) == ["a"]


def test_init_over_a_stray_schema_copy_needs_force(root: str) -> None:
    Path(root).mkdir()
    Path(root, "_schema.pg").write_text("node Old {}")
    error = refused(lambda: begin(root))
    assert error.code == "graph.already_initialized"
    assert "_schema.pg" in error.message
    schema = compile_schema(Source("schema.pg", SCHEMA), domain="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    init(Store(Location.parse(root)), schema, force=True)
    assert Path(root, "_schema.pg").read_text() == SCHEMA


def test_init_under_a_live_claim_is_refused_and_leaves_the_claim(root: str) -> None:
    park = Park()
    with failpoints.armed({Point.INIT_CLAIMED: park}):
        first = in_thread(lambda: begin(root))
        assert park.arrived.wait(30)
        error = refused(lambda: begin(root))
        assert (error.code, error.retryable) == ("graph.initialization_claimed", True)
        assert list(Path(root).glob("__init_claim*"))
        park.release()
        first.result(30)
    check_invariants(open_graph(root))


def interrupt(_: str) -> None:
    raise KeyboardInterrupt


def test_init_under_the_claim_of_a_dead_process_takes_over(root: str) -> None:
    Path(root).mkdir()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    with failpoints.armed({Point.INIT_CLAIMED: interrupt}), pytest.raises(KeyboardInterrupt):
        begin(root)
    (claim,) = Path(root).glob("__init_claim*")
    body = orjson.loads(claim.read_bytes())
    claim.write_bytes(orjson.dumps({**body, "owner": {**body["owner"], "pid": dead.pid}}))
    begin(root)
    check_invariants(open_graph(root))
    assert not list(Path(root).glob("__init_claim*"))


def test_init_with_an_unreadable_claim_is_refused_and_names_it(root: str) -> None:
    Path(root).mkdir()
    Path(root, "__init_claim.000001.json").write_text("{")
    error = refused(lambda: begin(root))
    assert (error.code, error.context["object"]) == ("graph.initialization_claimed", "__init_claim.000001.json")


@pytest.mark.parametrize("number", range(1, 10))
def test_init_that_fails_before_the_manifest_can_be_repeated(root: str, number: int) -> None:
    # Several threads write at once, so that no two of them may count the same.
    numbers = count(1)

    def action(detail: str) -> None:
        # The claim is the first write, the manifest the ninth. Deletes only tidy up, so no init fails with them.
        if not detail.startswith("delete") and next(numbers) == number:
            raise full()

    with failpoints.armed({Point.DURABLE_BEFORE: action}):
        error = refused(lambda: begin(root))
    assert "disk is full" in error.message
    left = [path for path in Path(root).rglob("*") if path.is_file()] if Path(root).exists() else []
    assert left == []
    begin(root)
    check_invariants(open_graph(root))


def test_init_whose_read_back_fails_says_that_the_graph_is_there(root: str) -> None:
    def spoil(_: str) -> None:
        (path,) = Path(root, "__manifest/_versions").glob("*.manifest")
        path.rename(path.with_suffix(".aside"))

    with failpoints.armed({Point.INIT_MANIFEST_CREATED: spoil}):
        error = refused(lambda: begin(root))
    assert error.code == "graph.initialization_committed"
    assert "operation_id" in error.context
    (path,) = Path(root, "__manifest/_versions").glob("*.aside")
    os.rename(path, path.with_suffix(".manifest"))
    check_invariants(open_graph(root))
