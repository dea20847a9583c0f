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
    node("University", number=9, name="Uni"), edge("UniversityIn", 9, "Turin"), edge("StudiedAt", 4, 9, year=2005),
    edge("StudiedAt", 4, 7, year=2011), edge("WorksAt", 4, 8, since=2010),
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
    node("Post", number=13, created=DAY.format(5), content="again"), edge("WrotePost", 1, 13),
    edge("LikesPost", 2, 10, at="2024-05-05T10:07:00Z"), edge("LikesPost", 2, 13, at="2024-05-05T10:09:00Z"),
    edge("LikesPost", 5, 13, at=DAY.format(6)), edge("LikesPost", 5, 10, at=DAY.format(6)),
    node("Forum", number=30, title="cats and co"), edge("Holds", 30, 10), edge("Holds", 30, 11),
    edge("Moderator", 30, 4), edge("Member", 30, 2, joined=DAY.format(4)),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("social") / "g.omni", schema=FOLDER / "schema.pg")
    graph.ingest(NETWORK, mode="append")
    return graph


LATE = DAY.format(30)
Asked = tuple[str, dict[str, Any], tuple[str, ...], list[tuple[Any, ...]]]
# Each read with its parameters, the columns to look at, and what they hold, worked out by hand.
ASKED: list[Asked] = [
    ("ic1", {"me": 1, "name": "Ada"}, ("person", "distance", "universities", "companies"),
     [(4, 1, ["Poli, 2011, Turin", "Uni, 2005, Turin"], ["Fiat, 2010, IT"]), (3, 2, [], ["Fiat, 2012, IT"])]),
    ("ic2", {"me": 1, "until": LATE}, ("person", "message", "kind", "text"),
     [(2, "20", "Comment", "yes"), (2, "11", "Post", "cat")]),
    ("ic3", {"me": 1, "x": "IT", "y": "FR", "from": DAY.format(1), "to": LATE}, ("person", "in_x", "in_y", "total"),
     [(2, 1, 1, 2), (3, 1, 1, 2)]),
    ("ic3", {"me": 1, "x": "IT", "y": "ES", "from": DAY.format(1), "to": LATE}, ("person",), []),
    ("ic4", {"me": 1, "from": DAY.format(6), "to": LATE}, ("tag", "posts"), [("art", 1), ("cats", 1)]),
    ("ic5", {"me": 1, "after": DAY.format(1)}, ("forum", "posts"), [(30, 1)]),
    ("ic6", {"me": 1, "tag": "cats"}, ("tag", "posts"), [("art", 1)]),
    ("ic7", {"me": 1}, ("person", "message", "minutes", "is_new"), [(5, "10", 1440, True), (2, "13", 9, False)]),
    ("ic8", {"me": 2}, ("person", "comment"), [(3, 21)]),
    ("ic9", {"me": 1, "before": LATE}, ("person", "message"), [(3, "21"), (2, "20"), (3, "12"), (2, "11")]),
    ("ic10", {"me": 1, "month": 5}, ("person", "score"), [(3, 1)]),
    ("ic11", {"me": 1, "country": "IT", "before": 2013}, ("person", "company"), [(4, "Fiat"), (3, "Fiat")]),
    ("ic12", {"me": 1, "class": "thing"}, ("person", "tags", "answers"), [(2, ["cats"], 1)]),
    ("ic13", {"a": 1, "b": 5}, ("steps",), [(3,)]),
    ("ic13", {"a": 1, "b": 6}, ("steps",), [(-1,)]),
    ("ic13", {"a": 1, "b": 1}, ("steps",), [(0,)]),
    # Comment 20 of 2 answers a post of 1, and comment 21 of 3 answers comment 20.
    ("ic14", {"a": 1, "b": 5}, ("persons", "weight"), [(["1", "2", "3", "5"], 1.5), (["1", "4", "3", "5"], 0.0)]),
    ("ic14_weighted", {"a": 1, "b": 5}, ("persons", "weight"), [(["1", "4", "3", "5"], 3.0)]),
    ("is1", {"me": 1}, ("p.first", "city"), [("Ada", "Turin")]),
    ("is2", {"me": 3}, ("message", "post", "author"), [("21", 10, 1), ("12", 12, 3)]),
    ("is3", {"me": 1}, ("person",), [(4,), (2,)]),
    ("is4", {"kind": "Post", "number": 11}, ("text",), [("cat",)]),
    ("is5", {"kind": "Comment", "number": 21}, ("p.number",), [(3,)]),
    ("is6", {"kind": "Comment", "number": 21}, ("forum.number", "moderator"), [(30, 4)]),
    ("is6", {"kind": "Post", "number": 11}, ("forum.number", "moderator"), [(30, 4)]),
    ("is7", {"kind": "Post", "number": 10}, ("comment", "person", "knows"), [(20, 2, True)]),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["auto", "csr", "indexed"])
def test_reads_return_what_the_network_holds(graph: og.Graph, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
    for name, params, columns, expected in ASKED:
        table = graph.query(READS, name=name, params=params).to_arrow()
        assert list(zip(*(table[column].to_pylist() for column in columns), strict=True)) == expected, name


def test_every_interactive_read_is_asked() -> None:
    names = {f"ic{number}" for number in range(1, 15)} | {f"is{number}" for number in range(1, 8)}
    assert names <= {name for name, _, _, _ in ASKED}
