"""Selections: which changes a caller wants to see, by kind, type and operation.

Pure. A selection is bound into tokens by its digest, so that a feed is not continued with another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

import orjson

from omnigraph.errors import UsageError
from omnigraph.lang.catalog import Catalog

Kind = Literal["node", "edge"]
Op = Literal["insert", "update", "delete"]
KINDS: Final[tuple[Kind, ...]] = ("node", "edge")
OPS: Final[tuple[Op, ...]] = ("insert", "update", "delete")


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted; None leaves a dimension open, as an empty list of a caller does."""

    kinds: frozenset[str] | None = None
    types: frozenset[str] | None = None
    ops: frozenset[str] | None = None

    def has_type(self, table_key: str) -> bool:
        kind, _, name = table_key.partition(":")
        return (self.kinds is None or kind in self.kinds) and (self.types is None or name in self.types)

    @property
    def digest(self) -> str:
        members = [None if one is None else sorted(one) for one in (self.kinds, self.types, self.ops)]
        return sha256(orjson.dumps(members)).hexdigest()[:32]


ALL: Final = Selection()


def select(
    kinds: Sequence[str] | None, types: Sequence[str] | None, ops: Sequence[str] | None, catalogs: Iterable[Catalog]
) -> Selection:
    """Check what a caller asks for against the types that any of the catalogs has.

    >>> select(["node"], None, ["insert"], []).has_type("edge:Knows")
    False
    >>> select([], [], [], []) == ALL
    True
    """
    _known("kind", kinds, KINDS)
    _known("op", ops, OPS)
    names = sorted({name for one in catalogs for name in (*one.nodes, *one.edges)})
    _known("type", types, names)
    return Selection(*(frozenset(one) if one else None for one in (kinds, types, ops)))


def _known(what: str, asked: Sequence[str] | None, known: Sequence[str]) -> None:
    if isinstance(asked, str):
        raise UsageError(f"`{what}s` takes a list of names, not the single text `{asked}`", value=asked)
    for one in asked or ():
        if one not in known:
            raise UsageError(f"there is no {what} `{one}`; there are: {', '.join(known)}", value=one)
