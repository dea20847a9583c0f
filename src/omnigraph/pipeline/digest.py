"""Digests of inputs: what tells a load that comes again from another one under the same name.

Follows bytes and columns alone: how files are cut into splits, and where they lie, makes no difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from omnigraph.engine.tasks import Runner
from omnigraph.pipeline.files import open_file
from omnigraph.pipeline.sources import Columns, Split

# Part of what a digest means: another size would make every job of the past look like a new one.
_BLOCK_BYTES: Final = 32 * 1024 * 1024
_STEP_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """Some bytes of a file."""

    file: str
    start: int
    stop: int


def digest_input(runner: Runner, mode: str, splits: Sequence[Split], frames: Mapping[str, Columns]) -> str:
    """Return a digest of what is loaded and how.

    Of a DataFrame only the columns count: computing it just to compare it may cost as much as the load.
    """
    firsts = [split for split in splits if split.is_first]
    sizes = _sizes(splits)
    blocks = [
        Block(split.file, start, min(start + _BLOCK_BYTES, sizes[split.file]))
        for split in firsts
        for start in range(0, max(sizes[split.file], 1), _BLOCK_BYTES)
    ]
    parts = runner.run("digesting", digest_block, blocks, [block.stop - block.start for block in blocks])
    kinds = [f"{split.table_key}:{_spelled(split.columns)}:{sizes[split.file]}{_partitions(split)}" for split in firsts]
    kinds += [f"{key}:{columns.data.schema.json()}" for key, columns in sorted(frames.items())]
    return hashlib.sha256("\n".join([mode, *kinds, *parts]).encode()).hexdigest()


def _spelled(columns: Columns | None) -> str:
    """Return a mapping of columns as text, spelled out so that a mapping that can say more spells this one the same."""
    if columns is None:
        return ""
    return "\0".join([columns.source or "", columns.target or "", *map(str, sorted(columns.properties.items()))])


def _partitions(split: Split) -> str:
    """Return the columns that directories spell; nothing for a file without any, as in digests of the past."""
    partitions = (*split.parent_partitions, *split.partitions)
    return f":{partitions}" if partitions else ""


def digest_block(block: Block) -> str:
    """Return a digest of some bytes of a file."""
    digest = hashlib.sha256()
    with open_file(block.file) as file:
        for place in range(block.start, block.stop, _STEP_BYTES):
            digest.update(file.read_at(min(_STEP_BYTES, block.stop - place), place))
    return digest.hexdigest()


def _sizes(splits: Sequence[Split]) -> dict[str, int]:
    """Return the sizes of files; those of Parquet are planned by row groups, so only the file itself tells."""
    sizes: dict[str, int] = {}
    for split in splits:
        if split.format != "parquet":
            sizes[split.file] = max(sizes.get(split.file, 0), split.stop, split.size)
        elif split.file not in sizes:
            with open_file(split.file) as file:
                sizes[split.file] = file.size()
    return sizes
