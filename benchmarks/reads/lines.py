"""The lines of the comparison: each question once in every engine's own language.

Pure text; `benchmarks.reads.engines` runs it. Parameters carry the same names in all languages.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Draw(StrEnum):
    """What the parameters of a line are drawn from."""

    NOTHING = "nothing"
    PERSON = "person"
    PAIR = "pair"
    CITY = "city"
    WORDS = "words"
    VECTOR = "vector"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Line:
    """One question; an engine without a text for it cannot answer it.

    `calls` are timed one by one in each round, each with parameters of its own; `aim` is the least ratio to the best
    peer that we want to reach. A heavy line takes peers most of a minute at full size, so it is asked at a tenth of it.
    """

    name: str
    title: str
    gq: str
    cypher: str
    sql: str
    draw: Draw = Draw.NOTHING
    aim: float = 5.0
    calls: int = 1
    is_ordered: bool = False
    is_fetched_as_rows: bool = False
    is_heavy: bool = False

    @property
    def is_search(self) -> bool:
        return self.draw in (Draw.WORDS, Draw.VECTOR, Draw.BOTH)


SCHEMA = """
node Person { handle: String @key  name: String  city: String  age: I32 }
node Post { slug: String @key  created: DateTime  text: String @index  vec: Vector(64) @index }
edge Follows: Person -> Person
edge Wrote: Person -> Post
"""

LINES = (
    Line(
        "point",
        "point lookup by key, as rows",
        "query q($handle: String) { match { $p: Person { handle: $handle } } return { $p.name, $p.city, $p.age } }",
        "MATCH (p:Person {handle: $handle}) RETURN p.name, p.city, p.age",
        "SELECT name, city, age FROM person WHERE handle = $handle",
        Draw.PERSON,
        aim=1.0,
        calls=50,
        is_fetched_as_rows=True,
    ),
    Line(
        "scan",
        "filtered scan: a city, an age",
        "query q($city: String) { match { $p: Person $p.city = $city $p.age < 40 } return { $p.handle, $p.age } }",
        "MATCH (p:Person) WHERE p.city = $city AND p.age < 40 RETURN p.handle, p.age",
        "SELECT handle, age FROM person WHERE city = $city AND age < 40",
        Draw.CITY,
        aim=1.0,
        calls=10,
    ),
    Line(
        "hop1",
        "1 hop, distinct",
        "query q($handle: String) { match { $p: Person { handle: $handle } $p follows $q }"
        " return distinct { $q.handle, $q.age } }",
        "MATCH (p:Person {handle: $handle})-[:Follows]->(q:Person) RETURN DISTINCT q.handle, q.age",
        "SELECT DISTINCT q.handle, q.age FROM person p JOIN follows f ON f.src = p.number"
        " JOIN person q ON q.number = f.dst WHERE p.handle = $handle",
        Draw.PERSON,
        aim=1.0,
        calls=30,
    ),
    Line(
        "hop2",
        "2 hops, distinct",
        "query q($handle: String) { match { $p: Person { handle: $handle } $p follows $m $m follows $q }"
        " return distinct { $q.handle } }",
        "MATCH (p:Person {handle: $handle})-[:Follows]->(:Person)-[:Follows]->(q:Person) RETURN DISTINCT q.handle",
        "WITH reached AS (SELECT DISTINCT g.dst FROM person p JOIN follows f ON f.src = p.number"
        " JOIN follows g ON g.src = f.dst WHERE p.handle = $handle)"
        " SELECT q.handle FROM reached JOIN person q ON q.number = reached.dst",
        Draw.PERSON,
        calls=10,
    ),
    Line(
        "reach3_count",
        "reachable within 3 hops, count",
        "query q($handle: String) { match { $p: Person { handle: $handle } $p follows{1,3} $q }"
        " return { count($q) as n } }",
        "MATCH (p:Person {handle: $handle})-[:Follows* SHORTEST 1..3]->(q:Person) RETURN count(q)",
        "WITH start AS (SELECT number FROM person WHERE handle = $handle),"
        " one AS (SELECT DISTINCT dst FROM follows JOIN start ON src = number),"
        " two AS (SELECT DISTINCT f.dst FROM follows f JOIN one ON f.src = one.dst),"
        " three AS (SELECT DISTINCT f.dst FROM follows f JOIN two ON f.src = two.dst)"
        " SELECT count(*) FROM (FROM one UNION FROM two UNION FROM three) r WHERE dst NOT IN (FROM start)",
        Draw.PERSON,
        calls=3,
    ),
    Line(
        "reach3",
        "reachable within 3 hops, keys",
        "query q($handle: String) { match { $p: Person { handle: $handle } $p follows{1,3} $q } return { $q.handle } }",
        "MATCH (p:Person {handle: $handle})-[:Follows* SHORTEST 1..3]->(q:Person) RETURN q.handle",
        "WITH start AS (SELECT number FROM person WHERE handle = $handle),"
        " one AS (SELECT DISTINCT dst FROM follows JOIN start ON src = number),"
        " two AS (SELECT DISTINCT f.dst FROM follows f JOIN one ON f.src = one.dst),"
        " three AS (SELECT DISTINCT f.dst FROM follows f JOIN two ON f.src = two.dst)"
        " SELECT q.handle FROM (FROM one UNION FROM two UNION FROM three) r JOIN person q ON q.number = r.dst"
        " WHERE r.dst NOT IN (FROM start)",
        Draw.PERSON,
        calls=3,
    ),
    Line(
        "hop2_all",
        "2 hops over the whole graph, count",
        "query q() { match { $a: Person $a follows $b $b follows $c } return { count(*) as n } }",
        "MATCH (:Person)-[:Follows]->(:Person)-[:Follows]->(:Person) RETURN count(*)",
        "SELECT count(*) FROM follows f JOIN follows g ON g.src = f.dst",
    ),
    Line(
        "triangle",
        "triangles that start in a city, count",
        "query q($city: String) { match { $a: Person $a.city = $city $a follows $b $b follows $c $a follows $c }"
        " return { count(*) as n } }",
        "MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person), (a)-[:Follows]->(c)"
        " WHERE a.city = $city RETURN count(*)",
        "SELECT count(*) FROM person a JOIN follows f ON f.src = a.number JOIN follows g ON g.src = f.dst"
        " JOIN follows h ON h.src = a.number AND h.dst = g.dst WHERE a.city = $city",
        Draw.CITY,
    ),
    Line(
        "triangle_all",
        "triangles of the whole graph, count",
        "query q() { match { $a: Person $a follows $b $b follows $c $a follows $c } return { count(*) as n } }",
        "MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person), (a)-[:Follows]->(c) RETURN count(*)",
        "SELECT count(*) FROM follows f JOIN follows g ON g.src = f.dst"
        " JOIN follows h ON h.src = f.src AND h.dst = g.dst",
        is_heavy=True,
    ),
    Line(
        "anti_count",
        "anti-join: people who wrote nothing, count",
        "query q() { match { $p: Person not { $p wrote $_ } } return { count($p) as n } }",
        "MATCH (p:Person) WHERE NOT EXISTS { MATCH (p)-[:Wrote]->(:Post) } RETURN count(p)",
        "SELECT count(*) FROM person p WHERE NOT EXISTS (FROM wrote w WHERE w.src = p.number)",
    ),
    Line(
        "anti",
        "anti-join: people who wrote nothing, keys",
        "query q() { match { $p: Person not { $p wrote $_ } } return { $p.handle } }",
        "MATCH (p:Person) WHERE NOT EXISTS { MATCH (p)-[:Wrote]->(:Post) } RETURN p.handle",
        "SELECT handle FROM person p WHERE NOT EXISTS (FROM wrote w WHERE w.src = p.number)",
    ),
    Line(
        "group",
        "group by city over one hop of everyone",
        "query q() { match { $a: Person $a follows $b } return { $a.city, count($b) as n, avg($b.age) as age } }",
        "MATCH (a:Person)-[:Follows]->(b:Person) RETURN a.city, count(b), avg(b.age)",
        "SELECT a.city, count(*), avg(b.age) FROM person a JOIN follows f ON f.src = a.number"
        " JOIN person b ON b.number = f.dst GROUP BY a.city",
    ),
    Line(
        "top",
        "the 20 newest posts",
        "query q() { match { $p: Post } return { $p.slug } order { $p.created desc } limit 20 }",
        "MATCH (p:Post) RETURN p.slug ORDER BY p.created DESC LIMIT 20",
        "SELECT slug FROM post ORDER BY created DESC LIMIT 20",
        aim=1.0,
        calls=5,
        is_ordered=True,
    ),
    Line(
        "bm25",
        "BM25, best 10",
        "query q($words: String) { match { $p: Post } return { $p.slug } order { bm25($p.text, $words) } limit 10 }",
        "CALL QUERY_FTS_INDEX('Post', 'words', $words, TOP := 10) RETURN node.slug ORDER BY score DESC LIMIT 10",
        "",
        Draw.WORDS,
        aim=1.0,
        calls=10,
    ),
    Line(
        "vector",
        "nearest vectors, best 10",
        "query q($vec: Vector(64)) { match { $p: Post } return { $p.slug } order { nearest($p.vec, $vec) } limit 10 }",
        "MATCH (p:Post) RETURN p.slug ORDER BY array_distance(p.vec, CAST($vec, 'FLOAT[64]')) LIMIT 10",
        "SELECT slug FROM post ORDER BY array_distance(vec, $vec::FLOAT[64]) LIMIT 10",
        Draw.VECTOR,
        aim=1.0,
        calls=10,
    ),
    Line(
        "hybrid",
        "vectors and BM25 fused by rank, best 10",
        "query q($words: String, $vec: Vector(64)) { match { $p: Post } return { $p.slug }"
        " order { rrf(nearest($p.vec, $vec), bm25($p.text, $words)) } limit 10 }",
        "",
        "",
        Draw.BOTH,
        aim=1.0,
        calls=10,
    ),
)
BY_NAME = {line.name: line for line in LINES}
