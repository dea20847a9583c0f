"""The codes of schema and identity diagnostics, with a one-line title each.

Pure data; `docs/schema.md` lists every one and a test says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
        "S10": "two interfaces give one property different meanings",
        "S11": "malformed rename hint",
        "S12": "description or instruction repeated or blank",
        "S13": "instruction on a property",
        "S14": "property annotation on a type",
        "S15": "property annotation on a type of value that cannot carry it",
        "S16": "node-only annotation on an edge property",
        "S17": "property annotation repeated",
        "S18": "malformed embedding",
        "S19": "constraint names an unknown property",
        "S20": "more than one key",
        "S21": "key member nullable or not a scalar",
        "S22": "unique or index on a Blob",
        "S23": "node-only constraint on an edge",
        "S24": "range or check on the wrong type of property",
        "S25": "name declared twice",
        "S26": "edge endpoint is not a node type",
        "S27": "edge names that differ only in case",
        "S28": "property name taken by the graph itself",
        "S29": "note: annotation or constraint without effect",
        "S30": "merge rule unknown, repeated or malformed",
        "S31": "merge rule that does not fit what it stands on",
        "S32": "unknown annotation",
        "I1": "rename hint names nothing that was accepted",
        "I2": "rename hint names a declaration of another kind",
        "I3": "accepted type claimed twice",
        "I4": "rename hint names no property of the same type",
        "I5": "property rename hint inside a new type",
        "I6": "accepted property claimed twice",
        "I7": "identities exhausted, or malformed schema IR",
        "I8": "note: rename hint ignored",
    }
)
