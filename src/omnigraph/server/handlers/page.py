"""The page at `/` for browsers: three static files, which use the routes of the server as any client does.

They hold no data and no secrets, so they need no token. The policy allows scripts and styles of this server only, and
requests to it alone: a value of a graph that looked like markup could neither run nor send anything.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph import __version__
from omnigraph.server.responses import Response, json_response

if TYPE_CHECKING:
    from omnigraph.server.service import Service

HTML: Final = "text/html; charset=utf-8"
SCRIPT: Final = "text/javascript; charset=utf-8"
STYLE: Final = "text/css; charset=utf-8"

_FILES: Final = Path(__file__).parent.parent / "page"
_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
HEADER_NAMES: Final = (*_HEADERS, "Vary")


def welcome(service: Service, actor: str | None) -> Response:
    """Return what is served, for programs."""
    response = json_response({"name": "omnigraph", "version": __version__, "openapi": "/openapi.json"})
    return Response(response.body, headers={"Vary": "Accept"})


@cache
def page() -> Response:
    """Return the page, for browsers."""
    return Response(_read("index.html"), HTML, headers={**_HEADERS, "Vary": "Accept"})


@cache
def _static(name: str, media: str) -> Response:
    return Response(_read(name), media, headers=_HEADERS)


def script(service: Service, actor: str | None) -> Response:
    return _static("page.js", SCRIPT)


def style(service: Service, actor: str | None) -> Response:
    return _static("page.css", STYLE)


def _read(name: str) -> bytes:
    return (_FILES / name).read_bytes()


def prefers_html(accept: str) -> bool:
    """Return True if a request names HTML, and JSON not before it; browsers do.

    >>> prefers_html("text/html,application/xhtml+xml,*/*;q=0.8"), prefers_html("*/*"), prefers_html("")
    (True, False, False)
    >>> prefers_html("application/json, text/html"), prefers_html("application/json")
    (False, False)
    """
    media = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    if "text/html" not in media:
        return False
    return "application/json" not in media or media.index("text/html") < media.index("application/json")
