"""Bundles and their tests: what the format refuses is refused, with the place, and all of it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import PolicyError, UsageError
from omnigraph.limits import POLICY_BYTES_MAX
from omnigraph.policy import load_bundle, load_cases, parse_bundle, run_cases

HEAD = "version: 1\ngroups: {team: [ann]}\nprotected_branches: [main]\nrules:\n"
RULE = "  - {{id: r, allow: {{actors: {{group: team}}, actions: [{actions}]{more}}}}}\n"


def rule(actions: str, more: str = "") -> str:
    return HEAD + RULE.format(actions=actions, more=f", {more}" if more else "")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("groups: {}", "1:1", "`version` is missing"),
        ("version: 2", "1:10", "expected 1"),
        ("version: '1'", "1:10", "expected 1"),
        ("version: true", "1:10", "expected 1"),
        ("", " ", "expected a mapping with"),
        ("[1]", "1:1", "expected a mapping with"),
        ("version: 1\nrule: []", "2:1", "unknown field `rule`"),
        ("version: 1\nversion: 1", "2:1", "duplicate key `version`"),
        ("version: 1\ngroups: {a: [x], a: [y]}", "2:18", "duplicate key `a`"),
        ("version: 1\ngroups: {a: []}", "2:13", "list is empty"),
        ("version: 1\ngroups: {a: [x, x]}", "2:17", "duplicate value `x`"),
        ("version: 1\ngroups: {a: ['  ']}", "2:14", "must not be blank"),
        ("version: 1\ngroups: {'': [x]}", "2:10", "must not be blank"),
        ("version: 1\ngroups: {a: [1]}", "2:14", "expected a string"),
        ("version: 1\ngroups: {a: x}", "2:13", "expected a list"),
        ("version: 1\ngroups: [a]", "2:9", "expected a mapping"),
        ("version: 1\nprotected_branches: main", "2:21", "expected a list"),
        ("version: 1\nrules: {}", "2:8", "expected a list"),
        (HEAD + "  - {id: r}\n", "5:5", "`allow` is missing"),
        (HEAD + "  - {id: r, deny: {}}\n", "5:13", "unknown field `deny`"),
        (HEAD + "  - {id: r, allow: {actions: [read]}}\n", "5:20", "`actors` is missing"),
        (HEAD + "  - {id: r, allow: {actors: {actor: ann}, actions: [read]}}\n", "5:30", "unknown field `actor`"),
        (HEAD + "  - {id: r, allow: {actors: {group: x}, actions: [read]}}\n", "5:37", "unknown group `x`"),
        (rule(""), "5:", "list is empty"),
        (rule("dance"), "5:", "unknown action `dance`"),
        (rule("read, read"), "5:", "duplicate value `read`"),
        (rule("graph_list"), "5:", "belongs in the bundle of a server"),
        (rule("config_manage"), "5:", "belongs in the bundle of a server"),
        (rule("read", "when: now"), "5:", "unknown field `when`"),
        (rule("read", "branch_scope: some"), "5:", "`some` is not one of"),
        (rule("read", "branch_scope: any, target_branch_scope: any"), "5:", "not both"),
        (rule("branch_merge", "branch_scope: any"), "5:", "not to `branch_merge`"),
        (rule("read", "target_branch_scope: any"), "5:", "not to `read`"),
        (rule("admin", "branch_scope: any"), "5:", "not to `admin`"),
        (rule("invoke_query", "target_branch_scope: any"), "5:", "not to `invoke_query`"),
        (rule("read, branch_create", "branch_scope: any"), "5:", "not to `branch_create`"),
        (rule("schema_apply", "types: [Person]"), "5:", "not to `schema_apply`"),
        (rule("read", "types: []"), "5:", "list is empty"),
        (rule("read") + RULE.format(actions="export", more=""), "6:5", "duplicate rule `r`"),
        ("version: 1\ngroups: &g {a: [x]}\nprotected_branches: *g", "3:21", "aliases are not supported"),
        ("version: 1\ngroups: {a: [x", "", "invalid YAML"),
        ("version: 1\n--- \nversion: 1", "2:1", "invalid YAML"),
    ],
)
def test_parse_bundle_wrong_text_is_refused_at_its_place(text: str, place: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_bundle(text, name="p.yaml")
    problems = caught.value.context["problems"]
    assert isinstance(problems, list)
    assert any(one.startswith(f"p.yaml:{place}") and message in one for one in problems)


def test_parse_bundle_tells_everything_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        parse_bundle("version: 3\ngroups: {a: []}\nmore: 1")
    assert caught.value.code == "policy.invalid"
    assert caught.value.message.count("\n") == 2


def test_parse_bundle_too_large_is_refused() -> None:
    with pytest.raises(PolicyError, match="bytes"):
        parse_bundle("version: 1 #" + "x" * POLICY_BYTES_MAX)


def test_parse_bundle_deep_nesting_is_refused() -> None:
    with pytest.raises(PolicyError):
        parse_bundle("[" * 5_000)


def test_parse_bundle_server_bundle_takes_no_graph_action() -> None:
    with pytest.raises(PolicyError, match="bundle of a graph"):
        parse_bundle(rule("read"), scope="server")
    assert parse_bundle(rule("graph_list"), scope="server").rules[0].actions == ("graph_list",)
    both = parse_bundle(rule("metrics_read, config_manage"), scope="server").rules[0].actions
    assert both == ("metrics_read", "config_manage")


def test_parse_bundle_what_is_optional_may_be_missing() -> None:
    empty = parse_bundle("version: 1")
    assert (empty.groups, empty.protected_branches, empty.rules, empty.actors) == ({}, frozenset(), (), frozenset())
    assert parse_bundle("version: 1\nprotected_branches: []\nrules: []\ngroups: {}") == empty


def test_load_bundle_missing_or_unreadable_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_bundle(tmp_path / "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"version: \xff")
    with pytest.raises(PolicyError, match="UTF-8"):
        load_bundle(bad)
    bad.write_text("version: 9")
    with pytest.raises(PolicyError, match=r"bad\.yaml:1:10"):
        load_bundle(str(bad))


def test_run_cases_tells_which_do_not_hold(tmp_path: Path) -> None:
    cases = tmp_path / "tests.yaml"
    cases.write_text(
        "version: 1\ncases:\n"
        "  - {id: reads, actor: ann, action: read, branch: main, expect: allow}\n"
        "  - {id: merges, actor: ann, action: branch_merge, target_branch: main, expect: allow}\n"
        "  - {id: stranger, actor: bob, action: read, expect: deny}\n"
    )
    outcomes = run_cases(load_bundle(rule("read")), load_cases(cases))
    assert [(one.case.id, one.passed) for one in outcomes] == [("reads", True), ("merges", False), ("stranger", True)]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("{id: a, actor: ann, action: read}", "`expect` is missing"),
        ("{id: a, actor: ann, action: read, expect: maybe}", "`maybe` is not one of"),
        ("{id: a, actor: ann, action: dance, expect: deny}", "`dance` is not one of"),
        ("{id: a, actor: ann, action: read, expect: deny, why: x}", "unknown field `why`"),
        ("{id: b, actor: ann, action: read, expect: deny}", "duplicate case `b`"),
    ],
)
def test_load_cases_wrong_case_is_refused(tmp_path: Path, case: str, message: str) -> None:
    cases = tmp_path / "tests.yaml"
    first = "{id: b, actor: ann, action: read, expect: deny}"
    cases.write_text(f"version: 1\ncases:\n  - {first}\n  - {case}\n")
    with pytest.raises(PolicyError, match=message):
        load_cases(cases)
