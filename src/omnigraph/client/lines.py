"""Chunks of a stream, cut anew into whole lines; the last line comes alone.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator


class Lines:
    """Takes chunks as they arrive.

    >>> lines = Lines()
    >>> [*lines.take(b"a\\nb"), *lines.take(b"c\\nd\\n"), *lines.rest()]
    [b'a\\nbc\\n', b'd\\n']
    """

    def __init__(self) -> None:
        self._held = b""

    def take(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the lines that are whole, less the last of them: a stream may end with a record of another kind."""
        held = self._held + chunk
        cut = held.rfind(b"\n", 0, max(held.rfind(b"\n"), 0)) + 1
        self._held = held[cut:]
        if cut:
            yield held[:cut]

    def rest(self) -> Iterator[bytes]:
        """Yield what is left when the stream has ended."""
        if self._held:
            yield self._held
