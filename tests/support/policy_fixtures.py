"""What a bundle allows, by the rules of the format and nothing else: the oracle of what Cedar decides.

Knows no code of the policy; bundles are plain dictionaries.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, Final, NamedTuple

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
    """Return the smallest id of the rules that allow a request."""
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
