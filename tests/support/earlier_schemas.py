"""The compiler of an earlier release, which kept every annotation that it did not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.lang.schema import checks
from omnigraph.lang.schema.checks.annotations import check_unknown_annotations


@contextmanager
def unknown_annotations_accepted() -> Iterator[None]:
    """Compile schemas inside as releases did that accepted unknown annotations."""
    stages = checks.STAGES
    checks.STAGES = tuple(stage for stage in stages if stage is not check_unknown_annotations)
    try:
        yield
    finally:
        checks.STAGES = stages
