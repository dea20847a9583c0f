"""Parameters for the lines, drawn from the data with a seed: the same for every engine.

Knows no engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.reads.data import vocabulary
from benchmarks.reads.lines import Draw, Line

_SEED = 7
_WORDS = 3
# Words too frequent to be worth a search are left out, as are those that a small graph may lack.
_WORD_FIRST, _WORD_LAST = 20, 2_000
_NOISE = 0.2


@dataclass(frozen=True)
class Deck:
    """What parameters are drawn from."""

    handles: pa.ChunkedArray[Any]
    cities: pa.ChunkedArray[Any]
    vectors: pa.ChunkedArray[Any]
    words: tuple[str, ...]

    @classmethod
    def read(cls, data: Path) -> Deck:
        person = pq.read_table(data / "person.parquet", columns=["handle", "city"])
        vectors = pq.read_table(data / "post.parquet", columns=["vec"])["vec"]
        return cls(person["handle"], person["city"], vectors, vocabulary()[_WORD_FIRST:_WORD_LAST])

    def draw(self, line: Line, count: int) -> list[dict[str, Any]]:
        """Return this many parameter sets; the same ones for the same line and count."""
        # One stream per kind of parameter, so that two lines about people are asked about the same people.
        random = np.random.default_rng([_SEED, *map(ord, line.draw)])
        return [self._one(line.draw, random) for _ in range(count)]

    def _one(self, draw: Draw, random: np.random.Generator) -> dict[str, Any]:
        match draw:
            case Draw.NOTHING:
                return {}
            case Draw.PERSON:
                return {"handle": self.handles[int(random.integers(len(self.handles)))].as_py()}
            case Draw.PAIR:
                places = random.choice(len(self.handles), 2, replace=False)
                return dict(
                    zip(("handle", "other"), (self.handles[int(place)].as_py() for place in places), strict=True)
                )
            case Draw.CITY:
                return {"city": self.cities[int(random.integers(len(self.cities)))].as_py()}
            case Draw.WORDS:
                return {"words": " ".join(random.choice(self.words, _WORDS, replace=False))}
            case Draw.VECTOR:
                near = np.array(self.vectors[int(random.integers(len(self.vectors)))].as_py(), np.float32)
                noisy = near + _NOISE * random.standard_normal(len(near), dtype=np.float32)
                return {"vec": noisy.astype(np.float32).tolist()}
            case Draw.BOTH:
                return {**self._one(Draw.WORDS, random), **self._one(Draw.VECTOR, random)}
