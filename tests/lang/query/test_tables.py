"""Parse tables that are computed beforehand: those of today's grammar, and the same parser as the grammar makes."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import lark
import pytest
from lark.lexer import TerminalDef

from omnigraph.lang import parsing
from omnigraph.lang.query.parser import LANGUAGE

SOURCES = sorted((Path(__file__).parents[3] / "examples").rglob("*.gq"))


def describe(terminal: TerminalDef) -> tuple[str, str, int]:
    return terminal.name, terminal.pattern.to_regexp(), terminal.priority


def test_tables_are_those_of_the_grammar() -> None:
    stored = resources.files(LANGUAGE.package).joinpath("grammar.tables").read_bytes()
    assert stored.startswith(parsing.tables_key(LANGUAGE)), "run `python tools/grammar_tables.py`"


def test_parser_from_tables_is_that_of_the_grammar() -> None:
    built, loaded = parsing.build_parser(LANGUAGE), parsing._load_tables(LANGUAGE)
    assert loaded is not None
    assert list(map(describe, loaded.terminals)) == list(map(describe, built.terminals))
    assert {*loaded.rules} == {*built.rules}
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        assert loaded.parse(text) == built.parse(text)


def test_tables_of_another_lark_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lark, "__version__", "0.0.0")
    assert parsing._load_tables(LANGUAGE) is None
