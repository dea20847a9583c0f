"""Actions that tests arm at failpoints."""

from __future__ import annotations

import threading

from omnigraph.failpoints import Action


def fail_with(error: Exception) -> Action:
    """Return an action that raises an error."""

    def action(_: str) -> None:
        raise error

    return action


class Park:
    """An action that blocks the thread until the test calls `release`."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self._go = threading.Event()

    def __call__(self, _: str) -> None:
        self.arrived.set()
        self._go.wait()

    def release(self) -> None:
        self._go.set()
