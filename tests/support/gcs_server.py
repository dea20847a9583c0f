"""A Google Cloud Storage server on loopback, for tests: the part of the XML API that object store clients use.

Written from the published definition of that API: objects with generations, `x-goog-if-generation-match`, listings in
the order of names, multipart uploads and copies. One lock makes each request atomic. The emulators that can be
installed from a registry take uploads by the JSON API alone, which neither `obstore` nor Lance uses for objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from hashlib import md5
from itertools import count
from typing import Any, Final
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from omnigraph import clock
from omnigraph.manifest import commit_loop
from omnigraph.store.objects import conditional_puts

BUCKET: Final = "graphs"
_MARK: Final = "HTTP_X_GOOG_META_"
_CONDITION: Final = "HTTP_X_GOOG_IF_GENERATION_MATCH"

Answer = tuple[int, dict[str, str], bytes]
Environ = dict[str, Any]
Marks = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Object:
    body: bytes
    generation: int
    modified: str
    marks: Marks
    is_composed: bool

    @property
    def headers(self) -> dict[str, str]:
        marks = {f"x-goog-meta-{name}": value for name, value in self.marks}
        return {"ETag": self.e_tag, "x-goog-generation": str(self.generation), "Last-Modified": self.modified} | marks

    @property
    def e_tag(self) -> str:
        # Of an object that came in parts it is not the MD5 of its bytes.
        suffix = str(self.generation) if self.is_composed else ""
        return f'"{md5(self.body, usedforsecurity=False).hexdigest()}{suffix}"'


@dataclass(slots=True)
class _Upload:
    key: str
    marks: Marks
    parts: dict[int, bytes] = field(default_factory=dict)


class _QuietHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


class _Server(ThreadedWSGIServer):
    daemon_threads = False


class GcsServer:
    """A running server, from `with GcsServer(token) as server` until the end of the block; its bucket is `graphs`."""

    def __init__(self, token: str, *, ignores_conditions: bool = False) -> None:
        self.ignores_conditions = ignores_conditions
        self.token = token
        self.requests: list[tuple[str, str]] = []
        self._objects: dict[str, _Object] = {}
        self._uploads: dict[str, _Upload] = {}
        self._numbers = count(1_000)
        self._apply = threading.Lock()

    def __enter__(self) -> GcsServer:
        self._server = _Server("127.0.0.1", 0, self._serve, _QuietHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        commit_loop._turns.clear()
        conditional_puts.forget_proven()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def uri(self, name: str) -> str:
        return f"gs://{BUCKET}/{name}"

    def keys(self) -> list[str]:
        with self._apply:
            return sorted(self._objects)

    def settings(self) -> dict[str, str]:
        """The settings with which a process reaches this server."""
        return {
            "GOOGLE_BASE_URL": self.endpoint,
            "GOOGLE_ALLOW_HTTP": "true",
            "GOOGLE_BEARER_TOKEN": self.token,
        }

    def _serve(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        bucket, _, key = unquote(environ["REQUEST_URI"].partition("?")[0]).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(environ["QUERY_STRING"], keep_blank_values=True).items()}
        with self._apply:
            self.requests.append((environ["REQUEST_METHOD"], key))
            status, headers, answer = self._answer(environ, bucket, key, query, body)
        is_head = environ["REQUEST_METHOD"] == "HEAD"
        headers.setdefault("Content-Length", str(len(answer)))
        start_response(f"{status} {'OK' if status < 300 else 'Refused'}", list(headers.items()))
        return [] if is_head else [answer]

    def _answer(self, environ: Environ, bucket: str, key: str, query: dict[str, str], body: bytes) -> Answer:
        if environ.get("HTTP_AUTHORIZATION") != f"Bearer {self.token}":
            return _refusal(401, "AuthenticationRequired")
        if bucket != BUCKET:
            return _refusal(404, "NoSuchBucket")
        match environ["REQUEST_METHOD"]:
            case "GET" if not key:
                return self._list(query)
            case "GET" | "HEAD":
                return self._read(environ, key)
            case "PUT" if "uploadId" in query:
                self._uploads[query["uploadId"]].parts[int(query["partNumber"])] = body
                return 200, {"ETag": f'"{len(body)}"'}, b""
            case "PUT" if (source := environ.get("HTTP_X_GOOG_COPY_SOURCE")) is not None:
                return self._copy(environ, key, unquote(source).lstrip("/").partition("/")[2])
            case "PUT":
                return self._refused(environ, key) or self._put(key, body, _marks(environ))
            case "POST" if "uploads" in query:
                upload_id = f"upload-{next(self._numbers)}"
                self._uploads[upload_id] = _Upload(key, _marks(environ))
                return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload_id}</UploadId>")
            case "POST" if "uploadId" in query:
                return self._refused(environ, key) or self._complete(query["uploadId"], body)
            case "DELETE" if "uploadId" in query:
                self._uploads.pop(query["uploadId"], None)
                return 204, {}, b""
            case "DELETE":
                return (204, {}, b"") if self._objects.pop(key, None) else _refusal(404, "NoSuchKey")
        return _refusal(405, "MethodNotAllowed")

    def _refused(self, environ: Environ, key: str) -> Answer | None:
        expected = environ.get(_CONDITION)
        if expected is None or self.ignores_conditions:
            return None
        stored = self._objects.get(key)
        is_met = int(expected) == (stored.generation if stored else 0)
        return None if is_met else _refusal(412, "PreconditionFailed")

    def _put(self, key: str, body: bytes, marks: Marks, *, is_composed: bool = False) -> Answer:
        modified = formatdate(clock.now_us() / 1_000_000, usegmt=True)
        self._objects[key] = _Object(body, next(self._numbers), modified, marks, is_composed)
        return 200, self._objects[key].headers, b""

    def _copy(self, environ: Environ, key: str, source: str) -> Answer:
        stored = self._objects.get(source)
        if stored is None:
            return _refusal(404, "NoSuchKey")
        return self._refused(environ, key) or self._put(key, stored.body, stored.marks)

    def _complete(self, upload_id: str, body: bytes) -> Answer:
        upload = self._uploads.pop(upload_id, None)
        if upload is None:
            return _refusal(404, "NoSuchUpload")
        numbers = [int(part.findtext("{*}PartNumber") or 0) for part in ElementTree.fromstring(body).findall("{*}Part")]
        whole = b"".join(upload.parts[number] for number in numbers)
        _, headers, _ = self._put(upload.key, whole, upload.marks, is_composed=True)
        status, own, answer = _xml("CompleteMultipartUploadResult", f"<ETag>{escape(headers['ETag'])}</ETag>")
        return status, own | headers, answer

    def _read(self, environ: Environ, key: str) -> Answer:
        stored = self._objects.get(key)
        if stored is None:
            return _refusal(404, "NoSuchKey")
        if environ.get("HTTP_IF_MATCH", stored.e_tag) != stored.e_tag:
            return _refusal(412, "PreconditionFailed")
        size, wanted = len(stored.body), environ.get("HTTP_RANGE", "")
        if not wanted or environ["REQUEST_METHOD"] == "HEAD":
            return 200, stored.headers | {"Content-Length": str(size)}, stored.body
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        begin, end = (int(first), min(int(last or size), size - 1)) if first else (max(size - int(last), 0), size - 1)
        if begin >= size:
            return _refusal(416, "InvalidRange")
        return 206, stored.headers | {"Content-Range": f"bytes {begin}-{end}/{size}"}, stored.body[begin : end + 1]

    def _list(self, query: dict[str, str]) -> Answer:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        entries: dict[str, str] = {}
        for key in sorted(key for key in self._objects if key.startswith(prefix)):
            below = key[len(prefix) :]
            folder = f"{prefix}{below.partition(delimiter)[0]}{delimiter}" if delimiter and delimiter in below else ""
            if (folder or key) > after:
                entries[folder or key] = "" if folder else key
        page = list(entries.items())[: int(query.get("max-keys", 1_000))]
        is_truncated = len(page) < len(entries)
        token = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if is_truncated else ""
        listed = "".join(self._entry(key) if key else _folder(name) for name, key in page)
        return _xml("ListBucketResult", f"<IsTruncated>{str(is_truncated).lower()}</IsTruncated>{token}{listed}")

    def _entry(self, key: str) -> str:
        stored = self._objects[key]
        modified = parsedate_to_datetime(stored.modified).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return (
            f"<Contents><Key>{escape(key)}</Key><Generation>{stored.generation}</Generation><Size>{len(stored.body)}</Size>"
            f"<LastModified>{modified}</LastModified><ETag>{escape(stored.e_tag)}</ETag></Contents>"
        )


def _folder(name: str) -> str:
    return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"


def _marks(environ: Environ) -> Marks:
    # WSGI writes `-` as `_`.
    return tuple(
        (name.removeprefix(_MARK).lower().replace("_", "-"), value)
        for name, value in environ.items()
        if name.startswith(_MARK)
    )


def _xml(name: str, inner: str) -> Answer:
    text = (
        f"<?xml version='1.0' encoding='UTF-8'?><{name} xmlns='http://doc.s3.amazonaws.com/2006-03-01'>{inner}</{name}>"
    )
    return 200, {"Content-Type": "application/xml"}, text.encode()


def _refusal(status: int, code: str) -> Answer:
    text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
    return status, {"Content-Type": "application/xml"}, text.encode()
