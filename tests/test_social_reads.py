"""The 21 interactive reads of the LDBC Social Network Benchmark compile and return what a small network holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent.parent / "examples" / "social"
READS = (FOLDER / "reads.gq").read_text(encoding="utf-8")
DAY = "2024-05-{:02}T10:00:00Z"


def person(number: int, first: str, birthday: str = "1990-06-25") -> dict[str, Any]:
    data = {"number": number, "first": first, "last": f"L{number}", "gender": "f", "birthday": birthday,
            "created": DAY.format(1), "browser": "b", "ip": "i", "emails": [], "languages": ["en"]}  # fmt: skip
    return {"type": "Person", "data": data}


def node(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data}


def edge(kind: str, start: object, end: object, **data: Any) -> dict[str, Any]:
    return {"edge": kind, "from": str(start), "to": str(end), "data": data}


def knows(a: int, b: int, weight: float, day: int = 2) -> dict[str, Any]:
    return edge("Knows", a, b, since=DAY.format(day), weight=weight)


# 1 knows 2 and 4, both know 3, who knows 5; 6 is alone. Post 10 of 1 has comment 20 of 2, which has comment 21 of 3.
NETWORK = [
    *(person(number, first) for number, first in ((1, "Ada"), (2, "Bea"), (4, "Ada"), (5, "Eve"), (6, "Fay"))),
    person(3, "Ada", "1991-05-30"),
    node("City", name="Turin"), node("Country", name="IT"), node("Country", name="FR"), node("Country", name="DE"),
    edge("PartOf", "Turin", "DE"), *(edge("LivesIn", number, "Turin") for number in range(1, 7)),
    node("University", number=7, name="Poli"), edge("UniversityIn", 7, "Turin"), edge("StudiedAt", 2, 7, year=2010),
    node("Company", number=8, name="Fiat"), edge("CompanyIn", 8, "IT"), edge("WorksAt", 3, 8, since=2012),
    knows(1, 2, 5.0), knows(2, 3, 5.0), knows(1, 4, 1.0, 3), knows(4, 3, 1.0), knows(3, 5, 1.0),
    node("Post", number=10, created=DAY.format(5), content="hello"), edge("WrotePost", 1, 10),
    node("Post", number=11, created=DAY.format(6), image="cat"), edge("WrotePost", 2, 11),
    node("Post", number=12, created=DAY.format(7), content="more"), edge("WrotePost", 3, 12),
    node("Comment", number=20, created=DAY.format(8), content="yes"), edge("WroteComment", 2, 20),
    node("Comment", number=21, created=DAY.format(9), content="no"), edge("WroteComment", 3, 21),
    edge("AnswersPost", 20, 10), edge("AnswersComment", 21, 20),
    edge("PostFrom", 11, "IT"), edge("PostFrom", 12, "IT"), edge("CommentFrom", 21, "FR"),
    edge("CommentFrom", 20, "FR"),
    node("Tag", name="cats"), node("Tag", name="art"), node("TagClass", name="animal"), node("TagClass", name="thing"),
    edge("ClassOf", "cats", "animal"), edge("Subclass", "animal", "thing"),
    edge("PostTag", 10, "cats"), edge("PostTag", 11, "cats"), edge("PostTag", 11, "art"), edge("PostTag", 12, "art"),
    edge("InterestedIn", 1, "art"),
    edge("LikesPost", 2, 10, at="2024-05-05T10:07:00Z"), edge("LikesPost", 5, 10, at=DAY.format(6)),
    node("Forum", number=30, title="cats and co"), edge("Holds", 30, 10), edge("Holds", 30, 11),
    edge("Moderator", 30, 4), edge("Member", 30, 2, joined=DAY.format(4)),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("social") / "g.omni", schema=FOLDER / "schema.pg")
    graph.ingest(NETWORK, mode="append")
    return graph


def ask(graph: og.Graph, query: str, /, *columns: str, **params: object) -> list[tuple[Any, ...]]:
    rows = graph.query(READS, name=query, params=params).to_arrow().to_pylist()
    return [tuple(row[column] for column in columns) for row in rows]


@pytest.mark.parametrize("mode", ["auto", "indexed"])
def test_reads_return_what_the_network_holds(graph: og.Graph, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    late = DAY.format(30)
    expected: list[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = [
        (ask(graph, "ic1", "person", "distance", "company", me=1, name="Ada"), [(4, 1, None), (3, 2, "Fiat")]),
        (ask(graph, "ic2", "person", "message", "kind", "text", me=1, until=late),
         [(2, "20", "Comment", "yes"), (2, "11", "Post", "cat")]),
        (ask(graph, "ic3", "person", "in_x", "in_y", "total", me=1, x="IT", y="FR", to=late, **{"from": DAY.format(1)}),
         [(2, 1, 1, 2), (3, 1, 1, 2)]),
        (ask(graph, "ic4", "tag", "posts", me=1, **{"from": DAY.format(6), "to": late}), [("art", 1), ("cats", 1)]),
        (ask(graph, "ic5", "forum", "posts", me=1, after=DAY.format(1)), [(30, 1)]),
        (ask(graph, "ic6", "tag", "posts", me=1, tag="cats"), [("art", 1)]),
        (ask(graph, "ic7", "person", "minutes", "is_new", me=1), [(5, 1440, True), (2, 7, False)]),
        (ask(graph, "ic8", "person", "comment", me=2), [(3, 21)]),
        (ask(graph, "ic9", "person", "message", me=1, before=late), [(3, "21"), (2, "20"), (3, "12"), (2, "11")]),
        (ask(graph, "ic10", "person", "score", me=1, month=5), [(3, 1)]),
        (ask(graph, "ic11", "person", "company", me=1, country="IT", before=2013), [(3, "Fiat")]),
        (ask(graph, "ic12", "person", "answers", me=1, **{"class": "thing"}), [(2, 1)]),
        (ask(graph, "ic12_tags", "person", "tag", me=1, **{"class": "thing"}), [(2, "cats")]),
        (ask(graph, "ic13", "steps", a=1, b=5), [(3,)]),
        (ask(graph, "ic13", "steps", a=1, b=6), [(-1,)]),
        (ask(graph, "ic13", "steps", a=1, b=1), [(0,)]),
        (ask(graph, "ic14", "persons", "steps", a=1, b=5), [(["1", "2", "3", "5"], 3), (["1", "4", "3", "5"], 3)]),
        (ask(graph, "ic14_weighted", "persons", "weight", a=1, b=5), [(["1", "4", "3", "5"], 3.0)]),
        (ask(graph, "is1", "p.first", "city", me=1), [("Ada", "Turin")]),
        (ask(graph, "is2", "message", "post", "author", me=3), [("21", 10, 1), ("12", 12, 3)]),
        (ask(graph, "is3", "person", me=1), [(4,), (2,)]),
        (ask(graph, "is4", "text", kind="Post", number=11), [("cat",)]),
        (ask(graph, "is5", "p.number", kind="Comment", number=21), [(3,)]),
        (ask(graph, "is6", "forum.number", "moderator", kind="Comment", number=21), [(30, 4)]),
        (ask(graph, "is6", "forum.number", "moderator", kind="Post", number=11), [(30, 4)]),
        (ask(graph, "is7", "comment", "person", "knows", kind="Post", number=10), [(20, 2, True)]),
    ]  # fmt: skip
    for found, right in expected:
        assert found == right
