"""HTTP on a connection, with bounds on how long and how large the headers of a request may be.

uvicorn bounds neither; everything else is its own.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from omnigraph.limits import SERVER_HEADER_BYTES_MAX, SERVER_HEADER_SECONDS_MAX


class BoundedHttp(HttpToolsProtocol):
    """Closes connections on which the headers of a request do not arrive, or do not end."""

    _patience: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its parent has it
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._await_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._patience is not None:
            self._header_bytes += len(data)
            if self._header_bytes > SERVER_HEADER_BYTES_MAX:
                self.transport.close()

    def _await_headers(self) -> None:
        self._stop_waiting()
        self._header_bytes = 0
        self._patience = self.loop.call_later(SERVER_HEADER_SECONDS_MAX, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
