"""Random histories of branches against a model of them, and broken engines that the model must notice."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph.engine.merge import ancestry, conflicts, graph_merge, row_merge, schema_merge, three_way, type_merge
from omnigraph.lang.schema import merge as merge_module
from omnigraph.lang.schema.merge import SchemaMerge
from omnigraph.manifest import branches
from tests.engine.test_merge_ancestry import nearest
from tests.support.history_world import World, template

STEPS = 8
# Few worlds in which merges end in every way.
SEEDS = (0, 17, 25)
# The package has a function of the same name, which hides the module.
merging = sys.modules["omnigraph.engine.merge.merge"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return template(tmp_path_factory.mktemp("start"))


def run(start: Path, root: Path, seeds: Iterable[int], steps: int = STEPS, *, verifies: bool = False) -> Counter[str]:
    """Let worlds happen; return how many merges came to what. A failure tells all that had happened."""
    merges: Counter[str] = Counter()
    for seed in seeds:
        world = World(start, root / str(seed), seed, verifies=verifies)
        try:
            world.run(steps)
        except Exception as error:
            raise AssertionError("\n".join(world.log)) from error
        finally:
            world.graph.close()
        merges.update(world.merges)
    return merges


@pytest.mark.slow
def test_random_histories_equal_the_model(start: Path, tmp_path: Path) -> None:
    merges = run(start, tmp_path, SEEDS)
    # Every way in which a merge can end has been gone.
    assert min(merges.values()) > 0, merges


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 1_100, 50))
def test_many_random_histories_equal_the_model_and_verify(start: Path, tmp_path: Path, first: int) -> None:
    for seed in range(first, first + 50):
        run(start, tmp_path, [seed], steps=24, verifies=True)
        shutil.rmtree(tmp_path / str(seed))


# -- mutants ----------------------------------------------------------------------------------------------------


def base_is_too_old(patch: pytest.MonkeyPatch) -> None:
    """Merges start from the first commit of all."""

    def oldest(commits: Any, ones: Any, twos: Any) -> Any:
        [one] = ones
        while commits[one].parent is not None:
            one = commits[one].parent
        return (one,)

    patch.setattr(ancestry, "_best", oldest)


def base_is_the_nearest_by_sum(patch: pytest.MonkeyPatch) -> None:
    """The base is the common ancestor with the smallest sum of distances."""
    patch.setattr(ancestry, "_best", nearest)


def base_is_any_of_several(patch: pytest.MonkeyPatch) -> None:
    """Of several best common ancestors only one is looked at, though all are told."""
    real = merging.load_base
    patch.setattr(merging, "load_base", lambda session, base: real(session, ancestry.MergeBase(base.first)))


def base_forgets_what_is_unknown(patch: pytest.MonkeyPatch) -> None:
    """What ancestors disagree about is what one of them says."""
    real = row_merge.Unknown.joined
    patch.setattr(row_merge.Unknown, "joined", lambda self, others: real(self, []))


def base_ignores_merges(patch: pytest.MonkeyPatch) -> None:
    """Only first parents count as history when a base is looked for."""
    patch.setattr(ancestry, "_parents", lambda commit: iter([commit.parent] if commit.parent else []))


def merge_forgets_its_source(patch: pytest.MonkeyPatch) -> None:
    """A merge commit has one parent."""
    real = merging._sides
    patch.setattr(merging, "_sides", lambda *given: replace(real(*given), merged_parent=None))


def conflict_is_missed(patch: pytest.MonkeyPatch) -> None:
    """Where both sides changed a property, ours stays, and nobody is told."""
    real = row_merge._merge_images

    def broken(type_: Any, pair: Any, *given: Any) -> Any:
        nothing = replace(pair, ours=pair.ours.slice(0, 0), theirs=pair.theirs.slice(0, 0))
        base = None if given[0] is None else given[0].slice(0, 0)
        return real(type_, pair, *given)[0], real(type_, nothing, base, given[1])[1]

    patch.setattr(row_merge, "_merge_images", broken)


def properties_are_not_merged(patch: pytest.MonkeyPatch) -> None:
    """What both sides changed is taken from them as a whole."""
    patch.setattr(row_merge, "merge_columns", lambda units, base, ours, theirs, unknown: (theirs, []))


def delete_is_lost(patch: pytest.MonkeyPatch) -> None:
    """What they deleted stays."""
    real = type_merge.TypeMerge.merge

    def broken(self: Any, moves: Any) -> Any:
        found = real(self, moves)
        return replace(found, deleted=found.deleted.slice(0, 0))

    patch.setattr(type_merge.TypeMerge, "merge", broken)


def orphans_are_let_through(patch: pytest.MonkeyPatch) -> None:
    """The merged graph is held against no rule."""
    patch.setattr(graph_merge._Run, "_violations", lambda self: [])


def changed_types_are_taken_over(patch: pytest.MonkeyPatch) -> None:
    """A type counts as unchanged on our side, whatever happened to it."""
    patch.setattr(three_way.ThreeWayState, "is_ours_unchanged", lambda self, type_: True)
    patch.setattr(type_merge.TypeVersions, "is_ours_unchanged", True)


def adoption_forgets_decisions(patch: pytest.MonkeyPatch) -> None:
    """A type that only the source changed is taken over as it is, whatever was decided about it."""
    patch.setattr(graph_merge._Run, "adopted", property(lambda self: dict(self.merge.adoptable)))


def decisions_are_turned_round(patch: pytest.MonkeyPatch) -> None:
    """Who takes ours gets theirs."""
    real = conflicts._side
    other = {"ours": "theirs", "theirs": "ours", "base": "base"}
    patch.setattr(conflicts, "_side", lambda clash, name: real(clash, other[name]))


def delete_of_a_branch_looks_at_nobody(patch: pytest.MonkeyPatch) -> None:
    """Branches go, whoever stands on them."""
    patch.setattr(branches, "_dependents", lambda main, entry: [])


def schema_of_the_source_is_lost(patch: pytest.MonkeyPatch) -> None:
    """A merge brings no change of the schema."""
    patch.setattr(schema_merge, "merge_schemas", lambda base, ours, theirs: SchemaMerge(ours))


def new_name_of_ours_always_wins(patch: pytest.MonkeyPatch) -> None:
    """Where both sides gave a property another name, ours stays, and nobody is told."""
    real = merge_module._Merge._merge_field

    def broken(self: Any, key: Any, name: str, base: Any, ours: Any, theirs: Any, has_base: bool) -> Any:
        return ours if ours != base != theirs else real(self, key, name, base, ours, theirs, has_base)

    patch.setattr(merge_module._Merge, "_merge_field", broken)


# Each with a world that is known to notice it; should the worlds change, later ones may.
MUTANTS: dict[Callable[[pytest.MonkeyPatch], None], int] = {
    base_is_too_old: 0,
    base_is_the_nearest_by_sum: 11,
    base_is_any_of_several: 11,
    base_forgets_what_is_unknown: 11,
    base_ignores_merges: 0,
    merge_forgets_its_source: 0,
    conflict_is_missed: 7,
    properties_are_not_merged: 0,
    delete_is_lost: 0,
    orphans_are_let_through: 0,
    changed_types_are_taken_over: 0,
    adoption_forgets_decisions: 17,
    decisions_are_turned_round: 0,
    delete_of_a_branch_looks_at_nobody: 44,
    schema_of_the_source_is_lost: 0,
    new_name_of_ours_always_wins: 17,
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
@pytest.mark.sampled(3)
def test_model_of_histories_catches_a_broken_engine(
    mutant: Callable[[pytest.MonkeyPatch], None], start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match="seed "):
        run(start, tmp_path, range(MUTANTS[mutant], MUTANTS[mutant] + 60))
