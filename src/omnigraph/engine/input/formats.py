"""Formats that are not NDJSON: told by how an input begins, with what to do about it."""

from __future__ import annotations

import re
from typing import Final

from omnigraph.engine.input.ndjson.reader import BOM, COMPRESSED, COMPRESSED_INPUT
from omnigraph.errors import DataError

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_HEAD_BYTES: Final = 65_536
_LINES_WITHOUT_OBJECT: Final = 5
_LOAD: Final = (
    "load it with `omnigraph load GRAPH --node TYPE=FILE --mode merge`, edges with `--edge TYPE=FILE:FROM->TO`"
)


def reject_other_format(beginning: bytes, name: str | None = None) -> None:
    """Raise `DataError` (N1) if an input begins as another format does: an array, CSV, Parquet or binary data."""
    reason = describe_other_format(beginning)
    if reason is not None:
        where = f"`{name}`: " if name else ""
        raise DataError(f"{where}{reason}. Nothing was written", rule="N1", line=1, path=name)


def describe_other_format(beginning: bytes) -> str | None:
    """Describe an input that is not NDJSON and what to do with it; None if it may be NDJSON.

    >>> describe_other_format(b'{"type": "A", "data": {}}'), describe_other_format(b"a,b;c")[:26]
    (None, 'this looks like CSV, not N')
    """
    head = bytes(beginning[:_HEAD_BYTES]).removeprefix(BOM)
    text = head.lstrip()
    if not text or text.startswith(b"{"):
        return None
    if head.startswith(COMPRESSED):
        return COMPRESSED_INPUT
    if head.startswith(b"PAR1"):
        return f"this is Parquet, not NDJSON; {_LOAD}"
    if _CONTROL.search(head):
        return "this is binary data, not NDJSON; pass lines of JSON as UTF-8 text"
    if text.startswith(b"["):
        return (
            "this is a JSON array, but NDJSON has one object per line; write each element on its own line, for"
            " example with `jq -c '.[]' FILE`"
        )
    if _is_csv(text):
        return f"this looks like CSV, not NDJSON; {_LOAD}"
    lines = [line for line in text.splitlines() if line.strip()]
    # A few wrong lines are reported one by one; many would only repeat that this is another kind of file.
    if len(lines) >= _LINES_WITHOUT_OBJECT and not any(line.lstrip().startswith(b"{") for line in lines):
        return "this is not NDJSON: no line begins with `{`; write one JSON object per line"
    return None


def _is_csv(text: bytes) -> bool:
    """Return True if the first two lines have the same number of separators and no brackets."""
    lines = [line for line in text.splitlines()[:3] if line.strip()][:2]
    if b"{" in b"".join(lines):
        return False
    return any(len({line.count(sign) for line in lines}) == 1 and sign in lines[0] for sign in (b",", b";", b"\t"))
