"""Which place a command works on: flags by capability, precedence, and what is written down."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from typer.models import ParameterInfo

from omnigraph.cli import main
from omnigraph.cli.app import TargetUse, own_parameters, put_command_first
from omnigraph.cli.commands import COMMANDS, Command
from omnigraph.cli.config import (
    Alias,
    Config,
    Defaults,
    Profile,
    parse_config,
    read_config,
    remove_token,
    store_token,
    token_for,
)
from omnigraph.cli.target import Capability, Direct, Flags, Served, accepts_flag, resolve_location
from omnigraph.errors import UsageError

FLAGS = {
    "--store": "g.omni",
    "--server": "http://localhost:1",
    "--graph": "g",
    "--cluster": "c",
    "--profile": "p",
    "--as": "ada",
}
USES = {
    Capability.ANY: {"--store", "--server", "--graph", "--profile"},
    Capability.SERVED: {"--server", "--profile"},
    Capability.DIRECT: {"--store", "--profile"},
    Capability.MAINTENANCE: {"--store", "--profile", "--cluster", "--graph"},
    Capability.LOCAL: set(),
}
# What commands can work on, written down once more: a command that moves to another row has to move here, too.
ANY = "query explain ingest load mutate shell snapshot export revert cherry-pick diff log blame"
READS = (("schema", "show"), ("schema", "apply"), ("queries", "list"))
ANY_GROUPS = "branch tag commit changes blob"
DIRECT = "init lint embed upgrade pipeline"
MAINTENANCE = "index audit optimize verify repair cleanup queries reconcile"
CONFIG = Config(
    servers={"lake": "https://lake.example.org", "pond": "http://pond:8080/"},
    profiles={
        "prod": Profile(server="lake", default_graph="supply"),
        "bare": Profile(server="lake"),
        "disk": Profile(store="/data/g.omni"),
        "group": Profile(cluster="c"),
    },
)
ON_LAKE = "https://lake.example.org"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    for name in ("OMNIGRAPH_STORE", "OMNIGRAPH_PROFILE", "OMNIGRAPH_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def capability_of(command: Command) -> Capability:
    words = command.words
    if words[0] in ANY.split() or words[0] in ANY_GROUPS.split() or words in READS:
        return Capability.ANY
    if words[0] in DIRECT.split() or words == ("schema", "plan"):
        return Capability.DIRECT
    if words[0] in MAINTENANCE.split():
        return Capability.MAINTENANCE
    return Capability.SERVED if words == ("graphs", "list") else Capability.LOCAL


def wants(command: Command) -> TargetUse | None:
    hint = get_type_hints(command.run, include_extras=True).get("target")
    return next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, TargetUse)), None)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.path)
def test_command_has_the_capability_that_is_written_down(command: Command) -> None:
    assert command.capability is capability_of(command)


def own_options(command: Command) -> set[str]:
    hints = [parameter.annotation for parameter in own_parameters(command.run)]
    told = (one for hint in hints for one in getattr(hint, "__metadata__", ()) if isinstance(one, ParameterInfo))
    return {name for one in told for name in (one.default, *(one.param_decls or ())) if isinstance(name, str)}


# The first command of each capability, of those that write and those that do not.
SAMPLE = [*{(one.capability, getattr(wants(one), "writes", None)): one for one in reversed(COMMANDS)}.values()]


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        pytest.param(command, flag, id=f"{command.path} {flag}", marks=[] if command in SAMPLE else [pytest.mark.slow])
        for command in COMMANDS
        for flag in FLAGS
        # `explain --profile` and `serve --graph` mean something else.
        if flag not in own_options(command)
    ],
)
def test_flag_is_taken_or_refused_with_a_reason(
    command: Command, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = wants(command)
    usable = wanted is not None and (wanted.writes if flag == "--as" else flag in USES[command.capability])
    # With `--help` behind it a flag that is taken does nothing, and one that is not is still refused.
    status = main([*command.words, flag, FLAGS[flag], "--help"])
    err = capsys.readouterr().err
    if usable:
        assert status == 0, err
    else:
        assert status == 1
        assert f"leave `{flag}` out" in err.lower() or "leave it out" in err
        assert command.path in err


@pytest.mark.parametrize(("capability", "flags"), USES.items())
def test_takes_says_what_the_table_says(capability: Capability, flags: set[str]) -> None:
    assert {flag for flag in FLAGS if accepts_flag(capability, flag.removeprefix("--"))} == flags


@pytest.mark.parametrize(
    ("flags", "defaults", "place"),
    [
        (Flags(uri="a"), Defaults(store="z"), Direct("a")),
        (Flags(store="a", profile="prod"), Defaults(server="lake"), Direct("a")),
        (Flags(server="lake", graph="g", profile="disk"), Defaults(store="z"), Served(ON_LAKE, "g")),
        (Flags(server="http://host:1/", graph="g"), Defaults(), Served("http://host:1", "g")),
        (Flags(profile="prod"), Defaults(store="z"), Served(ON_LAKE, "supply")),
        (Flags(profile="prod", graph="other"), Defaults(), Served(ON_LAKE, "other")),
        (Flags(profile="disk"), Defaults(server="lake"), Direct("/data/g.omni")),
        (Flags(), Defaults(store="z"), Direct("z")),
        (Flags(), Defaults(server="pond", default_graph="d"), Served("http://pond:8080", "d")),
        (Flags(graph="g"), Defaults(server="pond", default_graph="d"), Served("http://pond:8080", "g")),
        (Flags(server="pond"), Defaults(server="lake", default_graph="d"), Served("http://pond:8080", None)),
    ],
)
def test_resolve_follows_the_precedence(flags: Flags, defaults: Defaults, place: Direct | Served) -> None:
    config = Config(servers=CONFIG.servers, profiles=CONFIG.profiles, defaults=defaults)
    assert resolve_location("omnigraph query", Capability.ANY, flags, config) == place


@pytest.mark.parametrize(
    ("capability", "flags", "says"),
    [
        (Capability.ANY, Flags(), "no graph was given"),
        (Capability.ANY, Flags(uri="a", store="b"), "two graphs"),
        (Capability.ANY, Flags(store="a", server="lake"), "give one of them"),
        (Capability.ANY, Flags(store="a", graph="g"), "leave it out"),
        (Capability.ANY, Flags(profile="disk", graph="g"), "leave it out"),
        (Capability.ANY, Flags(uri="http://host/g"), "--server http://host/g"),
        (Capability.ANY, Flags(server="sea", graph="g"), "`lake`, `pond`"),
        (Capability.ANY, Flags(profile="sea"), "omnigraph profile list"),
        (Capability.ANY, Flags(profile="group"), "is a cluster"),
        (Capability.ANY, Flags(server="lake", graph="g", actor="ada"), "the token determines the actor"),
        (Capability.DIRECT, Flags(profile="prod"), "is a server"),
        (Capability.DIRECT, Flags(profile="group"), "is a cluster"),
        (Capability.MAINTENANCE, Flags(profile="prod"), "is a server"),
        (Capability.MAINTENANCE, Flags(store="a", graph="g"), "leave it out"),
        (Capability.MAINTENANCE, Flags(store="a", cluster="c"), "give one of them"),
        (Capability.SERVED, Flags(profile="disk"), "is storage"),
    ],
)
def test_resolve_what_cannot_be_meant_is_refused(capability: Capability, flags: Flags, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_location("omnigraph query", capability, flags, CONFIG)
    assert says in caught.value.message


TEXT = """
operator: {actor: ada}
servers: {lake: {url: "https://lake.example.org"}}
clusters: {c: {root: /data}}
profiles: {prod: {server: lake, default_graph: supply}}
defaults: {store: z, output: csv, table_max_column_width: 9, table_cell_layout: wrap}
aliases: {needs: {server: lake, query: deps, args: [name], params: {most: 5}, format: kv}}
"""


def test_parse_config_reads_all_of_it() -> None:
    assert parse_config(TEXT, "config.yaml", pytest.fail) == Config(
        "ada",
        {"lake": ON_LAKE},
        {"prod": Profile(server="lake", default_graph="supply")},
        Defaults(store="z", output="csv", table_max_column_width=9, table_cell_layout="wrap"),
        {"needs": Alias("lake", "deps", None, ("name",), {"most": 5}, "kv")},
        {"c": "/data"},
    )
    assert parse_config("", "config.yaml", pytest.fail) == Config()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not YAML"),
        ("- a", "mapping"),
        ("servers: {lake: {}}", "`servers.lake.url`"),
        ("servers: {lake: {url: 7}}", "must be a string"),
        ("profiles: {p: {}}", "exactly one of"),
        ("profiles: {p: {server: a, store: b}}", "exactly one of"),
        ("defaults: {server: a, store: b}", "keep one of them"),
        ("defaults: {output: xml}", "table, kv, csv, jsonl, json"),
        ("defaults: {table_max_column_width: 0}", "positive integer"),
        ("defaults: {table_cell_layout: fold}", "truncate, wrap"),
        ("aliases: {a: {server: s}}", "`aliases.a.query`"),
        ("aliases: {a: {server: s, query: q, args: x}}", "list of parameter names"),
    ],
)
def test_parse_config_malformed_names_the_place(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(text, "config.yaml", pytest.fail)
    assert says in caught.value.message
    assert "config.yaml" in caught.value.message


def test_parse_config_unknown_keys_are_told() -> None:
    told: list[str] = []
    parse_config("defaults: {colour: red}\nextra: 1", "config.yaml", told.append)
    assert len(told) == 2
    assert any("`colour`" in one for one in told)


def test_config_oddities_are_told_once_a_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.yaml").write_text("extra: 1\ndefaults: {store: nowhere.omni}\n", encoding="utf-8")
    assert main(["snapshot"]) == 1
    err = capsys.readouterr().err
    assert err.count("`extra`") == 1
    assert "nowhere.omni" in err
    (home / "config.yaml").write_bytes(b"\xff")
    assert main(["snapshot"]) == 1
    assert "correct or remove it" in capsys.readouterr().err


def test_token_order_and_to_whom_it_goes(home: Path) -> None:
    config = Config(servers={"my-lake": ON_LAKE, "pond": "http://pond:8080"})
    environment = {"OMNIGRAPH_BEARER_TOKEN": "any"}
    assert token_for(ON_LAKE, config, {}) is None
    assert token_for(ON_LAKE, config, environment) == "any"
    path = store_token("my-lake", "kept%(x)s")
    assert path.stat().st_mode & 0o777 == 0o600
    assert token_for(f"{ON_LAKE}/", config, environment) == "kept%(x)s"
    assert token_for(ON_LAKE, config, {"OMNIGRAPH_TOKEN_MY_LAKE": "own", **environment}) == "own"
    assert token_for("http://pond:8080", config, environment) == "any"
    assert token_for("http://elsewhere", config, {"OMNIGRAPH_TOKEN_MY_LAKE": "own"}) is None
    assert (remove_token("my-lake")[1], remove_token("my-lake")[1]) == (True, False)
    assert token_for(ON_LAKE, config, {}) is None


def test_credentials_that_others_can_read_are_refused(home: Path) -> None:
    path = store_token("lake", "secret")
    path.chmod(0o640)
    with pytest.raises(UsageError) as caught:
        token_for(ON_LAKE, CONFIG, {})
    assert f"chmod 600 {path}" in caught.value.message


def test_login_keeps_and_logout_forgets(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert main(["login", "lake"]) == 0
    assert "secret" in (home / "credentials").read_text(encoding="utf-8")
    assert "secret" not in capsys.readouterr().out
    assert main(["logout", "lake"]) == 0
    assert "secret" not in (home / "credentials").read_text(encoding="utf-8")


def test_login_of_an_address_keeps_no_token(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.yaml").write_text(TEXT, encoding="utf-8")
    assert main(["login", ON_LAKE]) == 1
    assert "a name in `config.yaml`" in capsys.readouterr().err
    assert not (home / "credentials").exists()


def test_profiles_are_listed_and_shown(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text(TEXT, encoding="utf-8")
    assert main(["profile", "list"]) == 0
    assert "prod     server  lake   supply" in capsys.readouterr().out
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "prod")
    assert main(["profile", "show"]) == 0
    assert "default_graph  supply" in capsys.readouterr().out
    assert main(["profile", "show", "sea"]) == 1


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        (["--store", "g", "query", "-e", "x"], ["query", "--store", "g", "-e", "x"]),
        (["--store=g", "--quiet", "commit", "list"], ["commit", "list", "--store=g", "--quiet"]),
        (["query", "--store", "g"], ["query", "--store", "g"]),
        (["--store", "g"], ["--store", "g"]),
        (["--help"], ["--help"]),
        ([], []),
    ],
)
def test_hoist_moves_shared_options_behind_the_command(given: list[str], moved: list[str]) -> None:
    assert put_command_first(given) == moved


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "number", "expected"),
    [("omnigraph bra", 1, ["branch"]), ("omnigraph branch ", 2, ["create", "list", "rename", "delete", "merge"])],
)
def test_completion_knows_the_commands(words: str, number: int, expected: list[str]) -> None:
    asked = {"_OMNIGRAPH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    run = subprocess.run(
        [sys.executable, "-c", "from omnigraph.cli import main; main([])"], env=asked, capture_output=True, text=True
    )
    assert run.stdout.split() == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_script_asks_the_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_OMNIGRAPH_COMPLETE" in capsys.readouterr().out


def test_home_that_may_not_be_entered_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OMNIGRAPH_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".omnigraph").mkdir()
    (tmp_path / ".omnigraph" / "config.yaml").write_text(TEXT, encoding="utf-8")
    assert read_config().servers
    real = Path.stat

    def refuse(self: Path, **more: bool) -> os.stat_result:
        if ".omnigraph" in str(self):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self, **more)

    monkeypatch.setattr(Path, "stat", refuse)
    assert read_config() == Config()
    assert token_for(ON_LAKE, CONFIG, {}) is None
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / ".omnigraph"))
    with pytest.raises(UsageError, match="permission denied"):
        read_config()


def test_config_that_may_not_be_read_is_ignored_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OMNIGRAPH_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".omnigraph").mkdir()
    (tmp_path / ".omnigraph" / "config.yaml").write_text(TEXT, encoding="utf-8")

    def refuse(self: Path, **more: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert (read_config(), read_config()) == (Config(), Config())
    assert capsys.readouterr().err.count("is ignored: permission denied") == 1


def test_login_where_nothing_can_be_written_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    monkeypatch.setattr("os.replace", refuse)
    assert main(["login", "lake"]) == 1
    assert "credentials`: permission denied; check the directory, or set OMNIGRAPH_HOME" in capsys.readouterr().err
