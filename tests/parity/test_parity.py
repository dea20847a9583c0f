"""Every surface says the same: the library, the client, HTTP, and the command line on storage and on a server."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import orjson
import pytest

import omnigraph as og
from omnigraph.cli import main
from omnigraph.client import transport
from omnigraph.client.messages import Call, Response, parse_error
from omnigraph.engine.query.result import Result
from omnigraph.errors import ERRORS, OmniGraphError, UsageError
from omnigraph.public_values import EntityCounts, IngestReceipt
from tests.parity.parity_steps import REFUSED, SCHEMA, STEPS, WIDER, Step
from tests.server.conftest import POLICY
from tests.support.live_server import TOKENS, Live, serving_graph


class Surface(Protocol):
    """Something that steps can be done on."""

    ids: dict[str, str]

    def do(self, step: Step) -> Any: ...


@dataclass
class Library:
    """An opened graph, or a served one through the client."""

    graph: Any
    ids: dict[str, str] = field(default_factory=dict)

    def do(self, step: Step) -> Any:
        try:
            return json.loads(json.dumps(step.call(self.graph, self.ids), default=str))
        except OmniGraphError as error:
            return {"refused": json.loads(json.dumps(error.to_json(), default=str))}


@dataclass
class Http:
    """A server, asked by hand."""

    live: Live
    ids: dict[str, str] = field(default_factory=dict)

    def do(self, step: Step) -> Any:
        method, path, body = step.http
        path, _, guard = path.format(**self.ids).partition("if-graph-commit?")
        headers = {"Omnigraph-If-Graph-Commit": guard} if guard else {}
        if guard:
            path += "if-graph-commit"
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/x-ndjson"
        elif body is not None:
            body = filled(body, self.ids)
        reply = self.live.ask(method, f"/graphs/g{path}", body, headers=headers)
        if reply.status >= 400:
            told = reply.json()
            assert reply.status == ERRORS[told["omnigraph_code"]].http_status, told
            shown = {"code": told["omnigraph_code"], "error": told["error"], "effect": told["effect"]}
            return {"refused": {**shown, **told["context"]}}
        return documents(reply.body)


@dataclass
class Commands:
    """The command line, on storage or on a server."""

    place: tuple[str, ...]
    actor: tuple[str, ...]
    files: Mapping[str, str]
    ids: dict[str, str] = field(default_factory=dict)

    def do(self, step: Step) -> Any:
        names = {**self.files, **self.ids}
        words = [names.get(one.strip("{}"), one) if one.startswith("{") else one for one in step.cli]
        as_json = [] if words[0] == "export" else ["--json"]
        given = [*words, *self.place, *as_json, *(self.actor if step.writes else ())]
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(step.stdin))
        try:
            with redirect_stdout(out), redirect_stderr(err):
                status = main(given)
                out.flush()
        finally:
            sys.stdin = stdin
        text = out.buffer.getvalue()
        if words[0] == "export" and status:
            code, _, message = err.getvalue().strip().removeprefix("error[").partition("]: ")
            return {"refused": {"code": code, "error": message}}
        found = documents(text)
        is_error = isinstance(found, dict) and found.get("code") in ERRORS
        assert status == (ERRORS[found["code"]].exit_status if is_error else _status(found)), (given, found)
        return {"refused": found} if is_error else found


def _status(found: Any) -> int:
    # A dry run that meets conflicts has its answer, and still tells a script to stop.
    return int(isinstance(found, dict) and bool(found.get("conflicts")))


def filled(body: Any, ids: Mapping[str, str]) -> Any:
    """Return a body with the commits of earlier steps in it."""
    if isinstance(body, dict):
        return {name: filled(value, ids) for name, value in body.items()}
    return ids.get(body[1:-1], body) if isinstance(body, str) and body.startswith("{") else body


def documents(text: bytes) -> Any:
    """Return one JSON document, or all lines of NDJSON."""
    try:
        found = orjson.loads(text)
        if isinstance(found, dict):
            # Commands show the heads of branches beside their names.
            found.pop("heads", None)
        return found
    except orjson.JSONDecodeError:
        return [orjson.loads(line) for line in text.splitlines()]


# Addresses, moments and names of files are those of each graph; tokens name its commits in other words.
_OWN = frozenset(
    {"uri", "created_at", "authored_at", "operation_id", "etag", "file", "text", "dataset_path"}
    | {"next_page_token", "cursor", "request_id", "path"}
    # What a load reports in the process that ran it.
    | {"job_id", "engine", "already_applied", "rejected", "embedded", "input_bytes"}
    | {"seconds", "entities_per_second", "megabytes_per_second"}
)
# Ids of commits and entities, and the keyed ids of types.
_ID = re.compile(r"\b(?:[0-7][0-9A-HJKMNP-TV-Z]{25}|[0-9a-f]{32})\b")


class Plain:
    """Remembers which id came first."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        """Return a value as it would look on any graph."""
        if isinstance(value, dict):
            return {self._text(name): self.of(one) for name, one in sorted(value.items()) if name not in _OWN}
        if isinstance(value, list):
            return [self.of(one) for one in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        return _ID.sub(lambda found: self._seen.setdefault(found[0], f"id{len(self._seen)}"), text)


def commit_in(value: Any) -> str | None:
    """Return the commit that an outcome names."""
    commit = value.get("commit") if isinstance(value, dict) else None
    return None if commit is None else str(commit["graph_commit_id"])


RUN, INGESTED = transport.Transport.run, IngestReceipt.from_json
SURFACES = ("client", "http", "commands", "served commands")


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OMNIGRAPH_BEARER_TOKEN", TOKENS["ada"])


@contextmanager
def serving(folder: Path, uri: str) -> Iterator[Live]:
    policy = folder / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    with serving_graph(uri, tokens=TOKENS, policy=policy) as live:
        yield live


@contextmanager
def surface(name: str, folder: Path) -> Iterator[Surface]:
    """Make a graph of its own, and one surface over it."""
    folder.mkdir()
    uri = str(folder / "g.omni")
    og.init(uri, SCHEMA).close()
    files = {"wider": str(folder / "wider.pg"), "refused": str(folder / "refused.pg")}
    Path(files["wider"]).write_text(WIDER, encoding="utf-8")
    Path(files["refused"]).write_text(REFUSED, encoding="utf-8")
    with ExitStack() as stack:
        if name == "library":
            yield Library(stack.enter_context(og.open(uri, actor="ada")))
        elif name == "commands":
            yield Commands(("--store", uri), ("--as", "ada", "--quiet"), files)
        else:
            live = stack.enter_context(serving(folder, uri))
            url = f"http://{live.host}:{live.port}"
            if name == "client":
                yield Library(stack.enter_context(og.connect(url, token=TOKENS["ada"], graph="g")))
            elif name == "http":
                yield Http(live)
            else:
                yield Commands(("--server", url, "--graph", "g"), ("--quiet",), files)


def outcomes(name: str, folder: Path, steps: Sequence[Step] = STEPS) -> list[tuple[str, Any]]:
    """Do steps on one surface, and return what came of each."""
    plain, found = Plain(), []
    with surface(name, folder) as one:
        for step in steps:
            came = one.do(step)
            if step.save is not None:
                commit = commit_in(came)
                assert commit is not None, (step.name, came)
                one.ids[step.save] = commit
            found.append((step.name, plain.of(came)))
    return found


def differences(expected: list[tuple[str, Any]], found: list[tuple[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """Return the steps of which two surfaces tell different things; a surface may tell more than the library has."""
    pairs = zip(expected, found, strict=True)
    return {step: (a, b) for (step, a), (_, b) in pairs if not covers(b, a)}


def covers(more: Any, less: Any) -> bool:
    if isinstance(less, dict) and "refused" not in less:
        return isinstance(more, dict) and all(name in more and covers(more[name], one) for name, one in less.items())
    if isinstance(less, list):
        return isinstance(more, list) and len(more) == len(less) and all(map(covers, more, less))
    if isinstance(less, dict) and isinstance(more, dict) and set(more.get("refused", ())) == {"code", "error"}:
        # A command that streams tells its refusal to people: without context.
        return all(less["refused"][name] == one for name, one in more["refused"].items())
    return more == less or (isinstance(less, int) and isinstance(more, dict) and less == len(more.get("commits", ())))


def without_last_column(served: transport.Transport, call: Call[Any]) -> Any:
    found = RUN(served, call)
    if not isinstance(found, Result):
        return found
    return Result(found.to_arrow().select(found.columns[:-1]), found.query_name, found.branch, found.graph_commit_id)


def always_usage(reply: Response, source: str | None = None, *, is_write: bool = False) -> OmniGraphError:
    error = parse_error(reply, source, is_write=is_write)
    return UsageError(error.message, effect=error.effect, **error.context)


def blind_to_edges(data: Mapping[str, Any]) -> IngestReceipt:
    return replace(INGESTED(data), edges=EntityCounts())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name", "mutant", "seen_in"),
    [
        (transport.Transport, "run", without_last_column, "all columns"),
        (IngestReceipt, "from_json", blind_to_edges, "first"),
        (transport, "parse_error", always_usage, "guard that fails"),
    ],
)
@pytest.mark.sampled(1)
def test_differences_mutant_of_the_client_is_found(
    module: Any, name: str, mutant: Any, seen_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [*(step.name for step in STEPS)].index(seen_in) + 1
    expected = outcomes("library", tmp_path / "library", STEPS[:first])
    assert differences(expected, outcomes("client", tmp_path / "sound", STEPS[:first])) == {}
    monkeypatch.setattr(module, name, mutant)
    assert seen_in in differences(expected, outcomes("client", tmp_path / "client", STEPS[:first]))


@pytest.mark.slow
def test_surfaces_say_the_same(tmp_path: Path) -> None:
    expected = outcomes("library", tmp_path / "library")
    refused = [step for step, one in expected if isinstance(one, dict) and "refused" in one]
    assert len(refused) > 15, "a corpus without refusals compares little"
    for name in SURFACES:
        assert differences(expected, outcomes(name, tmp_path / name.replace(" ", "-"))) == {}, name
