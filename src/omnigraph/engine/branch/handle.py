"""`graph.branches`: create, list and delete, under the policy.

Thin: the kernel knows how.
"""

from __future__ import annotations

from omnigraph.engine.core import Core
from omnigraph.manifest import branches
from omnigraph.manifest.model import MAIN, Branch


class Branches:
    """The branches of one opened graph."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def create(self, name: str, from_: str = MAIN, at: str | int | None = None) -> Branch:
        """Make a branch from the newest state of another, or from the state at a commit, tag or manifest version."""
        self._core.enforce("branch_create", name.strip(), self._core.actor)
        source = self._core.view(from_, at).snapshot
        return branches.create_branch(self._core.kernel, name, source, self._core.actor)

    def list(self) -> list[str]:
        """Return the names of all branches, sorted; `main` is always among them."""
        self._core.enforce("read", MAIN, self._core.actor)
        return sorted([MAIN, *(one.name for one in branches.list_branches(self._core.kernel))])

    def delete(self, name: str) -> None:
        """Take a branch away; refused while other branches stand on it."""
        self._core.enforce("branch_delete", name.strip(), self._core.actor)
        branches.delete_branch(self._core.kernel, name, self._core.actor)
