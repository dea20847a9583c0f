"""What Cedar decides equals what the format says, over generated bundles and requests; faults in between are caught."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from omnigraph.engine.authorization import Scope, between, on_branch, on_target
from omnigraph.errors import PolicyDenied, UsageError
from omnigraph.policy import Policy, cedar, load_bundle
from omnigraph.policy.bundle import Bundle, Rule

BRANCH: Final = ("read", "export", "change")
TARGET: Final = ("schema_apply", "branch_create", "branch_delete", "branch_merge", "tag_create", "tag_delete")
PLAIN: Final = ("admin", "invoke_query")
ACTORS: Final = ("ann", "bob", 'c"a\\rl', "d\nän", "eve")
BRANCHES: Final = (None, "main", "release", "review/x")
TYPES: Final = ("Person", "Knows", "Secret")


class Request(NamedTuple):
    actor: str | None
    action: str
    branch: str | None
    target: str | None
    type_name: str | None


def rule_for(bundle: dict[str, Any], request: Request) -> str | None:
    """Return the smallest id of the rules that allow a request, by the format and no code of the policy."""
    return min((one["id"] for one in bundle["rules"] if _allows(bundle, one["allow"], request)), default=None)


def _allows(bundle: dict[str, Any], allow: dict[str, Any], request: Request) -> bool:
    if request.actor not in bundle["groups"][allow["actors"]["group"]] or request.action not in allow["actions"]:
        return False
    for field, name in (("branch_scope", request.branch), ("target_branch_scope", request.target)):
        scope = allow.get(field, "any")
        is_protected = name in bundle["protected_branches"]
        if scope != "any" and (name is None or is_protected != (scope == "protected")):
            return False
    return request.type_name is None or "types" not in allow or request.type_name in allow["types"]


def make_bundle(random: Random) -> dict[str, Any]:
    """Return a bundle that obeys the format."""
    groups = {f"g{n}": random.sample(ACTORS[:4], random.randint(1, 3)) for n in range(random.randint(1, 3))}
    ids = random.sample(["a", "b", 'r"1', "r:2", "z\\"], random.randint(0, 5))
    return {
        "version": 1,
        "groups": groups,
        "protected_branches": random.sample(["main", "release"], random.randint(0, 2)),
        "rules": [{"id": one, "allow": _make_allow(random, sorted(groups))} for one in ids],
    }


def _make_allow(random: Random, groups: list[str]) -> dict[str, Any]:
    kind = random.choice([BRANCH, BRANCH, TARGET, PLAIN])
    allow: dict[str, Any] = {
        "actors": {"group": random.choice(groups)},
        "actions": random.sample(kind, random.randint(1, len(kind))),
    }
    scope = random.choice(["any", "protected", "unprotected", None])
    if scope is not None and kind is not PLAIN:
        allow["branch_scope" if kind is BRANCH else "target_branch_scope"] = scope
    if kind is BRANCH and random.random() < 0.5:
        allow["types"] = random.sample(TYPES, random.randint(1, 2))
    return allow


def make_request(random: Random) -> Request:
    action = random.choice((*BRANCH, *TARGET, *PLAIN))
    type_name = random.choice([None, *TYPES]) if action in BRANCH else None
    return Request(random.choice((None, *ACTORS)), action, random.choice(BRANCHES), random.choice(BRANCHES), type_name)


def text_of(bundle: dict[str, Any]) -> str:
    """Return a bundle as text; JSON is YAML."""
    return json.dumps(bundle, indent=1)


BUNDLE = """
version: 1
groups: {team: [act-a, act-b], admins: [act-c]}
protected_branches: [main]
rules:
  - id: team-read
    allow: {actors: {group: team}, actions: [read, export], branch_scope: any}
  - id: team-change
    allow: {actors: {group: team}, actions: [change], branch_scope: unprotected}
  - id: admins-merge
    allow: {actors: {group: admins}, actions: [branch_merge], target_branch_scope: protected}
"""


def answer(policy: Policy, request: Request) -> str | None:
    if request.type_name is None:
        decision = policy.decide(request.actor, request.action, branch=request.branch, target=request.target)
        assert decision.allowed == (decision.rule is not None)
        return decision.rule
    # Of a type, only yes or no is told.
    names = {request.type_name, "Other"}
    hidden = policy.hidden_types(request.actor, request.action, names, request.branch)
    return None if request.type_name in hidden else "yes"


def disagreements(seed: int, bundles: int = 25, requests: int = 60) -> Iterator[Request]:
    """Yield the requests about which Cedar and the plain evaluator differ."""
    random = Random(seed)
    for _ in range(bundles):
        bundle = make_bundle(random)
        policy = load_bundle(text_of(bundle), graph_id="g")
        for _ in range(requests):
            request = make_request(random)
            expected = rule_for(bundle, request)
            told = answer(policy, request)
            if told != (expected and "yes" if request.type_name is not None else expected):
                yield request


@pytest.mark.parametrize("seed", range(3))
def test_decide_equals_the_plain_evaluator(seed: int) -> None:
    assert list(disagreements(seed)) == []


def _ignoring(**fields: Any) -> Callable[[Rule], str]:
    from dataclasses import replace

    conditions = cedar._conditions
    return lambda rule: conditions(replace(rule, **fields))


def _swapped(rule: Rule) -> str:
    from dataclasses import replace

    other = {"protected": "unprotected", "unprotected": "protected"}
    return CONDITIONS(replace(rule, branch_scope=other.get(rule.branch_scope or "", rule.branch_scope)))


def _without_has(rule: Rule) -> str:
    return CONDITIONS(rule).replace("context.has_branch && ", "").replace("context.has_target_branch && ", "")


def _everybody(bundle: Bundle, resource: Any) -> list[dict[str, Any]]:
    found = ENTITIES(bundle, resource)
    parents = [cedar._uid("Group", name) for name in bundle.groups]
    return [{**one, "parents": parents} if one["uid"]["type"].endswith("Actor") else one for one in found]


def _any_action(bundle: Bundle, scope: Any, graph_id: str) -> Any:
    for one in PERMITS(bundle, scope, graph_id):
        yield one.replace('action == Omnigraph::Action::"read"', "action")


CONDITIONS, ENTITIES, PERMITS = cedar._conditions, cedar._entities, cedar.compile_permits


def _blind(self: Policy, actor: str | None, action: str, branch: str | None, target: str | None, _: Any) -> str | None:
    return RULE(self, actor, action, branch, target, None)


def _unprotected(self: Policy, actor: str | None, action: str, _: Any, target: str | None, name: Any) -> str | None:
    return RULE(self, actor, action, "review", target, name)


RULE = Policy._rule


@pytest.mark.parametrize(
    ("place", "name", "mutant"),
    [
        (cedar, "_conditions", _ignoring(branch_scope=None)),
        (cedar, "_conditions", _ignoring(target_branch_scope=None)),
        (cedar, "_conditions", _ignoring(types=None)),
        (cedar, "_conditions", _swapped),
        (cedar, "_conditions", _without_has),
        (cedar, "_entities", _everybody),
        (cedar, "compile_permits", _any_action),
        (cedar, "min", max),
        (Policy, "_rule", _blind),
        (Policy, "_rule", _unprotected),
    ],
)
def test_decide_mutant_is_caught(place: Any, name: str, mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, name, mutant, raising=False)
    assert next(disagreements(0), None) is not None


def test_decide_tells_rule_branches_and_actor() -> None:
    policy = load_bundle(BUNDLE)
    assert policy.decide("act-a", "read", branch=" main ").rule == "team-read"
    merged = policy.decide("act-c", "branch_merge", branch="review", target="main")
    assert (merged.allowed, merged.rule) == (True, "admins-merge")
    for word in ("branch_merge", "`review`", "`main`", "act-c", "admins-merge"):
        assert word in merged.message
    denied = policy.decide("act-c", "branch_merge", branch="review", target="other")
    assert (denied.allowed, denied.rule) == (False, None)
    assert "act-c" in denied.message
    assert "`other`" in denied.message


@pytest.mark.parametrize("padded", ["main ", " main", "\tmain\n"])
def test_decide_padded_name_is_the_same_branch(padded: str) -> None:
    policy = load_bundle(BUNDLE)
    assert not policy.decide("act-a", "change", branch=padded).allowed
    assert policy.decide("act-a", "change", branch="mainly").allowed
    with pytest.raises(PolicyDenied):
        policy.enforce("change", on_branch(padded), "act-a")
    assert (on_target(padded), between(padded, padded)) == (Scope(target="main"), Scope("main", "main"))


def test_decide_unknown_action_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown action `dance`"):
        load_bundle(BUNDLE).decide("act-a", "dance")


def test_decide_is_logged_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "omnigraph.policy"):
        load_bundle(BUNDLE).decide("act-a", "change", branch="main")
    [record] = caplog.records
    fields = vars(record)
    assert {name: fields[name] for name in ("actor", "action", "branch", "decision", "rule")} == {
        "actor": "act-a",
        "action": "change",
        "branch": "main",
        "decision": "deny",
        "rule": None,
    }


def test_decide_actor_in_no_group_is_denied_without_cedar(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_bundle(BUNDLE)
    monkeypatch.setattr(cedar.CompiledBundle, "rule_for", lambda *_: pytest.fail("Cedar was asked"))
    assert not policy.decide("stranger", "read", branch="main").allowed
    assert not policy.decide(None, "read", branch="main").allowed


def test_server_bundle_knows_only_the_server() -> None:
    text = "version: 1\ngroups: {ops: [ann]}\nrules:\n  - {id: l, allow: {actors: {group: ops}, actions: [graph_list]}}"
    policy = load_bundle(text, scope="server")
    assert policy.decide("ann", "graph_list").allowed
    assert not policy.decide("bob", "graph_list").allowed
    assert not policy.decide("ann", "read", branch="main").allowed


def test_compile_that_cedar_would_refuse_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.errors import PolicyError

    monkeypatch.setattr(cedar, "_conditions", lambda rule: " when { context.has_brunch }")
    with pytest.raises(PolicyError, match="Cedar rejects"):
        load_bundle(BUNDLE)
