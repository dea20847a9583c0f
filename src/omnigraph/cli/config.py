"""The configuration of the command line: `config.yaml` with servers, profiles, defaults and aliases, and stored tokens.

Tokens are in a separate file, `credentials`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from configparser import ConfigParser, Error
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from omnigraph import settings
from omnigraph.cli.options import Format
from omnigraph.cli.output import echo, reason_of
from omnigraph.errors import UsageError

NAME: Final = "config.yaml"
_LAYOUTS: Final = ("truncate", "wrap")


@dataclass(frozen=True, slots=True)
class Profile:
    """A named target: a server, with an optional default graph, a cluster or a store."""

    server: str | None = None
    cluster: str | None = None
    store: str | None = None
    default_graph: str | None = None

    @property
    def location(self) -> tuple[str, str]:
        """The kind of the target, and its name."""
        for kind in ("server", "cluster", "store"):
            if (name := getattr(self, kind)) is not None:
                return kind, str(name)
        raise AssertionError("a profile names a server, a cluster or a store")


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults for options that are not given."""

    server: str | None = None
    store: str | None = None
    default_graph: str | None = None
    output: str = "table"
    table_max_column_width: int | None = None
    table_cell_layout: str = "truncate"


@dataclass(frozen=True, slots=True)
class Alias:
    """A short name for a stored query of a server; `args` are the names of its positional parameters."""

    server: str
    query: str
    graph: str | None = None
    args: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The contents of `config.yaml`; every part is optional."""

    actor: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    defaults: Defaults = Defaults()
    aliases: Mapping[str, Alias] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)


def home() -> Path:
    directory = settings.read("OMNIGRAPH_HOME")
    return Path(directory) if directory else Path("~").expanduser() / ".omnigraph"


def read_config() -> Config:
    """Read `config.yaml`; a missing file is empty, a malformed one an error, unknown keys are warned about.

    An inaccessible home directory, as in many containers, counts as empty; an unreadable file is ignored with a
    warning. A directory that `OMNIGRAPH_HOME` names must be readable.
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
    return UsageError(f"cannot read `{path}`: {reason_of(error)}; correct or remove it", path=str(path))


def parse_config(text: str, path: str, warn: Callable[[str], None]) -> Config:
    """Parse the YAML of a configuration; calls `warn` for unknown keys."""
    import yaml

    from omnigraph.yaml_document import find_deep_nesting

    try:
        if (problem := find_deep_nesting(text)) is not None:
            raise UsageError(f"{problem.render(path)}; correct or remove it", path=path)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"`{path}` is not YAML: {' '.join(str(error).split())}", path=path) from None
    reader = _Reader(path, warn)
    top = reader.mapping(document, "the file", ("operator", "servers", "clusters", "profiles", "defaults", "aliases"))
    operator = reader.mapping(top.get("operator"), "operator", ("actor",))
    return Config(
        reader.text(operator, "operator", "actor"),
        reader.entries(top, "servers", partial(reader.only_text, key="url")),
        reader.entries(top, "profiles", reader.profile),
        reader.defaults(top.get("defaults")),
        reader.entries(top, "aliases", reader.alias),
        reader.entries(top, "clusters", partial(reader.only_text, key="root")),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Validates the parsed YAML; errors name the invalid key."""

    path: str
    warn: Callable[[str], None]

    def invalid(self, key: str, problem: str) -> UsageError:
        return UsageError(f"`{key}` in `{self.path}` {problem}", path=self.path, key=key)

    def mapping(self, value: object, where: str, allowed: tuple[str, ...] | None = None) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise self.invalid(where, "must be a mapping")
        for key in value.keys() - set(allowed or value):
            self.warn(f"unknown key `{key}` in {where}")
        return value

    def entries(self, top: Mapping[str, Any], key: str, read: Callable[[str, object], Any]) -> dict[str, Any]:
        return {name: read(f"{key}.{name}", value) for name, value in self.mapping(top.get(key), key).items()}

    def text(self, owner: Mapping[str, Any], where: str, key: str) -> str | None:
        value = owner.get(key)
        if value is not None and not isinstance(value, str):
            raise self.invalid(f"{where}.{key}", "must be a string")
        return value

    def required_text(self, owner: Mapping[str, Any], where: str, key: str) -> str:
        text = self.text(owner, where, key)
        if not text:
            raise self.invalid(f"{where}.{key}", "is missing")
        return text

    def only_text(self, where: str, value: object, key: str) -> str:
        return self.required_text(self.mapping(value, where, (key,)), where, key)

    def choice(self, owner: Mapping[str, Any], where: str, key: str, choices: tuple[str, ...]) -> str | None:
        word = self.text(owner, where, key)
        if word is not None and word not in choices:
            raise self.invalid(f"{where}.{key}", f"is `{word}`; expected one of {', '.join(choices)}")
        return word

    def profile(self, where: str, value: object) -> Profile:
        kinds = ("server", "cluster", "store")
        fields = self.mapping(value, where, (*kinds, "default_graph"))
        locations = {kind: self.text(fields, where, kind) for kind in kinds}
        if sum(location is not None for location in locations.values()) != 1:
            raise self.invalid(where, "must have exactly one of server, cluster and store")
        return Profile(**locations, default_graph=self.text(fields, where, "default_graph"))

    def defaults(self, value: object) -> Defaults:
        where = "defaults"
        fields = self.mapping(value, where, tuple(Defaults.__dataclass_fields__))
        server, store = self.text(fields, where, "server"), self.text(fields, where, "store")
        if server is not None and store is not None:
            raise self.invalid(where, "names a server and a store; keep one of them")
        width = fields.get("table_max_column_width")
        if width is not None and (type(width) is not int or width < 1):
            raise self.invalid("defaults.table_max_column_width", "must be a positive integer")
        return Defaults(
            server,
            store,
            self.text(fields, where, "default_graph"),
            self.choice(fields, where, "output", tuple(Format)) or "table",
            width,
            self.choice(fields, where, "table_cell_layout", _LAYOUTS) or "truncate",
        )

    def alias(self, where: str, value: object) -> Alias:
        fields = self.mapping(value, where, tuple(Alias.__dataclass_fields__))
        args = fields.get("args") or []
        if not isinstance(args, list) or not all(isinstance(name, str) for name in args):
            raise self.invalid(f"{where}.args", "must be a list of parameter names")
        return Alias(
            self.required_text(fields, where, "server"),
            self.required_text(fields, where, "query"),
            self.text(fields, where, "graph"),
            tuple(args),
            self.mapping(fields.get("params"), f"{where}.params"),
            self.choice(fields, where, "format", tuple(Format)),
        )


CREDENTIALS_NAME: Final = "credentials"
ANY_SERVER: Final = "OMNIGRAPH_BEARER_TOKEN"
_OTHER_USERS: Final = stat.S_IRWXG | stat.S_IRWXO


def token_variable(name: str) -> str:
    """Return the environment variable that holds the token of a server.

    >>> token_variable("my-lake")
    'OMNIGRAPH_TOKEN_MY_LAKE'
    """
    return f"OMNIGRAPH_TOKEN_{name.upper().replace('-', '_')}"


def server_name(url: str, config: Config) -> str | None:
    return next((name for name, address in config.servers.items() if address.rstrip("/") == url.rstrip("/")), None)


def token_for(url: str, config: Config, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the token for a server: its own from the environment or the file, or else the token for all servers."""
    name = server_name(url, config)
    if name is not None:
        token = environment.get(token_variable(name)) or _read_credentials(home() / CREDENTIALS_NAME).get(
            name, "token", fallback=""
        )
        if token:
            return token
    return environment.get(ANY_SERVER) or None


def store_token(name: str, token: str) -> Path:
    credentials = _read_credentials(home() / CREDENTIALS_NAME)
    if not credentials.has_section(name):
        credentials.add_section(name)
    credentials.set(name, "token", token)
    return _write_credentials(credentials)


def remove_token(name: str) -> tuple[Path, bool]:
    """Remove the token of a server; return the path of the file, and whether it had one."""
    path = home() / CREDENTIALS_NAME
    credentials = _read_credentials(path)
    existed = credentials.remove_section(name)
    if existed:
        _write_credentials(credentials)
    return path, existed


def _read_credentials(path: Path) -> ConfigParser:
    # No interpolation: a token may contain any character.
    credentials = ConfigParser(interpolation=None)
    try:
        mode = path.stat().st_mode
        if mode & _OTHER_USERS:
            raise UsageError(
                f"`{path}` holds tokens, but other users can read it; run `chmod 600 {path}`", path=str(path)
            )
        credentials.read_string(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, PermissionError):
        # A missing or inaccessible file has no token.
        pass
    except (OSError, ValueError, Error) as error:
        raise UsageError(
            f"cannot read `{path}`: {type(error).__name__}; correct or remove it", path=str(path)
        ) from None
    return credentials


def _write_credentials(credentials: ConfigParser) -> Path:
    path = home() / CREDENTIALS_NAME
    temporary = path.with_name(f".{CREDENTIALS_NAME}.{os.getpid()}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Readable by its owner only from the start, and replaced atomically.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            credentials.write(file)
        os.replace(temporary, path)
    except OSError as error:
        problem = f"cannot write `{path}`: {reason_of(error)}"
        raise UsageError(f"{problem}; check the directory, or set OMNIGRAPH_HOME") from None
    return path
