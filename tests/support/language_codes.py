"""The diagnostic codes of the schema, migration and query languages, with their titles.

Cases and documents must show every one of them, and compilers report no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SCHEMA_CODES: Mapping[str, str] = MappingProxyType(
    {
        "S1": "syntax error, unsupported escape, or a source that is too large or too deep",
        "S2": "property name reserved by the storage format",
        "S3": "vector dimension out of range",
        "S4": "list of Blob",
        "S5": "enum value repeated",
        "S6": "cardinality bound out of range, or minimum above maximum",
        "S7": "constraint with the wrong kind or number of arguments",
        "S8": "unknown interface",
        "S9": "interface property declared with a different type",
        "S10": "two interfaces declare the same property differently",
        "S11": "malformed rename hint",
        "S12": "description or instruction repeated or blank",
        "S13": "instruction on a property",
        "S14": "property annotation on a type",
        "S15": "property annotation on a value type that does not support it",
        "S16": "embedding on an edge property",
        "S17": "property annotation repeated",
        "S18": "malformed embedding",
        "S19": "constraint names an unknown property",
        "S20": "more than one key",
        "S21": "key member nullable or not a scalar",
        "S22": "unique or index on a Blob",
        "S23": "node-only constraint on an edge",
        "S24": "range or check on the wrong type of property, or a check with a pattern that is too large",
        "S25": "name declared twice",
        "S26": "edge endpoint is not a node type",
        "S27": "edge names that differ only in case",
        "S28": "property name reserved by the graph",
        "S29": "note: annotation or constraint without effect",
        "S30": "merge rule unknown, repeated or malformed",
        "S31": "merge rule that does not apply to its type or property",
        "S32": "unknown annotation",
        "S33": "default that is repeated, malformed or not a value of its property",
        "I1": "rename hint names no type of the accepted schema",
        "I2": "rename hint names a declaration of another kind",
        "I3": "accepted type claimed twice",
        "I4": "rename hint names no property of the same type",
        "I5": "property rename hint inside a new type",
        "I6": "accepted property claimed twice",
        "I7": "identities exhausted, or malformed schema IR",
        "I8": "note: rename hint ignored",
    }
)

QUERY_CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Q000": "The text is not a query file, or a query is too large.",
        "T1": "A binding names a node type that does not exist.",
        "T2": "A binding matches on a property that its type lacks.",
        "T3": "A literal does not fit its property.",
        "T4": "A traversal names an edge that does not exist.",
        "T5": "A traversal end has a type that the edge does not join.",
        "T6": "A property is read from an unbound variable, or its type lacks it.",
        "T7": "A parameter, call or filter operand has a type that does not fit.",
        "T8": "An aggregate is applied to a type that it does not support.",
        "T9": "A plain column beside an aggregate, or a `not` block that shares no variable with the outer pattern.",
        "T10": "A mutation names a type that does not exist.",
        "T11": "A mutation names a property that its type lacks or that it cannot address.",
        "T12": "An insert omits a required property or endpoint, or a `rename` the key.",
        "T13": "A property is assigned twice.",
        "T14": "A mutation uses a variable that is not a parameter.",
        "T15": "Hop bounds are invalid, or `nearest` is applied to a property that is not a vector.",
        "T16": "The ends of an edge cannot be updated.",
        "T17": "Ordering by `nearest` needs a limit of at least 1.",
        "T18": "A column is combined with `nearest` in one `order`.",
        "T19": "`search` or `fuzzy` has an argument of the wrong type.",
        "T20": "`match_text` or `bm25` has an argument of the wrong type.",
        "T21": "Ordering by `rrf` lacks a limit, or `rrf` has an invalid argument.",
        "T22": "An edge between two different types cannot be traversed in both directions at once.",
        "T23": "An edge variable is used as something else.",
        "T24": "A Blob cannot be returned, ordered by or aggregated.",
        "T25": "A variable is bound to two node types.",
        "T26": "A variable is not bound.",
        "T27": "A parameter is reserved, malformed or declared twice.",
        "T28": "A list is nested or mixes types.",
        "T29": "A mutation is used where a read is expected, or the reverse.",
        "T30": "An `optional` block shares no variable with the outer pattern.",
        "T31": "A variable of an `optional` block is bound or traversed outside it.",
        "T32": "A score column lacks an alias, or is ordered against its ranking.",
        "T33": "An expression is not allowed here.",
        "T34": "`in` compares a value with a list that cannot hold it.",
        "T35": "`is null` is applied to an expression that is never null.",
        "T36": "`skip` or `limit` needs a declared, required integer parameter.",
        "T37": "A hop variable clashes with another name or is used as something else.",
        "T38": "An order key is not among the returned columns.",
        "T39": "Two columns have the same alias.",
        "T40": "A function, operator or `case` has values of types that it does not take.",
        "T41": "A path is malformed, or its variable is used as something else.",
        "T42": "A `with` binds a name that is taken or leaves a value without one, or its value is used as a node.",
        "T43": "The blocks of a union have different columns.",
        "T44": "An `unwind` takes something else than a list, or binds a name that is taken.",
        "E1": "Inserts or updates are mixed with deletes, or no such query exists.",
        "E3": "A key property cannot be updated; `rename` changes it.",
        "L201": "No update sets a nullable property.",
        "L202": "A mutation has no parameters.",
        "L203": "Two stored queries have the same name.",
        "L204": "A stored query takes a vector parameter, which is impractical for callers.",
        "L205": "An insert resets properties that it does not name, if there is an entity of the same key.",
    }
)

MIGRATION_CODES: Mapping[str, str] = MappingProxyType(
    {
        "OG-MF-100": "change that no migration supports",
        "OG-MF-103": "required property added to an existing type",
        "OG-MF-106": "type of a property changed",
    }
)

LANGUAGE_CODES: Final[Mapping[str, str]] = MappingProxyType({**SCHEMA_CODES, **MIGRATION_CODES, **QUERY_CODES})
