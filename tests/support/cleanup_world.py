"""Random graphs for cleanup: what every commit showed is recorded, and must be shown again for as long as it is kept.

The record is the export at the moment of the commit, blobs included, so it knows nothing of versions, files or forks.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import omnigraph as og
from omnigraph import clock
from omnigraph.engine.maintain.cleanup import CleanupReport
from omnigraph.errors import GraphError, OmniGraphError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import TypeKey
from omnigraph.manifest.intents import declared
from omnigraph.store.objects.local_objects import RESERVE_PATH
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.write.transaction import append

SCHEMA = """
node Doc { name: String @key  body: Blob?  text: String? @index  rank: I32? @index  place: Vector(4)? @index }
node Tag { name: String @key }
edge Has: Doc -> Tag
"""
# Inside of the data file, in a file that several share, and (rarely) in one of its own.
BLOB_SIZES = (0, 50, 60_000, 66_000, 70_000, 150_000)
LARGE_BLOB = 4_400_000
HOUR_US = 3_600_000_000
SEARCH = 'query q() { match { $d: Doc search($d.text, "sea") } return { $d.name as name } order { name asc } }'
RANKED = "query q() { match { $d: Doc { rank: 3 } } return { $d.name as name } order { name asc } }"


class Broken(AssertionError):
    """A kept state that is not what it was, or garbage that does not go."""


@dataclass
class World:
    """One graph, the operations on it, and what each of its commits showed."""

    root: Path
    seed: int
    states: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    expendable: set[str] = field(default_factory=set)
    staged: set[str] = field(default_factory=set)
    claimed: set[str] = field(default_factory=set)
    named: int = 0

    def __post_init__(self) -> None:
        self.pick = random.Random(self.seed)
        self.graph = og.init(self.root, SCHEMA)
        self.work = ExitStack()
        self.record()

    # -- what happens ------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Do random things, with a cleanup now and then; all that is kept is looked at after each."""
        moves: list[tuple[Callable[[], None], int]] = [
            (self.put, 30),
            (self.put_many, 8),
            (self.update, 16),
            (self.delete, 10),
            (self.optimize, 8),
            (self.index, 5),
            (self.branch, 10),
            (self.merge, 8),
            (self.drop_branch, 5),
            (self.tag, 6),
            (self.drop_tag, 2),
            (self.revert, 4),
            (self.stage, 5),
            (self.begin_work, 2),
            (self.end_work, 3),
            (self.clean, 9),
        ]
        names, weights = zip(*moves, strict=True)
        for _ in range(steps):
            self.pick.choices(names, weights)[0]()
            self.record()
        self.clean()

    def new_name(self, kind: str) -> str:
        self.named += 1
        return f"{kind}{self.named}"

    def any_branch(self) -> str:
        return self.pick.choice(self.graph.branches.list())

    def doc(self, name: str) -> dict[str, object]:
        size = LARGE_BLOB if self.pick.random() < 0.02 else self.pick.choice(BLOB_SIZES)
        body = f"base64:{base64.b64encode(self.pick.randbytes(size)).decode()}" if size else None
        words = self.pick.choices(("sea", "calm", "wind", "harbour"), k=3)
        place = [self.pick.random() for _ in range(4)]
        data = {"name": name, "body": body, "text": " ".join(words), "rank": self.pick.randrange(6), "place": place}
        return {"type": "Doc", "data": data}

    def put(self) -> None:
        self.graph.ingest([self.doc(f"d{self.pick.randrange(8)}")], branch=self.any_branch())

    def put_many(self) -> None:
        names = self.pick.sample([f"d{number}" for number in range(14)], 4)
        docs = [self.doc(name) for name in names]
        tags: list[dict[str, object]] = [{"type": "Tag", "data": {"name": "t"}}]
        edges: list[dict[str, object]] = [{"edge": "Has", "from": names[0], "to": "t"}]
        self.graph.ingest([*docs, *tags, *edges], branch=self.any_branch())

    def update(self) -> None:
        """Change entities that keep their blobs; no blob is written again, wherever it lies."""
        number, branch = self.pick.randrange(6), self.any_branch()
        where = self.pick.choice([f'name = "d{self.pick.randrange(8)}"', f"rank > {number}", 'name != "d1"'])
        before = blob_files(self.root)
        self.graph.mutate(f"query q() {{ update Doc set {{rank: {number}}} where {where} }}", branch=branch)
        if blob_files(self.root) != before:
            raise Broken(f"an update has written blobs: {sorted(blob_files(self.root) - before)}")

    def delete(self) -> None:
        source = f'query q() {{ delete Doc where name = "d{self.pick.randrange(8)}" }}'
        self.graph.mutate(source, branch=self.any_branch())

    def optimize(self) -> None:
        self.graph.maintenance.optimize(self.any_branch())

    def index(self) -> None:
        self.graph.maintenance.ensure_indices(self.any_branch())

    def branch(self) -> None:
        if len(self.graph.branches.list()) < 5:
            with unless("graph.version_reclaimed"):
                source = self.any_branch()
                at = self.pick.choice(self.graph.commits(source)).commit_id if self.pick.random() < 0.3 else None
                self.graph.branches.create(self.new_name("b"), source, at=at)

    def merge(self) -> None:
        source, target = self.any_branch(), self.any_branch()
        if source != target:
            with unless("merge.conflict", "graph.version_reclaimed", "branch.protected", "rule.", "branch."):
                drop = source != "main" and self.pick.random() < 0.4
                self.graph.branches.merge(source, target, delete_branch=drop)

    def drop_branch(self) -> None:
        names = [name for name in self.graph.branches.list() if name != "main"]
        if names:
            with unless("branch."):
                self.graph.branches.delete(self.pick.choice(names))

    def tag(self) -> None:
        commit = self.pick.choice(self.graph.commits(self.any_branch())).commit_id
        # A merge may have brought in commits of a branch that is gone, whose states do not stay.
        with unless("graph.version_reclaimed", "branch.not_found"):
            name = self.new_name("v")
            self.graph.tags.create(name, commit)
            self.tags[name] = commit

    def drop_tag(self) -> None:
        if self.tags:
            name = self.pick.choice(sorted(self.tags))
            self.graph.tags.delete(name)
            del self.tags[name]

    def revert(self) -> None:
        branch = self.any_branch()
        with unless("merge.", "graph.version_reclaimed", "usage", "commit.", "rule."):
            self.graph.revert(self.graph.commits(branch)[0].commit_id, branch=branch)

    def stage(self) -> None:
        """Leave rows behind that nothing names."""
        self.staged |= self.write_rows()

    def write_rows(self) -> set[str]:
        before = files_of(self.root)
        dataset = session_of(self.graph).view(self.any_branch()).dataset(TypeKey("node:Tag"))
        append(dataset, dataset.schema.empty_table() if dataset.count() == 0 else dataset.read())
        return files_of(self.root) - before

    def begin_work(self) -> None:
        """Begin long work that has staged files without saying where, and goes on."""
        if not self.claimed:
            self.work.enter_context(declared(session_of(self.graph).kernel.store, "load", self.graph.snapshot()))
            self.claimed = self.write_rows()

    def end_work(self) -> None:
        self.work.close()
        self.staged |= self.claimed
        self.claimed = set()

    # -- what must hold ----------------------------------------------------------------------------------------

    def record(self) -> None:
        """Remember what every new commit shows."""
        for branch in self.graph.branches.list():
            commit = self.graph.snapshot(branch).head
            assert commit is not None
            if commit not in self.states:
                self.states[commit] = shown(self.graph, branch, None)

    def clean(self) -> None:
        """Age files at random, clean, and hold every state that is kept against its record."""
        self.age()
        keep = self.pick.choice([None, 1, 1, 2, 5])
        older = timedelta(hours=self.pick.choice([0, 1, 6])) if keep is None or self.pick.random() < 0.3 else None
        report = (self.graph if self.pick.random() < 0.5 else og.open(self.root)).maintenance.cleanup(
            keep=keep, older_than=older, confirm=True
        )
        self.check_report(report)
        self.check_states(keep or 0)
        if not self.claimed <= files_of(self.root):
            raise Broken("files of live work are gone")

    def age(self) -> None:
        """Let files be of any age, those of live work excepted: no storage dates a file before the work began."""
        spared = self.claimed | {name for name in files_of(self.root) if name.startswith("__recovery/")}
        newest = clock.now_us()
        for name in files_of(self.root) - spared:
            if self.pick.random() < 0.8:
                at = (newest - self.pick.randrange(10 * HOUR_US)) * 1_000
                os.utime(self.root / name, ns=(at, at))

    def check_report(self, report: CleanupReport) -> None:
        if errors := [one for one in report.datasets if one.error]:
            raise Broken(f"cleanup refused {errors}")

    def check_states(self, keep: int) -> None:
        """Read everything that has to be there, and whatever else still is."""
        fresh = og.open(self.root)
        required = set(self.tags.values())
        for branch in fresh.branches.list():
            own = [one for one in fresh.commits(branch) if one.branch == fresh.snapshot(branch).state.branch_id]
            # What an earlier cleanup was allowed to remove does not come back because a later one keeps more.
            required |= {one.commit_id for one in own[: max(keep, 1)]} - self.expendable
            required.add(str(fresh.snapshot(branch).head))
        self.expendable |= self.states.keys() - required
        optional = sorted(self.states.keys() - required)
        for commit in [*sorted(required), *self.pick.sample(optional, min(len(optional), 6))]:
            try:
                state = shown(fresh, "main", commit)
            except GraphError as error:
                if commit in required or error.code not in ("graph.version_reclaimed", "commit.not_found"):
                    raise Broken(f"commit {commit} cannot be read: {error}") from error
                continue
            except OmniGraphError as error:
                raise Broken(f"commit {commit} cannot be read: {error}") from error
            if state != self.states[commit]:
                raise Broken(f"commit {commit} shows something else than it did")
        report = fresh.maintenance.verify()
        if not report.is_sound:
            raise Broken(str(report.findings))

    def check_garbage(self) -> None:
        """When everything is old, nothing but what kept versions need is left."""
        self.end_work()
        for _ in range(2):
            for name in files_of(self.root):
                os.utime(self.root / name, (1_000_000_000, 1_000_000_000))
            self.check_report(og.open(self.root).maintenance.cleanup(keep=1, confirm=True))
            self.check_states(1)
        left = files_of(self.root)
        if self.staged & left:
            raise Broken(f"residue stays: {sorted(self.staged & left)[:3]}")
        unnamed = left - named_files(og.open(self.root))
        if unnamed:
            raise Broken(f"{len(unnamed)} files stay that no version names: {sorted(unnamed)[:3]}")


@contextmanager
def unless(*codes: str) -> Iterator[None]:
    """Let an operation be refused for reasons that a random one may have."""
    try:
        yield
    except OmniGraphError as error:
        if not error.code.startswith(codes):
            raise


def shown(graph: Graph, branch: str, at: str | None) -> str:
    """Return a digest of all that a state shows: every entity with its blobs, and what indexes answer."""
    lines = sorted(b"".join(graph.export(branch, at=at)).splitlines())
    found = [graph.query(query, branch=branch, at=at).rows() for query in (SEARCH, RANKED)]
    return hashlib.sha256(b"\n".join(lines) + repr(found).encode()).hexdigest()


def files_of(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def blob_files(root: Path) -> set[str]:
    return {name for name in files_of(root) if name.endswith(".blob")}


def named_files(graph: Graph) -> set[str]:
    """Return the files that the versions left in storage name, with what goes beside them, as Lance lists it."""
    store, root = session_of(graph).kernel.store, Path(graph.uri)
    named = {"_schema.pg", RESERVE_PATH}
    for folder in root.rglob("_versions"):
        if not any(folder.glob("*.manifest")):
            # Of a fork that nothing reads any more, others may still need files.
            continue
        place = folder.parent.relative_to(root)
        path, _, fork = str(place).partition("/tree/")
        for row in store.open_latest(path, fork or None).lance.tracked_files().read_all().to_pylist():
            file = Path(row["base_uri"].removeprefix("file://"), row["path"])
            beside = file.with_suffix("")
            named |= {str(one.relative_to(root)) for one in (file, *beside.glob("*")) if one.exists()}
        named.add(f"{DatasetRef(path, fork or None, 0).directory}/_versions/latest_version_hint.json")
        if fork:
            named.add(f"{path}/_refs/branches/{fork}.json")
    return named
