"""Tokens of servers: from the environment, or from a file that only its owner can read.

A token that is kept for a server goes to that server alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from configparser import ConfigParser, Error
from pathlib import Path
from typing import Final

from omnigraph.cli.config import Config, home
from omnigraph.errors import UsageError

NAME: Final = "credentials"
ANY_SERVER: Final = "OMNIGRAPH_BEARER_TOKEN"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def variable(name: str) -> str:
    """Return the environment variable that holds the token of a server.

    >>> variable("my-lake")
    'OMNIGRAPH_TOKEN_MY_LAKE'
    """
    return f"OMNIGRAPH_TOKEN_{name.upper().replace('-', '_')}"


def server_name(url: str, config: Config) -> str | None:
    """Return the name under which an operator knows a server."""
    return next((name for name, one in config.servers.items() if one.rstrip("/") == url.rstrip("/")), None)


def token_for(url: str, config: Config, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token to show a server: its own, from the environment or the file, or the one that is for any."""
    name = server_name(url, config)
    if name is not None:
        own = environment.get(variable(name)) or _read(home() / NAME).get(name, "token", fallback="")
        if own:
            return own
    return environment.get(ANY_SERVER) or None


def keep_token(name: str, token: str) -> Path:
    """Put the token of a server into the file, and return its path."""
    kept = _read(home() / NAME)
    if not kept.has_section(name):
        kept.add_section(name)
    kept.set(name, "token", token)
    return _write(kept)


def forget_token(name: str) -> tuple[Path, bool]:
    """Take the token of a server out of the file; returns the path, and whether there was one."""
    path = home() / NAME
    kept = _read(path)
    was_there = kept.remove_section(name)
    if was_there:
        _write(kept)
    return path, was_there


def _read(path: Path) -> ConfigParser:
    # A token may hold any character, so none stands for something else.
    kept = ConfigParser(interpolation=None)
    try:
        mode = path.stat().st_mode
        if mode & _OTHERS:
            raise UsageError(
                f"`{path}` holds tokens, and others than you can read it; type `chmod 600 {path}`", path=str(path)
            )
        kept.read_string(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, PermissionError):
        # A directory that this user may not enter holds no token for them.
        pass
    except (OSError, ValueError, Error) as error:
        raise UsageError(
            f"cannot read `{path}`: {type(error).__name__}; correct or remove it", path=str(path)
        ) from None
    return kept


def _write(kept: ConfigParser) -> Path:
    path = home() / NAME
    part = path.with_name(f".{NAME}.{os.getpid()}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Made for its owner alone from the first byte on, and put in place whole.
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            kept.write(file)
        os.replace(part, path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write `{path}`: {reason}; check the directory, or set OMNIGRAPH_HOME") from None
    return path
