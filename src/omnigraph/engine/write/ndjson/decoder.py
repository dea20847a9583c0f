"""Decoding: lines of NDJSON to the tables of the types they name, exact to the rules of the dialect.

Every violation carries its line; rows that break no rule are returned. The caller limits the amount of input.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from omnigraph.engine.write.ndjson.blocks import Lines, Loaded, Part, blocks_of
from omnigraph.engine.write.ndjson.fast_path import Scanner
from omnigraph.engine.write.ndjson.reader import parse_lines
from omnigraph.engine.write.ndjson.slow_path import Converter, Envelopes
from omnigraph.lang.catalog import Catalog
from omnigraph.limits import DECODE_ODD_LINES
from omnigraph.rules.violations import Findings


def decode(
    buffer: bytes | memoryview | pa.Buffer,
    catalog: Catalog,
    *,
    first_line: int,
    findings: Findings,
    line_bytes_max: int | None = None,
) -> dict[str, Loaded]:
    """Return the entities of a buffer by type, in table-key order, without those that break a rule.

    The buffer holds whole lines of the strict dialect, the first of which has the number `first_line`. A line may be as
    long as in an ingest, or `line_bytes_max`. Once the findings are full, decoding stops.
    """
    decoder = Decoder(catalog, findings, line_bytes_max)
    decoder.add(buffer, first_line)
    return dict(sorted(decoder.loaded.items()))


class Decoder:
    """Decodes lines of the strict dialect, one buffer after the other."""

    def __init__(self, catalog: Catalog, findings: Findings, line_bytes_max: int | None = None) -> None:
        self._line_bytes_max = line_bytes_max
        self.loaded: dict[str, Loaded] = {}
        self.lines = 0
        self._findings = findings
        self._envelopes = Envelopes(catalog, findings)
        self._converter = Converter(findings)
        self._scanner = Scanner(catalog)

    def add(self, buffer: bytes | memoryview | pa.Buffer, first_line: int) -> None:
        """Decode the lines of a buffer, the first of which has the number `first_line`."""
        raw: Any = buffer
        for lines in blocks_of(raw, first_line):
            if self._findings.is_full:
                return
            self.lines += len(lines)
            if len(lines) <= DECODE_ODD_LINES:
                self._add_one_by_one(lines)
                continue
            parts, odd = self._scanner.scan(lines)
            for part in parts:
                add_part(self.loaded, part)
            for some in odd:
                self._add_one_by_one(some)

    def _add_one_by_one(self, lines: Lines) -> None:
        for number, value in parse_lines(lines, self._findings, self._line_bytes_max):
            self._envelopes.take(number, value)
        for gathered in self._envelopes.take_all():
            add_part(self.loaded, self._converter.convert(gathered))


def add_part(loaded: dict[str, Loaded], part: Part) -> None:
    """Add entities to those of their type."""
    loaded.setdefault(part.type.table_key, Loaded(part.type)).add(part)
