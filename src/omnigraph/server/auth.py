"""Who is asking: bearer tokens, kept as digests, and where a server reads them from at its start.

The text of a token is never kept and never told.
"""

from __future__ import annotations

import hmac
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import orjson

from omnigraph import settings
from omnigraph.engine.authorization import ALLOW_ALL, PolicyBranch, PolicyHook, Scope
from omnigraph.errors import GraphError, PolicyDenied, UsageError
from omnigraph.limits import TOKENS_BYTES_MAX
from omnigraph.policy import Policy
from omnigraph.source_files import read_regular_file

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


class ReadersOnly:
    """The policy of a graph without one on a server with tokens: whoever has a token may read."""

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        """Refuse everything but reading."""
        if action != "read" or actor is None:
            raise PolicyDenied(
                f"`{action}` is not allowed: the server has no policy for this graph, and lets actors only read; start"
                " it with `--policy`",
                actor=actor,
                action=action,
                branch=scope.branch,
                target_branch=scope.target,
            )

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: PolicyBranch | None = None
    ) -> frozenset[str]:
        """Hide nothing from readers."""
        return frozenset() if action == "read" else frozenset(names)

    def is_protected(self, branch: PolicyBranch) -> bool:
        """Protect nothing."""
        return False

    def sample_actors(self) -> Iterable[str]:
        """Tell nobody apart."""
        return ()


READERS_ONLY = ReadersOnly()


@dataclass(frozen=True, slots=True)
class Doors:
    """Whether tokens are asked for, and whether any graph has a policy: from that follows what is open."""

    has_tokens: bool
    has_policy: bool
    is_unauthenticated: bool

    def check(self) -> None:
        """Refuse to start in a state in which nobody, or everybody unasked, could do things."""
        if self.has_tokens:
            return
        if self.has_policy:
            raise UsageError(
                "a policy needs actors, and actors come from bearer tokens; set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
            )
        if not self.is_unauthenticated:
            raise UsageError(
                "the server has no bearer tokens; set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, or start it with"
                " `--unauthenticated` to let everybody in"
            )

    def checker(self, policy: Policy | None) -> PolicyHook:
        """Return who judges a graph with this policy, or with none."""
        if policy is not None:
            return policy
        return READERS_ONLY if self.has_tokens else ALLOW_ALL


def is_stranger(checker: PolicyHook, actor: str | None) -> bool:
    """Tell whether a policy has no rule at all for an actor, who then does not learn that its graph is served."""
    if not isinstance(checker, Policy):
        return False
    groups = checker.bundle.groups
    return not any(actor in groups[rule.group] for rule in checker.bundle.rules)


def refuse_hopeless(checker: PolicyHook, actor: str | None, action: str) -> None:
    """Refuse an action that the actor may do on no branch at all, before anything else of the request is read."""
    if isinstance(checker, Policy):
        groups = checker.bundle.groups
        mine = (rule for rule in checker.bundle.rules if action in rule.actions)
        if any(actor in groups[rule.group] for rule in mine):
            return
    checker.enforce(action, Scope(), actor)


SETTING = "OMNIGRAPH_SERVER_ALLOWED_HOSTS"


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The names in lower case, without ports; `*` allows any, and `.example.org` all names below one."""

    names: frozenset[str] = frozenset({"*"})
    allows_addresses: bool = True

    def check(self, headers: Sequence[str]) -> None:
        """Refuse a request whose header `Host` names another server."""
        if "*" in self.names:
            return
        name = host_name(headers[0]) if len(headers) == 1 else ""
        parents = (name[place:] for place, character in enumerate(name) if character == ".")
        if name in self.names or self.names.intersection(parents) or (self.allows_addresses and _is_address(name)):
            return
        raise GraphError(
            f"this server does not answer to the name of the header `Host`; name it in {SETTING}", code="request.host"
        )


def host_name(header: str) -> str:
    """Return the name in a header `Host`, without its port.

    >>> host_name("Example.org:8080"), host_name("[::1]:8080"), host_name("::1")
    ('example.org', '::1', '::1')
    """
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def read_allowed_hosts(*, has_tokens: bool) -> AllowedHosts:
    """Return what the setting says; without it, any name with tokens, and without tokens the names of this machine."""
    listed = frozenset(name.strip().lower() for name in settings.read(SETTING).split(",") if name.strip())
    if listed:
        return AllowedHosts(listed, allows_addresses=False)
    if has_tokens:
        return AllowedHosts()
    return AllowedHosts(frozenset({"localhost", ".localhost", socket.gethostname().lower(), socket.getfqdn().lower()}))
