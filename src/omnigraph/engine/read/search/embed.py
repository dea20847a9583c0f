"""Embedders: text to vectors, and the checks that every vector passes.

The providers that talk over the network are in `provider`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph import settings
from omnigraph.errors import DataError, UsageError

Matrix = NDArray[np.float32]
_MASK = (1 << 64) - 1


class Purpose(StrEnum):
    """What a text is embedded for; some models tell the two apart."""

    QUERY = "RETRIEVAL_QUERY"
    DOCUMENT = "RETRIEVAL_DOCUMENT"


class Embedder(Protocol):
    """Turns texts into vectors of one model of one provider."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Matrix:
        """Return one vector of length 1 per text; raises DataError with rule E13."""
        ...


def check_model(embedder: Embedder, model: str | None) -> None:
    """Refuse to compare with vectors of another model; `model` is what is recorded of theirs, if anything is (E13)."""
    if model is not None and model != embedder.model:
        raise DataError(
            f"the stored vectors come from the model `{model}`, but queries are embedded with `{embedder.model}`;"
            f" set OMNIGRAPH_EMBED_MODEL to `{model}`",
            rule="E13",
            expected=model,
            actual=embedder.model,
        )


def embed_query(embedder: Embedder, text: str, dimension: int) -> NDArray[np.float32]:
    """Return the vector of a query text."""
    vector: NDArray[np.float32] = embedder.embed([text], dimension, Purpose.QUERY)[0]
    return vector


def normalised(vectors: Sequence[object], dimension: int, model: str) -> Matrix:
    """Return vectors scaled to length 1; refuses a wrong dimension, what is not finite, and what has no length.

    >>> normalised([[3, 4]], 2, "m").tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    wide = _numbers_of(vectors, dimension)
    if wide is None:
        raise failure(f"the model `{model}` did not give {dimension} numbers per text", dimension=dimension)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not (lengths > 0).all():
        raise failure(f"the model `{model}` gave a vector that is all zero or not finite")
    unit: Matrix = (wide / lengths).astype(np.float32)
    return unit


def _numbers_of(vectors: Sequence[object], dimension: int) -> NDArray[np.float64] | None:
    """Return lists of numbers as a matrix, or None; stricter than numpy, which converts true, "1.5" and null."""
    try:
        rows: Any = pa.array(list[Any](vectors))
        if not pa.types.is_list(rows.type) or not _is_number(rows.type.value_type):
            return None
        fixed = rows.cast(pa.list_(pa.float64(), dimension))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if fixed.null_count or fixed.values.null_count:
        return None
    matrix: NDArray[np.float64] = fixed.values.to_numpy().reshape(len(rows), dimension)
    return matrix


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def failure(message: str, **context: str | int) -> DataError:
    """Return the error of an embedding that did not work."""
    error = DataError(message, rule="E13")
    error.context.update(context)
    return error


@dataclass(frozen=True, slots=True)
class MockEmbedder:
    """Vectors that depend on nothing but the text: the same on every machine, and without meaning."""

    model: str = "mock"
    name: str = "mock"

    def embed(self, texts: Sequence[str], dimension: int, purpose: Purpose) -> Matrix:
        return normalised([_mock_vector(text, dimension) for text in texts], dimension, self.model)


def _mock_vector(text: str, dimension: int) -> list[float]:
    """Map 64-bit xorshift numbers, seeded by the FNV-1a hash of the text, to [-1, 1]."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & _MASK
    # Xorshift never leaves zero, so a text that hashes to zero starts elsewhere.
    state = state or 1
    numbers = []
    for _ in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        numbers.append(state / _MASK * 2.0 - 1.0)
    return numbers


def from_settings(sharers: int = 1) -> Embedder:
    """Return the embedder that the settings name; a missing key is reported when something is embedded.

    So many `sharers` work at the same time, each with an embedder of its own, and share the allowed rate of requests.
    """
    from omnigraph.engine.read.search.pace import Pace
    from omnigraph.engine.read.search.provider import HttpEmbedder, Patience

    name = settings.read("OMNIGRAPH_EMBED_PROVIDER")
    model = settings.read("OMNIGRAPH_EMBED_MODEL")
    if settings.read("OMNIGRAPH_EMBEDDINGS_MOCK") in ("true", "1"):
        logging.getLogger("omnigraph").warning("OMNIGRAPH_EMBEDDINGS_MOCK is set: embeddings have no meaning")
        name = "mock"
    if name == "mock":
        return MockEmbedder(model or "mock")
    patience = Patience(
        deadline_seconds=_milliseconds("OMNIGRAPH_EMBED_DEADLINE_MS") or None,
        timeout_seconds=_milliseconds("OMNIGRAPH_EMBED_TIMEOUT_MS"),
        attempts_max=settings.whole("OMNIGRAPH_EMBED_RETRY_ATTEMPTS"),
        backoff_seconds=_milliseconds("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS"),
    )
    pace = Pace(_rate("OMNIGRAPH_EMBED_REQUESTS_PER_SECOND") / sharers)
    return HttpEmbedder.of(name, settings.read("OMNIGRAPH_EMBED_BASE_URL"), model, patience, pace)


def _milliseconds(name: str) -> float:
    return settings.whole(name) / 1_000


def _rate(name: str) -> float:
    value = settings.read(name)
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < float("inf"):
        raise UsageError(f"{name} is `{value}`; set it to a number such as 5 or 0.5", setting=name, value=value)
    return rate
