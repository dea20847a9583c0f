"""The ground: errors that travel, one error table, and the seams for time and ids."""

from __future__ import annotations

import pickle
import pkgutil
from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
from ulid import ULID

import omnigraph
from omnigraph import clock, ids
from omnigraph.errors import ERRORS, Effect, GraphError, OmniGraphError, UsageError
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Source, Span


def error_classes() -> list[type[OmniGraphError]]:
    """Return every error class of the product, wherever it is defined."""
    for module in pkgutil.walk_packages(omnigraph.__path__, "omnigraph."):
        if not module.name.endswith("__main__") and not module.name.startswith("omnigraph.pipeline"):
            import_module(module.name)
    found: list[type[OmniGraphError]] = [OmniGraphError]
    for cls in found:
        found.extend(sub for sub in cls.__subclasses__() if sub.__module__.startswith("omnigraph."))
    return found


def test_error_table_has_the_code_of_every_class() -> None:
    assert {cls.__name__: cls.code for cls in error_classes() if cls.code not in ERRORS} == {}


def test_error_table_statuses_are_failures() -> None:
    for kind in ERRORS.values():
        assert 400 <= kind.http_status <= 599, kind
        assert 1 <= kind.exit_status <= 125, kind
        assert kind.summary.endswith("."), kind


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_error_pickled_comes_back_whole(cls: type[OmniGraphError]) -> None:
    options: dict[str, Any] = {"code": "graph.corrupt"} if cls is GraphError else {}
    error = cls("no", effect=Effect.UNKNOWN, rule="E6", rows=(1, 2), **options)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (copy.code, copy.message, copy.effect) == (error.code, "no", Effect.UNKNOWN)
    assert copy.context == error.context
    assert copy.context["rows"] == (1, 2)
    assert copy.to_json() == error.to_json()


def test_language_error_pickled_keeps_its_diagnostics() -> None:
    source = Source("s.pg", "node A {}\nnode A {}")
    error = LanguageError(diagnostics=(Diagnostic("S25", "twice", source, Span(15, 16), "rename one"),))
    copy = pickle.loads(pickle.dumps(error))
    assert copy.diagnostics == error.diagnostics
    assert copy.render() == error.render()
    assert copy.to_json() == error.to_json()


def test_clock_replaced_holds_still_and_is_restored() -> None:
    with clock.replaced(lambda: 7):
        assert clock.now_us() == 7
        with clock.replaced(lambda: 8):
            assert clock.now_us() == 8
        assert clock.now_us() == 7
    assert clock.now_us() > 1_700_000_000_000_000


def test_clock_replaced_is_restored_after_an_error() -> None:
    with pytest.raises(UsageError), clock.replaced(lambda: 7):
        raise UsageError("stop")
    assert clock.now_us() != 7


def test_new_ulid_seeded_is_a_function_of_clock_and_randomness() -> None:
    def draw(instant_us: int, byte: bytes) -> str:
        with clock.replaced(lambda: instant_us), patch.object(ids, "_random", lambda count: byte * count):
            return ids.new_ulid()

    assert draw(5_000, b"\0") == draw(5_999, b"\0") == "00000000050000000000000000"
    assert draw(5_000, b"\0") != draw(5_000, b"\1")
    assert draw(5_000, b"\xff") < draw(6_000, b"\0")


@pytest.mark.parametrize("random", [b"\x00" * 10, b"\xff" * 10, b"\x01" * 5 + b"\xff" * 5])
def test_new_ulids_count_up_from_one_random_start(random: bytes) -> None:
    with clock.replaced(lambda: 1_700_000_000_123_000), patch.object(ids, "_random", lambda count: random[:count]):
        found = [text.decode() for text in ids.new_ulids(1_000)]
    numbers = [int.from_bytes(ULID.from_str(text).bytes, "big") for text in found]
    start = (1_700_000_000_123 << 80) + (int.from_bytes(random, "big") >> 1)
    assert numbers == list(range(start, start + 1_000))
    assert found == sorted(found)


def test_new_ulid_before_the_epoch_is_still_an_id() -> None:
    with clock.replaced(lambda: -1):
        assert ids.new_ulid().startswith("0000000000")
