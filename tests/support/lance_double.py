"""What the guards of the Lance surface share: Lance without our store, and a catalog of one's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

KEY = {"lance-schema:unenforced-primary-key": "true"}
_FIELDS: list[pa.Field[Any]] = [pa.field("id", pa.string(), nullable=False, metadata=KEY), pa.field("n", pa.int32())]
SCHEMA = pa.schema(_FIELDS)

THREADS = 4
ROUNDS = 5


class Registrar:
    """Takes note of the version that a managed commit asks for, and refuses it when told to."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse = refuse
        self.requests: list[dict[str, Any]] = []

    def namespace_id(self) -> str:
        return "guard"

    def create_table_version(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(dict(request))
        if self.refuse:
            raise RuntimeError("refused")
        return {"version": {key: request.get(key) for key in ("version", "manifest_path", "manifest_size", "e_tag")}}


def table(*ids: str, n: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "n": pa.array([n] * len(ids), pa.int32())}, schema=SCHEMA)


def create(uri: str, options: dict[str, str] | None = None) -> LanceDataset:
    """Create an empty dataset the way the store does."""
    return LanceDataset.commit(
        uri,
        LanceOperation.Overwrite(SCHEMA, []),
        max_retries=0,
        enable_stable_row_ids=True,
        enable_v2_manifest_paths=True,
        storage_options=options,
    )


def stage(handle: LanceDataset, rows: pa.Table, mode: str = "append", **options: Any) -> Transaction:
    transaction = write_fragments(rows, handle, mode=mode, return_transaction=True, **options)
    assert isinstance(transaction, Transaction)
    return transaction


def upsert(handle: LanceDataset, rows: pa.Table) -> Transaction:
    """Stage rows by id with a merge of Lance's own."""
    merge = handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return merge.conflict_retries(0).execute_uncommitted(rows)[0]


def commit(handle: LanceDataset, transaction: Transaction, **options: Any) -> LanceDataset:
    """Commit by path, without retries."""
    return LanceDataset.commit(handle, transaction, max_retries=0, **options)


def managed(handle: LanceDataset, transaction: Transaction, registrar: Registrar, **options: Any) -> LanceDataset:
    """Commit with the registrar as catalog."""
    return LanceDataset.commit(
        handle,
        transaction,
        max_retries=0,
        namespace_client=registrar,  # type: ignore[arg-type]  # Lance asks it by method name, whatever its class
        table_id=["guard"],
        namespace_client_managed_versioning=True,
        **options,
    )


def manifest_name(version: int) -> str:
    return f"{(1 << 64) - 1 - version:020d}.manifest"


def manifest_bytes(raw: bytes) -> bytes:
    """Cut the manifest out of its file: a position, two version numbers and `LANC` end it, a length precedes it."""
    position = int.from_bytes(raw[-16:-8], "little")
    length = int.from_bytes(raw[position : position + 4], "little")
    return raw[position + 4 : position + 4 + length]


def winners(attempt: Callable[[int], object]) -> int:
    """Run one attempt per thread behind a barrier; return how many did not lose.

    A loser of a creation may get a plain `OSError` instead of the conflict error that derives from it.
    """
    barrier = threading.Barrier(THREADS)
    won: list[int] = []

    def run(thread: int) -> None:
        barrier.wait()
        try:
            attempt(thread)
        except OSError:
            return
        won.append(thread)

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return len(won)
