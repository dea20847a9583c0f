"""Public values: JSON holds all of a value, under the names of the wire, and gives the same value back."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path

import pytest

import omnigraph
from omnigraph.ids import CommitId, OperationId
from omnigraph.lang.catalog import TypeKey
from omnigraph.lang.migrate import Step
from omnigraph.public_values import (
    Branch,
    Commit,
    Conflict,
    ConflictKind,
    EntityChange,
    EntityCounts,
    EntityLog,
    IngestReceipt,
    MergeOutcome,
    MergeReceipt,
    MutationReceipt,
    Operation,
    PropertyBlame,
    PropertyOrigin,
    PublicValue,
    SchemaReceipt,
    Snapshot,
    Tag,
    TypeCount,
    members,
)

A, B = CommitId("a"), CommitId("b")
COMMIT = Commit(A, "review", 7, B, None, "ann", 1_700_000, "merge", OperationId("op"), {"mode": "append"})
STEPS = (
    Step("rename_type", "node", "Ship", old_name="Vessel"),
    Step("add_property", "node", "Ship", "flag", property_type="String?"),
    Step("rename_property", "edge", "Sails", "since", old_name="from"),
    Step("extend_enum", "node", "Ship", "kind", added_values=("sloop", "yawl")),
    Step("drop_type", "interface", "Named", mode="hard"),
    Step("add_constraint", "node", "Ship", constraint="@index(flag)"),
    Step("unsupported_change", "node", "Ship", "flag", reason="no", code="OG-MF-103"),
    Step("unsupported_change", "edge", "Sails", reason="no"),
)
SHIP = TypeKey("node:Ship")
CONFLICT = Conflict(SHIP, None, ConflictKind.ORPHAN_EDGE, "no", ("flag",), {"flag": None}, None, {"flag": [1]})
CHANGE = EntityChange(COMMIT, "update", ("flag",), {"properties": {"flag": "a"}}, {"properties": {"flag": "b"}})
ORIGIN = PropertyOrigin("flag", ["b"], COMMIT)
VALUES: tuple[PublicValue, ...] = (
    COMMIT,
    Tag("v1", A, None, 5),
    Branch("review", "ann"),
    Operation("op", "applied", COMMIT),
    Operation("op", "absent"),
    Snapshot(
        "main",
        A,
        3,
        7,
        ({"entity_kind": "node", "type_name": "Ship", "published_dataset_version": 2, "entity_count": 9},),
    ),
    MutationReceipt("main", "q", 1, 2, "ann", COMMIT),
    IngestReceipt("b", "main", True, "merge", EntityCounts(Ship=2), EntityCounts(Sails=1), None, None),
    MergeReceipt("b", "main", MergeOutcome.CONFLICTED, (A, B), COMMIT, (TypeCount(SHIP, 1, 2, 3),), (CONFLICT,), True),
    MergeReceipt("b", "main", MergeOutcome.MERGED, (), branch_deleted=False, branch_delete_error="no"),
    replace(COMMIT, message="why"),
    EntityLog("Ship", "s", (CHANGE, replace(CHANGE, op="delete", after=None)), False),
    CHANGE,
    PropertyBlame("Ship", "s", (ORIGIN, PropertyOrigin("hull", None, None))),
    ORIGIN,
    SchemaReceipt(True, True, 4, STEPS[:-2], COMMIT, ("node:Named",)),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_value_through_json_is_the_same_value(value: PublicValue) -> None:
    data = json.loads(json.dumps(value.to_json()))
    decoded = type(value).from_json(data)
    assert decoded == value
    # Members of an enumeration equal their texts, so types are compared as well.
    assert (repr(decoded), repr(value.to_json())) == (repr(value), repr(data))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_json_of_a_later_release_is_read_without_its_new_members(value: PublicValue) -> None:
    assert type(value).from_json({**value.to_json(), "later": 1}) == value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_members_hold_every_field_once(value: PublicValue) -> None:
    shown = members(type(value))
    assert [one.attribute for one in shown if not one.is_computed] == [one.name for one in fields(value)]  # type: ignore[arg-type]
    assert len({one.name for one in shown}) == len(shown) == len(value.to_json())


def test_every_public_value_is_tried() -> None:
    # By name, since `slots` makes each class twice; subclasses elsewhere only name the shapes of responses.
    homes = ("omnigraph.public_values",)
    defined = {kind.__name__ for kind in PublicValue.__subclasses__() if kind.__module__ in homes}
    assert defined == {type(value).__name__ for value in (*VALUES, CONFLICT, TypeCount(SHIP, 0, 0, 0))}


SOURCE = Path(omnigraph.__file__).parent
HOMES = sorted(path for path in SOURCE.rglob("*.py") if "(PublicValue):" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", HOMES, ids=lambda path: path.stem)
def test_types_of_members_are_known_at_run_time(path: Path) -> None:
    """A type that is imported for checkers only would fail when a value is first shown."""
    module = import_module(".".join(("omnigraph", *path.relative_to(SOURCE).with_suffix("").parts)))
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, PublicValue)]
    assert all(members(kind) for kind in kinds if kind is not PublicValue)


def test_members_follow_the_wire_and_computed_ones_come_last() -> None:
    assert list(MergeReceipt("b", "main", MergeOutcome.MERGED, (A,)).to_json().items())[-1] == ("base_commit_id", "a")
    assert COMMIT.to_json()["graph_branch"] == "review"
