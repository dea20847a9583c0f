"""Digests of inputs, by which a repeated job is recognized."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.engine.input.filesystems import open_file
from omnigraph.engine.input.splits import Columns, Split
from omnigraph.engine.input.spool import bytes_of
from omnigraph.engine.load.job import LoadOptions
from omnigraph.engine.tasks import Runner
from omnigraph.lang.catalog import TypeKey

# Changing this size would change every digest, and past jobs would look new.
_BLOCK_BYTES: Final = 32 * 1024 * 1024
_STEP_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ByteRange:
    split: Split
    start: int
    stop: int


def digest_input(
    runner: Runner, options: LoadOptions, splits: Sequence[Split], frames: Mapping[TypeKey, Columns]
) -> str:
    """Return a digest of the input and the mode of a load.

    A DataFrame counts by its schema only: computing its rows may cost as much as the load.
    """
    mode = f"{options.mode}, embedded" if options.embed else options.mode
    mode += "" if options.on_duplicate == "error" else f", {options.on_duplicate} duplicate"
    # What is held in memory counts as the file that it would be.
    firsts = [split for split in splits if split.is_first]
    firsts = [split if split.content is None else replace(split, content=bytes_of(split)) for split in firsts]
    of_files = _file_sizes([split for split in splits if split.content is None])
    sizes = [of_files[split.file] if split.content is None else len(split.content) for split in firsts]
    blocks = [
        ByteRange(split, start, min(start + _BLOCK_BYTES, size))
        for split, size in zip(firsts, sizes, strict=True)
        for start in range(0, max(size, 1), _BLOCK_BYTES)
    ]
    digests = runner.run("hashing the input", digest_block, blocks, [block.stop - block.start for block in blocks])
    descriptions = [
        f"{split.table_key}:{_format_mapping(split.columns)}:{size}{_format_partitions(split)}"
        for split, size in zip(firsts, sizes, strict=True)
    ]
    descriptions += [f"{key}:{columns.data.schema.json()}" for key, columns in sorted(frames.items())]
    return hashlib.sha256("\n".join([mode, *descriptions, *digests]).encode()).hexdigest()


def _format_mapping(columns: Columns | None) -> str:
    """Format a column mapping field by field, so that digests stay the same when the class gets new fields."""
    if columns is None:
        return ""
    delimiter = [] if columns.delimiter is None else [f"delimiter {columns.delimiter}"]
    properties = map(str, sorted(columns.properties.items()))
    return "\0".join([columns.source or "", columns.target or "", *properties, *delimiter])


def _format_partitions(split: Split) -> str:
    """Format partition columns; empty without any, as digests were before partitions were supported."""
    partitions = (*split.parent_partitions, *split.partitions)
    return f":{partitions}" if partitions else ""


def digest_block(block: ByteRange) -> str:
    digest = hashlib.sha256()
    with block.split.open() as file:
        for position in range(block.start, block.stop, _STEP_BYTES):
            digest.update(file.read_at(min(_STEP_BYTES, block.stop - position), position))
    return digest.hexdigest()


def _file_sizes(splits: Sequence[Split]) -> dict[str, int]:
    """Return file sizes; splits of Parquet count row groups, so the size of a Parquet file is read."""
    sizes: dict[str, int] = {}
    for split in splits:
        if split.format != "parquet":
            sizes[split.file] = max(sizes.get(split.file, 0), split.stop, split.size)
        elif split.file not in sizes:
            with open_file(split.file) as file:
                sizes[split.file] = file.size()
    return sizes
