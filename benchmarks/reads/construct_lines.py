"""Questions that use one construct of the language each: expressions, aggregates, stages, unions, paths.

Pure text, like `benchmarks.reads.lines`. A peer without a text has no such construct.
"""

from __future__ import annotations

from benchmarks.reads.lines import BY_NAME, Draw, Line

CONSTRUCTS = (
    Line(
        "count_distinct",
        "`count(distinct …)`: different people followed from each city",
        "query q() { match { $a: Person $a follows $b } return { $a.city as city, count(distinct $b) as people } }",
        "MATCH (a:Person)-[:Follows]->(b:Person) RETURN a.city, count(DISTINCT b.number)",
        "SELECT a.city, count(DISTINCT f.dst) FROM person a JOIN follows f ON f.src = a.number GROUP BY a.city",
        aim=1.0,
    ),
    Line(
        "group_function",
        "group by a function: posts in each hour of the day",
        "query q() { match { $p: Post } return { hour($p.created) as hour, count(*) as posts } }",
        "MATCH (p:Post) RETURN date_part('hour', CAST(p.created, 'TIMESTAMP')), count(*)",
        "SELECT hour(created), count(*) FROM post GROUP BY ALL",
        aim=1.0,
        calls=3,
    ),
    Line(
        "case_sum",
        "`case` in `sum`: how many of those followed from each city are older than 60",
        "query q() { match { $a: Person $a follows $b }"
        " return { $a.city as city, sum(case when $b.age > 60 then 1 else 0 end) as older } }",
        "MATCH (a:Person)-[:Follows]->(b:Person)"
        " RETURN a.city, CAST(sum(CASE WHEN b.age > 60 THEN 1 ELSE 0 END), 'INT64')",
        "SELECT a.city, sum(CASE WHEN b.age > 60 THEN 1 ELSE 0 END)::BIGINT FROM person a"
        " JOIN follows f ON f.src = a.number JOIN person b ON b.number = f.dst GROUP BY a.city",
        aim=1.0,
    ),
    Line(
        "arithmetic",
        "arithmetic in a filter: follows of people 40 years older, count",
        "query q() { match { $a: Person $a follows $b $b.age - $a.age > 40 } return { count(*) as n } }",
        "MATCH (a:Person)-[:Follows]->(b:Person) WHERE b.age - a.age > 40 RETURN count(*)",
        "SELECT count(*) FROM person a JOIN follows f ON f.src = a.number JOIN person b ON b.number = f.dst"
        " WHERE b.age - a.age > 40",
        aim=1.0,
    ),
    Line(
        "string_filter",
        "a string function in a filter: posts by their beginning, whatever the case",
        'query q() { match { $p: Post lower($p.text) starts_with "ba" } return { $p.slug } }',
        "MATCH (p:Post) WHERE lower(p.text) STARTS WITH 'ba' RETURN p.slug",
        "SELECT slug FROM post WHERE starts_with(lower(text), 'ba')",
        aim=1.0,
        calls=3,
    ),
    Line(
        "collect",
        "`collect`: the posts of each author, in order",
        "query q() { match { $p: Person $p wrote $x } return { $p.handle as handle, collect($x.slug) as slugs } }",
        "MATCH (p:Person)-[:Wrote]->(x:Post) RETURN p.handle, list_sort(collect(x.slug))",
        "SELECT p.handle, list(x.slug ORDER BY x.slug) FROM person p JOIN wrote w ON w.src = p.number"
        " JOIN post x ON x.number = w.dst GROUP BY p.handle",
        aim=1.0,
    ),
    Line(
        "percentile",
        "`percentile`: nine tenths of those followed from each city are younger",
        "query q() { match { $a: Person $a follows $b } return { $a.city as city, percentile($b.age, 0.9) as age } }",
        "",
        "SELECT a.city, quantile_cont(b.age, 0.9) FROM person a JOIN follows f ON f.src = a.number"
        " JOIN person b ON b.number = f.dst GROUP BY a.city",
        aim=1.0,
    ),
    Line(
        "distinct_on",
        "`distinct on`: the newest post of each author, newest first",
        "query q() { match { $p: Person $p wrote $x } return distinct on ($p) { $p.handle as handle, $x.slug as slug }"
        " order { $x.created desc } }",
        "MATCH (p:Person)-[:Wrote]->(x:Post) WITH p, max(x.created) AS newest"
        " MATCH (p)-[:Wrote]->(x:Post) WHERE x.created = newest RETURN p.handle, x.slug ORDER BY newest DESC",
        "SELECT p.handle, n.slug FROM (SELECT w.src, arg_max(x.slug, x.created) AS slug, max(x.created) AS created"
        " FROM wrote w JOIN post x ON x.number = w.dst GROUP BY w.src) n JOIN person p ON p.number = n.src"
        " ORDER BY n.created DESC",
        aim=1.0,
        is_ordered=True,
    ),
    Line(
        "with",
        "`with`: how many people follow how many",
        "query q() { match { $p: Person $p follows $q } with { $p, count(*) as $follows }"
        " return { $follows as follows, count(*) as people } }",
        "MATCH (p:Person)-[:Follows]->(q:Person) WITH p, count(*) AS follows RETURN follows, count(*)",
        "SELECT follows, count(*) FROM (SELECT src, count(*) AS follows FROM follows GROUP BY src) GROUP BY follows",
        aim=1.0,
    ),
    Line(
        "union",
        "`union`: the people of a city and those they follow",
        "query q($city: String) { match { $p: Person $p.city = $city } return { $p.handle as handle }"
        " union match { $p: Person $p.city = $city $p follows $q } return { $q.handle as handle } }",
        "MATCH (p:Person) WHERE p.city = $city RETURN p.handle AS handle"
        " UNION MATCH (p:Person)-[:Follows]->(q:Person) WHERE p.city = $city RETURN q.handle AS handle",
        "SELECT handle FROM person WHERE city = $city UNION SELECT q.handle FROM person p"
        " JOIN follows f ON f.src = p.number JOIN person q ON q.number = f.dst WHERE p.city = $city",
        Draw.CITY,
        aim=1.0,
        calls=5,
    ),
    Line(
        "open_hops",
        "`{1,}`: everyone reachable, count",
        "query q($handle: String) { match { $p: Person { handle: $handle } $p follows{1,} $q }"
        " return { count($q) as n } }",
        "MATCH (p:Person {handle: $handle})-[:Follows* SHORTEST 1..30]->(q:Person) RETURN count(q)",
        "WITH RECURSIVE start AS (SELECT number FROM person WHERE handle = $handle),"
        " reached AS (SELECT dst FROM follows JOIN start ON src = number"
        " UNION SELECT f.dst FROM reached r JOIN follows f ON f.src = r.dst)"
        " SELECT count(*) FROM reached WHERE dst NOT IN (FROM start)",
        Draw.PERSON,
        calls=3,
    ),
    Line(
        "shortest",
        "`shortest`: hops between two people",
        "query q($handle: String, $other: String) { match { $a: Person { handle: $handle }"
        " $b: Person { handle: $other } path $way = shortest $a follows{1,} $b } return { length($way) as hops } }",
        "MATCH (a:Person {handle: $handle})-[f:Follows* SHORTEST 1..30]->(b:Person {handle: $other}) RETURN length(f)",
        "WITH RECURSIVE walk(number, hops) USING KEY (number) AS ("
        "SELECT number, 0 FROM person WHERE handle = $handle"
        " UNION SELECT f.dst, w.hops + 1 FROM walk w JOIN follows f ON f.src = w.number"
        " WHERE f.dst NOT IN (SELECT number FROM recurring.walk))"
        " SELECT hops::BIGINT FROM walk JOIN person USING (number) WHERE handle = $other",
        Draw.PAIR,
        calls=5,
    ),
    Line(
        "two_ends",
        "walks from two looked-up ends: whom two people both follow",
        "query q($handle: String, $other: String) { match { $a: Person { handle: $handle }"
        " $b: Person { handle: $other } $a follows $x $b follows $x } return { $x.handle } }",
        "MATCH (a:Person {handle: $handle})-[:Follows]->(x:Person)<-[:Follows]-(b:Person {handle: $other})"
        " RETURN x.handle",
        "SELECT x.handle FROM person a JOIN follows f ON f.src = a.number JOIN follows g ON g.dst = f.dst"
        " JOIN person b ON b.number = g.src JOIN person x ON x.number = f.dst"
        " WHERE a.handle = $handle AND b.handle = $other",
        Draw.PAIR,
        calls=10,
    ),
    Line(
        "alternatives",
        "edge alternatives: whom those you follow follow, and what they wrote",
        "query q($handle: String) { match { $p: Person { handle: $handle } $p follows $m $m follows|wrote $x }"
        " return distinct { $x as id } }",
        "MATCH (p:Person {handle: $handle})-[:Follows]->(:Person)-[:Follows|Wrote]->(x:Person:Post)"
        " RETURN DISTINCT coalesce(x.handle, x.slug)",
        "WITH near AS (SELECT f.dst FROM person p JOIN follows f ON f.src = p.number WHERE p.handle = $handle)"
        " SELECT handle FROM person WHERE number IN (SELECT g.dst FROM near JOIN follows g ON g.src = near.dst)"
        " UNION ALL SELECT slug FROM post WHERE number IN (SELECT w.dst FROM near JOIN wrote w ON w.src = near.dst)",
        Draw.PERSON,
        calls=5,
    ),
)
ANY_LINE = BY_NAME | {line.name: line for line in CONSTRUCTS}
