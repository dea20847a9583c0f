"""Page tokens, cursors and filters of change readers.

Pure. A token is base64url over JSON and its SHA-256. It is not signed, but damaged, foreign and outdated tokens are
detected. No reader state is stored on our side.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Collection
from dataclasses import asdict, astuple, dataclass, fields
from hashlib import sha256
from typing import Final, Literal, TypeAlias, TypeGuard

import orjson

from omnigraph.engine.arguments import check_name_list, check_type
from omnigraph.errors import CursorRejected, LimitExceeded, UsageError
from omnigraph.ids import CommitId
from omnigraph.lang.catalog import KINDS, Catalog, TypeKey
from omnigraph.limits import CHANGE_ID_BYTES_MAX, CHANGE_ID_PREFIX_BYTES, CHANGE_TOKEN_BYTES_MAX

VERSION: Final = 1
TokenKind: TypeAlias = Literal["commit-page", "feed-cursor", "feed-page"]
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Scope:
    """The validity of a token: one graph, one incarnation of a branch, one selection."""

    graph: str
    branch: str
    incarnation: str
    selection: str


@dataclass(frozen=True, slots=True)
class Position:
    """An entity inside a commit: everything up to and including it was delivered.

    A long id is stored as its prefix and its digest.
    """

    type_key: str
    entity_id: str
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A position: after a commit, or after an entity inside it. `cut` is the head at which the current poll ends."""

    kind: TokenKind
    scope: Scope
    commit: CommitId
    cut: CommitId | None = None
    position: Position | None = None


def rejected(why: str) -> CursorRejected:
    """Return the error of a rejected token."""
    return CursorRejected(f"change cursor rejected: {why}")


def place_of(type_key: str, entity_id: str) -> Position:
    """Return the position of an entity.

    >>> place_of("node:1", "a").entity_id, len(place_of("node:1", "é" * 200).entity_id)
    ('a', 32)
    """
    raw = entity_id.encode()
    if len(raw) <= CHANGE_ID_BYTES_MAX:
        return Position(type_key, entity_id)
    # A character that the cut would split is left out.
    prefix = raw[:CHANGE_ID_PREFIX_BYTES].decode(errors="ignore")
    return Position(type_key, prefix, sha256(raw).hexdigest())


def encode(token: Token) -> str:
    """Encode a token as text."""
    position = None if token.position is None else astuple(token.position)
    head = {"v": VERSION, "kind": token.kind, **asdict(token.scope)}
    body = orjson.dumps({**head, "commit": token.commit, "cut": token.cut, "place": position})
    return urlsafe_b64encode(body + sha256(body).digest()).rstrip(b"=").decode()


def decode(text: str, kind: TokenKind, scope: Scope) -> Token:
    """Decode a token; `CursorRejected` unless it is intact and of this kind and scope."""
    check_type("cursor" if kind == "feed-cursor" else "page_token", text, str)
    if len(text) > CHANGE_TOKEN_BYTES_MAX:
        raise LimitExceeded(
            f"a change token has at most {CHANGE_TOKEN_BYTES_MAX} characters; this one has {len(text)}",
            resource="change_continuation_token_encoded_bytes",
            limit=CHANGE_TOKEN_BYTES_MAX,
            actual=len(text),
        )
    token = _read(text)
    if token.kind != kind:
        raise rejected(f"it is a {token.kind}, and a {kind} is needed")
    if token.scope.graph != scope.graph:
        raise rejected("it belongs to another graph")
    # A renamed branch keeps its incarnation, so its name alone is not compared.
    if token.scope.incarnation != scope.incarnation:
        is_new = token.scope.branch == scope.branch
        recreated = "the branch was deleted and recreated; take a new baseline"
        raise rejected(recreated if is_new else "it belongs to another branch")
    if token.scope.selection != scope.selection:
        raise rejected("it was made for other kinds, types or ops; pass the same ones")
    return token


def _read(text: str) -> Token:
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        body, digest = raw[:-_DIGEST_BYTES], raw[-_DIGEST_BYTES:]
        if sha256(body).digest() != digest:
            raise rejected("it is damaged; pass the token exactly as received")
        token = _from_json(orjson.loads(body))
    except (Base64Error, ValueError, KeyError, TypeError) as error:
        raise rejected("it is not a change token; pass the token exactly as received") from error
    # Canonical form only: padding, line breaks or extra fields would give one position many texts.
    if encode(token) != text:
        raise rejected("it is not in canonical form; pass the token exactly as received")
    return token


def _is_position(position: object) -> TypeGuard[list[str]]:
    """Return True if a JSON value is the position of an entity: type, id, and the digest of a long id."""
    if not isinstance(position, list) or len(position) != 3:
        return False
    return all(isinstance(part, str) for part in position[:2]) and isinstance(position[2], str | None)


def _from_json(body: dict[str, object]) -> Token:
    version = body["v"]
    if type(version) is not int or version != VERSION:
        raise rejected(f"it has version {orjson.dumps(version).decode()}; this release reads version {VERSION}")
    kind = str(body["kind"])
    scope = Scope(*(str(body[member.name]) for member in fields(Scope)))
    position = body["place"]
    if position is not None and not _is_position(position):
        raise ValueError("a place must consist of strings")
    return Token(
        kind,  # type: ignore[arg-type]  # compared with the wanted kind right after
        scope,
        CommitId(str(body["commit"])),
        None if body["cut"] is None else CommitId(str(body["cut"])),
        None if position is None else Position(*position),
    )


Op = Literal["insert", "update", "delete"]
OPS: Final[tuple[Op, ...]] = ("insert", "update", "delete")


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Selects changes by kind, type and operation; None or an empty list selects all.

    >>> ChangeFilter(["node"], ops=["insert"]).has_type(TypeKey("edge:Knows")), ChangeFilter([], [], []) == ALL
    (False, True)
    """

    kinds: Collection[str] | None = None
    types: Collection[str] | None = None
    ops: Collection[str] | None = None

    def __post_init__(self) -> None:
        _check_names("kind", self.kinds, KINDS)
        _check_names("op", self.ops, OPS)
        check_name_list("types", self.types)
        for name in ("kinds", "types", "ops"):
            object.__setattr__(self, name, frozenset(getattr(self, name) or ()) or None)

    def check_types(self, *catalogs: Catalog) -> ChangeFilter:
        """Return this filter; `UsageError` for a type that none of the catalogs has."""
        type_names = {name for catalog in catalogs for name in (*catalog.nodes, *catalog.edges)}
        _check_names("type", self.types, sorted(type_names))
        return self

    def has_type(self, table_key: TypeKey) -> bool:
        is_wanted_kind = self.kinds is None or table_key.kind in self.kinds
        return is_wanted_kind and (self.types is None or table_key.name in self.types)

    @property
    def digest(self) -> str:
        members = [None if names is None else sorted(names) for names in (self.kinds, self.types, self.ops)]
        return sha256(orjson.dumps(members)).hexdigest()[:32]


def _check_names(noun: str, names: Collection[str] | None, allowed: Collection[str]) -> None:
    check_name_list(f"{noun}s", names)
    for name in sorted(names or ()):
        if name not in allowed:
            raise UsageError(f"unknown {noun} `{name}`; expected one of {', '.join(allowed)}", value=name)


ALL: Final = ChangeFilter()
