"""`graph.tags`: names for commits, under the policy.

Thin: the kernel knows how.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.engine.core import Core, Moment, no_moment
from omnigraph.engine.given import checking
from omnigraph.engine.scope import ALLOW_ALL, GRAPH, on, onto
from omnigraph.errors import GraphError, PolicyDenied
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
        commit_id = self._commit_at(branch, at)
        with mask_hidden_tag(core, name):
            return branches.create_tag(core.kernel, name, commit_id, core.actor)

    def _commit_at(self, branch: str, at: Moment | None) -> CommitId:
        """Return the commit to be named, which is judged by the branch that it was made on."""
        core = self._core
        snapshot = core.head(branch) if at is None else core.allowed_at(branch, at)
        assert snapshot.head is not None, "every state has a commit that made it"
        if core.policy is ALLOW_ALL:
            return snapshot.head
        commit = core.kernel.find_commit(snapshot.head)
        names = core.names_of(commit)
        # A branch without commits of its own shows the newest one of the branch that it was made of.
        is_read = commit.branch == snapshot.state.branch_id or core.may("read", on(names))
        if is_read and core.may("tag_create", onto(names)):
            return commit.commit_id
        # That there is a commit which may not be tagged is not told.
        if at is not None:
            raise no_moment(branch, at)
        raise PolicyDenied(
            f"the newest commit of branch `{branch.strip()}` was made on another branch, where `{core.actor}` may not"
            " read or tag; commit to the branch first, or ask an actor who may",
            action="tag_create",
            actor=core.actor,
            branch=branch.strip(),
        )

    def list(self) -> list[Tag]:
        """Return all tags, by name."""
        self._core.require("read", GRAPH)
        return branches.list_tags(self._core.kernel)

    def delete(self, name: str) -> None:
        """Take a tag away; its commit stays, but loses its protection."""
        core = self._core
        tag = core.kernel.snapshot(MAIN).state.tags.get(name.strip())
        names = core.kernel.all_names_of([tag.branch])[tag.branch] if tag is not None else None
        if names is not None and not core.may("tag_delete", onto(names)):
            if core.may("read", on(names)):
                core.require("tag_delete", onto(names))
            # That there is a tag which may be neither deleted nor read is not told.
            names = None
        if names is None:
            core.require("tag_delete", onto(MAIN))
            raise branches.unknown_tag(name)
        branches.delete_tag(core.kernel, name, core.actor)


@contextmanager
def mask_hidden_tag(core: Core, name: str) -> Iterator[None]:
    """Replace the refusal of a name that a hidden tag has with one that does not say what has it."""
    try:
        yield
    except GraphError as error:
        if core.policy is ALLOW_ALL or error.code not in ("tag.exists", "branch.exists"):
            raise
        state = core.kernel.snapshot(MAIN).state
        tag = state.tags.get(name.strip())
        if tag is None or name.strip() in state.branches:
            raise
        if core.may("read", on(core.kernel.all_names_of([tag.branch])[tag.branch])):
            raise
        raise PolicyDenied(
            f"`{core.actor}` may not use the name `{name.strip()}`; nothing was written. Choose another name",
            actor=core.actor,
            name=name.strip(),
        ) from None
