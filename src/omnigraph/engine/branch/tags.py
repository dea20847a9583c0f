"""`graph.tags`: names for commits, under the policy.

Thin: the kernel knows how.
"""

from __future__ import annotations

from omnigraph.engine.core import Core, Moment
from omnigraph.engine.given import checking
from omnigraph.engine.scope import GRAPH, onto
from omnigraph.manifest import branches
from omnigraph.manifest.model import MAIN, Tag


@checking
class Tags:
    """The tags of one opened graph."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def create(self, name: str, at: Moment | None = None, branch: str = MAIN) -> Tag:
        """Name a commit and protect it from cleanup: the newest of a branch, or the one at a moment of it."""
        self._core.require("tag_create", onto(branch))
        head = self._core.whole(branch, at).snapshot.head
        assert head is not None, "every state has a commit that made it"
        owner = self._core.kernel.name_of(self._core.kernel.find_commit(head).branch)
        if owner != branch.strip():
            # A commit is judged by the branch that it belongs to.
            self._core.require("tag_create", onto(owner))
        return branches.create_tag(self._core.kernel, name, head, self._core.actor)

    def list(self) -> list[Tag]:
        """Return all tags, by name."""
        self._core.require("read", GRAPH)
        return branches.list_tags(self._core.kernel)

    def delete(self, name: str) -> None:
        """Take a tag away; its commit stays, but loses its protection."""
        tag = self._core.kernel.snapshot(MAIN).state.tags.get(name.strip())
        self._core.require("tag_delete", onto(self._core.kernel.name_of(tag.branch) if tag else MAIN))
        branches.delete_tag(self._core.kernel, name, self._core.actor)
