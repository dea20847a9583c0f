"""What an operator has written down: servers, profiles, defaults and aliases, in `config.yaml`.

Reads one file, once; knows nothing of commands. Tokens are kept elsewhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from configparser import ConfigParser, Error
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from omnigraph import settings
from omnigraph.cli.options import Format
from omnigraph.cli.output import echo
from omnigraph.errors import UsageError

NAME: Final = "config.yaml"
_LAYOUTS: Final = ("truncate", "wrap")


@dataclass(frozen=True, slots=True)
class Profile:
    """A named place: one of a server, a cluster and a store, and on a server perhaps a graph."""

    server: str | None = None
    cluster: str | None = None
    store: str | None = None
    default_graph: str | None = None

    @property
    def location(self) -> tuple[str, str]:
        """What kind of place it is, and which."""
        for kind in ("server", "cluster", "store"):
            if (name := getattr(self, kind)) is not None:
                return kind, str(name)
        raise AssertionError("a profile names a server, a cluster or a store")


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds when nothing else is said."""

    server: str | None = None
    store: str | None = None
    default_graph: str | None = None
    output: str = "table"
    table_max_column_width: int | None = None
    table_cell_layout: str = "truncate"


@dataclass(frozen=True, slots=True)
class Alias:
    """A stored query of a server under a shorter name; `args` name the parameters that are given in order."""

    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file; all of it may be missing."""

    actor: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    defaults: Defaults = Defaults()
    aliases: Mapping[str, Alias] = field(default_factory=dict)


def home() -> Path:
    """Return the directory of an operator's files."""
    directory = settings.read("OMNIGRAPH_HOME")
    return Path(directory) if directory else Path("~").expanduser() / ".omnigraph"


def read_config() -> Config:
    """Read `config.yaml`; a missing file is empty, a malformed one an error, unknown keys are warned about.

    A home directory that this user may not enter, as in many containers, holds nothing for them; a file that they may
    not read is ignored with a warning. Where `OMNIGRAPH_HOME` names a directory, it has to be readable.
    """
    is_chosen = bool(settings.read("OMNIGRAPH_HOME"))
    try:
        path = home() / NAME
        stamp = path.stat().st_mtime_ns
    except (FileNotFoundError, RuntimeError):
        return Config()
    except OSError as error:
        if isinstance(error, PermissionError) and not is_chosen:
            return Config()
        raise _unreadable(path, error) from None
    return _read(path, stamp, is_chosen)


@lru_cache(maxsize=1)
def _read(path: Path, stamp: int, is_chosen: bool) -> Config:
    # Read once per command, so that warnings are printed once.
    try:
        text = path.read_text(encoding="utf-8")
    except PermissionError as error:
        if is_chosen:
            raise _unreadable(path, error) from None
        echo(f"warning: `{path}` is ignored: permission denied", err=True)
        return Config()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return parse_config(text, str(path), lambda message: echo(f"warning: {path}: {message}", err=True))


def _unreadable(path: Path, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or str(error)
    return UsageError(f"cannot read `{path}`: {reason.lower()}; correct or remove it", path=str(path))


def parse_config(text: str, path: str, warn: Callable[[str], None]) -> Config:
    """Parse the YAML of a configuration; calls `warn` for unknown keys."""
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"`{path}` is not YAML: {' '.join(str(error).split())}", path=path) from None
    reader = _Reader(path, warn)
    top = reader.mapping(document, "the file", ("operator", "servers", "clusters", "profiles", "defaults", "aliases"))
    operator = reader.mapping(top.get("operator"), "operator", ("actor",))
    return Config(
        reader.text(operator, "operator", "actor"),
        reader.each(
            top, "servers", lambda name, entry: reader.needed(reader.mapping(entry, name, ("url",)), name, "url")
        ),
        reader.each(top, "profiles", reader.profile),
        reader.defaults(top.get("defaults")),
        reader.each(top, "aliases", reader.alias),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Checks shapes, and names the place of what is wrong."""

    path: str
    warn: Callable[[str], None]

    def refuse(self, where: str, what: str) -> UsageError:
        return UsageError(f"`{where}` in `{self.path}` {what}", path=self.path, key=where)

    def mapping(self, value: object, where: str, known: tuple[str, ...] | None = None) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self.refuse(where, "has to be a mapping of names")
        for key in value.keys() - set(known or value):
            self.warn(f"`{key}` in {where} means nothing")
        return value

    def each(self, top: Mapping[str, Any], key: str, read: Callable[[str, object], Any]) -> dict[str, Any]:
        return {name: read(f"{key}.{name}", value) for name, value in self.mapping(top.get(key), key).items()}

    def text(self, owner: Mapping[str, Any], where: str, key: str) -> str | None:
        value = owner.get(key)
        if value is not None and not isinstance(value, str):
            raise self.refuse(f"{where}.{key}", "has to be a text")
        return value

    def needed(self, owner: Mapping[str, Any], where: str, key: str) -> str:
        text = self.text(owner, where, key)
        if not text:
            raise self.refuse(f"{where}.{key}", "is missing")
        return text

    def chosen(self, owner: Mapping[str, Any], where: str, key: str, choices: tuple[str, ...]) -> str | None:
        word = self.text(owner, where, key)
        if word is not None and word not in choices:
            raise self.refuse(f"{where}.{key}", f"is `{word}`; it may be {', '.join(choices)}")
        return word

    def profile(self, where: str, value: object) -> Profile:
        kinds = ("server", "cluster", "store")
        fields = self.mapping(value, where, (*kinds, "default_graph"))
        locations = {kind: self.text(fields, where, kind) for kind in kinds}
        if sum(location is not None for location in locations.values()) != 1:
            raise self.refuse(where, "has to name exactly one of server, cluster and store")
        return Profile(**locations, default_graph=self.text(fields, where, "default_graph"))

    def defaults(self, value: object) -> Defaults:
        where = "defaults"
        fields = self.mapping(value, where, tuple(Defaults.__dataclass_fields__))
        server, store = self.text(fields, where, "server"), self.text(fields, where, "store")
        if server is not None and store is not None:
            raise self.refuse(where, "names a server and a store; keep one of them")
        width = fields.get("table_max_column_width")
        if width is not None and (type(width) is not int or width < 1):
            raise self.refuse("defaults.table_max_column_width", "has to be an integer from 1")
        return Defaults(
            server,
            store,
            self.text(fields, where, "default_graph"),
            self.chosen(fields, where, "output", tuple(Format)) or "table",
            width,
            self.chosen(fields, where, "table_cell_layout", _LAYOUTS) or "truncate",
        )

    def alias(self, where: str, value: object) -> Alias:
        fields = self.mapping(value, where, tuple(Alias.__dataclass_fields__))
        args = fields.get("args") or []
        if not isinstance(args, list) or not all(isinstance(name, str) for name in args):
            raise self.refuse(f"{where}.args", "has to be a list of names of parameters")
        return Alias(
            self.needed(fields, where, "server"),
            self.needed(fields, where, "query"),
            self.text(fields, where, "graph"),
            tuple(args),
            self.mapping(fields.get("params"), f"{where}.params"),
            self.chosen(fields, where, "format", tuple(Format)),
        )


CREDENTIALS_NAME: Final = "credentials"
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
    return next((name for name, address in config.servers.items() if address.rstrip("/") == url.rstrip("/")), None)


def token_for(url: str, config: Config, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token to show a server: its own, from the environment or the file, or the one that is for any."""
    name = server_name(url, config)
    if name is not None:
        token = environment.get(variable(name)) or _read_credentials(home() / CREDENTIALS_NAME).get(
            name, "token", fallback=""
        )
        if token:
            return token
    return environment.get(ANY_SERVER) or None


def keep_token(name: str, token: str) -> Path:
    """Put the token of a server into the file, and return its path."""
    kept = _read_credentials(home() / CREDENTIALS_NAME)
    if not kept.has_section(name):
        kept.add_section(name)
    kept.set(name, "token", token)
    return _write(kept)


def forget_token(name: str) -> tuple[Path, bool]:
    """Take the token of a server out of the file; returns the path, and whether there was one."""
    path = home() / CREDENTIALS_NAME
    kept = _read_credentials(path)
    was_there = kept.remove_section(name)
    if was_there:
        _write(kept)
    return path, was_there


def _read_credentials(path: Path) -> ConfigParser:
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
    path = home() / CREDENTIALS_NAME
    part = path.with_name(f".{CREDENTIALS_NAME}.{os.getpid()}.part")
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
