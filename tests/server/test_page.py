"""The page at `/`: what it is served with, and what it does in a real browser."""

from __future__ import annotations

import json
import re

import pytest

import omnigraph as og
from tests.server.browser import Browser, open_browser
from tests.support.live_server import TOKENS, Live, serving_graph

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
HOSTILE = "<img src=x onerror='document.title=`owned`'>"


@pytest.fixture(scope="module")
def linked_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A graph with edges, and a name that would be markup."""
    uri = str(tmp_path_factory.mktemp("page") / "people.omni")
    with og.init(uri, "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person") as graph:
        graph.load(
            [{"type": "Person", "data": {"name": name, "age": 1}} for name in ("Ada", "Bob", HOSTILE)]
            + [{"edge": "Knows", "from": "Ada", "to": name} for name in ("Bob", HOSTILE)]
        )
    return uri


def test_root_is_json_for_programs_and_a_page_for_browsers(live: Live) -> None:
    for accept in ("application/json", "*/*", "application/json, text/html;q=0.5"):
        reply = live.get("/", headers={"Accept": accept})
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json"), accept
        assert reply.json()["openapi"] == "/openapi.json"
    page = live.get("/", headers=BROWSER)
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["vary"] == "Accept"
    assert live.ask("POST", "/", {}).status == 405


def test_page_allows_only_scripts_styles_and_requests_of_this_server(live: Live) -> None:
    page = live.get("/", headers=BROWSER)
    policy = dict(part.split(" ", 1) for part in re.split(r";\s*", page.headers["content-security-policy"]))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    text = page.body.decode()
    assert "<style" not in text
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|https?://", text)
    for name, media in (("page.js", "text/javascript"), ("page.css", "text/css")):
        assert f'"{name}"' in text
        reply = live.get(f"/{name}")
        assert reply.status == 200
        assert reply.headers["content-type"].startswith(media)
        assert reply.headers["x-content-type-options"] == "nosniff"
    script = live.get("/page.js").body.decode()
    # Values reach the page as text alone, and the token no storage.
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|localStorage|sessionStorage", script
    )


def test_page_needs_no_token_and_holds_no_data(graph_uri: str) -> None:
    with serving_graph(graph_uri, tokens=TOKENS) as live:
        for path in ("/", "/page.js", "/page.css"):
            reply = live.get(path, actor=None, headers=BROWSER)
            assert reply.status == 200
            assert b"token-of" not in reply.body
            assert graph_uri.encode() not in reply.body
        assert live.get("/graphs", actor=None).status == 401


def test_open_server_lists_its_graphs_and_one_with_tokens_does_not(graph_uri: str) -> None:
    with serving_graph(graph_uri) as live:
        assert [graph["graph_id"] for graph in live.get("/graphs").json()["graphs"]] == ["g"]
        with og.connect(f"http://{live.host}:{live.port}") as served:
            assert served.uri.endswith("/graphs/g")
            assert repr(served) == f"Graph({served.uri!r})"
    with (
        serving_graph(graph_uri, tokens=TOKENS) as live,
        pytest.raises(og.UsageError, match="name one with `graph=`"),
    ):
        og.connect(f"http://{live.host}:{live.port}", token=TOKENS["ada"])


@pytest.mark.slow
def test_browser_shows_schema_rows_and_a_drawing(linked_uri: str) -> None:
    with serving_graph(linked_uri) as live, open_browser() as browser:
        browser.open(f"http://{live.host}:{live.port}/")
        browser.wait_for("document.getElementById('schema').textContent.includes('node Person')")
        assert browser.run("document.getElementById('graph').value") == "g"
        browser.run(
            "document.getElementById('source').value ="
            " 'match { $a: Person $a knows $b } return { $a.name as who, $b, $a.age } order { $b.name asc }';"
            " document.querySelector('#ask button').click()"
        )
        browser.wait_for("document.querySelectorAll('#rows tbody tr').length === 2")
        cells = browser.run("[...document.querySelectorAll('#rows td')].map((cell) => cell.textContent)")
        assert cells == ["Ada", HOSTILE, "1", "Ada", "Bob", "1"]
        assert browser.run("document.querySelectorAll('#drawing circle').length") == 3
        assert browser.run("document.querySelectorAll('#drawing line').length") == 2
        # The hostile name is text: there is no image, and nothing ran.
        assert browser.run("document.images.length") == 0
        assert browser.run("document.title") == "OmniGraph"
        assert browser.problems() == []


@pytest.mark.slow
def test_browser_reports_errors_and_asks_for_a_token(linked_uri: str) -> None:
    with serving_graph(linked_uri, tokens=TOKENS) as live, open_browser() as browser:
        browser.open(f"http://{live.host}:{live.port}/")
        browser.run("document.getElementById('graph').value = 'g'; document.querySelector('#place button').click()")
        browser.wait_for("document.getElementById('error').textContent.includes('Enter a token')")
        browser.run(
            f"document.getElementById('token').value = '{TOKENS['bob']}';"
            " document.querySelector('#place button').click()"
        )
        browser.wait_for("document.getElementById('schema').textContent.includes('node Person')")
        for source, message in (
            ("match { $p: Persn } return { $p }", "did you mean"),
            ("insert Person { name: 'x' }", ""),
        ):
            browser.run(
                f"document.getElementById('source').value = {json.dumps(source)};"
                " document.getElementById('error').textContent = '';"
                " document.querySelector('#ask button').click()"
            )
            browser.wait_for("document.getElementById('error').textContent !== ''")
            assert message in browser.run("document.getElementById('error').textContent")


ADA = 'match { $a: Person { name: "Ada" } } '


def ask(browser: Browser, query: str) -> None:
    browser.run(
        f"document.getElementById('source').value = {json.dumps(query)}; document.querySelector('#ask button').click()"
    )


def cells(browser: Browser) -> list[str]:
    shown: list[str] = browser.run("[...document.querySelectorAll('#rows td')].map((cell) => cell.textContent)")
    return shown


@pytest.mark.slow
def test_browser_shows_integers_and_the_newest_answer_alone(linked_uri: str) -> None:
    with serving_graph(linked_uri) as live, open_browser() as browser:
        browser.open(f"http://{live.host}:{live.port}/")
        browser.wait_for("document.getElementById('schema').textContent.includes('node Person')")
        # More than a number of JavaScript has digits for.
        ask(browser, ADA + "return { max(9007199254740993) as n, collect(-9007199254740993) as l }")
        browser.wait_for("document.querySelectorAll('#rows td').length === 2")
        assert cells(browser) == ["9007199254740993", "[-9007199254740993]"]
        # An answer that comes late is that of a query which is no longer in the box.
        browser.run(
            "const real = window.fetch; window.fetch = (path, options) => {"
            " if (!String(options.body).includes('slow')) return real(path, options);"
            " return new Promise((resolve, reject) => {"
            "  window.release = () => resolve(real(path, { ...options, signal: undefined }));"
            "  if (options.signal) options.signal.addEventListener('abort', () => reject(options.signal.reason)); }); }"
        )
        ask(browser, ADA + 'return { "slow" as word }')
        ask(browser, ADA + 'return { "fast" as word }')
        browser.wait_for("document.querySelector('#rows td')?.textContent === 'fast'")
        browser.run("window.release(); new Promise((resolve) => setTimeout(resolve, 300))")
        assert cells(browser) == ["fast"]
        assert browser.run("document.getElementById('error').hidden")
        # A proxy may answer instead of the server; rows of another query do not stay beside the error.
        browser.run("window.fetch = async () => new Response('<html>Bad Gateway', { status: 502 })")
        ask(browser, "match { $a: Person } return { $a }")
        browser.wait_for("!document.getElementById('error').hidden")
        assert "status 502" in browser.run("document.getElementById('error').textContent")
        assert cells(browser) == []
        browser.run("document.querySelector('#place button').click()")
        browser.wait_for("!document.getElementById('schema').textContent.includes('node Person')")
