"""Clone and incremental backup: copy what is missing at the target, publish it in an order that is safe to interrupt.

Data files come first, then the catalogs of branches, last the newest catalog of main. So a clone that was cut off is no
graph yet, or the one it was before, and the same call goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from omnigraph.engine.clone.contents import Contents, capture_contents
from omnigraph.engine.clone.marker import CloneMarker
from omnigraph.engine.core import Core
from omnigraph.engine.maintain import progress
from omnigraph.engine.maintain.verify import verify
from omnigraph.engine.scope import ALLOW_ALL, GRAPH, on
from omnigraph.errors import GraphError, OmniGraphError, PolicyDenied, StorageError, StorageKind, UsageError
from omnigraph.limits import CLONE_ATTEMPTS_MAX, CLONE_BATCH_FILES
from omnigraph.manifest.kernel import Kernel
from omnigraph.manifest.model import MAIN, UNKNOWN_NAMES
from omnigraph.store.store import Store
from omnigraph.store.uri import Location


@dataclass(frozen=True, slots=True)
class CloneReport:
    """What a clone holds, and how much of it had to be copied this time."""

    source: str
    target: str
    commit: str
    branches: int
    tags: int
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int

    def to_json(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def clone_graph(core: Core, target: str, *, update: bool = False, actor: str | None = None) -> CloneReport:
    """Copy a graph whole to another place, and verify the copy.

    Args:
        core: the source.
        target: a path or address where no graph is; with `update`, a clone of this graph.
        update: bring an earlier clone up to date instead of making one. What it has is not copied again.
        actor: who asks; needs `export` of everything.

    Raises:
        UsageError: source and target lie one inside the other.
        GraphError: `graph.already_initialized` if there is a graph and `update` is not set; `clone.diverged` if the
            target holds another graph or was written to since; `clone.unsound` if the copy does not verify.
    """
    core = core.acting_as(actor)
    _require_everything(core)
    store = Store(_apart_from(core.kernel.store.root, Location.parse(target)))
    identity = _identity_of(core.kernel)
    _check_target(store, identity, update=update)
    contents, copied = _copy_all(core.kernel, store, identity)
    CloneMarker(identity, complete=True, heads=dict(contents.heads)).write(store.objects)
    _verify_clone(store, contents)
    state = core.kernel.snapshot(MAIN).state
    everything = {path: size for step in contents.steps for path, size in step.items()}
    return CloneReport(
        core.kernel.store.root.uri,
        store.root.uri,
        str(Kernel(store, read_only=True).snapshot(MAIN).head),
        len(contents.heads) - 1,
        len(state.tags),
        len(everything),
        sum(everything.values()),
        len(copied),
        sum(copied.values()),
    )


def _apart_from(source: Location, target: Location) -> Location:
    """Return the target; refuse one that shares files with the source, before anything is written."""
    if source.contains(target) or target.contains(source):
        raise UsageError(
            f"`{target.uri}` and the graph at `{source.uri}` lie one inside the other; nothing was written, clone to"
            " another place",
            uri=target.uri,
        )
    return target


def _require_everything(core: Core) -> None:
    """Refuse an actor that may not export all types of all branches: a copy has no policy that would hide them."""
    core.require("export", GRAPH)
    if core.policy is ALLOW_ALL:
        return
    for snapshot in core.kernel.live_snapshots():
        names = core.names_of(snapshot)
        core.require("export", on(names))
        # The history of branches that are gone comes along, whatever they were called.
        hidden = [
            core.hidden_in(core.catalog(snapshot), one, action)
            for one in (names, UNKNOWN_NAMES)
            for action in ("export", "read")
        ]
        if any(hidden):
            raise PolicyDenied(
                f"a clone holds all types of branch `{snapshot.branch}`, and the policy hides some of them",
                action="export",
                branch=snapshot.branch,
                target_branch=None,
            )


def _identity_of(kernel: Kernel) -> str:
    """Return the id of the first commit, which is the same in every copy of a graph and in no other graph."""
    first = min(kernel.all_commits().values(), key=lambda commit: (commit.parent is not None, commit.created_at_us))
    return str(first.commit_id)


def _check_target(store: Store, identity: str, *, update: bool) -> None:
    marker = CloneMarker.read(store.objects)
    if marker is None:
        if next(iter(store.objects.list("")), None) is not None:
            raise GraphError(
                f"`{store.root.uri}` is not empty and is not a clone; clone to another place",
                code="graph.already_initialized",
                uri=store.root.uri,
            )
        if update:
            raise GraphError(
                f"there is no clone at `{store.root.uri}` to update; clone without --update first",
                code="graph.not_found",
                uri=store.root.uri,
            )
        return
    if marker.graph != identity:
        raise _diverged(store, "is a clone of another graph")
    if not marker.complete:
        return
    if not update:
        raise GraphError(
            f"there is a clone of this graph at `{store.root.uri}`; bring it up to date with --update",
            code="graph.already_initialized",
            uri=store.root.uri,
        )
    target = Kernel(store, read_only=True)
    heads = {str(one.state.branch_id or MAIN): one.version for one in target.live_snapshots()}
    if heads != marker.heads:
        raise _diverged(store, "was written to since it was made")


def _diverged(store: Store, what: str) -> GraphError:
    return GraphError(
        f"`{store.root.uri}` {what}; nothing was copied. Clone to another place",
        code="clone.diverged",
        uri=store.root.uri,
    )


def _copy_all(kernel: Kernel, target: Store, identity: str) -> tuple[Contents, dict[str, int]]:
    """Copy until all of one captured state is there; a cleanup of the source may remove old versions meanwhile."""
    copied: dict[str, int] = {}
    for attempt in range(1, CLONE_ATTEMPTS_MAX + 1):
        contents = capture_contents(kernel)
        marker = CloneMarker.read(target.objects)
        begun = CloneMarker(identity, complete=False) if marker is None else replace(marker, complete=False)
        begun.write(target.objects)
        try:
            present = {info.path: info.size_bytes for info in target.objects.list("")}
            total = sum(map(len, contents.steps))
            for step in contents.steps:
                missing = {path: size for path, size in step.items() if present.get(path) != size}
                _copy_files(kernel.store, target, missing, copied, total)
        except StorageError as error:
            if error.storage_kind is not StorageKind.NOT_FOUND or attempt == CLONE_ATTEMPTS_MAX:
                raise
        else:
            return contents, copied
    raise AssertionError("the last attempt returns or raises")


def _copy_files(source: Store, target: Store, files: Mapping[str, int], copied: dict[str, int], total: int) -> None:
    paths = list(files)
    for start in range(0, len(paths), CLONE_BATCH_FILES):
        batch = paths[start : start + CLONE_BATCH_FILES]
        target.in_parallel([partial(source.objects.copy_to, target.objects, path) for path in batch])
        copied.update((path, files[path]) for path in batch)
        progress.tell("files copied", len(copied), total)


def _verify_clone(store: Store, contents: Contents) -> None:
    """Check that every file has its size, and that the clone reads as a graph does."""
    present = {info.path: info.size_bytes for info in store.objects.list("")}
    wrong = [path for step in contents.steps for path, size in step.items() if present.get(path) != size]
    if wrong:
        raise _unsound(store, f"`{wrong[0]}` is not as large as at the source")
    try:
        report = verify(Core(Kernel(store, read_only=True)))
    except OmniGraphError as error:
        raise _unsound(store, error.message) from error
    errors = [finding.message for finding in report.findings if finding.severity == "error"]
    if errors:
        raise _unsound(store, errors[0])


def _unsound(store: Store, why: str) -> GraphError:
    return GraphError(
        f"the clone at `{store.root.uri}` is not whole: {why}. Run `omnigraph verify` on the source, then clone again",
        code="clone.unsound",
        uri=store.root.uri,
    )
