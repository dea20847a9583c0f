"""Branches and tags of a graph, as users handle them.

May import the ground, the languages, the store, the kernel, and merges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.engine.arguments import strip_name
from omnigraph.engine.authorization import ALLOW_ALL, GRAPH, between, on_branch, on_target
from omnigraph.engine.information_flow import check_flow, check_rename
from omnigraph.engine.session import AsOf, GraphSession, commit_not_found
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied
from omnigraph.ids import CommitId
from omnigraph.manifest import branches
from omnigraph.manifest.model import MAIN, Branch, Tag

if TYPE_CHECKING:
    from omnigraph.engine.merge import MergeReceipt
    from omnigraph.engine.merge.conflicts import ResolutionsInput


class Tags:
    """The tags of one opened graph."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    def create(self, name: str, at: AsOf | None = None, branch: str = MAIN) -> Tag:
        """Name a commit and protect it from cleanup: the newest of a branch, or the one at a moment of it."""
        session = self._session
        session.require("tag_create", on_target(branch))
        commit_id = self._commit_at(branch, at)
        with mask_hidden_tag(session, name):
            return branches.create_tag(session.kernel, name, commit_id, session.actor)

    def _commit_at(self, branch: str, at: AsOf | None) -> CommitId:
        """Return the commit to be named, which is judged by the branch that it was made on."""
        session = self._session
        snapshot = session.head(branch) if at is None else session.allowed_at(branch, at)
        assert snapshot.head is not None, "every state has a commit that made it"
        if session.policy is ALLOW_ALL:
            return snapshot.head
        commit = session.kernel.find_commit(snapshot.head)
        names = session.names_of(commit)
        # A branch without commits of its own shows the newest one of the branch that it was made of.
        is_read = commit.branch == snapshot.state.branch_id or session.may("read", on_branch(names))
        if is_read and session.may("tag_create", on_target(names)):
            return commit.commit_id
        # That there is a commit which may not be tagged is not told.
        if at is not None:
            raise commit_not_found(branch, at)
        raise PolicyDenied(
            f"the newest commit of branch `{branch.strip()}` was made on another branch, where `{session.actor}` may"
            " not read or tag; commit to the branch first, or ask an actor who may",
            action="tag_create",
            actor=session.actor,
            branch=branch.strip(),
        )

    def list(self) -> list[Tag]:
        """Return all tags, by name."""
        self._session.require("read", GRAPH)
        return branches.list_tags(self._session.kernel)

    def delete(self, name: str) -> None:
        """Take a tag away; its commit stays, but loses its protection."""
        session = self._session
        tag = session.kernel.snapshot(MAIN).state.tags.get(strip_name(name, "name"))
        names = session.kernel.all_names_of([tag.branch])[tag.branch] if tag is not None else None
        if names is not None and not session.may("tag_delete", on_target(names)):
            if session.may("read", on_branch(names)):
                session.require("tag_delete", on_target(names))
            # That there is a tag which may be neither deleted nor read is not told.
            names = None
        if names is None:
            session.require("tag_delete", on_target(MAIN))
            raise branches.unknown_tag(name)
        branches.delete_tag(session.kernel, name, session.actor)


@contextmanager
def mask_hidden_tag(session: GraphSession, name: str) -> Iterator[None]:
    """Replace the refusal of a name that a hidden tag has with one that does not say what has it."""
    try:
        yield
    except GraphError as error:
        if session.policy is ALLOW_ALL or error.code not in ("tag.exists", "branch.exists"):
            raise
        state = session.kernel.snapshot(MAIN).state
        tag = state.tags.get(name.strip())
        if tag is None or name.strip() in state.branches:
            raise
        if session.may("read", on_branch(session.kernel.all_names_of([tag.branch])[tag.branch])):
            raise
        raise PolicyDenied(
            f"`{session.actor}` may not use the name `{name.strip()}`; nothing was written. Choose another name",
            actor=session.actor,
            name=name.strip(),
        ) from None


class Branches:
    """The branches of one opened graph."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    def create(self, name: str, from_: str = MAIN, at: AsOf | None = None) -> Branch:
        """Make a branch from the newest state of another, or from a commit or tag.

        With `at`, from the state of the branch `from_` at a commit, a tag, a manifest version or a point in time.
        """
        session = self._session
        session.require("branch_create", between(from_, name))
        # What it begins with can be read on the new branch; a commit or tag is judged by the branch that it belongs to.
        main, origin = session.kernel.snapshot(MAIN), from_.strip()
        if at is None and (origin == MAIN or origin in main.state.branches):
            source = session.head(origin)
            check_flow(session, source, name)
        else:
            source = session.allowed_at(origin, at) if at is not None else session.allowed_at(MAIN, origin)
            check_flow(session, source, name, main)
        with mask_hidden_tag(session, name):
            return branches.create_branch(session.kernel, name, source, session.actor)

    def list(self) -> list[str]:
        """Return the names of all branches, sorted; `main` is always among them."""
        self._session.require("read", GRAPH)
        return sorted([MAIN, *(branch.name for branch in branches.list_branches(self._session.kernel))])

    def rename(self, name: str, new_name: str) -> Branch:
        """Give a branch another name; whoever works on it goes on under the new one."""
        session = self._session
        branch_id, names = session.find_branch(name)
        session.require("branch_delete", on_target(names))
        session.require("branch_create", between(names, names.renamed(strip_name(new_name, "new_name"))))
        check_rename(session, name, new_name)
        with mask_hidden_tag(session, new_name):
            return branches.rename_branch(session.kernel, name, new_name, session.actor, branch_id)

    def delete(self, name: str) -> None:
        """Take a branch away; refused while other branches or tags stand on it."""
        branch_id, names = self._session.find_branch(name)
        self._session.require("branch_delete", on_target(names))
        branches.delete_branch(self._session.kernel, name, self._session.actor, branch_id)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        delete_branch: bool = False,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
    ) -> MergeReceipt:
        """Merge a branch into another, as one commit.

        `dry_run` says what would come out, conflicts included, and writes nothing. `resolutions` settle conflicts: a
        file of JSON or NDJSON, its bytes, or dictionaries. `delete_branch` takes the source away after success; that
        it cannot be deleted does not undo the merge, and the receipt says why.
        """
        from omnigraph.engine.merge import merge

        receipt = merge(self._session, source, into, dry_run=dry_run, resolutions=resolutions)
        return receipt if dry_run or not delete_branch else delete_merged(self, receipt)


def delete_merged(branches: Branches, receipt: MergeReceipt) -> MergeReceipt:
    """Take the source of a merge away; the receipt says whether that worked."""
    try:
        branches.delete(receipt.source)
    except OmniGraphError as error:
        return replace(receipt, branch_deleted=False, branch_delete_error=error.message)
    return replace(receipt, branch_deleted=True)
