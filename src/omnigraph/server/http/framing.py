"""Where the body of a request ends: refuses heads that two readers could understand in two ways (request smuggling).

Pure; knows HTTP/1.1 and nothing of connections.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.errors import GraphError, OmniGraphError, UsageError

Headers = Sequence[tuple[bytes, bytes]]


def check_head(headers: Headers, version: str) -> OmniGraphError | None:
    """Return why a request with these headers, of lower-case names, is refused; None if it is not.

    >>> check_head([(b"host", b"a"), (b"content-length", b"2")], "1.1") is None
    True
    >>> check_head([(b"host", b"a"), (b"content-length", b"2"), (b"transfer-encoding", b"chunked")], "1.1").code
    'usage.invalid'
    >>> check_head([], "1.1").code, check_head([], "1.0"), check_head([], "0.9").code
    ('usage.invalid', None, 'usage.invalid')
    """
    if version not in ("1.0", "1.1"):
        return UsageError(
            "requests are of HTTP/1.1 or HTTP/1.0, with the version in the request line; nothing was done"
        )
    hosts = values_of(headers, b"host")
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        return UsageError("a request has the header `Host` once; nothing was done")
    codings, lengths = values_of(headers, b"transfer-encoding"), values_of(headers, b"content-length")
    if codings and ([coding.strip().lower() for coding in codings] != [b"chunked"] or version == "1.0"):
        return UsageError("the only `Transfer-Encoding` that is read is `chunked`, once, in HTTP/1.1; nothing was done")
    if len(lengths) + len(codings) > 1:
        return UsageError("`Content-Length` and `Transfer-Encoding` exclude each other; send one of them, once")
    if values_of(headers, b"content-encoding"):
        return GraphError("encoded bodies are not read; send it without `Content-Encoding`", code="request.media_type")
    return None


def framing_head(headers: Headers) -> bytes:
    """Return the head of a request whose body is framed as with these headers, and that asks for nothing else."""
    kept = [name + b": " + value for name, value in headers if name in (b"content-length", b"transfer-encoding")]
    return b"\r\n".join([b"POST / HTTP/1.1", *kept, b"", b""])


def values_of(headers: Headers, header: bytes) -> list[bytes]:
    """Return all values of a header."""
    return [value for name, value in headers if name == header]
