"""Checks the merge rules of types and properties (S30 and S31).

Pure. What a rule means is for the engine; here it must be one, stand once, and fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.lang.catalog import MergeRule
from omnigraph.lang.diagnostic import Diagnostic
from omnigraph.lang.schema.expand import Draft
from omnigraph.lang.schema.nearest import did_you_mean
from omnigraph.lang.schema.syntax import Item
from omnigraph.lang.source import Source
from omnigraph.lang.types import NUMBERS, PropertyType, Scalar

_RULES: Final = tuple(rule.value for rule in MergeRule)
_ORDERED: Final = NUMBERS | {Scalar.STRING, Scalar.DATE, Scalar.DATETIME}
# What a type as a whole can do; the others need a value to work on.
_OF_TYPES: Final = (MergeRule.OURS, MergeRule.THEIRS, MergeRule.FAIL)


def check_merge_rules(draft: Draft) -> Iterator[Diagnostic]:
    """Yield S30 and S31; an inherited property is checked where it is written."""
    for owner in draft.owners:
        for item in owner.declaration.annotated("merge"):
            if item.value in _RULES and item.value not in _OF_TYPES:
                message = f"`@merge({item.value})` settles values, not whole entities"
                yield Diagnostic("S31", message, draft.source, item.span, "on a type: `ours`, `theirs` or `fail`")
        yield from _check_form(owner.declaration.annotated("merge"), draft.source)
        for property_ in owner.declaration.properties:
            type_, items = property_.type.type, property_.annotated("merge")
            for item in items:
                if item.value in _RULES and not _fits(MergeRule(item.value), type_):
                    message = f"`@merge({item.value})` cannot settle `{property_.name.text}` of type `{type_}`"
                    yield Diagnostic("S31", message, draft.source, item.span, _advice(MergeRule(item.value)))
            yield from _check_form(items, draft.source)


def _check_form(items: tuple[Item, ...], source: Source) -> Iterator[Diagnostic]:
    for place, item in enumerate(items):
        word = item.value or ""
        if place > 0:
            yield Diagnostic("S30", "`@merge` is given twice", source, item.span, "keep one of them")
        elif word not in _RULES:
            said = f"does not know the rule `{word}`" if word else "needs a rule"
            hint = did_you_mean(word, _RULES) or f"the rules are {', '.join(_RULES)}"
            yield Diagnostic("S30", f"`@merge` {said}", source, item.span, hint)
        elif item.keywords:
            message = "`@merge` takes no keyword arguments"
            yield Diagnostic("S30", message, source, item.keywords[0].span, "keep the rule alone")


def _fits(rule: MergeRule, type_: PropertyType) -> bool:
    if rule in (MergeRule.MAX, MergeRule.MIN):
        return type_.scalar in _ORDERED and not type_.is_list and type_.enum_values is None
    return rule is not MergeRule.UNION or type_.is_list


def _advice(rule: MergeRule) -> str:
    if rule is MergeRule.UNION:
        return "`union` takes a list"
    return f"`{rule}` takes a number, a String, a Date or a DateTime"
