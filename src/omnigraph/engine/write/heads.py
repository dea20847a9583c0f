"""Heads: how many lines of a file begin, byte for byte, and what follows from it for the rest of them.

Learned from the lines themselves. A head promises nothing about the rest of a line; whoever reads that finds out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.lines import Lines
from omnigraph.engine.write.loaded import Type
from omnigraph.lang.catalog import Catalog, NodeType
from omnigraph.limits import DECODE_HEADS_MAX, INGEST_LINE_TOKENS_MAX
from omnigraph.rules.kernels import Column, Numbers, arrays, pc

_HEAD: Final = re.compile(
    rb'[ \t]*\{[ \t]*"type"[ \t]*:[ \t]*"([^"\\]+)"[ \t]*,[ \t]*"data"[ \t]*:[ \t]*\{'
    rb'|[ \t]*\{[ \t]*"edge"[ \t]*:[ \t]*"([^"\\]+)"[ \t]*,'
)
_OPEN, _CLOSE, _RETURN, _LINE_END = b"{}\r\n"


@dataclass(frozen=True, slots=True)
class Head:
    """The first bytes of lines that hold an entity of one type: of a node into its data, of an edge past its name."""

    text: bytes
    type: Type


def sort_lines(lines: Lines, catalog: Catalog) -> tuple[list[tuple[Head, Lines]], Lines]:
    """Return the lines of each head, and the lines that have none. The lines are those of a whole block."""
    # The lines of a block follow each other, so that their starts alone say where they are.
    texts = _binary(np.append(lines.starts, len(lines.data)), lines.data)
    # A line that is so long may hold too many tokens, and one without an end has no room for one.
    left = (lines.ends - lines.starts <= INGEST_LINE_TOKENS_MAX) & (lines.ends < len(lines.data))
    odd = ~left
    found: list[tuple[Head, Lines]] = []
    for _ in range(DECODE_HEADS_MAX):
        if not left.any():
            break
        place = int(left.argmax())
        head = _head(lines.data[lines.starts[place] : lines.ends[place]].tobytes(), catalog)
        if head is None:
            left[place], odd[place] = False, True
            continue
        begun = pc.starts_with(texts, pattern=head.text).to_numpy(zero_copy_only=False) & left
        found.append((head, lines.take(begun)))
        left &= ~begun
    return found, lines.take(odd | left)


def _head(text: bytes, catalog: Catalog) -> Head | None:
    found = _HEAD.match(text)
    if found is None:
        return None
    name = (found[1] or found[2]).decode(errors="replace")
    type_ = catalog.nodes.get(name) if found[1] else catalog.edge_by_word(name)
    # The members of data would not be told from the id.
    return None if type_ is None or "id" in type_.properties else Head(found[0], type_)


def cut(head: Head, lines: Lines) -> Column | None:
    """Return what a JSON reader is to read of each line: the data of a node, an edge without its name.

    Each of them begins with an opening brace and ends with a closing one and a line end. So no line can be a part of a
    value that began on another one, and as many values as lines mean one value a line. None if a line does not end so.
    """
    # The last byte of a head is the brace that opens the data, or a comma that makes room for the brace of the edge.
    starts = lines.starts + len(head.text) - 1
    ends = lines.ends - (lines.data[lines.ends - 1] == _RETURN)
    if isinstance(head.type, NodeType):
        # The last brace belongs to the envelope, and makes room for the line end.
        ends = ends - 1
        if not _is_everywhere(_CLOSE, lines.data, ends):
            return None
    if not _is_everywhere(_CLOSE, lines.data, ends - 1):
        return None
    count = len(lines)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = starts, ends + 1
    pieces = _binary(offsets, lines.data)
    kept = pieces.take(pa.array(np.arange(0, 2 * count - 1, 2, dtype=np.int32)))
    places = np.frombuffer(kept.buffers()[1], np.int32)[: count + 1]
    text = np.frombuffer(kept.buffers()[2], np.uint8)
    text[places[:-1]] = _OPEN
    text[places[1:] - 1] = _LINE_END
    return kept


def _is_everywhere(byte: int, data: Numbers, places: Numbers) -> bool:
    return bool((data[places] == byte).all())


def _binary(offsets: Numbers, data: Numbers) -> Column:
    buffers = [None, arrays.py_buffer(offsets.astype(np.int32, copy=False)), arrays.py_buffer(data)]
    return arrays.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
