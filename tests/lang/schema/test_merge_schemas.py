"""Schema merges against the model of their definition, the text of merged schemas, and identities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.lang.diagnostic import LanguageError, Source
from omnigraph.lang.schema import SchemaIR, compile_schema
from omnigraph.lang.schema import merge as merge_module
from omnigraph.lang.schema.merge import BOTH_SIDES, Side, join_bases, merge_schemas, records_of
from omnigraph.lang.schema.render import write_source
from tests.support.schema_merge_model import DOMAIN, Facts, ModelConflict, merge_facts, random_histories, to_ir

WORLDS = 400


def expected_merge(base: Facts, ours: Facts, theirs: Facts) -> Facts | None:
    try:
        return merge_facts(base, ours, theirs)
    except ModelConflict:
        return None


def compare_worlds(count: int = WORLDS) -> tuple[int, int]:
    """Merge random histories and compare with the model; returns how many merged and how many conflicted."""
    merged = conflicted = 0
    for seed in range(count):
        (base, base_next), (ours, ours_next), (theirs, theirs_next) = random_histories(seed)
        result = merge_schemas(records_of(to_ir(base, base_next)), to_ir(ours, ours_next), to_ir(theirs, theirs_next))
        expected = expected_merge(base, ours, theirs)
        if expected is None:
            assert result.conflicts, f"world {seed}: no conflict"
            assert result.ir is None
            conflicted += 1
            continue
        assert not result.conflicts, f"world {seed}: {result.conflicts}"
        assert result.ir is not None
        wanted = to_ir(expected, ours_next)
        assert (result.ir.shape, result.ir.identities) == (wanted.shape, wanted.identities), f"world {seed}"
        assert result.ir.next_identity_id >> 32 == ours_next >> 32, f"world {seed}: numbers of another branch"
        # What is stored must be readable.
        assert SchemaIR.from_json(result.ir.to_json()) == result.ir, f"world {seed}"
        merged += 1
    return merged, conflicted


def test_merge_agrees_with_the_definition() -> None:
    merged, conflicted = compare_worlds()
    assert min(merged, conflicted) > WORLDS // 8


def settle(base: tuple[Facts, int], ours: SchemaIR, theirs: SchemaIR, side: Side) -> SchemaIR | None:
    """Merge with one side for all conflicts, as they come to light; None if it may not be taken for one of them."""
    takes: dict[Any, Side] = {}
    while True:
        result = merge_schemas(records_of(to_ir(*base)), ours, theirs, takes)
        if not result.conflicts:
            return result.ir
        found = {one.key: side for one in result.conflicts if side in one.sides}
        if len(found) < len({one.key for one in result.conflicts}) or found.keys() <= takes.keys():
            return None
        takes |= found


def compare_settled_worlds(count: int = WORLDS) -> tuple[int, int]:
    settled = unsettled = 0
    for seed in range(count):
        base, (ours, ours_next), (theirs, theirs_next) = random_histories(seed)
        if expected_merge(base[0], ours, theirs) is not None:
            continue
        for side in BOTH_SIDES:
            ir = settle(base, to_ir(ours, ours_next), to_ir(theirs, theirs_next), side)
            try:
                expected = to_ir(merge_facts(base[0], ours, theirs, side), ours_next)
            except ModelConflict:
                assert ir is None, f"world {seed} taking {side}: no conflict"
                unsettled += 1
                continue
            assert ir is not None, f"world {seed} taking {side}: a conflict is left"
            assert (ir.shape, ir.identities) == (expected.shape, expected.identities), f"world {seed} taking {side}"
            settled += 1
    return settled, unsettled


def test_settled_merge_agrees_with_the_definition() -> None:
    assert min(compare_settled_worlds()) > WORLDS // 8


def test_settled_merge_that_takes_the_other_side_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    merge_field = merge_module._Merge._merge_field

    def swapped(self: Any, key: Any, name: str, base: Any, ours: Any, theirs: Any, has_base: bool) -> Any:
        value = merge_field(self, key, name, base, ours, theirs, has_base)
        return theirs if key in self._takes and value == ours else value

    monkeypatch.setattr(merge_module._Merge, "_merge_field", swapped)
    with pytest.raises(AssertionError):
        compare_settled_worlds()


def union_of_enums(base: Any, ours: Any, theirs: Any) -> tuple[str, ...]:
    return tuple(sorted({*ours, *theirs}))


def ours_wins(self: Any, key: Any, name: str, base: Any, ours: Any, theirs: Any, has_base: bool) -> Any:
    return ours if ours != base else theirs


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "removed enum values come back": (merge_module, "_merge_enums", union_of_enums),
    "ours wins": (merge_module._Merge, "_merge_field", ours_wins),
    "names may clash": (merge_module, "_find_clashes", lambda merged: iter(())),
    "references may dangle": (merge_module, "_find_dangling", lambda merged: iter(())),
    "counter of theirs": (merge_module, "later_identity", lambda ours, theirs: theirs),
    "counter that is in use": (merge_module, "unused_identity", lambda counter, _: counter - 1),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_merge_that_breaks_a_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, mutant = MUTANTS[name]
    monkeypatch.setattr(owner, attribute, mutant)
    if attribute in ("_find_clashes", "_find_dangling"):
        # Both are looked up once, when the merge runs.
        monkeypatch.setattr(merge_module, "_CHECKS", tuple(getattr(merge_module, one) for one in _CHECK_NAMES))
    with pytest.raises((AssertionError, KeyError, LanguageError)):
        compare_worlds()


_CHECK_NAMES = ("_find_clashes", "_find_dangling")


# -- several bases -----------------------------------------------------------------------------------------------------


def crossed(*texts: str) -> tuple[SchemaIR, ...]:
    """Return schemas that each follow from the first one, on a branch of its own."""
    first = compiled(texts[0])
    return first, *(compiled(text, first, space) for space, text in enumerate(texts[1:], start=1))


def test_virtual_base_leaves_a_contested_name_to_the_sides() -> None:
    shared = "node A { k: String @key  p: I32? }"
    renamed = [shared.replace("p: I32?", f'{name}: I32? @rename_from("p")') for name in ("x", "y")]
    below, one, two = crossed(shared, *renamed)
    base = join_bases(records_of(below), records_of(one), records_of(two))
    assert merge_schemas(base, one, two).conflicts
    assert merge_schemas(base, two, one).conflicts
    assert merge_schemas(base, two, two).ir == two
    # The first ancestor alone would let the second one win in silence.
    assert not merge_schemas(records_of(one), one, two).conflicts


def test_virtual_base_has_what_either_ancestor_added() -> None:
    shared = "node A { k: String @key }"
    below, one, two = crossed(shared, shared, shared.replace("}", " q: I32? }"))
    base = join_bases(records_of(below), records_of(one), records_of(two))
    # Our side has both ancestors; theirs has dropped the addition again.
    merged = merge_schemas(base, two, one).ir
    assert merged is not None
    assert [item.name for item in merged.types("node")["A"].properties] == ["k"]


# -- the text of a merged schema ---------------------------------------------------------------------------------------


def compiled(text: str, accepted: SchemaIR | None = None, space: int = 0) -> SchemaIR:
    return compile_schema(Source("s.pg", text), domain=DOMAIN, accepted=accepted, identity_space=space).ir


BASE = """// Where ships call.
interface Coded {
  code: String @key
}
node Port @description("a \\"port\\"") implements Coded {
  berths: I32? // how many
  @range(berths, 0..500)
}
node Ship { imo: String @key  kind: enum(tug, bulk)  vec: Vector(3)? @embed(imo) }
/* Calls. */
edge CallsAt: Ship -> Port @card(0..9) { day: Date?  fee: F64? @merge(max) }
"""


def merge_texts(ours: str, theirs: str) -> str:
    base = compiled(BASE)
    sides = compiled(ours, base), compiled(theirs, base, space=7)
    result = merge_schemas(records_of(base), *sides)
    assert result.ir is not None, result.conflicts
    text = write_source(result.ir, [(ours, sides[0]), (theirs, sides[1])])
    again = compiled(text, result.ir)
    assert (again.shape, again.identities) == (result.ir.shape, result.ir.identities)
    return text


def test_merged_text_keeps_declarations_and_comments_of_the_sides() -> None:
    ours = BASE.replace("berths: I32?", "berths: I32?  depth: F64?")
    theirs = BASE.replace("fee: F64?", 'cost: F64? @rename_from("fee")') + "// Tugs.\nnode Tug { name: String @key }\n"
    text = merge_texts(ours, theirs)
    for part in ("// Where ships call.", "depth: F64?", "// how many", "/* Calls. */", "cost: F64?", "// Tugs."):
        assert part in text


def test_merged_text_writes_what_both_sides_changed() -> None:
    text = merge_texts(
        BASE.replace("enum(tug, bulk)", "enum(tug, bulk, ferry)"),
        BASE.replace("enum(tug, bulk)", "enum(tug, bulk, yacht)").replace("imo: String", "imo: String @index"),
    )
    assert "kind: enum(bulk, ferry, tug, yacht)" in text
    assert "imo: String @index @key" in text or "imo: String @key @index" in text


def test_every_construct_survives_being_written() -> None:
    ir = compiled(BASE)
    assert compiled(write_source(ir, []), ir).shape == ir.shape


@pytest.mark.parametrize(("space", "first"), [(0, None), (5, 5 * 2**32 + 1)])
def test_new_identities_are_numbered_in_the_space_of_the_branch(space: int, first: int | None) -> None:
    base = compiled(BASE)
    ir = compiled(BASE + "node Tug { name: String @key }", base, space)
    assert ir.ids("node")["Tug"].type_id == (first or base.next_identity_id)
    more = compiled(BASE + "node Tug { name: String @key  age: I32? }", ir, space)
    ids = more.ids("node")["Tug"].property_ids
    assert ids["name"] == ir.ids("node")["Tug"].property_ids["name"]
    assert ids["age"] == ir.next_identity_id
