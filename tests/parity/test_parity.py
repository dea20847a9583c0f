"""Every surface says the same: the library, the client, HTTP, and the command line on storage and on a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.client import messages, transport
from omnigraph.client.messages import Response, parse_error
from omnigraph.engine.query.result import Result
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.public_values import EntityCounts, IngestReceipt
from tests.server.conftest import POLICY
from tests.support.live_server import TOKENS, Live, serving_graph
from tests.support.parity_steps import REFUSED, SCHEMA, STEPS, WIDER, Step
from tests.support.parity_surfaces import Commands, Http, Library, Surface
from tests.support.plain_values import Plain, commit_in

RESULT, INGESTED = messages.parse_result, IngestReceipt.from_json
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


def without_last_column(reply: Response) -> Result:
    found = RESULT(reply)
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
        (messages, "parse_result", without_last_column, "all columns"),
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
