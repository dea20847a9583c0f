"""What the analyser costs: building a text index, and searching with it and without, for words of three kinds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.topic import Table, Topic, median_ms
from omnigraph.store.index.index_build import IndexKind, IndexSpec, build
from omnigraph.store.index.text_search import TextSearch
from omnigraph.store.objects.uri import Location
from omnigraph.store.read.dataset import Dataset
from omnigraph.store.store import Store
from omnigraph.store.write.transaction import append
from tests.support.staged_fixtures import commit

ROWS, VOCABULARY, LIMIT, ROUNDS = 100_000, 50_000, 10, 20
_LETTERS = "etaoinshrdlucmfwypvbgkjq"
_HAN = "我爱北京天安门今天天气很好我们去公园玩耍吧朋友都来了学习中文是一件有趣的事情"
_SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("text", pa.string())])
_INDEX = IndexSpec("text", IndexKind.FULLTEXT, "text")


def run(rows: int = ROWS, vocabulary: int = VOCABULARY) -> Topic:
    kinds: dict[str, Callable[[np.random.Generator], str]] = {
        "ASCII": _ascii,
        "a quarter with accents": _accented,
        "Chinese, in sentences": _chinese,
    }
    lines = []
    for name, word in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            lines.append((name, *measured(folder, word, rows, vocabulary)))
    return Topic(
        "Texts",
        f"{rows:,} texts of 10 to 110 words that follow Zipf's law, and the best {LIMIT} by BM25 of two words."
        " Without an index the first search analyses all texts; later ones on the same version do not.",
        tables=(
            Table("", ("Words", "Text MB", "Index MB", "Build s", "First s", "No index ms", "Index ms"), tuple(lines)),
        ),
    )


def measured(folder: str, word: Callable[[np.random.Generator], str], rows: int, vocabulary: int) -> tuple[str, ...]:
    random = np.random.default_rng(7)
    words = [word(random) for _ in range(vocabulary)]
    plain = _stored(folder, _texts(random, words, rows, "" if word is _chinese else " "))
    query = f"{words[50]} {words[700 % vocabulary]}"
    unindexed = TextSearch(plain, "text")
    first = _seconds(lambda: unindexed.search(query, None, LIMIT))
    start = time.perf_counter()
    dataset = commit(plain, build(plain, [_INDEX]))
    built = time.perf_counter() - start
    indexed = TextSearch(dataset, "text")
    assert indexed.search(query, None, LIMIT).scores.tolist() == unindexed.search(query, None, LIMIT).scores.tolist()
    [size] = [one.total_size_bytes for one in dataset.lance.describe_indices()]
    return (
        f"{plain.read(['text']).nbytes / 1e6:.0f}",
        f"{(size or 0) / 1e6:.0f}",
        f"{built:.1f}",
        f"{first:.1f}",
        *(f"{median_ms(partial(one.search, query, None, LIMIT), rounds=ROUNDS):.1f}" for one in (unindexed, indexed)),
    )


def _ascii(random: np.random.Generator) -> str:
    return "".join(random.choice(list(_LETTERS), int(random.integers(2, 11))))


def _accented(random: np.random.Generator) -> str:
    return _ascii(random).replace("o", "ö", 1) if random.random() < 0.6 else _ascii(random)


def _chinese(random: np.random.Generator) -> str:
    start = int(random.integers(0, len(_HAN) - 2))
    return _HAN[start : start + int(random.integers(1, 3))]


def _texts(random: np.random.Generator, words: list[str], rows: int, separator: str) -> list[str]:
    shares = 1 / np.arange(1, len(words) + 1)
    lengths = random.integers(10, 110, rows)
    drawn = np.array(words)[random.choice(len(words), int(lengths.sum()), p=shares / shares.sum())]
    ends = np.cumsum(lengths)
    return [separator.join(drawn[start:end]) for start, end in zip(ends - lengths, ends, strict=True)]


def _stored(folder: str, texts: list[str]) -> Dataset:
    dataset = Store(Location.parse(folder)).create("texts", _SCHEMA)
    return commit(
        dataset, append(dataset, pa.table({"id": [f"t{n}" for n in range(len(texts))], "text": texts}, schema=_SCHEMA))
    )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
