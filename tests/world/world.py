"""A graph beside its model. Each step is made by both, and then they must agree."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import omnigraph as og
from omnigraph.graph import Graph
from tests.support.s3_server import S3Server
from tests.world.calls import Answer, Call, run
from tests.world.model import Model, Shown, State, same_state
from tests.world.mutations import PLACEHOLDER
from tests.world.schema_model import ENDS, Property, Schema, Type, source_text
from tests.world.steps import Broken, Step


def first_schema(model: Model) -> dict[int, Type]:
    """Return the schema that every history starts with; later ones grow out of it."""

    def one(name: str, base: str, **options: Any) -> Property:
        return Property(model.new_id(), name, base, **options)

    def name() -> Property:
        return one("name", "String", is_inherited=True)

    person = Type(
        model.new_id(),
        "Person",
        (
            key := one("k", "String", is_required=True),
            one("u", "String", is_unique=True),
            one("age", "I32", is_indexed=True, bounds=(-5, 2000)),
            one("high", "I32", merge="max"),
            one("tags", "[String]", merge="union"),
            one("size", "F32"),
            one("text", "String", is_indexed=True),
            one("place", "Vector(3)", is_indexed=True),
            one("photo", "Blob"),
            one("born", "Date"),
            name(),
        ),
        key=(key.id,),
        is_named=True,
    )
    task = Type(
        model.new_id(),
        "Task",
        (
            key := one("k", "I64", is_required=True),
            one("state", "enum(open, done)", is_required=True, default="open"),
            one("load", "I32", default=1),
            name(),
        ),
        key=(key.id,),
        merge="theirs",
        is_named=True,
    )
    note = Type(model.new_id(), "Note", (one("s", "String"), one("n", "F64")))
    pair = (person.id, person.id)
    knows = Type(model.new_id(), "Knows", (one("w", "I32"),), ends=pair)
    likes = Type(model.new_id(), "Likes", (one("w", "I32"), one("v", "I32", merge="min")), ends=pair, key=(-1,))
    does = Type(model.new_id(), "Does", (one("w", "F32"),), ends=(person.id, task.id), key=(-1,), card_max=3)
    return {one.id: one for one in (person, task, note, knows, likes, does)}


class World:
    """One graph beside its model."""

    def __init__(self, uri: str, scratch: Path, server: S3Server | None = None) -> None:
        self.uri = uri
        # A directory of its own on this machine, and the server that has the graph, if it is in a bucket.
        self.scratch, self.server = scratch, server
        self.model = Model()
        schema = first_schema(self.model)
        self.graph: Graph = og.init(uri, source_text(schema))
        [commit] = self.graph.commits()
        self.model.publish("main", commit.commit_id, {key: {} for key in schema}, schema, "init")
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []
        # Every call that was made, with the commit that it made, if any.
        self.calls: list[tuple[Call, str | None]] = []
        # Declared pipelines, by how they load.
        self.desks: dict[str, Any] = {}
        # Of the operation that is under way.
        self.number = 0

    def reopen(self) -> None:
        self.graph.close()
        self.graph = og.open(self.uri)

    def close(self) -> None:
        self.graph.close()

    def note(self, text: str) -> None:
        self.log.append(f"{self.number} {text}")

    # -- steps -----------------------------------------------------------------------------------------------------

    def perform(self, step: Step) -> Answer:
        """Make a call, and let the model follow."""
        self.note(f"{step.kind}: {shown_call(step.call)}")
        self.calls.append((step.call, None))
        answer = run(self.graph, step.call)
        self.follow(step, answer)
        return answer

    def follow(self, step: Step, answer: Answer) -> None:
        """Hold an answer against what was expected, and change the model as the graph has changed."""
        self.calls[-1] = (step.call, answer.get("commit"))
        if answer.get("dry") != answer.get("done"):
            apart = [[one for one in answer[side] if one not in answer[other]] for side, other in PREVIEWS]
            raise Broken(f"{step.kind} did {apart[0]}, its preview said {apart[1]}")
        if "error" in answer:
            self.log.append(f"   refused: {answer['error']} {answer['rule']} {answer['message'][:300]}")
            self._follow_refusal(step, answer)
            return
        is_dry = bool(step.call.get("dry_run"))
        if step.must_fail and not (is_dry and answer.get("kinds")):
            raise Broken(f"{step.kind} succeeded; expected {sorted(step.errors)} {step.conflicts}")
        self.counts[step.kind] += 1
        if is_dry:
            return
        if step.then is not None:
            step.then(answer)
        if step.branch is None:
            return
        commit = answer.get("commit")
        assert step.state is not None
        assert step.schema is not None
        self._check_commit(step, commit)
        if commit is not None:
            state = self.learn_ids(step.branch, step.state, step.schema)
            self.model.publish(step.branch, commit, state, step.schema, step.kind, step.merged)
            self._check_parents(step.branch, commit)

    def _check_commit(self, step: Step, commit: str | None) -> None:
        assert step.branch is not None
        head = self.model.head(step.branch)
        assert step.state is not None
        if commit is None and not (same_state(step.state, head.state) and step.schema == head.schema):
            raise Broken(f"{step.kind} made no commit, although it changes something")

    def _check_parents(self, branch: str, commit_id: str) -> None:
        published = self.graph.commit(commit_id, branch)
        expected = self.model.head(branch)
        parents = [one for one in (published.parent, published.merged_parent) if one is not None]
        if parents != [self.model.commits[one].id for one in expected.parents]:
            raise Broken(f"commit has the parents {parents}")

    def _follow_refusal(self, step: Step, answer: Answer) -> None:
        if not {answer["error"], answer["rule"]} & step.errors:
            expected = f"one of {sorted(step.errors)}" if step.errors else "success"
            refusal = f"{answer['error']} {answer['rule']}: {answer['message']}"
            raise Broken(f"{step.kind} was refused with {refusal}; expected {expected}")
        self.counts[f"{step.kind}: refused"] += 1
        if step.conflicts is not None and answer["error"] == "merge.conflict":
            found = {(kind, None if kind in VAGUE else entity) for kind, _, entity in answer["kinds"]}
            expected_kinds = {(kind, None if kind in VAGUE else entity) for kind, _, entity in step.conflicts}
            # Divergent schemas are reported before what was dropped is looked for.
            is_schema = any(kind in ("DivergentSchema", "DropVsUpdate") for kind, _ in expected_kinds)
            if found != expected_kinds and not (is_schema and found and found <= expected_kinds):
                raise Broken(f"conflicts {sorted(found, key=str)}, expected {sorted(expected_kinds, key=str)}")

    def learn_ids(self, branch: str, state: State, schema: Schema) -> State:
        """Replace placeholders by the ids that the graph has chosen for entities with these values."""
        if not any(one.startswith(PLACEHOLDER) for rows in state.values() for one in rows):
            return state
        shown = read_state(self.graph, branch)
        learned = {key: dict(rows) for key, rows in state.items()}
        for id_, rows in learned.items():
            waiting = [one for one in rows if one.startswith(PLACEHOLDER)]
            type_ = schema[id_]
            unknown = {
                entity: values
                for (key, entity), values in shown.items()
                if key == type_.table_key and entity not in rows
            }
            for placeholder in waiting:
                row = rows.pop(placeholder)
                wanted = self.model.show({id_: {"": row}}, schema, schema, [id_])[type_.table_key, ""]
                entity = next((one for one, values in unknown.items() if values == wanted), None)
                if entity is None:
                    raise Broken(f"{type_.name} lacks a new entity {wanted}")
                del unknown[entity]
                rows[entity] = row
        return learned


PREVIEWS = (("done", "dry"), ("dry", "done"))
VAGUE = ("UniqueViolation", "CardinalityViolation", "ValueConstraintViolation", "DivergentSchema", "DropVsUpdate")


_DURATION = re.compile(r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?")


def _stored(value: Any) -> Any:
    """Return a date, an instant or a duration of an export as the model has it; no text of the model looks like one."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        return (date.fromisoformat(value) - date(1970, 1, 1)).days
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", value):
        return (datetime.fromisoformat(value) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        days, hours, minutes, seconds = (Decimal(part or 0) for part in match.groups()[1:])
        return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000) * (-1 if match[1] else 1)
    return value


def read_state(graph: Graph, branch: str = "main", **options: Any) -> Shown:
    """Return all that an export shows, by table key and id."""
    shown: Shown = {}
    for line in b"".join(graph.export(branch, **options)).splitlines():
        record = json.loads(line)
        values = {name: _stored(value) for name, value in record["data"].items()}
        entity = values.pop("id")
        kind = "edge" if "edge" in record else "node"
        if kind == "edge":
            values["from"], values["to"] = record["from"], record["to"]
        key = (f"{kind}:{record.get('edge', record.get('type'))}", entity)
        if key in shown:
            raise Broken(f"{key} is there twice")
        shown[key] = values
    return shown


def shown_call(call: dict[str, Any]) -> str:
    text = json.dumps(call, ensure_ascii=False)
    return text if len(text) < 2_000 else text[:2_000] + "…"


def any_entity(model: Model, random: Random, branch: str) -> tuple[Type, str] | None:
    """Choose an entity, often of a type that came with a schema change."""
    schema, state = model.schema(branch), model.state(branch)
    among = [(schema[key], entity) for key in sorted(schema) for entity in state.get(key, {})]
    late = [one for one in among if one[0].id not in model.commits[0].schema]
    if late and random.random() < 0.5:
        among = late
    return random.choice(among) if among else None


__all__ = ["ENDS", "Broken", "World", "any_entity", "read_state"]
