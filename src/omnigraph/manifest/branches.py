"""Branches and tags: names in main's manifest for physical branches and for commits.

Creating a branch forks `__manifest` alone, so it costs the same for any number of types.
"""

from __future__ import annotations

from omnigraph import clock
from omnigraph.errors import GraphError
from omnigraph.ids import BranchId, CommitId, new_ulid
from omnigraph.limits import NAME_CHARACTERS_MAX
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Branch, Snapshot, Tag
from omnigraph.manifest.plan import Plan, Work
from omnigraph.manifest.updates import AddBranch, AddTag, DropBranch, DropTag


def create_branch(kernel: Kernel, name: str, source: Snapshot, actor: str | None = None) -> Branch:
    """Make a branch that starts as exactly the given snapshot."""
    name = checked_name(name, "branch")
    _refuse_taken(kernel.snapshot(MAIN), name)
    branch_id = BranchId(new_ulid())
    origin = source.state.branch_id
    branch = Branch(name, branch_id, origin, source.version, clock.now_us(), actor)
    kernel.store.fork(kernel.store.open(source.ref), branch_id)

    def prepare(main: Snapshot) -> Plan:
        _refuse_taken(main, name)
        if origin is not None and origin not in {one.branch_id for one in main.state.branches.values()}:
            raise _not_found("branch", source.branch)
        return Plan(None, updates=(AddBranch(branch),), actor=actor)

    kernel.commit(MAIN, prepare, Work.CONTROL)
    return branch


def list_branches(kernel: Kernel) -> list[Branch]:
    """Return all branches but main, by name."""
    return sorted(kernel.snapshot(MAIN).state.branches.values(), key=lambda one: one.name)


def delete_branch(kernel: Kernel, name: str, actor: str | None = None) -> None:
    """Take a branch's name away; its files become residue. Refused while other branches stand on it."""
    name = name.strip()
    if name == MAIN:
        raise GraphError("`main` cannot be deleted", code="branch.in_use", branch=MAIN)

    def prepare(main: Snapshot) -> Plan:
        entry = main.state.branches.get(name)
        if entry is None:
            raise _not_found("branch", name)
        dependents = _dependents(kernel, main, entry)
        if dependents:
            raise GraphError(
                f"branch `{name}` cannot be deleted: {', '.join(f'`{one}`' for one in dependents)} still"
                f" stand{'s' if len(dependents) == 1 else ''} on it; delete or merge that first",
                code="branch.in_use",
                branch=name,
                dependents=dependents,
            )
        return Plan(None, updates=(DropBranch(name),), actor=actor)

    kernel.commit(MAIN, prepare, Work.CONTROL)


def rename_branch(kernel: Kernel, name: str, new_name: str, actor: str | None = None) -> Branch:
    """Give a branch another name; it stays the same branch to everyone who holds it."""
    new_name = checked_name(new_name, "branch")
    renamed: list[Branch] = []

    def prepare(main: Snapshot) -> Plan:
        entry = main.state.branches.get(name.strip())
        if entry is None:
            raise _not_found("branch", name)
        _refuse_taken(main, new_name)
        parts = (entry.branch_id, entry.parent, entry.parent_version, entry.created_at_us, entry.actor)
        renamed[:] = [Branch(new_name, *parts)]
        return Plan(None, updates=(DropBranch(entry.name), AddBranch(renamed[0])), actor=actor)

    kernel.commit(MAIN, prepare, Work.CONTROL)
    return renamed[0]


def create_tag(kernel: Kernel, name: str, commit_id: CommitId, actor: str | None = None) -> Tag:
    """Name a commit and protect it from cleanup."""
    name = checked_name(name, "tag")
    commit = kernel.find_commit(commit_id)
    tag = Tag(name, commit_id, commit.branch, commit.manifest_version, clock.now_us(), actor)

    def prepare(main: Snapshot) -> Plan:
        if name in main.state.tags:
            raise GraphError(f"tag `{name}` exists; delete it, or choose another", code="tag.exists", tag=name)
        return Plan(None, updates=(AddTag(tag),), actor=actor)

    kernel.commit(MAIN, prepare, Work.CONTROL)
    return tag


def delete_tag(kernel: Kernel, name: str, actor: str | None = None) -> None:
    """Take a tag's name away; its commit loses its protection."""

    def prepare(main: Snapshot) -> Plan:
        if name.strip() not in main.state.tags:
            raise _not_found("tag", name)
        return Plan(None, updates=(DropTag(name.strip()),), actor=actor)

    kernel.commit(MAIN, prepare, Work.CONTROL)


def list_tags(kernel: Kernel) -> list[Tag]:
    """Return all tags, by name."""
    return sorted(kernel.snapshot(MAIN).state.tags.values(), key=lambda one: one.name)


def checked_name(name: str, what: str) -> str:
    """Return a trimmed name for a branch or tag, or refuse it."""
    name = name.strip()
    reason = ""
    if not name:
        reason = "it is empty"
    elif name == MAIN:
        reason = "`main` is the name of the graph's first branch"
    elif len(name) > NAME_CHARACTERS_MAX:
        reason = f"it is longer than {NAME_CHARACTERS_MAX} characters"
    elif any(char.isspace() or not char.isprintable() for char in name):
        reason = "it contains blanks or control characters"
    if reason:
        raise GraphError(f"`{name}` cannot name a {what}: {reason}", code="branch.invalid_name", name=name)
    return name


def _refuse_taken(main: Snapshot, name: str) -> None:
    if name in main.state.branches:
        raise GraphError(
            f"branch `{name}` exists; choose another name, or delete it first", code="branch.exists", branch=name
        )


def _dependents(kernel: Kernel, main: Snapshot, entry: Branch) -> list[str]:
    """Return who still stands on a branch: its descendants, and whoever reads a dataset that lives on it."""
    found = [one.name for one in main.state.branches.values() if one.parent == entry.branch_id]
    for name in (MAIN, *main.state.branches):
        if name != entry.name and name not in found:
            pins = (main if name == MAIN else kernel.snapshot(name)).state.pins.values()
            if any(pin.owner == entry.branch_id for pin in pins):
                found.append(name)
    return sorted(found)


def _not_found(what: str, name: str) -> GraphError:
    return GraphError(
        f"there is no {what} `{name.strip()}`; list them with `omnigraph {what} list`",
        code=f"{what}.not_found",
        name=name.strip(),
    )
