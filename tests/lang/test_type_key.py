"""Type keys: one value with one parser, and no module that builds or splits their text by hand."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.lang.catalog import TypeKey

SRC = Path(__file__).parent.parent.parent / "src" / "omnigraph"
HOME = SRC / "lang" / "catalog.py"
# Texts of another kind with a colon in them.
OTHERS = {
    "lang/migrate/step.py": "what a step of a migration changes, which may be an interface",
    "store/write/file_proof.py": "which checksum a proof has",
}
# What a module with such an expression has in its text, before it is parsed.
SIGNS = re.compile(r"""(?:node|edge):|kind[^{}]*\}:|['"]:['"]""")
PREFIX = re.compile(r"(node|edge):")
SPLITS = frozenset({"partition", "rpartition", "split", "rsplit", "startswith", "removeprefix", "replace"})


def handmade_keys(source: str) -> Iterator[str]:
    """Yield the expressions that build a type key from text, or take one apart."""
    if not SIGNS.search(source):
        return
    nodes = [*ast.walk(ast.parse(source))]
    parsed = {id(node.args[0]) for node in nodes if isinstance(node, ast.Call) and node.args and _is_key(node)}
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if PREFIX.match(text) and id(node) not in parsed:
                yield ast.unparse(node)
            case ast.JoinedStr(values=[ast.FormattedValue(value=kind), ast.Constant(value=":"), *_]) if ast.unparse(
                kind
            ).endswith("kind"):
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=[ast.Constant(value=":"), *_]) if (
                name in SPLITS and re.search(r"key\b", ast.unparse(value))
            ):
                yield ast.unparse(node)


def _is_key(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "TypeKey"


def test_no_module_builds_or_splits_type_keys_by_hand() -> None:
    modules = [path for path in SRC.rglob("*.py") if path != HOME and str(path.relative_to(SRC)) not in OTHERS]
    handmade = {str(path.relative_to(SRC)): [*handmade_keys(path.read_text(encoding="utf-8"))] for path in modules}
    assert {name: texts for name, texts in handmade.items() if texts} == {}


@pytest.mark.parametrize("name", OTHERS)
def test_exempt_module_still_has_such_a_text(name: str) -> None:
    assert [*handmade_keys((SRC / name).read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    "source",
    [
        'f"node:{name}"',
        'pins["edge:Knows"]',
        'key.startswith("node:")',
        'f"{self.owner_kind}:{self.owner}"',
        'table_key.partition(":")[2]',
        'pin.table_key.split(":")',
        '(violation.type_key or "").partition(":")',
    ],
)
def test_handmade_key_is_noticed(source: str) -> None:
    assert len([*handmade_keys(source)]) == 1


@pytest.mark.parametrize(
    "source", ['TypeKey("node:A")', '"write `node:A`"', 'f"{kind}: {place}"', 'text.partition(":")']
)
def test_other_text_is_not_taken_for_a_key(source: str) -> None:
    assert [*handmade_keys(source)] == []


@pytest.mark.parametrize("text", ["", "node:", "Person", "interface:Person", "Node:Person", ":Person", "node"])
def test_type_key_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a type key"):
        TypeKey(text)


def test_type_key_is_stored_and_sent_as_its_text() -> None:
    key = TypeKey.of("node", "Person")
    copy = pickle.loads(pickle.dumps(key))
    assert (copy, type(copy), copy.kind, copy.name) == (key, TypeKey, "node", "Person")
    assert json.dumps({key: [key]}) == '{"node:Person": ["node:Person"]}'
    assert {key: 1}["node:Person"] == 1  # type: ignore[index]  # the text finds it too
    assert type(str(key)) is str
