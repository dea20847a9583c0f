"""Rules left out or watched, wherever writes get them from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.engine.load import kept_rows, transaction
from omnigraph.rules import validate
from omnigraph.rules.validate import Rule

_SEAMS: tuple[tuple[Any, str], ...] = (
    (validate, "RULES"),
    (kept_rows, "ROW_CHECKS"),
    (transaction, "SET_RULES"),
    (transaction, "SET_RULES_OF_ROWS_ALONE"),
)


def without_rule(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let mutations and loads run without a rule: the mutant that its tests must catch."""
    for module, attribute in _SEAMS:
        rules = tuple(rule for rule in getattr(module, attribute) if rule.__name__ != name)
        monkeypatch.setattr(module, attribute, rules)


def replace_rules(monkeypatch: pytest.MonkeyPatch, replacement: Callable[[Rule], Rule]) -> None:
    """Let mutations and loads run a replacement of each rule."""
    by_rule = {rule: replacement(rule) for rule in validate.RULES}
    for module, attribute in _SEAMS:
        monkeypatch.setattr(module, attribute, tuple(by_rule[rule] for rule in getattr(module, attribute)))
