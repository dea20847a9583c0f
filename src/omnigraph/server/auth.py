"""Authentication by bearer tokens, access without a policy, and the `Host` allow list.

Tokens are kept as digests; their text is never stored or logged.
"""

from __future__ import annotations

import hmac
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import orjson

from omnigraph import settings
from omnigraph.engine.authorization import ALLOW_ALL, AllowAll, PolicyBranch, PolicyHook, Scope
from omnigraph.engine.json_text import find_repeated_member
from omnigraph.errors import GraphError, PolicyDenied, UsageError
from omnigraph.limits import TOKENS_BYTES_MAX
from omnigraph.policy import Policy
from omnigraph.source_files import read_regular_file

_GROUP_AND_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FILE, _JSON = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
_AWS, _SINGLE = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET", "OMNIGRAPH_SERVER_BEARER_TOKEN"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The actors of a server by the digest of their token; empty for a server without authentication."""

    entries: tuple[tuple[bytes, str], ...] = ()

    @classmethod
    def of(cls, by_actor: Mapping[str, str]) -> Tokens:
        """Hash tokens; blank and shared ones are rejected."""
        entries = []
        for actor, token in by_actor.items():
            if not actor.strip() or not token.strip():
                raise UsageError("a bearer token and its actor must not be blank", actor=actor)
            entries.append((_digest(token.strip()), actor.strip()))
        for subject, distinct in (
            ("token", {value for value, _ in entries}),
            ("actor", {value for _, value in entries}),
        ):
            if len(distinct) < len(entries):
                raise UsageError(f"two bearer tokens have the same {subject}; every actor needs a different token")
        return cls(tuple(entries))

    def actor_of(self, authorization: str | None) -> str | None:
        """Return the actor of an `Authorization` header; None without authentication."""
        if not self.entries:
            return None
        scheme, _, token = (authorization or "").strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise GraphError("missing bearer token", code="request.unauthorized")
        token_digest, matched = _digest(token.strip()), None
        # Compare every entry, each in constant time, against timing attacks.
        for digest, actor in self.entries:
            if hmac.compare_digest(digest, token_digest):
                matched = actor
        if matched is None:
            raise GraphError("invalid bearer token", code="request.unauthorized")
        return matched


def read_tokens() -> Tokens:
    if settings.read(_AWS):
        raise UsageError(f"{_AWS} is set, but this release reads no AWS secrets; use {_FILE} instead")
    file, text = settings.read(_FILE), settings.read(_JSON)
    if file and text:
        raise UsageError(f"{_FILE} and {_JSON} are both set; use one of them")
    by_actor = _parse_tokens(_FILE, _read_token_file(file)) if file else _parse_tokens(_JSON, text) if text else {}
    if token := settings.read(_SINGLE):
        if "default" in by_actor:
            raise UsageError(f"{_SINGLE} sets the token of the actor `default`, which already has another token")
        by_actor["default"] = token
    return Tokens.of(by_actor)


def token_files() -> tuple[Path, ...]:
    file = settings.read(_FILE)
    return (Path(file),) if file else ()


def _read_token_file(path: str) -> str:
    data, status = read_regular_file(Path(path), TOKENS_BYTES_MAX)
    if status.st_mode & _GROUP_AND_OTHERS:
        raise UsageError(f"`{path}` holds tokens, but other users can read it; run `chmod 600 {path}`", path=path)
    if len(data) > TOKENS_BYTES_MAX:
        raise UsageError(f"{_FILE} names `{path}`, which has more than {TOKENS_BYTES_MAX:,} bytes", path=path)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError(f"{_FILE} names `{path}`, which is not UTF-8; save it as UTF-8", path=path) from None


def _parse_tokens(setting: str, text: str) -> dict[str, str]:
    try:
        entries = orjson.loads(text)
    except orjson.JSONDecodeError:
        # The parser's message may quote tokens, so it is not shown.
        entries = None
    is_fit = isinstance(entries, dict) and all(isinstance(token, str) for token in entries.values())
    if not is_fit:
        raise UsageError(f'{setting} must be a JSON object of tokens by actor, such as {{"ada": "…"}}')
    if (actor := find_repeated_member(text.encode(), entries)) is not None:
        raise UsageError(f"{setting} has two tokens for the actor `{actor}`; keep one of them", actor=actor)
    return {str(actor): str(token) for actor, token in entries.items()}


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


class ReadOnlyPolicy(AllowAll):
    """The policy of a graph without one on a server with tokens: authenticated actors may read."""

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
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
        return frozenset() if action == "read" else frozenset(names)


READ_ONLY_POLICY = ReadOnlyPolicy()


class DecisionCache:
    """The policy of one request: caches decisions, so that each is made, and logged, once."""

    def __init__(self, policy: PolicyHook) -> None:
        self.is_protected, self.sample_actors = policy.is_protected, policy.sample_actors
        self._policy = policy
        self._denials: dict[tuple[object, ...], PolicyDenied | None] = {}
        self._hidden_types = cache(policy.hidden_types)

    def enforce(self, action: str, scope: Scope, actor: str | None) -> None:
        # Scopes compare by the names in use; decisions depend on former names as well.
        key = (action, scope, scope.branch_names, scope.target_names, actor)
        if key not in self._denials:
            try:
                self._policy.enforce(action, scope, actor)
                self._denials[key] = None
            except PolicyDenied as raised:
                self._denials[key] = raised
        if (denial := self._denials[key]) is not None:
            raise denial

    def hidden_types(
        self, actor: str | None, action: str, names: Iterable[str], branch: PolicyBranch | None = None
    ) -> frozenset[str]:
        return self._hidden_types(actor, action, frozenset(names), branch)


@dataclass(frozen=True, slots=True)
class AuthMode:
    """How a server authenticates and authorizes: with tokens, with policies, or not at all."""

    has_tokens: bool
    has_policy: bool
    is_unauthenticated: bool

    def check(self) -> None:
        """Reject configurations that lock everyone out, or allow anonymous access without `--unauthenticated`."""
        if self.has_tokens:
            return
        if self.has_policy:
            raise UsageError(
                "a policy needs actors, and actors come from bearer tokens; set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
            )
        if not self.is_unauthenticated:
            raise UsageError(
                "the server has no bearer tokens; set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, or start it with"
                " `--unauthenticated` to allow anonymous access"
            )

    def checker(self, policy: Policy | None) -> PolicyHook:
        """Return the policy to enforce on a graph."""
        if policy is not None:
            return policy
        return READ_ONLY_POLICY if self.has_tokens else ALLOW_ALL


def has_no_rules(checker: PolicyHook, actor: str | None) -> bool:
    """Return True if a policy has no rule for an actor; the existence of the graph is hidden from them."""
    return isinstance(checker, Policy) and not any(checker.bundle.rules_of(actor))


def deny_early(checker: PolicyHook, actor: str | None, action: str) -> None:
    """Raise `PolicyDenied`, before the body is read, if the actor may not perform the action on any branch."""
    if isinstance(checker, Policy) and any(action in rule.actions for rule in checker.bundle.rules_of(actor)):
        return
    checker.enforce(action, Scope(), actor)


ALLOWED_HOSTS_SETTING = "OMNIGRAPH_SERVER_ALLOWED_HOSTS"


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Allowed `Host` names, lower case, without ports; `*` allows any, `.example.org` all subdomains."""

    names: frozenset[str] = frozenset({"*"})
    allows_addresses: bool = True

    def check(self, headers: Sequence[str]) -> None:
        """Reject a request whose `Host` header is not allowed (DNS rebinding)."""
        if "*" in self.names:
            return
        name = host_name(headers[0]) if len(headers) == 1 else ""
        parents = (name[index:] for index, character in enumerate(name) if character == ".")
        if name in self.names or self.names.intersection(parents) or (self.allows_addresses and _is_address(name)):
            return
        raise GraphError(
            f"the host name in the `Host` header is not allowed; add it to {ALLOWED_HOSTS_SETTING}",
            code="request.host",
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
    with suppress(ValueError):
        ip_address(name)
        return True
    return False


def read_allowed_hosts(*, has_tokens: bool) -> AllowedHosts:
    """Read the allowed hosts; the default is any host with tokens, and the names of this machine without."""
    listed = frozenset(name.strip().lower() for name in settings.read(ALLOWED_HOSTS_SETTING).split(",") if name.strip())
    if listed:
        return AllowedHosts(listed, allows_addresses=False)
    if has_tokens:
        return AllowedHosts()
    return AllowedHosts(frozenset({"localhost", ".localhost", socket.gethostname().lower(), socket.getfqdn().lower()}))
