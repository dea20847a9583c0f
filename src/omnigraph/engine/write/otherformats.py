"""Recognises an input that is no NDJSON at all from how it begins, so that it is refused once and not line by line.

Pure. What is not recognised is left to the decoder, which tells of every line that is wrong.
"""

from __future__ import annotations

import re
from typing import Final

from omnigraph.errors import DataError

_BOM: Final = b"\xef\xbb\xbf"
_COMPRESSED: Final = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_HEAD_BYTES: Final = 65_536
_LOAD: Final = (
    "load it with `omnigraph load GRAPH --node TYPE=FILE --mode merge`, edges with `--edge TYPE=FILE:FROM->TO`"
)


def refuse_other_format(beginning: bytes, name: str | None = None) -> None:
    """Raise `DataError` (N1) if an input begins as another format does: an array, CSV, Parquet or binary data."""
    reason = describe_other_format(beginning)
    if reason is not None:
        where = f"`{name}`: " if name else ""
        raise DataError(f"{where}{reason}. Nothing was written", rule="N1", line=1, path=name)


def describe_other_format(beginning: bytes) -> str | None:
    """Return what an input is, and what to do with it; None for what may be NDJSON.

    >>> describe_other_format(b'{"type": "A", "data": {}}'), describe_other_format(b"a,b;c")[:26]
    (None, 'this looks like CSV, not N')
    """
    head = bytes(beginning[:_HEAD_BYTES]).removeprefix(_BOM)
    text = head.lstrip()
    if not text or text.startswith(b"{"):
        return None
    if head.startswith(_COMPRESSED):
        return "this is compressed data, not lines of JSON; decompress it first, or use a load, which reads `.gz`"
    if head.startswith(b"PAR1"):
        return f"this is Parquet, not NDJSON; {_LOAD}"
    if _CONTROL.search(head):
        return "this is binary data, not NDJSON; give lines of JSON as UTF-8 text"
    if text.startswith(b"["):
        return (
            "this is a JSON array, and NDJSON has one object per line; write each element on a line of its own, for"
            " example with `jq -c '.[]' FILE`"
        )
    return f"this looks like CSV, not NDJSON; {_LOAD}" if _is_csv(text) else None


def _is_csv(text: bytes) -> bool:
    """Tell whether the first two lines have the same number of separators, and no brackets."""
    lines = [line for line in text.splitlines()[:3] if line.strip()][:2]
    if b"{" in b"".join(lines):
        return False
    return any(len({line.count(sign) for line in lines}) == 1 and sign in lines[0] for sign in (b",", b";", b"\t"))
