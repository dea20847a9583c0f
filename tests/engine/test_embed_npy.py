"""Cached vectors decoded by several threads at once, while garbage collection runs Python code in between."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from omnigraph.engine.embed import cache


@pytest.fixture
def busy_collector() -> Iterator[None]:
    def switch_threads(phase: str, info: dict[str, int]) -> None:
        time.sleep(0)

    usual = gc.get_threshold()
    gc.callbacks.append(switch_threads)
    gc.set_threshold(5)
    yield
    gc.set_threshold(*usual)
    gc.callbacks.remove(switch_threads)


@pytest.mark.slow
@pytest.mark.usefixtures("busy_collector")
def test_decode_in_many_threads_gives_every_array() -> None:
    array = np.arange(24, dtype=np.uint64).reshape(8, 3)
    body = cache._encode_npy(array)

    def decode_often(_: int) -> bool:
        decoded = [cache._decode_npy(body) for _ in range(40)]
        return all(read is not None and np.array_equal(read, array) for read in decoded)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(decode_often, range(48)))
