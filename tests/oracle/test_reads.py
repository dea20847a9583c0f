"""Random reads on random graphs return what the reference evaluator says."""

from __future__ import annotations

import datetime as dt
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st

from omnigraph.lang.diagnostic import Source
from omnigraph.lang.query.parser import parse_queries
from tests.oracle.compare import difference, rows_of
from tests.oracle.evaluate import TooManyRows, evaluate
from tests.oracle.queries import Made, Maker
from tests.oracle.worlds import World, create
from tests.support.examples import IS_LONG, examples

pytestmark = pytest.mark.slow

WORLDS = 8 if IS_LONG else 4
# Beyond it the reference takes seconds to minutes, for nothing that fewer rows would not show.
ROWS_MAX = 10_000
_relaxed = partial(
    settings,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[World]:
    path = tmp_path_factory.mktemp("worlds")
    return [create(path, seed) for seed in range(WORLDS)]


@st.composite
def queries(draw: st.DrawFn, world: World) -> Made:
    return Maker(lambda count: draw(st.integers(0, count - 1)) if count > 1 else 0, world.catalog).make()


def disagreement(world: World, made: Made) -> str | None:
    """Run a query both ways and return how the answers differ."""
    [query] = parse_queries(Source("query.gq", made.source))
    answer = evaluate(world.data, world.catalog, query, made.params, dt.datetime.now(dt.UTC), ROWS_MAX)
    return difference(answer, rows_of(world.graph.query(made.source, params=made.given).to_arrow()))


def check(world: World, made: Made) -> None:
    found = disagreement(world, made)
    assert found is None, f"\n{made.source}\nwith {made.given}\n{found}"


def run_many(world: World, count: int) -> None:
    @_relaxed(max_examples=count)
    @given(made=queries(world))
    def agree(made: Made) -> None:
        try:
            check(world, made)
        except TooManyRows:
            reject()

    agree()


@pytest.mark.parametrize("seed", range(WORLDS))
def test_random_reads_equal_the_reference(worlds: list[World], seed: int) -> None:
    run_many(worlds[seed], examples(500))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_many_random_reads_equal_the_reference(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    run_many(create(tmp_path_factory.mktemp("world"), 1_000 + seed), 500)


def test_generated_queries_cover_the_language(worlds: list[World]) -> None:
    """Every word of the read language occurs among a few hundred queries; otherwise agreement would mean little."""
    from random import Random

    text = "\n".join(Maker(Random(seed).randrange, worlds[0].catalog).make().source for seed in range(1_500))
    words = [
        "not {", "optional {", " or ", " and ", "is null", "is not null", " in [", " in $", "contains", "starts_with",
        "search(", "match_text(", "fuzzy(", "<knows>", "{1,", "{2,", " as $", "$_", "count(*)", "count($", "sum(",
        "avg(", "min(", "max(", "distinct", "order", " desc", "skip", "limit $", "nearest(", "now()", "date(",
        "datetime(", "duration(", "case when", " then ", "else", "coalesce(", "cast(", "not (", "not in", "ends_with",
        "matches", "date_add(", "date_diff(", "date_trunc(", "substring(", "split(", "lower(", "round(", " % ", " / ",
        "|", ",}", " _ ", "<_>", "{0,", ",$k", "type(", ": Named", ".*", "path $", "all shortest",
        "shortest 2", " by toll", "nodes(", "edges(", "length(", "cost(", "Vector(3)", "I32?", "[F64]",
        "String?", "U64", "F32", "Bool", "DateTime", "Duration", "with {", "with distinct {", "with distinct on",
        "union all", "union\n", " in nodes(", ".@id", ".@type", ".@src", ".@dst", " (knows", ":(", "exists {",
        "count {", "not exists {", " per {", "unwind $", "unwind [",
    ]  # fmt: skip
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize("block", ["not", "optional"])
def test_binding_a_variable_that_is_missing_has_no_solution(worlds: list[World], block: str) -> None:
    inner = f"{block} {{ $c: City  $p knows $q }}"
    source = f"query q() {{ match {{ $p: Person optional {{ $p livesIn $c }} {inner} }} return {{ $p, $c }} }}"
    for world in worlds:
        check(world, Made(source, {}, {}))
