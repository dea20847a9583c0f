"""Request-count gates: what reading and committing asks of storage, flat in history and in the number of types.

Golden lists, by the meter on local disk and by the server's own log on S3. Depth is built with plain one-row commits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.lang.catalog import TypeKey
from omnigraph.limits import CLAIM_LOOK_COMMITS
from omnigraph.manifest import branches, publish
from omnigraph.manifest.kernel import Kernel
from omnigraph.store.objects.backend import Meter
from tests.support.fleet_log import assert_commit_requests, assert_in_sequence, assert_requests, requests_of
from tests.support.kernel_fixtures import CITY, KNOWS, PERSON, create, ids_of, insert, open_graph, wide_schema
from tests.support.s3_server import S3Server, s3_server

__all__ = ["s3_server"]

WARM_READ = ["HEAD __manifest/_versions"]
COLD_OPEN = ["LIST __manifest/_versions", "GET __manifest/_versions", "GET __manifest/data"]
# Six are waited for one after another: the row's file, then the look for foreign commits beside the catalog's rows,
# then the transaction and the staged manifest, then the catalog's transaction and its manifest. The probe runs beside
# the first, a look at the end of each new data file beside what comes after it, and the link and what follows it after
# the caller has got his answer.
COMMIT = [
    "HEAD __manifest/_versions",
    "PUT nodes/data",
    "GET nodes/data",
    "LIST nodes/_versions",
    "PUT __manifest/data",
    "GET __manifest/data",
    "PUT nodes/_transactions",
    "PUT nodes/_versions (staged)",
    "PUT __manifest/_transactions",
    "PUT-NEW __manifest/_versions",
    "GET nodes/_versions (staged)",
    "PUT-NEW nodes/_versions",
    "DELETE",
]
CREATE_BRANCH = [
    "HEAD __manifest/_versions",
    "HEAD __manifest/_versions",
    "LIST __manifest/tree/_versions",
    "HEAD __manifest/_versions",
    "GET __manifest/_versions",
    "PUT __manifest/tree/_transactions",
    "PUT-NEW __manifest/tree/_versions",
    "HEAD __manifest/_versions",
    "HEAD __manifest/_versions",
    "PUT-NEW __manifest/_refs/branches",
    "HEAD __manifest/tree/_versions",
    "GET __manifest/tree/_versions",
    "HEAD __manifest/_versions",
    "PUT __manifest/data",
    "GET __manifest/data",
    "PUT __manifest/_transactions",
    "PUT-NEW __manifest/_versions",
]


def test_bounds_hold_for_the_golden_lists() -> None:
    assert len(WARM_READ) == 1
    assert len(COLD_OPEN) <= 4
    assert len(COMMIT) <= 13


# -- local disk, by the meter ----------------------------------------------------------------------------------

LOCAL_WARM_READ = [("probe", "__manifest"), ("head", "__manifest")]
LOCAL_COLD_OPEN = [("open", "__manifest"), ("scan", "__manifest")]
LOCAL_COMMIT = sorted(
    [
        ("probe", "__manifest"),
        ("head", "__manifest"),
        ("stage", "nodes"),
        ("commit", "nodes"),
        ("stage", "__manifest"),
        ("commit", "__manifest"),
        ("link", "__manifest"),
        ("publish", "__manifest"),
        ("link", "nodes"),
        # Read back: the data file, and the staged manifest beside its transaction, of the type and of the catalog.
        *[("inspect", "nodes"), ("get", "nodes"), ("get", "nodes")],
        *[("inspect", "__manifest"), ("get", "__manifest"), ("get", "__manifest")],
        # The names that the commit before left staged.
        ("delete", "nodes"),
        ("delete", "__manifest"),
    ]
)


# Once in a few commits the look for claims of other processes takes the place of the probe.
LOCAL_COMMIT_LOOKING = sorted(
    [
        ("list", "__claims"),
        *(one for one in LOCAL_COMMIT if one not in (("probe", "__manifest"), ("head", "__manifest"))),
    ]
)


class Counted:
    """A graph whose requests are logged as (operation, kind of target)."""

    def __init__(self, root: str, schema: str | None = None) -> None:
        self.root = root
        self._log: list[tuple[str, str]] = []
        create(root, schema) if schema else create(root)
        self.kernel = open_graph(root, Meter(self._log))

    def log_of(self, work: Callable[[], object]) -> list[tuple[str, str]]:
        self._log.clear()
        work()
        return [(operation, target.split("/")[0].split("@")[0].split(" ")[0]) for operation, target in self._log]

    def cold(self) -> list[tuple[str, str]]:
        log: list[tuple[str, str]] = []
        open_graph(self.root, Meter(log)).snapshot()
        return [(operation, target.split(" ")[0].split("@")[0]) for operation, target in log]


def check_local(counted: Counted, table_key: TypeKey, name: str) -> None:
    kernel = counted.kernel
    insert(kernel, {table_key: [f"{name}-first"]})
    found = sorted(counted.log_of(lambda: insert(kernel, {table_key: [f"{name}-second"]})))
    assert found in (LOCAL_COMMIT, LOCAL_COMMIT_LOOKING)
    kernel.dataset(kernel.snapshot(), table_key)
    read = counted.log_of(lambda: kernel.dataset(kernel.snapshot(), table_key))
    assert read == LOCAL_WARM_READ
    assert counted.cold() == LOCAL_COLD_OPEN


@pytest.mark.slow
@pytest.mark.parametrize("types", [2, 200])
def test_local_requests_do_not_depend_on_the_number_of_types(tmp_path: Path, types: int) -> None:
    counted = Counted(str(tmp_path / "graph.omni"), wide_schema(types))
    check_local(counted, TypeKey("node:T0"), "a")
    source = counted.kernel.snapshot()
    counted.kernel.close()
    log = counted.log_of(lambda: branches.create_branch(counted.kernel, "x", source))
    assert [one for one in log if one[0] != "head"] == [
        ("probe", "__manifest"),
        ("fork", "__manifest"),
        ("open", "__manifest"),
        ("probe", "__manifest"),
        ("stage", "__manifest"),
        ("inspect", "__manifest"),
        ("commit", "__manifest"),
        ("get", "__manifest"),
        ("get", "__manifest"),
        ("link", "__manifest"),
        ("publish", "__manifest"),
    ]


# So narrow that short histories leave the window as well; what a spill costs is measured below.
WINDOW = 16


@pytest.mark.slow
@pytest.mark.parametrize("depths", [(10, 50), pytest.param((10, 100, 1_000), marks=pytest.mark.long)])
def test_local_requests_do_not_depend_on_the_depth_of_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depths: tuple[int, ...]
) -> None:
    if depths[-1] < 1_000:
        monkeypatch.setattr(publish, "COMMIT_WINDOW_ROWS", WINDOW)
    counted = Counted(str(tmp_path / "graph.omni"))
    done = 0
    for depth in depths:
        for number in range(done, depth):
            insert(counted.kernel, {PERSON: [f"p{number:05d}"]})
        done = depth
        check_local(counted, PERSON, f"d{depth}")
    assert len(ids_of(counted.kernel, PERSON)) == done + 2 * len(depths)


# -- S3, by the server's log -----------------------------------------------------------------------------------


def check_remote(server: S3Server, uri: str, kernel: Kernel, table_key: TypeKey, name: str) -> None:
    insert(kernel, {table_key: [f"{name}-first"]})
    found = requests_of(server, kernel, lambda: insert(kernel, {table_key: [f"{name}-second"]}))
    assert_commit_requests(found, COMMIT)
    kernel.dataset(kernel.snapshot(), table_key)
    assert_requests(requests_of(server, kernel, lambda: kernel.dataset(kernel.snapshot(), table_key)), WARM_READ)
    cold = open_graph(uri)
    assert_requests(requests_of(server, cold, cold.snapshot), COLD_OPEN)


@pytest.mark.s3
@pytest.mark.parametrize(
    "types", [2, pytest.param(40, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.long)]
)
def test_s3_requests_do_not_depend_on_the_number_of_types(s3_server: S3Server, types: int) -> None:
    uri = s3_server.uri("g")
    kernel = create(uri, wide_schema(types))
    check_remote(s3_server, uri, kernel, TypeKey("node:T0"), "a")
    found = requests_of(s3_server, kernel, lambda: branches.create_branch(kernel, "x", kernel.snapshot()))
    assert_requests(found, CREATE_BRANCH)
    assert_in_sequence(s3_server, lambda number: insert(kernel, {"node:T0": [f"s{number}"]}), 6)
    kernel.close()


def check_depths(server: S3Server, depths: tuple[int, ...]) -> None:
    uri = server.uri("g")
    kernel = create(uri)
    done = 0
    for depth in depths:
        for number in range(done, depth):
            insert(kernel, {PERSON: [f"p{number:05d}"]})
        done = depth
        check_remote(server, uri, kernel, PERSON, f"d{depth}")
        name = f"s{depth}"
        assert_in_sequence(server, lambda number, name=name: insert(kernel, {CITY: [f"{name}-{number}"]}), 6)  # type: ignore[misc]
    kernel.close()


@pytest.mark.s3
@pytest.mark.slow
def test_s3_requests_do_not_depend_on_the_depth_of_history(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "COMMIT_WINDOW_ROWS", WINDOW)
    check_depths(s3_server, (10, 50))


@pytest.mark.s3
@pytest.mark.long
@pytest.mark.timeout(900)
def test_s3_requests_are_the_same_past_one_page_of_versions(s3_server: S3Server) -> None:
    check_depths(s3_server, (10, 100, 1_100))


@pytest.mark.s3
def test_s3_commit_over_three_types_adds_no_request_in_sequence(s3_server: S3Server) -> None:
    kernel = create(s3_server.uri("g"))
    insert(kernel, {PERSON: ["a"], CITY: ["a"], KNOWS: ["a"]})
    found = requests_of(s3_server, kernel, lambda: insert(kernel, {PERSON: ["b"], CITY: ["b"], KNOWS: ["b"]}))
    own = [one for one in COMMIT if "nodes" in one or one == "DELETE"]
    assert_requests(found, [*COMMIT, *own, *(one.replace("nodes", "edges") for one in own)])
    kernel.close()


@pytest.mark.s3
def test_s3_commit_on_a_branch_asks_for_the_name_without_waiting(s3_server: S3Server) -> None:
    kernel = create(s3_server.uri("g"))
    branches.create_branch(kernel, "x", kernel.snapshot())
    insert(kernel, {PERSON: ["a"]}, "x")
    found = requests_of(s3_server, kernel, lambda: insert(kernel, {PERSON: ["b"]}, "x"))
    on_branch = [one.replace("nodes/", "nodes/tree/").replace("__manifest/", "__manifest/tree/") for one in COMMIT]
    assert_requests(found, ["HEAD __manifest/_versions", *on_branch])
    assert len(found) <= 14
    assert_in_sequence(s3_server, lambda number: insert(kernel, {PERSON: [f"s{number}"]}, "x"), 6)
    kernel.close()


@pytest.mark.s3
def test_s3_commit_that_spills_pays_for_the_log_alone(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    window = 4
    monkeypatch.setattr(publish, "COMMIT_WINDOW_ROWS", window)
    kernel = create(s3_server.uri("g"))
    costs = [
        len(requests_of(s3_server, kernel, lambda number=number: insert(kernel, {PERSON: [f"p{number}"]})))  # type: ignore[misc]
        for number in range(4 * window)
    ]
    # The first commits also open the dataset; the window holds the init commit and 2 x window others before a spill.
    spills = [number for number, cost in enumerate(costs[1:], start=1) if cost != len(COMMIT)]
    assert spills == [2 * window - 1, 3 * window - 1, 4 * window - 1]
    # The first spill creates the log, the others open and append to it; that is once in 64 commits.
    assert [costs[number] - len(COMMIT) for number in spills] == [14, 10, 10]
    kernel.close()


# -- the look for claims ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_steady_commits_look_for_claims_seldom_and_ask_for_nothing_more(tmp_path: Path) -> None:
    counted = Counted(str(tmp_path / "graph.omni"))
    insert(counted.kernel, {PERSON: ["first"]})
    logs = [counted.log_of(lambda: insert(counted.kernel, {PERSON: [f"p{number}"]})) for number in range(15)]  # noqa: B023
    looks = [number for number, log in enumerate(logs) if ("list", "__claims") in log]
    assert 1 <= len(looks) <= 15 // CLAIM_LOOK_COMMITS
    assert all(sorted(log) in (LOCAL_COMMIT, LOCAL_COMMIT_LOOKING) for log in logs[1:]), logs
