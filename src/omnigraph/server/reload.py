"""Tokens and policies of a running server: read again when their files change, or when a signal asks for it.

All of them are read before any is put in place; if one cannot be used, all that were in place stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph.engine.authorization import PolicyHook
from omnigraph.errors import UsageError
from omnigraph.policy import Policy, load_bundle
from omnigraph.server.auth import Doors, Tokens

if TYPE_CHECKING:
    from omnigraph.server.service import Service


log: Final = logging.getLogger("omnigraph.server")
Fingerprint = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """What tokens and policies say: who the actors are, and who judges each graph and the server itself."""

    tokens: Tokens
    checkers: Mapping[str, PolicyHook]
    server_policy: Policy | None


@dataclass(frozen=True, slots=True)
class Sources:
    """Where tokens and policies come from; the state in which the server was started does not change."""

    read_tokens: Callable[[], Tokens]
    token_files: tuple[Path, ...]
    policies: Mapping[str, Path | None]
    server_policy: Path | None
    doors: Doors

    def read(self) -> Configuration:
        """Read everything; raises when any of it cannot be used."""
        tokens = self.read_tokens()
        if bool(tokens.entries) != self.doors.has_tokens:
            raise UsageError("a server that was started with tokens needs some, and one without cannot get any")
        loaded = {
            graph_id: None if path is None else load_bundle(path, scope="graph", graph_id=graph_id)
            for graph_id, path in self.policies.items()
        }
        checkers = {graph_id: self.doors.checker(policy) for graph_id, policy in loaded.items()}
        own = self.server_policy
        judge = None if own is None else load_bundle(own, scope="server", graph_id="root")
        return Configuration(tokens, checkers, judge)

    def fingerprint(self) -> Fingerprint:
        """Return what changes when one of the files does."""
        paths = (*self.token_files, *self.policies.values(), self.server_policy)
        return tuple(_fingerprints(path for path in paths if path is not None))


def _fingerprints(paths: Iterable[Path]) -> Iterable[tuple[int, int, int] | None]:
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            yield None
        else:
            yield status.st_mtime_ns, status.st_size, status.st_ino


async def watch_configuration(service: Service) -> None:
    """Read tokens and policies again whenever their files change."""
    house = service.house
    while True:
        await asyncio.sleep(service.reload_seconds)
        if await service.run(service.own, house.sources.fingerprint) != house.fingerprint:
            service.reload_soon()
