"""Who is asking: bearer tokens, kept as digests, and where a server reads them from at its start.

The text of a token is never kept and never told.
"""

from __future__ import annotations

import hmac
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

import orjson

from omnigraph import settings
from omnigraph.errors import GraphError, UsageError
from omnigraph.files import read_regular_file
from omnigraph.limits import TOKENS_BYTES_MAX

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FILE, _JSON = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
_AWS, _ONE = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET", "OMNIGRAPH_SERVER_BEARER_TOKEN"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The actors of a server by the digest of their token; none is a server that asks nobody for one."""

    entries: tuple[tuple[bytes, str], ...] = ()

    @classmethod
    def of(cls, by_actor: Mapping[str, str]) -> Tokens:
        """Hash tokens; a blank or shared one is refused."""
        entries = []
        for actor, token in by_actor.items():
            if not actor.strip() or not token.strip():
                raise UsageError("a bearer token and its actor must not be blank", actor=actor)
            entries.append((_digest(token.strip()), actor.strip()))
        for what, distinct in (("token", {one for one, _ in entries}), ("actor", {one for _, one in entries})):
            if len(distinct) < len(entries):
                raise UsageError(f"two bearer tokens have the same {what}; give every actor one of its own")
        return cls(tuple(entries))

    def actor_of(self, authorization: str | None) -> str | None:
        """Return who sent a header `Authorization`; None where no token is asked for."""
        if not self.entries:
            return None
        scheme, _, token = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise GraphError("missing bearer token", code="request.unauthorized")
        asked, found = _digest(token.strip()), None
        # Every entry is compared, and each in constant time, so that time tells nothing about any of them.
        for digest, actor in self.entries:
            if hmac.compare_digest(digest, asked):
                found = actor
        if found is None:
            raise GraphError("invalid bearer token", code="request.unauthorized")
        return found


def read_tokens() -> Tokens:
    """Return the tokens that the settings name."""
    if settings.read(_AWS):
        raise UsageError(f"{_AWS} is set, but this release reads no AWS secrets; use {_FILE} instead")
    file, text = settings.read(_FILE), settings.read(_JSON)
    if file and text:
        raise UsageError(f"{_FILE} and {_JSON} are both set; use one of them")
    by_actor = _parse(_FILE, _text_of(file)) if file else _parse(_JSON, text) if text else {}
    if one := settings.read(_ONE):
        if "default" in by_actor:
            raise UsageError(f"{_ONE} is the token of the actor `default`, which has another one already")
        by_actor["default"] = one
    return Tokens.of(by_actor)


def token_files() -> tuple[Path, ...]:
    """Return the files that tokens are read from."""
    file = settings.read(_FILE)
    return (Path(file),) if file else ()


def _text_of(path: str) -> str:
    data, status = read_regular_file(Path(path), TOKENS_BYTES_MAX)
    if status.st_mode & _OTHERS:
        raise UsageError(
            f"`{path}` holds tokens, and others than its owner can read it; type `chmod 600 {path}`", path=path
        )
    if len(data) > TOKENS_BYTES_MAX:
        raise UsageError(f"{_FILE} names `{path}`, which has more than {TOKENS_BYTES_MAX:,} bytes", path=path)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{_FILE} names `{path}`, which is not UTF-8; save it as UTF-8", path=path) from None


def _parse(setting: str, text: str) -> dict[str, str]:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        # What the text holds must not end up in a message, so neither does the parser's.
        found = None
    is_fit = isinstance(found, dict) and all(isinstance(one, str) for one in found.values())
    if not is_fit:
        raise UsageError(f'{setting} has to hold a JSON object of tokens by actor, such as {{"ada": "…"}}')
    return {str(actor): str(token) for actor, token in found.items()}


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
