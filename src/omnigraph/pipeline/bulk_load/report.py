"""Reports: what a load did, for people, for programs and, line by line, for whoever has to correct the input.

Pure values, and the two files that they are written to.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from omnigraph.engine.embed.fetch import EmbedCounts
from omnigraph.engine.tasks import Runner
from omnigraph.errors import Effect, UsageError
from omnigraph.manifest.model import Commit
from omnigraph.pipeline.bulk_load.splits import Columns, Split, open_file
from omnigraph.rules.violations import Violation
from omnigraph.store.objects.failures import from_os_error

REPORT: Final = "report.json"
QUARANTINE: Final = "rejected.ndjson"
_SAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class RejectedLine:
    """One line that was left out, with its file and its number there."""

    file: str
    line: int
    violation: Violation
    text: str

    def to_json(self) -> dict[str, object]:
        return {
            "file": self.file,
            "line": self.line,
            "code": self.violation.rule,
            "reason": self.violation.message,
            "record": self.text,
        }


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A finished load. `already_applied` when an earlier one with the same job id had done it all.

    There is no commit when the input had no entities, or none that could be loaded.
    """

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: str
    job_id: str
    engine: str
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    commit: Commit | None
    actor: str | None = None
    already_applied: bool = False
    rejected: Sequence[RejectedLine] = field(default=())
    embedded: Mapping[str, EmbedCounts] = field(default_factory=dict)
    input_bytes: int = 0
    seconds: float = 0.0

    @property
    def commit_id(self) -> str | None:
        return self.commit.commit_id if self.commit else None

    @property
    def total_entities(self) -> int:
        return sum(self.nodes.values()) + sum(self.edges.values())

    @property
    def rejected_by_code(self) -> dict[str, int]:
        return dict(sorted(Counter(one.violation.rule for one in self.rejected).items()))

    def to_json(self) -> dict[str, object]:
        samples = {code: self._samples(code) for code in self.rejected_by_code}
        seconds = max(self.seconds, 1e-9)
        return {
            "branch": self.branch,
            "base_branch": self.base_branch,
            "branch_created": self.branch_created,
            "mode": self.mode,
            "job_id": self.job_id,
            "already_applied": self.already_applied,
            "engine": self.engine,
            "nodes": [{"name": name, "entities_loaded": count} for name, count in self.nodes.items()],
            "edges": [{"name": name, "entities_loaded": count} for name, count in self.edges.items()],
            "total_entities": self.total_entities,
            "rejected": [
                {"code": code, "count": count, "samples": samples[code]}
                for code, count in self.rejected_by_code.items()
            ],
            "embedded": [{"property": name, **one.to_json()} for name, one in sorted(self.embedded.items())],
            "input_bytes": self.input_bytes,
            "seconds": round(self.seconds, 3),
            "entities_per_second": round(self.total_entities / seconds),
            "megabytes_per_second": round(self.input_bytes / 1e6 / seconds, 1),
            "actor_id": self.actor,
            "commit": self.commit.to_json(self.branch) if self.commit else None,
        }

    def _samples(self, code: str) -> list[dict[str, object]]:
        return [one.to_json() for one in self.rejected if one.violation.rule == code][:_SAMPLES]


def prepare_folder(folder: str | os.PathLike[str]) -> Path:
    """Make the directory that reports go to, before any work is done that would be lost without it."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or "it cannot be made").lower()
        raise UsageError(
            f"cannot write reports to `{path}`: {reason}; give another directory", path=str(path)
        ) from error
    return path


def write_rejected(folder: Path, rejected: Sequence[RejectedLine]) -> None:
    """Write the lines that were left out, each with its reason."""
    lines = b"".join(orjson.dumps(one.to_json(), option=orjson.OPT_APPEND_NEWLINE) for one in rejected)
    _write(folder / QUARANTINE, lines, Effect.NONE)


def write_report(folder: Path, report: LoadReport) -> None:
    """Write what a load did."""
    text = orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    _write(folder / REPORT, text, Effect.NONE if report.commit is None else Effect.APPLIED)


def _write(path: Path, content: bytes, effect: Effect) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        failure = from_os_error(error, "write", str(path))
        failure.effect = effect
        raise failure from error


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
