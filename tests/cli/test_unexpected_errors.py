"""The edge of the command line: any error is one sentence with a code, with a traceback only after `--debug`."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from omnigraph.cli import main
from omnigraph.extras import EXTRA_OF

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a line\nand another")

    monkeypatch.setattr("omnigraph.graph.init", fail)


COMMAND = ["init", "g.omni", "--schema", "a.pg"]


@pytest.mark.usefixtures("broken")
def test_bug_is_one_sentence_with_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(COMMAND) == 1
    *_, message, effect = capsys.readouterr().err.strip().splitlines()
    assert message.startswith("error[internal.bug]: this is a bug in OmniGraph (ZeroDivisionError: a line and another)")
    assert "`--debug`" in message
    assert effect == "effect: unknown"


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("place", [0, 1, len(COMMAND)])
def test_debug_prints_the_traceback_before_the_message(place: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND[:place], "--debug", *COMMAND[place:]]) == 1
    shown = capsys.readouterr().err
    assert shown.index("Traceback (most recent call last)") < shown.index("error[internal.bug]")


@pytest.mark.usefixtures("broken")
def test_bug_is_a_document_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["code"], document["effect"]) == ("internal.bug", "unknown")


def test_debug_shows_where_a_coded_error_was_raised(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["query", "nowhere.omni", "match { $a: A } return { $a }"]
    assert main(command) == 1
    plain = capsys.readouterr().err
    assert main([*command, "--debug"]) == 1
    shown = capsys.readouterr().err
    assert plain.startswith("error[graph.not_found]")
    assert shown.startswith("Traceback")
    assert shown.endswith(plain)


@pytest.mark.parametrize(("library", "extra"), sorted(EXTRA_OF.items()))
def test_missing_library_of_an_extra_names_the_extra(
    library: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ModuleNotFoundError(f"No module named '{library}.deep'", name=f"{library}.deep")

    monkeypatch.setattr("omnigraph.graph.init", fail)
    assert main(COMMAND) == 1
    shown = capsys.readouterr().err
    assert "error[usage.invalid]" in shown
    assert f"pip install 'omnigraph[{extra}]'" in shown
    # What is missing may be a library of a library; the message names one that the extra itself asks for.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked_for = [re.split(r"[>\[]", text)[0].replace("-", "_") for text in project["optional-dependencies"][extra]]
    assert any(f"need `{name}`" in shown for name in asked_for)


def test_extras_of_the_project_are_in_the_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["optional-dependencies"]
    for extra in {*EXTRA_OF.values()}:
        names = {text.partition(">")[0].partition("[")[0].replace("-", "_") for text in declared[extra]}
        assert names <= {library for library, named in EXTRA_OF.items() if named == extra}, extra
