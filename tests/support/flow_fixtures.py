"""What the tests of forbidden flows share: a graph with a secret type, and actors of many rights."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import OmniGraphError
from omnigraph.graph import Graph
from omnigraph.policy import Policy, load_bundle

SCHEMA = """
node Person { name: String @key
  age: I32? }
node Salary { slip: String @key
  amount: I32 }
edge Knows: Person -> Person
"""
RULES = """
version: 1
groups: {all: [root], unp: [unp], eve: [eve], pul: [pul], ren: [ren], mer: [mer], bob: [bob], pro: [pro], tag: [tag]}
protected_branches: [main, secret]
rules:
  - {id: a1, allow: {actors: {group: all}, actions: [read, export, change]}}
  - {id: a2, allow: {actors: {group: all}, actions: [branch_create, branch_delete, branch_merge, tag_create]}}
  - {id: u1, allow: {actors: {group: unp}, actions: [read, export, change], branch_scope: unprotected}}
  - {id: e1, allow: {actors: {group: eve}, actions: [read], branch_scope: protected, types: [Person, Knows]}}
  - {id: e2, allow: {actors: {group: eve}, actions: [read, export, change], branch_scope: unprotected}}
  - {id: e3, allow: {actors: {group: eve}, actions: [branch_create, branch_merge], target_branch_scope: unprotected}}
  - {id: p1, allow: {actors: {group: pul}, actions: [branch_merge, branch_create], target_branch_scope: unprotected}}
  - {id: p2, allow: {actors: {group: pul}, actions: [read, export], branch_scope: unprotected}}
  - {id: r1, allow: {actors: {group: ren}, actions: [branch_create, branch_delete]}}
  - {id: r2, allow: {actors: {group: ren}, actions: [read], branch_scope: unprotected}}
  - {id: m1, allow: {actors: {group: mer}, actions: [branch_merge]}}
  - {id: m2, allow: {actors: {group: mer}, actions: [read], types: [Person]}}
  - {id: b1, allow: {actors: {group: bob}, actions: [read, export, change], types: [Person, Knows]}}
  - {id: b2, allow: {actors: {group: bob}, actions: [branch_create, branch_delete, branch_merge, tag_create]}}
  - {id: t1, allow: {actors: {group: tag}, actions: [tag_create, branch_create, branch_delete]}}
  - {id: t3, allow: {actors: {group: tag}, actions: [tag_delete], target_branch_scope: unprotected}}
  - {id: t2, allow: {actors: {group: tag}, actions: [read, change], branch_scope: unprotected}}
  - {id: o1, allow: {actors: {group: pro}, actions: [read], branch_scope: protected}}
"""
PAY = "query p() { match { $s: Salary } return { $s.slip, $s.amount } order { $s.slip } }"
PEOPLE = "query p() { match { $p: Person } return { $p.name } order { $p.name } }"
RAISE = 'query r() { update Salary set { amount: 111 } where slip = "s1" }'


def person(name: str, **data: object) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def salary(slip: str, amount: int) -> dict[str, Any]:
    return {"type": "Salary", "data": {"slip": slip, "amount": amount}}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_bundle(RULES)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "g.omni"
    with og.init(path, SCHEMA) as graph:
        graph.ingest([person("ann", age=1), salary("s1", 100)])
    return path


@pytest.fixture
def root(template: Path, tmp_path: Path, policy: Policy) -> Iterator[Graph]:
    shutil.copytree(template, tmp_path / "g.omni")
    with og.open(tmp_path / "g.omni", actor="root", policy=policy) as graph:
        yield graph


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(OmniGraphError) as caught:
        call()
    return caught.value.code


def secret_commit(root: Graph) -> str:
    root.branches.create("secret")
    receipt = root.ingest([salary("top", 999)], branch="secret")
    return str(receipt.commit_id)


def same_answer(call: Callable[[str], object], *names: str) -> str:
    """Return what a call answers for names; it must be the same for all of them but for the name itself."""
    told = set()
    for name in names:
        with pytest.raises(OmniGraphError) as caught:
            call(name)
        told.add(str(caught.value.to_json()).replace(name, "NAME"))
    [answer] = told
    return answer
