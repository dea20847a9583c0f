"""Reading the input of an ingest: all of it or none, within the bounds of one write.

Collects everything that is wrong, with line numbers; a table comes out only of input that is right.
"""

from __future__ import annotations

from omnigraph.engine.write.convert import Converter
from omnigraph.engine.write.decode import Decoder, add_part
from omnigraph.engine.write.envelopes import Envelopes
from omnigraph.engine.write.legacy import Aliases
from omnigraph.engine.write.limit import too_large
from omnigraph.engine.write.loaded import Loaded
from omnigraph.engine.write.ndjson import Data, is_records, read_blocks, read_compatible
from omnigraph.engine.write.otherformats import refuse_other_format
from omnigraph.lang.catalog import Catalog
from omnigraph.limits import INGEST_CHUNK_RECORDS, WRITE_BYTES_MAX, WRITE_ENTITIES_MAX
from omnigraph.rules.violation import Findings


class Reader:
    """Reads one input against one catalog."""

    def __init__(self, catalog: Catalog, dialect: str, unit: str, *, is_bounded: bool) -> None:
        self.findings = Findings(unit=unit)
        self.loaded: dict[str, Loaded] = {}
        self._is_strict = dialect == "strict"
        self._is_bounded = is_bounded
        self._catalog = catalog

    def read(self, data: Data) -> dict[str, Loaded]:
        """Return the tables of an input by type, in table-key order; raises with all that is wrong with it."""
        if self._is_strict and not is_records(data):
            self._read_lines(data)
        else:
            self._read_records(data)
        self.findings.violations.sort(key=lambda one: one.line or 0)
        self.findings.raise_if_any()
        self._check_sizes()
        return dict(sorted(self.loaded.items()))

    def _read_lines(self, data: Data) -> None:
        """Read the input until it ends, or until it is clear that it will be refused."""
        decoder = Decoder(self._catalog, self.findings)
        self.loaded = decoder.loaded
        for buffer in read_blocks(data):
            if not decoder.lines:
                refuse_other_format(buffer)
            decoder.add(buffer, decoder.lines + 1)
            if self.findings.is_full or self._is_too_much():
                return

    def _read_records(self, data: Data) -> None:
        envelopes = Envelopes(self._catalog, self.findings)
        aliases = None if self._is_strict else Aliases(self.findings)
        converter = Converter(self.findings, aliases)
        take = envelopes.take if self._is_strict else envelopes.take_compatible
        for number, value in read_compatible(data, self.findings):
            gathered = take(number, value)
            if self.findings.is_full:
                break
            if gathered is None or len(gathered.members) < INGEST_CHUNK_RECORDS:
                continue
            envelopes.finish(gathered)
            add_part(self.loaded, converter.convert(gathered))
            if self._is_too_much():
                break
        for gathered in envelopes.rest():
            add_part(self.loaded, converter.convert(gathered))
        if aliases is not None and not self.findings.violations:
            aliases.apply(self.loaded)

    def _is_too_much(self) -> bool:
        """Tell whether what was read is more than one write may hold."""
        return (self._is_strict or self._is_bounded) and any(
            one.size > WRITE_BYTES_MAX or (self._is_bounded and one.count > WRITE_ENTITIES_MAX)
            for one in self.loaded.values()
        )

    def _check_sizes(self) -> None:
        for table_key, loaded in self.loaded.items():
            name = loaded.type.name
            if self._is_bounded and loaded.count > WRITE_ENTITIES_MAX:
                raise too_large(f"keyed entities for {table_key}", WRITE_ENTITIES_MAX, loaded.count, name, "entities")
            if self._is_strict and loaded.size > WRITE_BYTES_MAX:
                raise too_large("strict_input_arrow_bytes", WRITE_BYTES_MAX, loaded.size, name, "bytes", "N11")
            if self._is_bounded and loaded.size > WRITE_BYTES_MAX:
                raise too_large(f"keyed write bytes for {table_key}", WRITE_BYTES_MAX, loaded.size, name, "bytes")
