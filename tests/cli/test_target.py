"""Which graph a command works on, and the question before destructive work elsewhere than here."""

from __future__ import annotations

import io

import pytest

from omnigraph.cli.target import address, announce, confirm
from omnigraph.errors import UsageError

REMOTE = "s3://lake/g.omni"


class Terminal(io.StringIO):
    """Standard input with a person at it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["yes", "y", " YES "])
def test_confirm_person_says_yes_goes_on(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    confirm("deleting", REMOTE, yes=False, as_json=False)


@pytest.mark.parametrize("answer", ["no", "", "yep"])
def test_confirm_person_says_anything_else_is_refused(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
    with pytest.raises(UsageError) as caught:
        confirm("deleting", REMOTE, yes=False, as_json=False)
    assert "nothing was changed" in caught.value.message


@pytest.mark.parametrize(("stdin", "as_json"), [(io.StringIO("yes\n"), False), (Terminal("yes\n"), True)])
def test_confirm_nobody_to_ask_is_refused(stdin: io.StringIO, as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(UsageError) as caught:
        confirm("deleting", REMOTE, yes=False, as_json=as_json)
    assert "--yes" in caught.value.message


@pytest.mark.parametrize(("uri", "yes"), [(REMOTE, True), ("g.omni", False), ("file:///g.omni", False)])
def test_confirm_asks_nothing_when_local_or_told_yes(uri: str, yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    confirm("deleting", uri, yes=yes, as_json=True)


def test_address_given_twice_the_same_is_one() -> None:
    assert address("g", "g") == address("g", None) == address(None, "g") == "g"


def test_announce_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    announce("ingest", REMOTE, quiet=True)
    assert capsys.readouterr().err == ""
    announce("ingest", REMOTE, quiet=False)
    assert capsys.readouterr().err == f"omnigraph ingest → {REMOTE} (direct, remote)\n"
