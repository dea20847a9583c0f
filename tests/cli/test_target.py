"""Which graph a command works on, and the question before destructive work elsewhere than here."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.app import main
from omnigraph.cli.target import Capability, Direct, Flags, Target
from omnigraph.errors import UsageError
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import Snapshot

REMOTE = "s3://lake/g.omni"


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))


class Terminal(io.StringIO):
    """Standard input with a person at it."""

    def isatty(self) -> bool:
        return True


def target(uri: str | None = None, *, server: str | None = None, **options: bool) -> Target:
    flags = Flags(store=uri, server=server, graph=None if server is None else "supply")
    return Target("omnigraph ingest", Capability.ANY, flags, **options)


@pytest.mark.parametrize("answer", ["yes", "y", " YES "])
def test_confirm_person_says_yes_goes_on(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    target(REMOTE).confirm("deleting")


@pytest.mark.parametrize("answer", ["no", "", "yep"])
def test_confirm_person_says_anything_else_is_refused(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    with pytest.raises(UsageError) as caught:
        target(REMOTE).confirm("deleting")
    assert "nothing was changed" in caught.value.message


@pytest.mark.parametrize(("stdin", "as_json"), [(io.StringIO("yes\n"), False), (Terminal("yes\n"), True)])
def test_confirm_nobody_to_ask_is_refused(stdin: io.StringIO, as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    for place in (target(REMOTE, as_json=as_json), target(server="http://localhost:1", as_json=as_json)):
        with pytest.raises(UsageError) as caught:
            place.confirm("deleting")
        assert "--yes" in caught.value.message


@pytest.mark.parametrize(("uri", "yes"), [(REMOTE, True), ("g.omni", False), ("file:///g.omni", False)])
def test_confirm_asks_nothing_when_local_or_told_yes(uri: str, yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    target(uri, yes=yes, as_json=True).confirm("deleting")


def test_address_given_twice_the_same_is_one() -> None:
    assert Target("omnigraph snapshot", Capability.ANY, Flags(uri="g", store="g")).address == "g"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        (target(REMOTE), f"{REMOTE}"),
        (target("g.omni"), "g.omni"),
        (target(server="http://localhost:1/"), "http://localhost:1/graphs/supply"),
    ],
)
def test_announce_says_where_and_how(place: Target, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    place.announce()
    assert capsys.readouterr().err == f"omnigraph ingest → {says}\n"


def test_announce_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    target(REMOTE, quiet=True).announce()
    assert capsys.readouterr().err == ""


def test_location_of_a_target_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[Capability] = []

    def count(command: str, capability: Capability, *rest: object) -> Direct:
        resolved.append(capability)
        return Direct("g.omni")

    monkeypatch.setattr("omnigraph.cli.target.resolve_location", count)
    place = target("g.omni")
    assert (place.address, place.is_served, place.words) == ("g.omni", False, ("--store", "g.omni"))
    assert resolved == [Capability.ANY]


def test_read_of_a_graph_probes_its_head_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    og.init(tmp_path / "g.omni", "node A { k: String @key }").close()
    probed: list[str] = []
    snapshot = Kernel.snapshot

    def count(kernel: Kernel, branch: str = "main") -> Snapshot:
        probed.append(branch)
        return snapshot(kernel, branch)

    monkeypatch.setattr(Kernel, "snapshot", count)
    with target(str(tmp_path / "g.omni")).open_to_read() as graph:
        assert graph.query("query q() { match { $a: A } return { $a.k as k } }").rows() == []
    assert probed == ["main"]


READS = (
    *("query -e q", "explain -e q", "snapshot", "export", "branch list", "tag list", "commit list", "commit show C"),
    *("commit changes C", "diff a b", "changes poll", "schema show"),
)


@pytest.mark.parametrize("command", READS)
def test_read_of_a_missing_graph_says_that_there_is_none(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--store", str(tmp_path / "none.omni")]) != 0
    assert "there is no graph at" in capsys.readouterr().err
