"""The VS Code extension: its files fit together, and its TextMate grammars follow those of the languages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from omnigraph.lang.diagnostic import Source
from omnigraph.lang.format import LANGUAGES, LanguageName
from omnigraph.lang.format.syntax_tokens import keywords, read_tokens
from tests.support.scattered_sources import ROOT

TOOL = run_path(str(ROOT / "tools" / "textmate.py"))
CONSTANTS, SYNTAXES, render_grammar = TOOL["CONSTANTS"], TOOL["SYNTAXES"], TOOL["render_grammar"]
EXTENSION = ROOT / "editors" / "vscode"
EXAMPLES = ROOT / "examples" / "supply"


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_textmate_grammar_is_current(language: LanguageName) -> None:
    current = (SYNTAXES / f"{language}.tmLanguage.json").read_text(encoding="utf-8")
    assert current == render_grammar(language), "run `python tools/textmate.py`"


@pytest.mark.parametrize("language", LANGUAGES)
def test_textmate_grammar_has_every_word_of_the_language(language: LanguageName) -> None:
    grammar = (SYNTAXES / f"{language}.tmLanguage.json").read_text(encoding="utf-8")
    assert [word for word in keywords(LANGUAGES[language]) if not re.search(rf"[(|]{word}[)|]", grammar)] == []


def scopes(text: str, language: LanguageName) -> Iterator[tuple[str, str]]:
    """Yield the matches of a text with their scopes, the earliest first and the first pattern among equals."""
    patterns = [
        (rule["name"].removesuffix(f".{language}"), re.compile(rule.get("match") or _block(rule), re.MULTILINE))
        for rule in read_json(SYNTAXES / f"{language}.tmLanguage.json")["patterns"]
    ]
    offset = 0
    while offset < len(text):
        matches = [
            (match.start(), rank, match, name)
            for rank, (name, pattern) in enumerate(patterns)
            if (match := pattern.search(text, offset))
        ]
        if not matches:
            return
        _, _, match, name = min(matches, key=lambda item: item[:2])
        yield match[0], name
        offset = max(match.end(), offset + 1)


def _block(rule: dict[str, Any]) -> str:
    inner = r"(?:\\.|.)*?" if rule["begin"] == '"' else r"[\s\S]*?"
    return f"{rule['begin']}{inner}{rule['end']}"


@pytest.mark.parametrize(("file", "language"), [("schema.pg", "pg"), ("queries.gq", "gq")])
def test_textmate_grammar_colours_keywords_and_names_of_examples(file: str, language: LanguageName) -> None:
    text = (EXAMPLES / file).read_text(encoding="utf-8")
    coloured = [
        (word, name) for word, name in scopes(text, language) if name.startswith(("keyword", "constant.language"))
    ]
    tokens, _, _ = read_tokens(Source(file, text), LANGUAGES[language])
    expected = [token.text for token in tokens if token.is_keyword and not token.text[0].isupper()]
    assert [word for word, _ in coloured] == expected
    assert {name for word, name in coloured if word in CONSTANTS} <= {"constant.language"}


def test_textmate_grammar_knows_that_words_are_not_reserved() -> None:
    found = dict(scopes('$v.limit = "match" // return', "gq"))
    assert found == {
        "$v": "variable.other",
        "limit": "variable.other.property",
        '"match"': "string.quoted.double",
        "// return": "comment.line.double-slash",
    }


def test_extension_files_fit_together() -> None:
    package = read_json(EXTENSION / "package.json")
    contributed = package["contributes"]
    assert {language["id"] for language in contributed["languages"]} == set(LANGUAGES)
    paths = [package["main"], *(language["configuration"] for language in contributed["languages"])]
    paths += [grammar["path"] for grammar in contributed["grammars"]]
    assert [path for path in paths if not (EXTENSION / path).is_file()] == []
    for grammar in contributed["grammars"]:
        assert read_json(EXTENSION / grammar["path"])["scopeName"] == grammar["scopeName"]
    program = (EXTENSION / package["main"]).read_text(encoding="utf-8")
    settings = {name.removeprefix("omnigraph.") for name in contributed["configuration"]["properties"]}
    assert settings == set(re.findall(r'settings\.get\("(\w+)"', program))
    assert '"lsp"' in program
    assert set(re.findall(r'language: "(\w+)"', program)) == set(LANGUAGES)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
def test_extension_program_is_valid_javascript() -> None:
    subprocess.run(["node", "--check", str(EXTENSION / "extension.js")], check=True)
