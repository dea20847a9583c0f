"""Graphs on Google Cloud Storage and Azure: the same life as on a disk, and errors that name their settings."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, quote

import lance
import pyarrow as pa
import pytest
from lance.commit import CommitConflictError

import omnigraph as og
import tests.support.cloud_stores
from omnigraph import pipeline, settings
from omnigraph.cli import main
from omnigraph.engine.tasks import graph_access
from omnigraph.errors import StorageError, StorageKind, UnsafeStore, UsageError
from omnigraph.store.objects import uri
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.failures import from_text
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import storage_error
from tests.support.azurite import Azurite
from tests.support.cloud_stores import TOKEN, Cloud, new_uri
from tests.support.forked_python import run_forked
from tests.support.gcs_server import GcsServer

pytestmark = pytest.mark.s3

_no_cloud = tests.support.cloud_stores._no_cloud
azurite_server = tests.support.cloud_stores.azurite_server
azurite = tests.support.cloud_stores.azurite
gcs_server = tests.support.cloud_stores.gcs_server
cloud = tests.support.cloud_stores.cloud

SCHEMA = "node P { name: String @key  age: I32? }\nedge Knows: P -> P"
ADD = "query add($n: String) { insert P { name: $n } }"
NAMES = "query names() { match { $p: P } return { $p.name as name } }"
DATA = b"""{"type": "P", "data": {"name": "ada", "age": 36}}
{"type": "P", "data": {"name": "bob"}}
{"edge": "Knows", "from": "ada", "to": "bob"}
"""


def names(graph: og.Graph, at: str | None = None) -> list[str]:
    return sorted(row["name"] for row in graph.query(NAMES, at=at))


def test_life_of_a_graph_is_the_same_as_on_a_disk(cloud: Cloud) -> None:
    address = new_uri(cloud)
    graph = og.init(address, SCHEMA)
    loaded = graph.load(DATA)
    assert loaded.commit is not None
    graph.mutate(ADD, params={"n": "cyd"})
    graph.branches.create("review")
    graph.mutate(ADD, params={"n": "dan"}, branch="review")
    assert names(graph) == ["ada", "bob", "cyd"]
    graph.branches.merge("review", into="main")
    assert names(graph) == ["ada", "bob", "cyd", "dan"]
    assert names(graph, at=loaded.commit.commit_id) == ["ada", "bob"]
    assert graph.maintenance.verify(data=True).findings == ()
    graph.maintenance.optimize()
    graph.branches.delete("review")
    graph.maintenance.cleanup(keep=1, confirm=True)
    again = og.open(address)
    assert names(again) == ["ada", "bob", "cyd", "dan"]
    assert again.maintenance.verify(data=True).findings == ()


def test_damaged_object_is_found_by_verify(cloud: Cloud) -> None:
    address = new_uri(cloud)
    og.init(address, SCHEMA).load(DATA)
    objects = Objects(Location.parse(address))
    [path] = [info.path for info in objects.list("nodes") if info.path.endswith(".lance")]
    whole = objects.read(path)
    objects.write(path, bytes([whole[0] ^ 1]) + whole[1:])
    findings = og.open(address).maintenance.verify(data=True).findings
    assert any(path in finding.message or path in str(finding) for finding in findings), findings


def test_clones_between_stores_hold_the_same_graph(azurite: Azurite, gcs_server: GcsServer, tmp_path: Path) -> None:
    og.init(tmp_path / "first", SCHEMA).load(DATA)
    places = [str(tmp_path / "first"), new_uri(azurite), new_uri(gcs_server), str(tmp_path / "last")]
    for source, target in pairwise(places):
        og.open(source).clone(target)
    last = og.open(places[-1])
    assert names(last) == ["ada", "bob"]
    assert last.maintenance.verify(data=True).findings == ()
    assert [commit.commit_id for commit in last.commits()] == [
        commit.commit_id for commit in og.open(places[0]).commits()
    ]


def test_files_in_the_store_are_loaded_and_exported(cloud: Cloud, tmp_path: Path) -> None:
    address = new_uri(cloud)
    inputs = Objects(Location.parse(f"{address}.in"))
    inputs.write("day=1/a.ndjson.gz", gzip.compress(DATA))
    inputs.write("day=2/b.ndjson", b'{"type": "P", "data": {"name": "cyd"}}\n')
    graph = og.init(address, SCHEMA)
    pipeline.load(graph, data=[f"{address}.in/day=*/*"], mode="append", engine="local")
    assert names(graph) == ["ada", "bob", "cyd"]
    for format_ in ("ndjson", "parquet", "csv"):
        pipeline.export(graph, f"{address}.{format_}", format=format_, engine="local")
    with pytest.raises(UsageError, match="is not empty"):
        pipeline.export(graph, f"{address}.csv", format="csv", engine="local")
    again = og.init(tmp_path / "again", SCHEMA)
    nodes, edges = {"P": f"{address}.parquet/nodes/P/"}, {"Knows": f"{address}.parquet/edges/Knows/"}
    pipeline.load(again, nodes=nodes, edges=edges, mode="append", engine="local")
    assert names(again) == ["ada", "bob", "cyd"]


def test_file_that_is_not_in_the_store_is_named(cloud: Cloud, tmp_path: Path) -> None:
    missing = f"{new_uri(cloud)}/none.ndjson"
    with pytest.raises(UsageError, match=f"`{missing}` matches no file"):
        og.init(tmp_path / "g", SCHEMA).load(missing)


def test_large_loads_match_keys_in_the_store(cloud: Cloud, tmp_path: Path) -> None:
    """Staged keys are files of the graph, which tasks read in pieces."""
    graph = og.init(new_uri(cloud), SCHEMA)
    for part in range(2):
        lines = [json.dumps({"type": "P", "data": {"name": f"p{number}", "age": part}}) for number in range(300)]
        (tmp_path / f"{part}.ndjson").write_text("\n".join(lines))
        pipeline.load(graph, data=[tmp_path / f"{part}.ndjson"], mode="merge", engine="local")
    assert len(names(graph)) == 300
    ages = "query ages() { match { $p: P } return { $p.age as age, count($p) as n } }"
    assert [(row["age"], row["n"]) for row in graph.query(ages)] == [(1, 300)]
    with pytest.raises(og.OmniGraphError):
        pipeline.load(graph, data=[tmp_path / "0.ndjson"], mode="append", engine="local")


def test_racing_writers_lose_no_commit(cloud: Cloud) -> None:
    address = new_uri(cloud)
    og.init(address, SCHEMA)
    # Graphs of their own, so that the store decides and no queue of this process.
    graphs = [og.open(address) for _ in range(3)]
    work = [(graph, f"{number}-{turn}") for number, graph in enumerate(graphs) for turn in range(2)]
    with ThreadPoolExecutor(len(graphs)) as pool:
        list(pool.map(lambda item: item[0].mutate(ADD, params={"n": item[1]}), work))
    assert names(og.open(address)) == sorted(name for _, name in work)


def test_one_of_many_creators_wins(cloud: Cloud) -> None:
    objects = Objects(Location.parse(new_uri(cloud)))
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: objects.write_if_absent("a", str(number).encode()), range(8)))
    assert won.count(True) == 1
    assert objects.read("a") == str(won.index(True)).encode()


def test_lance_lets_one_of_many_strict_commits_win(cloud: Cloud) -> None:
    location = Location.parse(new_uri(cloud))
    options = location.lance_options()
    dataset = lance.write_dataset(pa.table({"a": [1]}), location.uri, storage_options=options)
    operation = lance.LanceOperation.Overwrite(dataset.schema, [f.metadata for f in dataset.get_fragments()])

    def commit(_: int) -> bool:
        try:
            lance.LanceDataset.commit(
                location.uri, operation, read_version=dataset.version, storage_options=options, max_retries=0
            )
        except CommitConflictError:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(commit, range(6))).count(True) == 1
    assert lance.dataset(location.uri, storage_options=options).version == 2


def test_signature_opens_a_container_and_is_never_shown(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", azurite.shared_access_signature())
    address = new_uri(azurite)
    graph = og.init(address, SCHEMA)
    graph.load(DATA)
    assert names(og.open(address)) == ["ada", "bob"]
    # Azurite has no rights for bulk deletes with an account's signature, so that deletes and `doctor` cannot be tried.
    [signature] = parse_qs(os.environ["AZURE_STORAGE_SAS_TOKEN"])["sig"]
    shown = storage_error(
        "reading", OSError(f"GET {azurite.endpoint}/g?sp=r&sig={quote(signature, safe='')}&se=x")
    ).message
    assert quote(signature, safe="") not in shown


_KILLED = """
import sys
import omnigraph as og
from omnigraph import failpoints
graph = og.open(sys.argv[1])
with failpoints.armed({failpoints.Point(sys.argv[2]): failpoints.kill}):
    graph.mutate(sys.argv[3], params={"n": "new"})
"""


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("point", "is_there"), [("publish.before", False), ("publish.after", True)])
def test_killed_writer_leaves_all_or_nothing(cloud: Cloud, point: str, is_there: bool) -> None:
    address = new_uri(cloud)
    og.init(address, SCHEMA)
    killed = run_forked([sys.executable, "-c", _KILLED, address, point, ADD])
    assert killed.returncode == -9, killed.stderr
    graph = og.open(address)
    assert names(graph) == (["new"] if is_there else [])
    graph.mutate(ADD, params={"n": "next"})
    assert graph.maintenance.verify().findings == ()


def test_doctor_finds_the_store_fit(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    address = new_uri(cloud)
    report = og.check_store(address)
    assert {check.outcome for check in report.checks} == {"ok"}, report
    assert report.endpoint == cloud.endpoint
    assert Objects(Location.parse(address)).list("") == []
    assert main(["doctor", address]) == 0
    assert capsys.readouterr().out.rstrip().endswith("is fit for graphs")


def test_store_that_ignores_conditions_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with GcsServer(TOKEN, ignores_conditions=True) as server:
        tests.support.cloud_stores.use(server, monkeypatch)
        report = og.check_store(server.uri("g"))
        assert {check.name for check in report.checks if check.outcome == "failed"} == {
            "conditional put",
            "concurrent race",
        }
        with pytest.raises(UnsafeStore, match=r"Google Cloud Storage.*x-goog-if-generation-match") as caught:
            og.init(server.uri("g"), SCHEMA)
    assert caught.value.context["endpoint"] == server.endpoint


def opened(address: str) -> object:
    return og.open(address)


def made(address: str) -> object:
    return og.init(address, SCHEMA)


BOTH = pytest.mark.parametrize("work", [made, pytest.param(opened, marks=pytest.mark.slow)])


CREDENTIALS = [("gs://graphs/g", "GOOGLE_APPLICATION_CREDENTIALS"), ("az://graphs/g", "AZURE_STORAGE_ACCOUNT_KEY")]


@pytest.mark.parametrize(("address", "name"), CREDENTIALS)
def test_missing_credentials_are_named(address: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uri, "RETRIES_MAX", 0)
    tests.support.cloud_stores.use(Azurite(9), monkeypatch)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("GOOGLE_BASE_URL", "https://127.0.0.1:9")
    with pytest.raises(StorageError, match=name) as caught:
        made(address)
    assert (caught.value.context["kind"], caught.value.retryable) == ("configuration", False)
    assert "AWS_" not in str(caught.value)


# Lance reads the environment once in a process, so that a test cannot take credentials away from it.
@pytest.mark.parametrize(("client", "name"), [("GCS", CREDENTIALS[0][1]), ("MicrosoftAzure", CREDENTIALS[1][1])])
def test_missing_credentials_are_named_in_the_words_of_lance(client: str, name: str) -> None:
    request = "Error performing GET http://127.0.0.1:9/?resource=x in 240.177µs - HTTP error: error sending request"
    error = OSError(f"LanceError(IO): Generic {client} error: Error performing token request: {request}, /src/x.rs:1:2")
    failure = storage_error("opening", error)
    assert name in failure.message
    assert failure.storage_kind is StorageKind.CONFIGURATION


@pytest.mark.parametrize(("status", "kind"), [(503, StorageKind.TRANSIENT), (403, StorageKind.CONFIGURATION)])
def test_answers_of_a_token_service_are_judged_by_their_status(status: int, kind: StorageKind) -> None:
    text = f"Generic GCS error: Error performing token request: Server returned non-2xx status code: {status} No: "
    meaning = from_text(text)
    assert meaning is not None
    assert meaning[0] is kind


def test_missing_account_is_named_before_any_request() -> None:
    with pytest.raises(UsageError, match="AZURE_STORAGE_ACCOUNT_NAME is not set"):
        made("az://graphs/g")


@BOTH
@pytest.mark.sampled(2)
def test_wrong_credentials_are_named(
    cloud: Cloud, work: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc=", "GOOGLE_BEARER_TOKEN": "wrong"}
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    name = "AZURE_STORAGE_ACCOUNT_KEY" if isinstance(cloud, Azurite) else "GOOGLE_BEARER_TOKEN"
    with pytest.raises(StorageError, match=name) as caught:
        work(cloud.uri("g"))
    assert (caught.value.context["kind"], caught.value.retryable) == ("configuration", False)


@BOTH
@pytest.mark.sampled(2)
def test_wrong_bucket_is_named(cloud: Cloud, work: Callable[[str], object]) -> None:
    word = "container" if isinstance(cloud, Azurite) else "bucket"
    with pytest.raises(StorageError, match=f"no such {word}: check the address, or create the {word}") as caught:
        work(cloud.uri("g").replace("graphs", "elsewhere"))
    assert (caught.value.context["kind"], caught.value.retryable) == ("configuration", False)


def test_store_that_does_not_run_names_its_own_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uri, "RETRIES_MAX", 0)
    server = Azurite(9)
    tests.support.cloud_stores.use(server, monkeypatch)
    with pytest.raises(StorageError, match="AZURE_STORAGE_ENDPOINT") as caught:
        made(server.uri("g"))
    assert caught.value.retryable


def test_tasks_get_the_settings_of_every_store_and_show_none(cloud: Cloud) -> None:
    access = graph_access(cloud.uri("g"), "1")
    assert cloud.settings().items() <= dict(access.settings).items()
    assert not any(value in repr(access) for value in cloud.settings().values())


def test_secrets_are_masked_in_words_of_the_clients(cloud: Cloud) -> None:
    for name, value in cloud.settings().items():
        is_shown = value in settings.mask_secrets(f"the client says: {value}.")
        assert is_shown is not settings.SETTINGS[name].is_secret
