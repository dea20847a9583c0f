"""The seeded social graph that every engine loads, as Parquet files of one size.

Knows no engine. Degrees follow a power law, keys are strings in no order, words follow Zipf, vectors lie in clusters.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

Integers = NDArray[np.int64]

SEED = 42
DIMENSION = 64
_CLUSTERS = 200
_CITIES = 400
_VOCABULARY = 20_000
_WORDS_MIN, _WORDS_MAX = 8, 24
# Exponents of the weights by which people follow, are followed and write.
_OUT, _IN, _WRITE = 0.5, 0.55, 0.8
# Added to every rank, so that the first few do not own everything.
_HEAD = 10.0
_KEY_BITS, _SCRAMBLE = 48, 0x9E3779B97F4B
_EPOCH_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Size:
    """How large a graph is; parallel follows are dropped, so there are somewhat fewer than asked for."""

    name: str
    people: int
    follows: int
    posts: int


FULL = Size("full", 200_000, 4_200_000, 500_000)
QUARTER = Size("quarter", 50_000, 1_050_000, 125_000)
TENTH = Size("tenth", 20_000, 420_000, 50_000)
TINY = Size("tiny", 400, 4_000, 1_000)
SIZES = {size.name: size for size in (FULL, QUARTER, TENTH, TINY)}


def write_data(size: Size, folder: Path) -> None:
    """Write the files of a size unless they are there: person, post, follows, wrote."""
    if folder.exists():
        return
    making = folder.with_name(folder.name + ".making")
    making.mkdir(parents=True)
    for name, table in make_tables(size).items():
        pq.write_table(table, making / f"{name}.parquet")
    os.rename(making, folder)


def make_tables(size: Size) -> dict[str, pa.Table]:
    """Return all rows: nodes with a dense number and a key, edges with both."""
    random = np.random.default_rng(SEED)
    person, post = _people(size, random), _posts(size, random)
    authors = np.sort(random.permutation(size.people)[_ranks(size.people, _WRITE, size.posts, random)])
    wrote = np.stack([authors, random.permutation(size.posts)], axis=1)
    return {
        "person": person,
        "post": post,
        "follows": _edges(_follows(size, random), person["handle"], person["handle"]),
        "wrote": _edges(wrote, person["handle"], post["slug"]),
    }


def _people(size: Size, random: np.random.Generator) -> pa.Table:
    cities = np.array([f"city-{place:03d}" for place in range(_CITIES)])
    weights = np.arange(1, _CITIES + 1) ** -0.5
    return pa.table(
        {
            "number": np.arange(size.people, dtype=np.int32),
            "handle": _keys("u", size.people),
            "name": pa.array([f"Person {place}" for place in range(size.people)]),
            "city": pa.array(random.choice(cities, size.people, p=weights / weights.sum())),
            "age": random.integers(18, 80, size.people, dtype=np.int32),
        }
    )


def _posts(size: Size, random: np.random.Generator) -> pa.Table:
    centres = random.standard_normal((_CLUSTERS, DIMENSION), dtype=np.float32)
    vectors = centres[random.integers(0, _CLUSTERS, size.posts)]
    vectors += 0.35 * random.standard_normal((size.posts, DIMENSION), dtype=np.float32)
    # Instants are unique, so that the newest posts are the same in every engine.
    instants = _EPOCH_MS + random.permutation(size.posts).astype(np.int64) * 1_000
    return pa.table(
        {
            "number": np.arange(size.posts, dtype=np.int32),
            "slug": _keys("p", size.posts),
            "created": pa.array(instants, pa.timestamp("ms")),
            "text": _texts(size.posts, random),
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION),
        }
    )


def _texts(count: int, random: np.random.Generator) -> pa.Array[Any]:
    words = pa.array(vocabulary())
    lengths = random.integers(_WORDS_MIN, _WORDS_MAX + 1, count)
    weights = (np.arange(_VOCABULARY) + _HEAD) ** -1.0
    picked = random.choice(_VOCABULARY, int(lengths.sum()), p=weights / weights.sum())
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    texts = pc.binary_join(pa.ListArray.from_arrays(offsets, words.take(picked)), " ")
    assert isinstance(texts, pa.Array)
    return texts


@cache
def vocabulary() -> tuple[str, ...]:
    """Return made-up words, the frequent ones first; none is a stop word, and stemming leaves them apart."""
    random = np.random.default_rng(SEED + 1)
    syllables = np.array([a + b for a in "bdfgklmnprtvz" for b in "aou"])
    drawn = ["".join(one) + "x" for one in random.choice(syllables, (2 * _VOCABULARY, 4))]
    return tuple(dict.fromkeys(drawn))[:_VOCABULARY]


def _follows(size: Size, random: np.random.Generator) -> Integers:
    # One order of popularity for both ends: who follows many is followed by many.
    order = random.permutation(size.people)
    sources = order[_ranks(size.people, _OUT, size.follows, random)]
    targets = order[_ranks(size.people, _IN, size.follows, random)]
    codes = np.unique(sources * size.people + targets)
    pairs = np.stack(np.divmod(codes, size.people), axis=1)
    apart: Integers = pairs[pairs[:, 0] != pairs[:, 1]]
    return apart


def _ranks(count: int, exponent: float, draws: int, random: np.random.Generator) -> Integers:
    """Draw from `range(count)`, small numbers most often: the weights fall with a power of the number."""
    weights = np.cumsum((np.arange(count) + _HEAD) ** -exponent)
    ranks: Integers = np.searchsorted(weights, random.random(draws) * weights[-1]).astype(np.int64)
    return ranks


def _edges(pairs: Integers, sources: pa.ChunkedArray[Any], targets: pa.ChunkedArray[Any]) -> pa.Table:
    src, dst = (pa.array(pairs[:, place], pa.int32()) for place in (0, 1))
    columns: dict[str, Any] = {"src": src, "dst": dst, "from_key": sources.take(src), "to_key": targets.take(dst)}
    return pa.table(columns)


def _keys(prefix: str, count: int) -> pa.Array[Any]:
    # Multiplying by an odd number permutes what fits the bits, so the keys differ and are in no order.
    return pa.array([f"{prefix}{place * _SCRAMBLE % (1 << _KEY_BITS):012x}" for place in range(count)])
