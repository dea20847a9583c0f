"""Single entities by key, and a graph for networkx."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

import omnigraph as og
from tests.support.write_fixtures import create

SCHEMA = """
node Person {
  name: String @key
  born: Date?
  seen: DateTime?
  image: Blob?
}
node Flat {
  house: I32
  floor: I32
  @key(house, floor)
}
edge LivesIn: Person -> Flat {
  since: I32?
}
"""
ADA = {"id": "Ada", "name": "Ada", "born": date(1815, 12, 10), "seen": datetime(2026, 11, 17, 8, 30, tzinfo=UTC)}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    return create(
        tmp_path_factory.mktemp("entities") / "g.omni",
        SCHEMA,
        '{"type":"Person","data":{"name":"Ada","born":"1815-12-10","seen":"2026-11-17T08:30:00Z","image":"base64:AAAA"}}',
        '{"type":"Flat","data":{"house":1,"floor":2}}',
        '{"edge":"LivesIn","from":"Ada","to":"[\\"2\\",\\"1\\"]","data":{"id":"e1","since":1830}}',
    )


def test_entity_is_a_dictionary_of_its_properties(graph: og.Graph) -> None:
    assert graph.get("Person", "Ada") == ADA
    assert graph.get("Flat", {"house": 1, "floor": 2}) == {"id": '["2","1"]', "house": 1, "floor": 2}
    assert graph.get("LivesIn", "e1") == {"id": "e1", "from": "Ada", "to": '["2","1"]', "since": 1830}


def test_missing_entity_is_none(graph: og.Graph) -> None:
    assert graph.get("Person", "Bob") is None
    assert graph.get("Person", "Ada", at=graph.commits()[-1].commit_id) is None


@pytest.mark.parametrize(
    ("type_name", "key", "message"),
    [
        ("Persn", "Ada", "there is no type `Persn`; did you mean `Person`"),
        ("Flat", 1, "the key of `Flat` is `floor`, `house`; pass a mapping"),
        ("Flat", {"house": 1, "floor": "x"}, "is not a key of `Flat`"),
        ("LivesIn", 7, "`LivesIn` has no key; pass the `id`"),
    ],
)
def test_key_that_does_not_fit_is_explained(graph: og.Graph, type_name: str, key: object, message: str) -> None:
    with pytest.raises(og.UsageError, match=message):
        graph.get(type_name, key)


def test_graph_is_a_networkx_graph(graph: og.Graph) -> None:
    pytest.importorskip("networkx")
    whole = graph.to_networkx()
    assert whole.nodes[("Person", "Ada")] == {"type": "Person", **ADA}
    assert [(*edge[:3], edge[3]["since"]) for edge in whole.edges(keys=True, data=True)] == [
        (("Person", "Ada"), ("Flat", '["2","1"]'), "e1", 1830)
    ]
    assert list(graph.to_networkx(types=["Flat"])) == [("Flat", '["2","1"]')]
