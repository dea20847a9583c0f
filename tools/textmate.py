"""Write the TextMate grammars of the VS Code extension; their words come from the grammars of the languages.

Run it after a change of a grammar; a test compares the files with what this makes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omnigraph.lang.catalog import Scalar
from omnigraph.lang.format import LANGUAGES, LanguageName
from omnigraph.lang.format.syntax_tokens import keywords
from omnigraph.lang.query.functions import FUNCTION_NAMES

SYNTAXES = Path(__file__).parent.parent / "editors" / "vscode" / "syntaxes"
NAMES: dict[LanguageName, str] = {"pg": "OmniGraph schema", "gq": "OmniGraph query"}
CONSTANTS = frozenset({"true", "false", "null"})


def render_grammar(language: LanguageName) -> str:
    """Return the TextMate grammar of a language as JSON."""
    grammar = {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": NAMES[language],
        "scopeName": f"source.{language}",
        "fileTypes": [language],
        "patterns": list(_patterns(language)),
    }
    return json.dumps(grammar, indent=2) + "\n"


def _patterns(language: LanguageName) -> list[dict[str, Any]]:
    words = set(keywords(LANGUAGES[language]))
    types = {scalar.value for scalar in Scalar} | {word for word in words if word[0].isupper()}
    return [
        {"name": f"comment.line.double-slash.{language}", "match": "//.*$"},
        {"name": f"comment.block.{language}", "begin": "/\\*", "end": "\\*/"},
        {
            "name": f"string.quoted.double.{language}",
            "begin": '"',
            "end": '"',
            "patterns": [{"name": f"constant.character.escape.{language}", "match": "\\\\."}],
        },
        {"name": f"variable.other.{language}", "match": "\\$[a-z_][A-Za-z0-9_]*"},
        {"name": f"storage.modifier.annotation.{language}", "match": "@[A-Za-z_][A-Za-z0-9_]*"},
        {"name": f"variable.other.property.{language}", "match": "(?<=\\.)[a-z_][A-Za-z0-9_]*"},
        # No word is reserved: before a colon it is the name of a property.
        {"name": f"variable.other.property.{language}", "match": "\\b[a-z_][A-Za-z0-9_]*(?=\\s*:)"},
        {"name": f"constant.language.{language}", "match": _any_of(words & CONSTANTS)},
        {"name": f"support.type.{language}", "match": _any_of(types)},
        # Before a parenthesis `count` is a function, before a brace it begins a pattern.
        {"name": f"entity.name.function.{language}", "match": f"{_any_of(words & FUNCTION_NAMES or {'count'})}(?=\\()"},
        {"name": f"keyword.control.{language}", "match": _any_of(words - CONSTANTS - types)},
        {"name": f"entity.name.function.{language}", "match": "\\b[a-z_][A-Za-z0-9_]*(?=\\()"},
        {"name": f"entity.name.type.{language}", "match": "\\b[A-Z][A-Za-z0-9_]*"},
        {"name": f"constant.numeric.{language}", "match": "-?\\b[0-9]+(\\.[0-9]+)?\\b"},
    ]


def _any_of(words: set[str]) -> str:
    return f"\\b({'|'.join(sorted(words))})\\b"


def main() -> None:
    SYNTAXES.mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        (SYNTAXES / f"{language}.tmLanguage.json").write_text(render_grammar(language), encoding="utf-8")


if __name__ == "__main__":
    main()
