"""Checks keys, indexes, ranges and patterns against their properties (S19 to S24), and merge rules (S30, S31).

Pure. Looks only at constraints whose arguments have the right form (S7).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.lang.catalog import NUMBERS, MergeRule, PropertyType, Scalar
from omnigraph.lang.diagnostic import Diagnostic, Source, Span, did_you_mean
from omnigraph.lang.schema.ast import Argument, Item
from omnigraph.lang.schema.expand import Draft, Member, Owner

# The ends of an edge, which its constraints may name like properties.
ENDS: Final = ("src", "dst")
_ID_HINT: Final = "`id` is always unique and indexed; it needs no constraint"


def check_constraints(draft: Draft) -> Iterator[Diagnostic]:
    """Yield S19 to S24, for every owner."""
    for owner in draft.owners:
        if owner.declaration.kind != "interface":
            yield from _check_keys(owner, draft.source)
        for item in owner.declaration.constraints:
            if owner.declaration.kind == "edge" and item.word in ("range", "check"):
                yield Diagnostic("S23", f"`@{item.word}` works on nodes only", draft.source, item.span)
                continue
            for argument in item.arguments or ():
                if argument.kind == "name":
                    yield from _check_argument(owner, item, argument, draft.source)
                elif argument.kind == "end" and item.word in ("key", "unique", "index"):
                    yield from _check_end(owner, item, argument, draft.source)


def _check_end(owner: Owner, item: Item, argument: Argument, source: Source) -> Iterator[Diagnostic]:
    name = argument.text
    if owner.declaration.kind == "edge" and name in ENDS:
        return
    message = f"`@{item.word}` names `@{name}`, which `{owner.declaration.name.text}` does not have"
    yield Diagnostic("S19", message, source, argument.span, _unknown_end_hint(owner, name))


def _unknown_end_hint(owner: Owner, name: str) -> str | None:
    if name == "id":
        return _ID_HINT
    if name in owner.members:
        return f"a property is written without `@`: `{name}`"
    if owner.declaration.kind != "edge":
        return "only edges have ends, `@src` and `@dst`"
    return "the ends of an edge are `@src` and `@dst`"


def _check_argument(owner: Owner, item: Item, argument: Argument, source: Source) -> Iterator[Diagnostic]:
    name = argument.text
    if owner.declaration.kind == "edge" and name in ENDS:
        return
    member = owner.members.get(name)
    if member is None:
        if owner.is_complete:
            message = f"`@{item.word}` names `{name}`, which `{owner.declaration.name.text}` does not have"
            yield Diagnostic("S19", message, source, argument.span, _unknown_hint(owner, name))
        return
    type_ = member.property.type.type
    if item.word in ("unique", "index") and type_.scalar is Scalar.BLOB:
        yield Diagnostic("S22", f"`@{item.word}` cannot compare the Blob `{name}`", source, argument.span)
    elif item.word == "range" and type_.scalar not in NUMBERS:
        yield Diagnostic("S24", f"`@range` bounds numbers, but `{name}` is `{type_}`", source, argument.span)
    elif item.word == "check" and type_.scalar is not Scalar.STRING:
        yield Diagnostic("S24", f"`@check` matches `String`, but `{name}` is `{type_}`", source, argument.span)
    elif item.word == "key" and not _is_key_type(type_):
        yield _bad_key(name, type_, argument.span, source)


def _unknown_hint(owner: Owner, name: str) -> str | None:
    if owner.declaration.kind == "edge" and name in ("from", "to"):
        return f"the endpoints of an edge are called `src` and `dst`: write `{'src' if name == 'from' else 'dst'}`"
    if name == "id":
        return _ID_HINT
    return did_you_mean(name, owner.members)


def _check_keys(owner: Owner, source: Source) -> Iterator[Diagnostic]:
    keys: list[Span] = []
    for member in sorted(owner.members.values(), key=_injected_first):
        for item in member.property.annotated("key")[:1]:
            keys.append(item.span if member.via is None else member.via.span)
            type_ = member.property.type.type
            # Lists, vectors and Blobs with a property-form key are S15's.
            if type_.nullable and _is_key_type(PropertyType(type_.scalar, type_.is_list)):
                yield _bad_key(member.property.name.text, type_, item.span, source)
    keys += [item.span for item in owner.declaration.constraints if item.word == "key"]
    for span in keys[1:]:
        message = f"{owner.declaration.kind} type `{owner.declaration.name.text}` has more than one key"
        hint = "for a key of several properties write one `@key(a, b)` in the body"
        yield Diagnostic("S20", message, source, span, hint)


def _injected_first(member: Member) -> bool:
    return member.via is None


def _is_key_type(type_: PropertyType) -> bool:
    return not (type_.nullable or type_.is_list or type_.scalar in (Scalar.VECTOR, Scalar.BLOB))


def _bad_key(name: str, type_: PropertyType, span: Span, source: Source) -> Diagnostic:
    hint = "remove the `?`: a key has no null" if type_.nullable else "a key member holds a single scalar value"
    return Diagnostic("S21", f"key member `{name}` cannot be `{type_}`", source, span, hint)


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
    for index, item in enumerate(items):
        word = item.value or ""
        if index > 0:
            yield Diagnostic("S30", "`@merge` is given twice", source, item.span, "keep one of them")
        elif word not in _RULES:
            problem = f"does not know the rule `{word}`" if word else "needs a rule"
            hint = did_you_mean(word, _RULES) or f"the rules are {', '.join(_RULES)}"
            yield Diagnostic("S30", f"`@merge` {problem}", source, item.span, hint)
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
