"""Clones whose objects have other ETags than those of the source: their bytes are compared, not their ETags."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

import omnigraph as og
from omnigraph.limits import COPY_CHUNK_BYTES
from tests.support.s3_server import BUCKET, S3Server, s3_server

__all__ = ["s3_server"]

pytestmark = [pytest.mark.s3, pytest.mark.slow]

# More than one part of a file that Lance writes.
LARGE_BYTES = 5 * 1024 * 1024
SCHEMA = "node P { name: String @key  t: String? }"


@pytest.fixture
def source(s3_server: S3Server) -> str:
    """A graph with a data file that Lance writes in other parts than a copy does."""
    text = random.Random(1)
    rows = [
        {"type": "P", "data": {"name": f"p{number}", "t": text.randbytes(COPY_CHUNK_BYTES // 8).hex()}}
        for number in range(12)
    ]
    with og.init(s3_server.uri("g"), schema=SCHEMA) as graph:
        graph.load(rows)
    return s3_server.uri("g")


def faults(uri: str) -> list[str]:
    with og.open(uri, read_only=True) as graph:
        report = graph.maintenance.verify(data=True)
    return [finding.message for finding in report.findings if finding.severity == "error"]


def clone(source: str, target: str, *, update: bool = False) -> int:
    with og.open(source, read_only=True) as graph:
        return graph.clone(target, update=update).copied_files


def damage(prefix: str) -> None:
    """Flip a byte of the large data file of a clone in the bucket."""
    keys = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys
    large = next(key for name, key in keys.items() if name.startswith(prefix) and key.size > LARGE_BYTES)
    value = bytearray(large.value)
    value[len(value) // 2] ^= 1
    large.value = bytes(value)


def test_good_clone_with_other_etags_verifies_and_damage_is_found(s3_server: S3Server, source: str) -> None:
    target = s3_server.uri("copy")
    clone(source, target)
    assert faults(source) == faults(target) == []
    again = s3_server.uri("again")
    clone(target, again)
    assert faults(again) == []
    damage("again/")
    assert any("bytes are not those that were written" in fault for fault in faults(again))


def test_update_copies_only_new_files_and_verifies(s3_server: S3Server, source: str) -> None:
    target = s3_server.uri("copy")
    first = clone(source, target)
    with og.open(source) as graph:
        graph.load([{"type": "P", "data": {"name": "later"}}])
    assert 0 < clone(source, target, update=True) < first
    assert faults(target) == []


def test_clone_to_disk_compares_bytes_of_large_files(source: str, tmp_path: Path) -> None:
    target = tmp_path / "copy.omni"
    clone(source, str(target))
    assert faults(str(target)) == []
    large = next(path for path in target.rglob("*.lance") if path.is_file() and path.stat().st_size > LARGE_BYTES)
    value = bytearray(large.read_bytes())
    value[len(value) // 2] ^= 1
    large.write_bytes(value)
    assert any("bytes are not those that were written" in fault for fault in faults(str(target)))
