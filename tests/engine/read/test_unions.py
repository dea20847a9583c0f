"""Walks of open length, of several edge types and of any edge, nodes of several types, and whole entities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import DataError
from omnigraph.lang.diagnostic import LanguageError

SCHEMA = """
interface Named { name: String  rank: I32? }
node Person implements Named { name: String @key  rank: I32?  face: Vector(2)?  photo: Blob? }
node Company implements Named { name: String @key  rank: I32?  size: I64? }
node City { name: String @key }
edge Knows: Person -> Person { since: I32?  note: String? }
edge Likes: Person -> Person { since: I32? }
edge WorksAt: Person -> Company { since: I32? }
edge LivesIn: Person -> City
edge Seat: Company -> City
"""
EDGES = [
    ("Knows", "a", "b", 1), ("Knows", "b", "c", 1), ("Knows", "c", "d", 1), ("Knows", "d", "e", 1),
    ("Likes", "a", "c", 2), ("WorksAt", "a", "x", None), ("WorksAt", "d", "a", None), ("LivesIn", "b", "u", None),
    ("Seat", "x", "v", None), ("Seat", "a", "u", None),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("unions") / "g.omni", SCHEMA)
    rows: list[dict[str, Any]] = [
        {"type": "Person", "data": {"name": name, "rank": rank}} for rank, name in enumerate("abcde")
    ]
    # A person and a company have the same id.
    rows += [{"type": "Company", "data": {"name": name}} for name in "ax"]
    rows += [{"type": "City", "data": {"name": name}} for name in "uv"]
    rows += [
        {"edge": edge, "from": start, "to": end, "data": {} if since is None else {"since": since}}
        for edge, start, end, since in EDGES
    ]
    graph.ingest(rows, mode="append")
    return graph


@pytest.fixture(params=["auto", "csr", "indexed"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", request.param)
    return str(request.param)


def ask(graph: og.Graph, body: str, params: str = "", **values: object) -> list[tuple[Any, ...]]:
    table = graph.query(f"query q({params}) {{ {body} }}", params=values).to_arrow()
    return [tuple(row.values()) for row in table.to_pylist()]


A = '$a: Person {name: "a"}'


@pytest.mark.usefixtures("mode")
class TestWalks:
    def test_open_range_goes_as_far_as_it_leads(self, graph: og.Graph) -> None:
        body = f"match {{ {A} $a knows{{1,}} $b as $h }} return {{ $b, $h }} order {{ $h }}"
        assert ask(graph, body) == [("b", 1), ("c", 2), ("d", 3), ("e", 4)]

    def test_range_from_zero_includes_the_start(self, graph: og.Graph) -> None:
        body = f"match {{ {A} $a knows{{0,1}} $b as $h }} return {{ $b, $h }} order {{ $h }}"
        assert ask(graph, body) == [("a", 0), ("b", 1)]

    @pytest.mark.parametrize(("most", "expected"), [(0, []), (1, ["b"]), (2, ["b", "c"])])
    def test_hop_bound_from_a_parameter(self, graph: og.Graph, most: int, expected: list[str]) -> None:
        body = f"match {{ {A} $a knows{{1,$n}} $b }} return {{ $b }} order {{ $b.name }}"
        assert [row[0] for row in ask(graph, body, "$n: I32", n=most)] == expected

    def test_alternatives_of_one_target(self, graph: og.Graph) -> None:
        body = f"match {{ {A} $a $e:knows|likes $b }} return {{ $b, $e.since, type($e) }} order {{ $b.name }}"
        assert ask(graph, body) == [("b", 1, "Knows"), ("c", 2, "Likes")]

    def test_alternatives_of_several_targets(self, graph: og.Graph) -> None:
        body = "match { $p: Person $p knows|worksAt $y } return { $p, $y, type($y) } order { $p.name, $y.name }"
        assert ask(graph, body) == [
            ("a", "b", "Person"), ("a", "x", "Company"), ("b", "c", "Person"), ("c", "d", "Person"),
            ("d", "a", "Company"), ("d", "e", "Person"),
        ]  # fmt: skip

    def test_alternatives_chain_through_several_types(self, graph: og.Graph) -> None:
        body = f"match {{ {A} $a worksAt|seat{{1,}} $b as $h }} return {{ $b, type($b), $h }} order {{ $h }}"
        assert ask(graph, body) == [("x", "Company", 1), ("v", "City", 2)]

    def test_any_edge_out(self, graph: og.Graph) -> None:
        body = f"match {{ {A} $a _ $b }} return {{ $b, type($b) as t }} order {{ t, $b.name }}"
        assert ask(graph, body) == [("x", "Company"), ("b", "Person"), ("c", "Person")]

    def test_any_edge_both_ways(self, graph: og.Graph) -> None:
        body = 'match { $c: City {name: "u"} $c <_> $b } return { $b, type($b) as t } order { t }'
        assert ask(graph, body) == [("a", "Company"), ("b", "Person")]

    def test_any_edge_to_a_bound_end(self, graph: og.Graph) -> None:
        body = f'match {{ {A} $c: City {{name: "v"}} $a _{{1,}} $c as $h }} return {{ $h }}'
        assert ask(graph, body) == [(2,)]

    def test_walk_from_a_node_of_several_types(self, graph: og.Graph) -> None:
        body = "match { $x: Named $x livesIn|seat $c } return { $x, type($x) as t, $c } order { $c.name, t }"
        assert ask(graph, body) == [("a", "Company", "u"), ("b", "Person", "u"), ("x", "Company", "v")]

    def test_cycle_over_alternatives(self, graph: og.Graph) -> None:
        body = "match { $a: Person $a knows $b $b knows $c $a knows|likes $c } return { $a, $b, $c }"
        assert ask(graph, body) == [("a", "b", "c")]


class TestTypes:
    def test_interface_matches_all_implementing_types(self, graph: og.Graph) -> None:
        body = "match { $x: Named } return { $x, $x.rank, type($x) } order { $x.name } limit 3"
        assert ask(graph, body) == [("a", None, "Company"), ("a", 0, "Person"), ("b", 1, "Person")]

    def test_union_of_types_shares_properties(self, graph: og.Graph) -> None:
        body = 'match { $x: Person|City { name: "u" } } return { $x.name, type($x) }'
        assert ask(graph, body) == [("u", "City")]

    def test_type_groups_and_filters(self, graph: og.Graph) -> None:
        body = "match { $x: Named } return { type($x) as t, count(*) as n } order { t }"
        assert ask(graph, body) == [("Company", 2), ("Person", 5)]
        assert ask(graph, 'match { $x: Named type($x) != "Person" } return { $x } order { $x.name }') == [
            ("a",),
            ("x",),
        ]

    def test_narrower_binding_asks_more(self, graph: og.Graph) -> None:
        assert ask(graph, "match { $x: Named not { $x: Person } } return { count(*) }") == [(2,)]

    def test_binding_after_the_walk_narrows_its_end(self, graph: og.Graph) -> None:
        assert ask(graph, f"match {{ {A} $a _ $x $x: Company }} return {{ $x, $x.size }}") == [("x", None)]

    def test_equal_ids_of_two_types_are_two_nodes(self, graph: og.Graph) -> None:
        body = (
            'match { $x: Named {name: "a"} $y: Named {name: "a"} not { $x _{0,0} $y } } return { type($x), type($y) }'
        )
        assert sorted(ask(graph, body)) == [("Company", "Person"), ("Person", "Company")]

    def test_optional_end_of_several_types_is_null(self, graph: og.Graph) -> None:
        body = 'match { $p: Person {name: "e"} optional { $p _ $x } } return { $x, type($x), $x is not null as y }'
        body = body.replace(", $x is not null as y", "")
        assert ask(graph, body) == [(None, None)]


class TestEntities:
    def test_star_returns_properties_but_no_vectors_and_blobs(self, graph: og.Graph) -> None:
        table = graph.query(f"query q() {{ match {{ {A} }} return {{ $a.* $a {{ rank, name }} }} }}").to_arrow()
        assert table.column_names == ["a.name", "a.rank", "a.rank_2", "a.name_2"]
        assert list(table.to_pylist()[0].values()) == ["a", 0, 0, "a"]

    def test_star_of_an_edge(self, graph: og.Graph) -> None:
        body = f"match {{ {A} $a $e:knows $b }} return {{ $e.* }}"
        assert ask(graph, body) == [(None, 1)]


class TestPages:
    def test_pages_without_order_cover_every_row_once(self, graph: og.Graph) -> None:
        body = "match { $x: Named $x _ $y } return { $x, $y } skip $s limit 3"
        pages = [row for start in (0, 3, 6, 9) for row in ask(graph, body, "$s: I64", s=start)]
        assert sorted(pages) == sorted(ask(graph, "match { $x: Named $x _ $y } return { $x, $y }"))
        assert pages[:2] == [("a", "u"), ("x", "v")]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("match { $a: Person $a knows|lieks $b } return { $a }", "T4", "did you mean `likes`"),
        ("match { $a: Person $a knows|knows $b } return { $a }", "T4", "named twice"),
        ("match { $a: Person $a knows|_ $b } return { $a }", "T4", "stands alone"),
        ("match { $a: City $a knows|likes $b } return { $a }", "T5", "`Knows` joins `Person` to `Person`"),
        ("match { $a: City $a _ $b } return { $a }", "T5", "write `<_>` to walk both ways"),
        ("match { $a: Person $a knows{1,$n} $b } return { $a }", "T15", "declare it"),
        ("match { $a: Person $a knows{3,1} $b } return { $a }", "T15", "swap the bounds"),
        ("match { $x: Named } return { $x.size }", "T6", "`Company|Person` has no property `size`"),
        ("match { $x: Nmaed } return { $x }", "T1", "did you mean `Named`"),
        ("match { $x: Person|Nope } return { $x }", "T1", "`Nope`"),
        ('match { $x: Named search($x.name, "a") } return { $x }', "T19", "bind one of the types"),
        ("match { $x: Person } return { $y.* }", "T6", "not a node or edge"),
        ("match { $x: Person $x $e:livesIn $c } return { $e.* }", "T6", "no properties"),
        ("match { $x: Person } return { type($x.name) }", "T33", "a node or an edge"),
    ],
)
def test_mistakes_are_explained(graph: og.Graph, body: str, code: str, words: str) -> None:
    with pytest.raises(LanguageError) as caught:
        ask(graph, body)
    assert f"[{code}]" in str(caught.value)
    assert words in str(caught.value)


def test_negative_hop_bound_is_refused(graph: og.Graph) -> None:
    with pytest.raises(DataError, match="must not be negative"):
        ask(graph, f"match {{ {A} $a knows{{1,$n}} $b }} return {{ $b }}", "$n: I32", n=-1)


def test_explain_shows_the_legs_and_the_way_they_are_walked(graph: og.Graph) -> None:
    plan = str(graph.explain(f"query q() {{ match {{ {A} $a knows|worksAt{{1,}} $b }} return {{ $b }} }}"))
    assert "expand $a out Knows|WorksAt{1,} $b: Company|Person" in plan
    assert "traversal" in plan


def test_renamed_member_keeps_its_walks_and_shows_its_new_name(tmp_path: Path, mode: str) -> None:
    with og.init(tmp_path / "g.omni", SCHEMA) as graph:
        graph.ingest([{"type": "Person", "data": {"name": name}} for name in "ab"])
        graph.ingest([{"edge": "Knows", "from": "a", "to": "b", "data": {}}])
        body = "match {{ $p: {0}  $p _ $x }} return {{ $p.name as name, $x.@type as type }}"
        assert ask(graph, body.format("Person")) == [("a", "Person")]
        # The new name sorts between the same members, whose versions stay.
        renamed = SCHEMA.replace("Person", "Partner")
        graph.schema.apply(renamed.replace("node Partner", 'node Partner @rename_from("Person")'))
        assert ask(graph, body.format("Partner")) == [("a", "Partner")]
