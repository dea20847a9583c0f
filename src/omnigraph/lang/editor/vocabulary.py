"""Short texts about the words of the languages, as an editor shows them.

Pure. The words themselves come from the grammars; a word without a text here is still completed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from omnigraph.lang.query.functions import FUNCTIONS, signatures_of

QUERY_WORDS: Final = MappingProxyType(
    {
        "query": "Declares a query: `query name($parameter: Type) { … }`.",
        "match": "The pattern: every combination of entities that satisfies all clauses is a row.",
        "return": "The columns of the result. With an aggregate, the other columns are the group key.",
        "with": "Ends a stage: `with { $v, count(*) as $n }` passes variables and values on to the next `match`.",
        "union": "Puts the rows of two blocks one after the other, equal rows once; `union all` keeps them all.",
        "distinct": "Returns equal rows once; in an aggregate, takes equal values once.",
        "on": "`distinct on (key, …)`: returns the first row of each key, in the order of the query.",
        "having": "Filters groups by their keys, aggregates and columns.",
        "order": "Sorts the rows: `order { column desc, other }`.",
        "skip": "Leaves out the first rows.",
        "limit": "Returns at most this many rows.",
        "optional": "A block that keeps a row without inner solutions, with nulls.",
        "not": "`not { … }` keeps a row if the block has no solution.",
        "as": "Names a column, or binds the hops of a traversal or a value of a `with`.",
        "asc": "Ascending; nulls first.",
        "desc": "Descending; nulls last.",
        "and": "True if both conditions are; unknown if one is unknown and none is false.",
        "or": "True if a condition is; unknown if one is unknown and none is true.",
        "in": "True if a value equals an item of a list; `$v in nodes($p)` binds the nodes of a path.",
        "is": "`is null` and `is not null` test for a missing value.",
        "contains": "True if a text contains a text, or a list an item.",
        "starts_with": "True if a text begins with a text.",
        "insert": "Inserts an entity; a node of an existing key is replaced.",
        "update": "Changes properties: `update Type set { … } where property = value`.",
        "delete": "Deletes entities, and with nodes their edges.",
        "set": "The properties that an update changes.",
        "where": "Which entities a mutation changes, or what `any` and `all` test.",
    }
)
# Functions with special rules; the others are described where they are defined.
_SPECIAL_FUNCTIONS: Final = MappingProxyType(
    {
        "now": "`now()`: the instant at which the query runs, one for all rows.",
        "date": '`date("2024-01-31")`: a Date.',
        "datetime": '`datetime("2024-01-31T10:00:00Z")`: a DateTime.',
        "cast": "`cast(x as Type)`: a value as another type.",
        "type": "`type($x)`: the type of a node of several types.",
        "nodes": "`nodes($p)`: the ids of the nodes of a path, in order.",
        "edges": "`edges($p)`: the ids of the edges of a path, in order.",
        "cost": "`cost($p)`: the weight of a path that was found `by` an edge property.",
        "count": "`count(x)`: how many values are not null; `count(*)`: how many rows.",
        "sum": "`sum(x)`: the sum of numbers, exact for integers.",
        "avg": "`avg(x)`: the mean of numbers, an F64.",
        "min": "`min(x)`: the smallest value.",
        "max": "`max(x)`: the largest value.",
        "collect": "`collect(x)`: the values as a list, in ascending order, without nulls.",
        "stddev": "`stddev(x)`: the standard deviation of a sample, an F64.",
        "percentile": "`percentile(x, 0.9)`: the value 90 % of the way through the sorted values, interpolated.",
        "any": "`any($item in list where condition)`: true if the condition holds for an item.",
        "all": "`all($item in list where condition)`: true if the condition holds for every item.",
        "search": "`search(text, words)`: true if a text has any of the words.",
        "match_text": "`match_text(text, words)`: the same as `search`.",
        "fuzzy": "`fuzzy(text, words, edits)`: like `search`, but forgives misspellings.",
        "bm25": "`bm25(text, words)`: the relevance of a text; ranks, best first.",
        "nearest": "`nearest(vector, other)`: the Euclidean distance; ranks, closest first.",
        "rrf": "`rrf(first, second)`: fuses two rankings.",
    }
)
SCHEMA_WORDS: Final = MappingProxyType(
    {
        "node": "Declares a node type: `node Name { property: Type }`.",
        "edge": "Declares an edge type: `edge Name: Source -> Target { property: Type }`.",
        "interface": "Declares properties that several node types share.",
        "implements": "Takes over the properties of interfaces.",
        "enum": "One of the listed words: `enum(a, b)`.",
        "Vector": "A vector of 32-bit floats with this many dimensions: `Vector(384)`.",
        "String": "A text.",
        "Blob": "Bytes of any size.",
        "Bool": "`true` or `false`.",
        "I32": "A 32-bit integer.",
        "I64": "A 64-bit integer.",
        "U32": "A 32-bit integer that is not negative.",
        "U64": "A 64-bit integer that is not negative.",
        "F32": "A 32-bit float.",
        "F64": "A 64-bit float.",
        "Date": "A day.",
        "DateTime": "An instant, in milliseconds.",
    }
)
ANNOTATIONS: Final = MappingProxyType(
    {
        "key": "The identity of a node or edge; never changes. Several members: `@key(a, b)`, `@key(@src, @dst)`.",
        "unique": "No two entities have the same value; nulls are exempt.",
        "index": "An index for fast lookup, or for words of a text.",
        "range": "`@range(property, low..high)`: inclusive bounds of a number.",
        "check": '`@check(property, "pattern")`: a pattern that a text must match.',
        "card": "`@card(min..max)`: how many edges of the type may leave a node.",
        "description": "A text that explains a type, property or query.",
        "instruction": "A text that tells agents how to use a type or query.",
        "embed": '`@embed(source, model="…")`: where the vectors come from.',
        "default": "`@default(value)`, `@default(now())`, `@default(uuid())`: stored where a write leaves it out.",
        "rename_from": "The name before a migration.",
        "merge": "`@merge(rule)`: ours, theirs, max, min, union or fail.",
    }
)
SYSTEM_FIELDS: Final = MappingProxyType(
    {
        "@id": "The id of a node or edge, a String.",
        "@type": "The name of the type of a node or edge, a String; the same as `type($v)`.",
        "@src": "The id of the node that an edge starts from, a String.",
        "@dst": "The id of the node that an edge leads to, a String.",
    }
)
ENDS: Final = ("@src", "@dst")
QUERY_ANNOTATIONS: Final = ("description", "instruction")


def describe_function(name: str) -> str | None:
    """Return what a function does, with its forms; None if there is none of that name.

    >>> describe_function("now")
    '`now()`: the instant at which the query runs, one for all rows.'
    """
    if name in _SPECIAL_FUNCTIONS:
        return _SPECIAL_FUNCTIONS[name]
    if name not in FUNCTIONS:
        return None
    forms = "; ".join(f"`{form}`" for form in signatures_of(name))
    return f"{FUNCTIONS[name].text} {forms}"
