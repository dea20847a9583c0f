"""`graph.tags`: names for commits, under the policy.

Thin: the kernel knows how.
"""

from __future__ import annotations

from omnigraph.engine.core import Core, Moment, no_moment
from omnigraph.engine.given import checking
from omnigraph.engine.scope import ALLOW_ALL, GRAPH, onto
from omnigraph.ids import CommitId
from omnigraph.manifest import branches
from omnigraph.manifest.model import MAIN, Tag


@checking
class Tags:
    """The tags of one opened graph."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def create(self, name: str, at: Moment | None = None, branch: str = MAIN) -> Tag:
        """Name a commit and protect it from cleanup: the newest of a branch, or the one at a moment of it."""
        core = self._core
        core.require("tag_create", onto(branch))
        return branches.create_tag(core.kernel, name, self._commit_at(branch, at), core.actor)

    def _commit_at(self, branch: str, at: Moment | None) -> CommitId:
        """Return the commit to be named, which is judged by the branch that it was made on."""
        core = self._core
        if at is None or isinstance(at, int):
            head = core.kernel.snapshot(branch).head if at is None else core.at(branch, at).head
            assert head is not None, "every state has a commit that made it"
            commit = core.kernel.find_commit(head)
        else:
            commit = core.commit_at(branch, at)
        if core.policy is ALLOW_ALL or core.may("tag_create", onto(core.names_of(commit))):
            return commit.commit_id
        # That there is a commit which may not be tagged is not told.
        raise no_moment(branch, commit.commit_id if at is None else at)

    def list(self) -> list[Tag]:
        """Return all tags, by name."""
        self._core.require("read", GRAPH)
        return branches.list_tags(self._core.kernel)

    def delete(self, name: str) -> None:
        """Take a tag away; its commit stays, but loses its protection."""
        kernel = self._core.kernel
        tag = kernel.snapshot(MAIN).state.tags.get(name.strip())
        self._core.require("tag_delete", onto(kernel.all_names_of([tag.branch])[tag.branch] if tag else MAIN))
        branches.delete_tag(self._core.kernel, name, self._core.actor)
