"""Queries that are nearly right compile or are refused with a code; the compiler raises nothing else."""

from __future__ import annotations

import re
from random import Random

import pytest

from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.query import check_reads, compile_query, ir
from omnigraph.lang.query.compile import CompiledQuery
from omnigraph.lang.query.format_plan import format_plan
from tests.oracle.queries import Maker
from tests.oracle.worlds import SCHEMA
from tests.support.examples import examples
from tests.support.query_fixtures import catalog_from

_VARIABLE = re.compile(r"\$[a-z_]\w*")
_TYPE = re.compile(r"(?<=: )(?:City|Person|Named|Lone)\b")
_WORDS = re.compile(r"\b(?:optional|not|distinct|desc|knows|likes|livesIn|visits|contains|count|max|order|limit)\b")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return catalog_from(SCHEMA)


def scramble(source: str, random: Random) -> str:
    """Return a query with some names, types, words and blocks exchanged, doubled or left out."""
    for _ in range(1 + random.randrange(3)):
        change = random.choice((_swap_name, _swap_name, _move_block, _move_block, _wrap_clause, _drop_block))
        source = change(source, random)
    return source


def _swap_name(source: str, random: Random) -> str:
    """Put one of the names of a kind in the place of another."""
    pattern = random.choice((_VARIABLE, _VARIABLE, _VARIABLE, _TYPE, _WORDS))
    places = list(pattern.finditer(source))
    if not places:
        return source
    place = random.choice(places)
    return source[: place.start()] + random.choice(places)[0] + source[place.end() :]


def _blocks(source: str) -> list[tuple[int, int]]:
    """Return where the inner blocks of patterns begin, with their word, and end."""
    found = []
    for opening in re.finditer(r"(?:\b(?:optional|not|exists|count)) \{", source):
        depth = 0
        for place in range(opening.end() - 1, len(source)):
            depth += {"{": 1, "}": -1}.get(source[place], 0)
            if not depth:
                found.append((opening.start(), place + 1))
                break
    return found


def _move_block(source: str, random: Random) -> str:
    """Copy a block to the beginning of another one, or of the pattern."""
    blocks = _blocks(source)
    if not blocks:
        return source
    start, end = random.choice(blocks)
    target = random.choice([source.index("{", begin) + 1 for begin, _ in blocks] + [source.find("match {") + 7])
    return f"{source[:target]} {source[start:end]} {source[target:]}"


def _wrap_clause(source: str, random: Random) -> str:
    """Put a clause into a block of its own."""
    places = [place.end() for place in re.finditer(r"\{ |  ", source)]
    start = random.choice(places)
    end = source.find("  ", start)
    word = random.choice(("optional", "not", "optional { optional", "not { not"))
    closing = "}" * (1 + word.count("{"))
    if end < 0:
        return source
    return f"{source[:start]}{word} {{ {source[start:end]} {closing}{source[end:]}"


def _drop_block(source: str, random: Random) -> str:
    blocks = _blocks(source)
    if not blocks:
        return source
    start, end = random.choice(blocks)
    return source[:start] + source[end:]


def compile_or_refuse(source: str, catalog: Catalog) -> CompiledQuery | None:
    """Compile a query; None if it is refused with codes. Whatever else is raised is a bug."""
    try:
        compiled = compile_query(Source("query.gq", source), catalog)
    except LanguageError:
        return None
    assert isinstance(compiled.ir, ir.ReadIR)
    format_plan(compiled.ir)
    return compiled


def run_many(catalog: Catalog, count: int, first: int = 0) -> tuple[int, int]:
    """Return how many scrambled queries compiled, and how many were refused."""
    compiled = 0
    for seed in range(first, first + count):
        random = Random(seed)
        source = scramble(Maker(random.randrange, catalog).make().source, random)
        try:
            compiled += compile_or_refuse(source, catalog) is not None
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\n{source}") from error
    return compiled, count - compiled


@pytest.mark.slow
def test_scrambled_queries_are_compiled_or_refused_with_a_code(catalog: Catalog) -> None:
    compiled, refused = run_many(catalog, examples(3_000))
    # If all were refused for the same plain reason, deep scopes would never be reached.
    assert min(compiled, refused) * 20 > compiled + refused


def test_scrambling_finds_lowering_of_a_refused_pattern(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that errors left behind is no variable of an inner block, so a refused pattern is not lowered."""
    monkeypatch.setattr(check_reads, "is_refused", lambda ctx: False)
    with pytest.raises(AssertionError, match="KeyError"):
        run_many(catalog, 20_000)


def test_block_that_names_a_variable_of_a_later_block_is_refused(catalog: Catalog) -> None:
    inner = "not { optional { $p.name = $q.name } optional { $q: Named } } not { $q: City }"
    assert compile_or_refuse(f"match {{ $p: City {inner} }} return {{ $p.name }}", catalog) is None
