"""Tokens and policies of a running server: read again when they change, all or none, and the names it answers to."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from omnigraph.errors import GraphError, UsageError
from omnigraph.server.auth import AllowedHosts, Tokens, read_allowed_hosts, read_tokens, token_files
from omnigraph.server.registry import GraphConfig, GraphRegistry, open_registry
from tests.support.live_server import PEOPLE, Live, serving
from tests.support.mixed_calls import ask
from tests.support.server_process import running

G = "/graphs/g"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tokens.json"
    monkeypatch.setenv("OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", str(path))
    write(path, {"ada": "one", "bob": "two"})
    return path


def write(path: Path, tokens: object) -> None:
    """Exchange a file of tokens for another, readable by its owner alone."""
    part = path.with_suffix(".part")
    part.touch(mode=0o600)
    part.write_bytes(orjson.dumps(tokens))
    os.replace(part, path)


@pytest.fixture
def house(graph_uri: str, policy: Path, file: Path) -> GraphRegistry:
    place = GraphConfig("g", graph_uri, policy)
    return open_registry([place], read_tokens(), read_tokens=read_tokens, token_files=token_files())


@pytest.fixture
def reloading(house: GraphRegistry) -> Iterator[Live]:
    with serving(house, {"ada": "one", "bob": "two", "eve": "three"}) as live:
        yield live


def status(live: Live, actor: str, path: str = "/query") -> int:
    return live.post(f"{G}{path}", {"query": PEOPLE}, actor=actor).status


def reload(live: Live) -> str | None:
    """Read everything again, and return what readiness says of it."""
    live.service.registry.reload()
    answer = live.get("/readyz")
    assert answer.status == 200
    found: str | None = answer.json().get("configuration")
    return found


@pytest.mark.slow
def test_reload_revokes_tokens_and_takes_new_ones_and_new_rules(reloading: Live, file: Path, policy: Path) -> None:
    assert [status(reloading, one) for one in ("ada", "bob", "eve")] == [200, 200, 401]
    write(file, {"ada": "one", "eve": "three"})
    policy.write_text(policy.read_text().replace("all: [ada, bob]", "all: [ada, eve]"))
    assert reload(reloading) is None
    assert [status(reloading, one) for one in ("ada", "bob", "eve")] == [200, 401, 200]


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["tokens", "policy", "mode", "gone", "none"])
def test_reload_of_what_cannot_be_used_keeps_all_and_says_so(
    reloading: Live, file: Path, policy: Path, broken: str
) -> None:
    rules = policy.read_text()
    # The tokens are fine in some of the cases, and are not taken either.
    write(file, {"eve": "three"})
    match broken:
        case "tokens":
            file.write_text("{")
        case "policy":
            policy.write_text("version: 9")
        case "mode":
            file.chmod(0o640)
        case "gone":
            file.unlink()
        case "none":
            write(file, {})
    assert reload(reloading) == "stale"
    assert [status(reloading, one) for one in ("ada", "bob", "eve")] == [200, 200, 401]
    write(file, {"ada": "one"})
    policy.write_text(rules)
    assert reload(reloading) is None
    assert [status(reloading, one) for one in ("ada", "bob")] == [200, 401]


def replace_by(path: Path, kind: str) -> None:
    """Put something in the place of a file that can be opened, and is no file."""
    part = path.with_suffix(".odd")
    match kind:
        case "fifo":
            os.mkfifo(part, 0o600)
        case "folder":
            part.mkdir(0o700)
            path.unlink()
        case "device":
            part.symlink_to("/dev/zero")
        case "socket":
            with socket.socket(socket.AF_UNIX) as held:
                held.bind(str(part))
        case "large":
            part.touch(0o600)
            os.truncate(part, 1 << 40)
    os.replace(part, path)


@pytest.mark.slow
def test_what_is_no_file_is_reported_and_the_next_file_is_taken(
    house: GraphRegistry, file: Path, policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = policy.read_text()
    with serving(house, {"ada": "one", "bob": "two"}, reload_seconds=0.02) as live:
        for place, kind in enumerate(["fifo", "folder", "device", "socket", "large"] * 2):
            path = (file, policy)[place % 2]
            caplog.clear()
            replace_by(path, kind)
            await_configuration(live, "stale")
            assert [status(live, one) for one in ("ada", "bob")] == [200, 401 if place % 2 else 200]
            assert "tokens and policies were not reloaded" in caplog.messages
            if kind == "folder":
                path.rmdir()
            path.unlink(missing_ok=True)
            write(file, {"ada": "one"} | ({"bob": "two"} if place % 2 else {}))
            if path == policy:
                # The last of the files, so that what is ready has all of them.
                policy.write_text(rules)
            await_configuration(live, None)
            assert [status(live, one) for one in ("ada", "bob")] == [200, 200 if place % 2 else 401]


def await_configuration(live: Live, wanted: str | None) -> None:
    deadline = time.monotonic() + 10
    while live.get("/readyz").json().get("configuration") != wanted:
        assert time.monotonic() < deadline, f"configuration does not become {wanted}"
        time.sleep(0.02)


@pytest.mark.slow
def test_reload_that_fails_in_another_way_is_reported(reloading: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **more: object) -> None:
        raise RecursionError("too deep")

    with monkeypatch.context() as broken:
        broken.setattr("omnigraph.server.registry.load_bundle", fail)
        assert reload(reloading) == "stale"
    assert reload(reloading) is None


@pytest.mark.slow
def test_change_of_a_file_and_a_signal_are_noticed(graph_uri: str, file: Path, tmp_path: Path, policy: Path) -> None:
    policy.write_text(policy.read_text().replace("change, export", "change"))
    with running("--graph", f"graph={graph_uri}", "--policy", str(policy), log=tmp_path / "log") as server:
        write(file, {"ada": "other"})
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 20
        while "were reloaded" not in (tmp_path / "log").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert ask(server, "POST", "/query", {"query": PEOPLE})[0] == 401
    log = (tmp_path / "log").read_text()
    assert "other" not in log


@pytest.mark.slow
def test_change_of_a_file_is_noticed_without_a_signal(house: GraphRegistry, file: Path) -> None:
    with serving(house, {"ada": "one", "bob": "two"}, reload_seconds=0.05) as live:
        write(file, {"ada": "one"})
        deadline = time.monotonic() + 20
        while status(live, "bob") != 401:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert status(live, "ada") == 200


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_tokens_in_a_file_that_others_can_read_are_refused(file: Path, mode: int) -> None:
    assert read_tokens() == Tokens.of({"ada": "one", "bob": "two"})
    file.chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        read_tokens()


OPEN = AllowedHosts(frozenset({"localhost", ".localhost", "box"}))
LISTED = AllowedHosts(frozenset({"graph.example.org", ".example.com"}), allows_addresses=False)


@pytest.mark.parametrize(
    ("hosts", "header", "is_allowed"),
    [
        (OPEN, "localhost", True),
        (OPEN, "LocalHost:8080", True),
        (OPEN, "a.localhost", True),
        (OPEN, "127.0.0.1:8080", True),
        (OPEN, "[::1]:8080", True),
        (OPEN, "192.168.0.7", True),
        (OPEN, "box:80", True),
        (OPEN, "evil.example", False),
        (OPEN, "evil.example:8080", False),
        (OPEN, "localhost.evil.example", False),
        (OPEN, "127.0.0.1.evil.example", False),
        (OPEN, "", False),
        (LISTED, "graph.example.org:443", True),
        (LISTED, "a.b.example.com", True),
        (LISTED, "example.com", False),
        (LISTED, "127.0.0.1", False),
        (AllowedHosts(), "anything", True),
    ],
)
def test_host_is_answered_to_or_not(hosts: AllowedHosts, header: str, is_allowed: bool) -> None:
    if is_allowed:
        hosts.check([header])
        return
    with pytest.raises(GraphError) as caught:
        hosts.check([header])
    assert caught.value.code == "request.host"


def test_host_named_twice_or_not_at_all_is_refused() -> None:
    for headers in ([], ["localhost", "localhost"]):
        with pytest.raises(GraphError):
            OPEN.check(headers)


def test_allowed_hosts_come_from_the_setting_or_from_what_is_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_allowed_hosts(has_tokens=True).names == {"*"}
    assert {"localhost"} < read_allowed_hosts(has_tokens=False).names
    monkeypatch.setenv("OMNIGRAPH_SERVER_ALLOWED_HOSTS", " A.example , b.example")
    assert read_allowed_hosts(has_tokens=True) == AllowedHosts(frozenset({"a.example", "b.example"}), False)


@pytest.mark.slow
def test_page_under_a_foreign_name_gets_nothing_but_health(live: Live) -> None:
    foreign = {"Host": "evil.example"}
    reply = live.post(f"{G}/query", {"query": PEOPLE}, headers=foreign)
    assert (reply.status, reply.json()["omnigraph_code"]) == (421, "request.host")
    assert live.get("/openapi.json", headers=foreign).status == 421
    assert live.get("/healthz", headers=foreign).status == 200
    assert live.post(f"{G}/query", {"query": PEOPLE}).status == 200
