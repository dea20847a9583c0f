"""Branches and tags: names in main's manifest for physical branches and for commits.

Creating a branch forks `__manifest` alone, so it costs the same for any number of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import orjson

from omnigraph import clock
from omnigraph.errors import ConflictError, GraphError, ReadSetChanged, UsageError
from omnigraph.ids import BranchId, CommitId, OperationId, is_ulid, new_operation_id, new_ulid
from omnigraph.limits import NAME_CHARACTERS_MAX
from omnigraph.manifest.intents import CLEANUP, NAMING, declared, pending, reject_unreadable
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, Branch, Snapshot, Tag
from omnigraph.manifest.plan import CommitPolicy, Plan
from omnigraph.manifest.updates import AddBranch, AddTag, DropBranch, DropTag
from omnigraph.store.read.dataset import reclaimed


def create_branch(kernel: Kernel, name: str, source: Snapshot, actor: str | None = None) -> Branch:
    """Create a branch that starts at a snapshot."""
    kernel.reject_read_only()
    name = checked_name(name, "branch")
    _reject_taken(kernel.snapshot(MAIN), name, "branch")
    branch_id = BranchId(new_ulid())
    origin = source.state.branch_id
    branch = Branch(name, branch_id, origin, source.version, clock.now_us(), actor, (name,))

    with _protected(kernel, source, actor) as operation_id:

        def prepare(main: Snapshot) -> Plan:
            _reject_taken(main, name, "branch")
            _reject_gone(main, origin, source.branch)
            _reject_purged(main, source)
            return Plan(None, updates=(AddBranch(branch),), actor=actor, operation_id=operation_id)

        kernel.store.fork_new(kernel.store.open(source.ref), branch_id)
        kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)
    return branch


def list_branches(kernel: Kernel) -> list[Branch]:
    """Return all branches but main, by name."""
    return sorted(kernel.snapshot(MAIN).state.branches.values(), key=lambda branch: branch.name)


def delete_branch(
    kernel: Kernel,
    name: str,
    actor: str | None = None,
    expected: BranchId | None = None,
    is_listed: Callable[[BranchId], bool] = lambda branch_id: True,
) -> None:
    """Delete a branch; files that no other branch reads become orphans.

    Raises while branches that started from it need its history, or a tag protects one of its commits. Datasets that
    other branches have adopted stay. `expected` is the incarnation that the caller was allowed to delete.
    `is_listed` says of a branch whether the error may name it, or tags on its commits.
    """
    name = name.strip()
    if name == MAIN:
        raise UsageError("`main` cannot be deleted: every graph has it; name another branch", branch=MAIN)

    def prepare(main: Snapshot) -> Plan:
        entry = _find_branch(main, name, expected)
        dependents = _dependents(main, entry)
        if dependents:
            named = [(kind, dependent) for kind, dependent, branch_id in dependents if is_listed(branch_id)]
            words = [f"{kind} `{dependent}`" for kind, dependent in named]
            if len(named) < len(dependents):
                words.append("a branch or tag that you may not list")
            raise GraphError(
                f"branch `{name}` cannot be deleted: {', '.join(words)} still"
                f" depend{'s' if len(words) == 1 else ''} on it; delete {'that' if len(words) == 1 else 'those'} first",
                code="branch.in_use",
                branch=name,
                dependents=[dependent for _, dependent in named],
            )
        # Merges elsewhere may have made its commits a part of their history, so they outlive the branch. Access to
        # them continues to be authorized by its names, which are recorded with them before the name is gone.
        kernel.keep_history(kernel.snapshot(name), names=entry.recorded_names or ())
        return Plan(None, updates=(DropBranch(name),), actor=actor)

    kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)


def rename_branch(
    kernel: Kernel, name: str, new_name: str, actor: str | None = None, expected: BranchId | None = None
) -> Branch:
    """Rename a branch; its id, and so every reference to it, stays the same.

    `expected` is the incarnation that the caller was allowed to rename.
    """
    if name.strip() == MAIN:
        raise UsageError("`main` cannot be renamed: every graph has it; name another branch", branch=MAIN)
    new_name = checked_name(new_name, "branch")
    renamed: list[Branch] = []

    def prepare(main: Snapshot) -> Plan:
        entry = _find_branch(main, name, expected)
        _reject_taken(main, new_name, "branch")
        names = None if entry.recorded_names is None else entry.names.renamed(new_name).names
        renamed[:] = [replace(entry, name=new_name, recorded_names=names)]
        return Plan(None, updates=(DropBranch(entry.name), AddBranch(renamed[0])), actor=actor)

    kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)
    return renamed[0]


def reserve_identity_space(kernel: Kernel, branch: str, actor: str | None = None) -> tuple[BranchId | None, int]:
    """Return the id of a branch and the space in which it numbers what it adds to its schema; main's is 0.

    The space of another branch is the version of main's catalog that records it, which is never given out twice.
    """
    if branch.strip() == MAIN:
        return None, 0
    reserved: list[Branch] = []

    def prepare(main: Snapshot) -> Plan | None:
        entry = _find_branch(main, branch, None)
        if entry.identity_space is not None:
            reserved[:] = [entry]
            return None
        reserved[:] = [replace(entry, identity_space=main.version + 1)]
        return Plan(None, updates=(DropBranch(entry.name), AddBranch(reserved[0])), actor=actor)

    kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)
    [entry] = reserved
    assert entry.identity_space is not None
    return entry.branch_id, entry.identity_space


def create_tag(kernel: Kernel, name: str, commit_id: CommitId, actor: str | None = None) -> Tag:
    """Name a commit and protect it from cleanup. A tag never moves: to name another commit, delete it first."""
    kernel.reject_read_only()
    name = checked_name(name, "tag")
    commit = kernel.find_commit(commit_id)
    snapshot = kernel.at_commit(commit_id)
    tag = Tag(name, commit_id, commit.branch, commit.manifest_version, clock.now_us(), actor)

    with _protected(kernel, snapshot, actor) as operation_id:

        def prepare(main: Snapshot) -> Plan:
            _reject_taken(main, name, "tag")
            _reject_gone(main, commit.branch, snapshot.branch)
            return Plan(None, updates=(AddTag(tag),), actor=actor, operation_id=operation_id)

        kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)
    return tag


def delete_tag(kernel: Kernel, name: str, actor: str | None = None) -> None:
    """Delete a tag; its commit is no longer protected from cleanup."""

    def prepare(main: Snapshot) -> Plan:
        if name.strip() not in main.state.tags:
            raise unknown_tag(name)
        return Plan(None, updates=(DropTag(name.strip()),), actor=actor)

    kernel.commit(MAIN, prepare, CommitPolicy.CONTROL)


def unknown_tag(name: str) -> GraphError:
    """Return the error for a tag that does not exist, or that the actor may not see."""
    return _not_found("tag", name)


def list_tags(kernel: Kernel) -> list[Tag]:
    """Return all tags, by name."""
    return sorted(kernel.snapshot(MAIN).state.tags.values(), key=lambda tag: tag.name)


def checked_name(name: str, noun: str) -> str:
    """Return the trimmed name of a branch or tag; raise if it is not valid."""
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
    elif is_ulid(name):
        reason = "it looks like the id of a commit"
    elif any(part in ("", ".", "..") for part in name.split("/")):
        # Clients and proxies normalise such paths, and would request another URL.
        reason = "a part between its slashes is empty, `.` or `..`, which cannot be part of a URL"
    if reason:
        raise GraphError(f"`{name}` cannot name a {noun}: {reason}", code="branch.invalid_name", name=name)
    return name


@contextmanager
def _protected(kernel: Kernel, snapshot: Snapshot, actor: str | None) -> Iterator[OperationId]:
    """Protect a snapshot from cleanup while it gets a name; raise if a cleanup may be removing it.

    Both sides write their intent before they check for the other: a running cleanup is seen here, and a later one sees
    our intent and keeps its base. So nothing needs to be checked, and nothing can fail, after the name was published.
    A recent head needs no intent. Publish with the operation id that is yielded.
    """
    if kernel.heads.was_head(snapshot.ref):
        yield new_operation_id(None)
        return
    with declared(kernel.store, NAMING, snapshot, actor) as own_intent:
        intents, unreadable = pending(kernel.store)
        reject_unreadable(unreadable, CLEANUP)
        # One that has died removes nothing more, and deleted catalog versions before what they refer to.
        if any(intent.kind == CLEANUP and not intent.is_dead for intent in intents):
            raise ConflictError(
                "a cleanup is running and may be removing that commit; nothing was named. Try again when it is done",
                object=str(snapshot.ref),
            )
        if not kernel.store.has_version(snapshot.ref):
            raise reclaimed(snapshot.ref)
        yield own_intent.operation_id


def _reject_taken(main: Snapshot, name: str, noun: str) -> None:
    # A name shared by a branch and a tag would be ambiguous wherever either is accepted.
    kinds = [kind for kind, names in (("branch", main.state.branches), ("tag", main.state.tags)) if name in names]
    if kinds:
        code = f"{noun}.exists"
        raise GraphError(f"{kinds[0]} `{name}` exists; choose another name, or delete it first", code=code, name=name)


def _find_branch(main: Snapshot, name: str, expected: BranchId | None) -> Branch:
    entry = main.state.branches.get(name.strip())
    if entry is None:
        raise _not_found("branch", name)
    if expected is not None and entry.branch_id != expected:
        raise ReadSetChanged(
            f"branch `{entry.name}` was deleted and recreated meanwhile; nothing was written, retry",
            member=f"branch_incarnation:{entry.name}",
            expected=expected,
            actual=entry.branch_id,
        )
    return entry


def _reject_gone(main: Snapshot, branch_id: BranchId | None, name: str) -> None:
    if branch_id is not None and branch_id not in {branch.branch_id for branch in main.state.branches.values()}:
        raise _not_found("branch", name)


def _reject_purged(main: Snapshot, source: Snapshot) -> None:
    """Reject a branch that would restore hard-dropped data."""
    if not main.state.purges:
        return
    ir = orjson.loads(source.state.schema.ir)
    properties = {
        property_["property_id"]
        for kind in ("nodes", "edges")
        for type_ in ir[kind]
        for property_ in type_["properties"]
    }
    types = {pin.identity for pin in source.state.pins.values()}
    for purge in main.state.purges:
        if purge.identity in types if purge.property_id is None else purge.property_id in properties:
            raise GraphError(
                f"commit {source.head} is older than the hard drop of `{purge.name}`, and a branch from it would"
                " restore the dropped data; create the branch from a newer commit",
                code="branch.purged",
                commit_id=source.head,
                dropped=purge.name,
            )


def _dependents(main: Snapshot, entry: Branch) -> list[tuple[str, str, BranchId]]:
    """Return what still needs the history of a branch: branches that started from it, and tags on its commits.

    Each with its kind, its name and the branch that decides who may see it.
    """
    children = [
        ("branch", branch.name, branch.branch_id)
        for branch in main.state.branches.values()
        if branch.parent == entry.branch_id
    ]
    tags = [("tag", tag.name, entry.branch_id) for tag in main.state.tags.values() if tag.branch == entry.branch_id]
    return sorted([*children, *tags])


def _not_found(noun: str, name: str) -> GraphError:
    return GraphError(
        f"there is no {noun} `{name.strip()}`; list them with `omnigraph {noun} list`",
        code=f"{noun}.not_found",
        name=name.strip(),
    )
