"""Over whole histories of two actors, the restricted one sees what it would see if the hidden types did not exist."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine import authorization, branches
from omnigraph.engine.merge.apply import Application
from omnigraph.engine.session import GraphSession
from omnigraph.engine.write import write_authorization
from omnigraph.manifest.heads import NameRecord
from omnigraph.manifest.model import ADOPTED, Branch, BranchNames
from tests.policy.two_actor_histories import STEPS, run
from tests.policy.two_actor_world import POLICIES, Leak

# Of each policy, so that there are more than a hundred.
HISTORIES = 34
# The function of the same name hides the module.
MERGING = import_module("omnigraph.engine.merge.merge")


def nothing(*_: object, **__: object) -> None:
    """Check nothing."""


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_restricted_actor_sees_a_graph_without_the_hidden_types(tmp_path: Path, policy: str) -> None:
    run(folder(tmp_path, 0), policy, 0)


@pytest.mark.long
@pytest.mark.parametrize("policy", POLICIES)
def test_restricted_actor_sees_no_hidden_types_in_many_histories(tmp_path: Path, policy: str) -> None:
    seeds = (1, *range(100, 100 + HISTORIES))
    kinds = {step for seed in seeds for step in run(folder(tmp_path, seed), policy, seed, 20)}
    assert kinds == STEPS.keys()


# -- mutants -----------------------------------------------------------------------------------------------------------


def fail_open(self: NameRecord, branch_ids: set[Any]) -> dict[Any, BranchNames]:
    """Take a branch that is gone for one whose name is its id."""
    return {one: BranchNames((str(one),)) for one in branch_ids}


def newest_name_only(self: Branch) -> BranchNames:
    return BranchNames((self.name,))


def unasked_head(self: GraphSession, branch: str, action: str = "read") -> Any:
    return self.kernel.snapshot(branch)


def commit_without_question(self: GraphSession, action: str, scope: Any) -> bool:
    return True


FORK = ("root branches", "root writes", "root writes", "root writes")
MERGE = ("root branches", *["root clashes", "ann merges"] * 3)
TOLD = lambda self, conflicts: list(conflicts)  # noqa: E731 - a mutant
MUTANTS: dict[str, tuple[Any, str, Any, str, tuple[str, ...]]] = {
    "deleted fail open": (NameRecord, "_read_deleted", fail_open, "unprotected", (*FORK, *["root deletes"] * 3)),
    "renamed unprotected": (Branch, "names", property(newest_name_only), "unprotected", (*FORK, *["root renames"] * 3)),
    "head unasked": (GraphSession, "head", unasked_head, "unprotected", ("ann branches",) * 3),
    "branch create unchecked": (branches, "check_flow", nothing, "protected types", ("ann branches",) * 6),
    "load from unchecked": (write_authorization, "check_flow", nothing, "protected types", ("ann branches",) * 6),
    "merge unchecked": (MERGING, "check_flow", nothing, "protected types", ("ann merges",) * 6),
    "merge base unchecked": (
        MERGING,
        "types_hidden_at_base",
        lambda *_: frozenset(),
        "protected types",
        ("ann meets",) * 2,
    ),
    "cherry-pick unchecked": (MERGING, "check_flow", nothing, "protected types", ("ann replays",) * 6),
    "rename unchecked": (branches, "check_rename", nothing, "protected types", (*FORK, *["ann renames"] * 3)),
    "resolutions unchecked": (Application, "_check_resolutions", nothing, "types", MERGE),
    "commit unasked": (GraphSession, "may", commit_without_question, "unprotected", FORK),
    "hidden conflicts told": (Application, "_visible_conflicts", TOLD, "types", MERGE),
    "adopted forks told": (
        authorization,
        "_PUBLIC",
        authorization._PUBLIC | {ADOPTED},
        "types",
        (*FORK, *["root merges"] * 5),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.sampled(3)
def test_mutant_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    place, name, broken, policy, script = MUTANTS[mutant]
    monkeypatch.setattr(place, name, broken)
    with pytest.raises(Leak):
        run_several(tmp_path, policy, script)


def run_several(root: Path, policy: str, script: tuple[str, ...]) -> None:
    for seed in range(12):
        run(folder(root, seed), policy, seed, len(script), script, looks=20)


def folder(root: Path, seed: int) -> Path:
    path = root / str(seed)
    path.mkdir()
    return path
