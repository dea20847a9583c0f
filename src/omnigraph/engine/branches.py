"""The `branches` and `tags` of a graph: create, list, rename, merge and delete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.engine.arguments import strip_name
from omnigraph.engine.authorization import ALLOW_ALL, GRAPH, between, on_branch, on_target
from omnigraph.engine.information_flow import check_flow, check_rename
from omnigraph.engine.revisions import AsOf, commit_not_found
from omnigraph.engine.session import GraphSession, reports_progress
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied
from omnigraph.ids import BranchId, CommitId
from omnigraph.manifest import branches
from omnigraph.manifest.model import MAIN, MAIN_NAMES
from omnigraph.part_protocols import BranchesProtocol, TagsProtocol
from omnigraph.public_values import Branch, MergeReceipt, Tag

if TYPE_CHECKING:
    from omnigraph.engine.merge.conflicts import ResolutionsInput


class Tags(TagsProtocol):
    """The tags of an open graph."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    def create(self, name: str, at: AsOf | None = None, *, branch: str = MAIN) -> Tag:
        session = self._session
        name = strip_name(name, "name")
        session.require("tag_create", on_target(branch))
        commit_id = self._commit_at(branch, at)
        with mask_hidden_names(session, name):
            return branches.create_tag(session.kernel, name, commit_id, session.actor).public()

    def _commit_at(self, branch: str, at: AsOf | None) -> CommitId:
        """Return the commit to tag; it is authorized by the branch it was made on."""
        session = self._session
        snapshot = session.head(branch) if at is None else session.allowed_at(branch, at)
        assert snapshot.head is not None, "every state has a commit that made it"
        if session.policy is ALLOW_ALL:
            return snapshot.head
        commit = session.kernel.find_commit(snapshot.head)
        names = session.names_of(commit)
        # The head of a branch without own commits belongs to the branch it was created from.
        is_read = commit.branch == snapshot.state.branch_id or session.may("read", on_branch(names))
        if is_read and session.may("tag_create", on_target(names)):
            return commit.commit_id
        # Do not reveal that a commit exists which the actor may not tag.
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
        self._session.require("read", GRAPH)
        return [tag.public() for tag in branches.list_tags(self._session.kernel)]

    def delete(self, name: str) -> None:
        session = self._session
        tag = session.kernel.snapshot(MAIN).state.tags.get(strip_name(name, "name"))
        names = session.kernel.all_names_of([tag.branch])[tag.branch] if tag is not None else None
        if names is not None and not session.may("tag_delete", on_target(names)):
            if session.may("read", on_branch(names)):
                session.require("tag_delete", on_target(names))
            # Do not reveal that a tag exists which the actor may neither delete nor read.
            names = None
        if names is None:
            session.require("tag_delete", on_target(MAIN))
            raise branches.unknown_tag(name)
        branches.delete_tag(session.kernel, name, session.actor)


@contextmanager
def mask_hidden_names(session: GraphSession, name: str) -> Iterator[None]:
    """Replace errors about a new name that would reveal a hidden tag, or a hidden type that was dropped."""
    try:
        yield
    except GraphError as error:
        if error.code == "branch.purged" and not session.reads_all_types(MAIN_NAMES):
            raise _purged_error(error) from None
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


def _purged_error(error: GraphError) -> GraphError:
    """Return the error of a branch that would restore hard-dropped data, without naming the data."""
    commit_id = error.context["commit_id"]
    return GraphError(
        f"commit {commit_id} is older than a hard drop, and a branch from it would restore the dropped data;"
        " nothing was written. Create the branch from a newer commit",
        code=error.code,
        commit_id=commit_id,
    )


class Branches(BranchesProtocol):
    """The branches of an open graph."""

    def __init__(self, session: GraphSession) -> None:
        self._session = session

    def create(self, name: str, from_: str = MAIN, *, at: AsOf | None = None) -> Branch:
        session = self._session
        session.require("branch_create", between(from_, name))
        # The new branch makes its start readable, so the start is authorized by the branch it belongs to.
        main, origin = session.kernel.snapshot(MAIN), from_.strip()
        if at is None and (origin == MAIN or origin in main.state.branches):
            source = session.head(origin)
            check_flow(session, source, name)
        else:
            source = session.allowed_at(origin, at) if at is not None else session.allowed_at(MAIN, origin)
            check_flow(session, source, name, main)
        with mask_hidden_names(session, name):
            return branches.create_branch(session.kernel, name, source, session.actor).public()

    def list(self) -> list[str]:
        self._session.require("read", GRAPH)
        return sorted([MAIN, *(branch.name for branch in branches.list_branches(self._session.kernel))])

    def rename(self, name: str, new_name: str) -> Branch:
        session = self._session
        branch_id, names = session.find_branch(name)
        session.require("branch_delete", on_target(names))
        session.require("branch_create", between(names, names.renamed(strip_name(new_name, "new_name"))))
        check_rename(session, name, new_name)
        with mask_hidden_names(session, new_name):
            return branches.rename_branch(session.kernel, name, new_name, session.actor, branch_id).public()

    def delete(self, name: str) -> None:
        session = self._session
        branch_id, names = session.find_branch(name)
        session.require("branch_delete", on_target(names))

        def is_listed(dependent: BranchId) -> bool:
            # Without a policy nothing is hidden: skip reading the names.
            if session.policy is ALLOW_ALL or session.would_allow("read", GRAPH):
                return True
            return session.would_allow("read", on_branch(session.kernel.all_names_of([dependent])[dependent]))

        branches.delete_branch(session.kernel, name, session.actor, branch_id, is_listed)

    @reports_progress
    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        delete_branch: bool = False,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
        message: str | None = None,
    ) -> MergeReceipt:
        from omnigraph.engine.merge import merge

        session = self._session.with_message(message)
        if not dry_run:
            session.kernel.reject_read_only()
            session.runners.require()
        receipt = merge(session, source, into, dry_run=dry_run, resolutions=resolutions)
        if dry_run or not delete_branch:
            return receipt
        try:
            self.delete(receipt.source)
        except OmniGraphError as error:
            return replace(receipt, branch_deleted=False, branch_delete_error=error.message)
        return replace(receipt, branch_deleted=True)
