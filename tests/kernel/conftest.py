"""One process that forks those that die, for all crash suites of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.crash_campaign import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote() as zygote:
        yield zygote
