"""The surfaces: each takes a step of the corpus and tells what came of it, as JSON."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from omnigraph.cli import main
from omnigraph.errors import ERRORS, OmniGraphError
from tests.support.live_server import Live
from tests.support.parity_steps import Step


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
