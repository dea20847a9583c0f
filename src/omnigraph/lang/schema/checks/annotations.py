"""Checks annotations, defaults, keys, indexes, ranges, patterns and merge rules (S11 to S24, S30 to S33).

Pure. Constraints are looked at only if their arguments have the right form (S7).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Final

from omnigraph.lang.catalog import Constant, Default, MergeRule, PropertyType
from omnigraph.lang.diagnostic import Finding, Severity, Span, did_you_mean, join_words, nearest_word
from omnigraph.lang.regular_expressions import SHORTER_PATTERN, find_excess
from omnigraph.lang.scalars import NUMBERS, ORDERED, PLAIN, RANGES, TIME_FORMS, Family, narrow_float
from omnigraph.lang.schema import ast

_DIGITS_MAX: Final = 20


class DefaultFault(Exception):
    """A default that its property cannot hold; `hint` says what it can."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def read_default(argument: ast.Argument, type_: PropertyType) -> Default:
    """Return the default of a property; raises `DefaultFault` if the property cannot hold it."""
    if type_.scalar not in PLAIN:
        raise DefaultFault(f"a `{type_}` has no default", "leave it out, and write the value with each entity")
    if argument.kind == "call":
        return _read_call(argument.text, type_)
    if type_.is_list:
        if argument.kind != "list":
            raise DefaultFault(f"the default of a `{type_}` is a list", "write `@default([])`")
        return Default("value", tuple(_read_scalar(value, type_.item_type) for value in argument.items))
    return Default("value", _read_scalar(argument, type_))


def _read_call(word: str, type_: PropertyType) -> Default:
    form = TIME_FORMS.get(type_.scalar)
    if word == "now" and form is not None and form.at is not None and not type_.is_list:
        return Default("now")
    if word == "uuid" and type_.is_text and type_.enum_values is None:
        return Default("uuid")
    if word not in ("now", "uuid"):
        raise DefaultFault(f"there is no function `{word}()` for a default", "the functions are `now()` and `uuid()`")
    dated = join_words([f"a `{scalar}`" for scalar, form in TIME_FORMS.items() if form.at is not None])
    needs = dated if word == "now" else "a `String`"
    raise DefaultFault(f"`{word}()` is the default of {needs}, not of `{type_}`", f"declare the property as {needs}")


def _read_scalar(argument: ast.Argument, type_: PropertyType) -> Constant:
    kind, text, family = argument.kind, argument.text, type_.scalar.facts.family
    if type_.enum_values is not None:
        if kind in ("name", "string") and text in type_.enum_values:
            return text
        words = ", ".join(type_.enum_values)
        raise DefaultFault(f"the enum has no value `{text}`", f"its values are {words}")
    form = TIME_FORMS.get(type_.scalar)
    if kind == "string" and (family is Family.TEXT or (form is not None and form.is_literal(text))):
        return text
    if family is Family.TRUTH and kind == "bool":
        return text == "true"
    if family is Family.INTEGER and kind == "number" and "." not in text:
        return _read_integer(text, type_)
    if family is Family.FLOAT and kind == "number":
        return _read_float(text, type_)
    hint = _EXAMPLES[family] if form is None else f'write it as `"{form.example}"`'
    if form is not None and form.at is not None:
        hint += ", or use `now()`"
    shown = f'"{text}"' if kind == "string" else text
    raise DefaultFault(f"`{shown}` is not a value of type `{type_}`", hint)


_EXAMPLES: Final = {
    Family.TEXT: 'write it as `"…"`, or use `uuid()`',
    Family.TRUTH: "write `true` or `false`",
    Family.INTEGER: "write an integer, such as `0`",
    Family.FLOAT: "write a number, such as `0.5`",
}


def _read_integer(text: str, type_: PropertyType) -> int:
    low, high = RANGES[type_.scalar]
    # Python refuses to read very long numbers.
    value = int(text) if len(text.lstrip("-0")) <= _DIGITS_MAX else high + 1
    if not low <= value <= high:
        raise DefaultFault(f"`{text[:30]}` is out of range for `{type_}`", f"it holds {low} to {high}")
    return value


def _read_float(text: str, type_: PropertyType) -> float:
    value = float(text)
    try:
        narrow_float(value, type_.scalar)
    except OverflowError:
        value = float("inf")
    if not isfinite(value):
        raise DefaultFault(f"`{text[:30]}` is out of range for `{type_}`", "use a smaller number, or `F64`")
    return value


PROPERTY_WORDS: Final = ("key", "unique", "index", "embed")
KNOWN_ANNOTATIONS: Final = (
    "default", "description", "embed", "index", "instruction", "key", "merge", "rename_from", "unique",
)  # fmt: skip
_FORMS: Final = {
    "range": "a range is a constraint: `@range(property, low..high)`",
    "check": 'a check is a constraint: `@check(property, "pattern")`',
    "card": "a cardinality is a range behind the target of an edge: `@card(0..1)`",
}


def check_annotations(draft: ast.Draft) -> Iterator[Finding]:
    """Yield S11 to S18; an inherited property is checked where it is written."""
    for owner in draft.owners:
        declaration = owner.declaration
        yield from _check_texts(declaration.annotations)
        for item in declaration.annotations:
            if item.word in PROPERTY_WORDS:
                message = f"`@{item.word}` belongs to a property, not to a type"
                hint = f"put it behind the property's type, or write `@{item.word}(property)` in the body"
                if item.word == "embed":
                    hint = "put it behind the type of a Vector property"
                yield Finding("S14", message, item.span, hint)
        for property_ in declaration.properties:
            yield from _check_texts(property_.annotations)
            yield from _check_property(owner, property_)
        for member in owner.members.values():
            yield from _check_embed(owner, member.property)


def _check_texts(annotations: tuple[ast.Item, ...]) -> Iterator[Finding]:
    words: set[str] = set()
    for item in annotations:
        if item.word not in ("rename_from", "description", "instruction"):
            continue
        code = "S11" if item.word == "rename_from" else "S12"
        if item.word in words:
            yield Finding(code, f"`@{item.word}` is given twice", item.span, "keep one of them")
        elif not (item.value or "").strip():
            hint = f'write `@{item.word}("…")`'
            yield Finding(code, f"`@{item.word}` needs a text that is not blank", item.span, hint)
        elif item.keywords:
            message = f"`@{item.word}` takes no keyword arguments"
            yield Finding(code, message, item.keywords[0].span, "keep the text alone")
        words.add(item.word)


def _check_property(owner: ast.Owner, property_: ast.PropertyDeclaration) -> Iterator[Finding]:
    name, type_ = property_.name.text, property_.type.type
    words: set[str] = set()
    for item in property_.annotations:
        if item.word == "instruction":
            hint = "use `@description` here, or give the instruction to the type"
            yield Finding("S13", "a property takes no `@instruction`", item.span, hint)
        if item.word not in PROPERTY_WORDS:
            continue
        if item.word in words:
            message = f"`@{item.word}` is given twice for `{name}`"
            yield Finding("S17", message, item.span, "remove one of them")
            continue
        words.add(item.word)
        if owner.declaration.kind == "edge" and item.word == "embed":
            yield Finding("S16", "`@embed` works on node properties only", item.span)
            continue
        is_refused = type_.is_list or type_.is_blob
        if is_refused or (type_.is_vector and item.word in ("key", "unique")):
            message = f"`@{item.word}` cannot stand on `{name}` of type `{type_}`"
            hint = f"`@{item.word}` takes a single scalar value" if item.word != "embed" else "it takes a `Vector(n)`"
            yield Finding("S15", message, item.span, hint)


def _check_embed(owner: ast.Owner, property_: ast.PropertyDeclaration) -> Iterator[Finding]:
    items, type_ = property_.annotated("embed"), property_.type.type
    if not items or owner.declaration.kind == "edge" or type_.is_list or type_.is_blob:
        return
    item = items[0]
    for keyword in item.keywords:
        if keyword.key != "model":
            message = f"`@embed` does not know the keyword `{keyword.key}`"
            yield Finding("S18", message, keyword.span, 'its only keyword is `model="…"`')
    if not type_.is_vector:
        message = f"`@embed` fills vectors, but `{property_.name.text}` is `{type_}`"
        yield Finding("S18", message, item.span, "declare it as `Vector(n)`")
    elif not (item.value or "").strip():
        message = "`@embed` needs the String property that its vectors come from"
        yield Finding("S18", message, item.span, "write `@embed(title)`")
    else:
        yield from _check_embed_source(owner, item)


def _check_embed_source(owner: ast.Owner, item: ast.Item) -> Iterator[Finding]:
    name, span = item.arguments[0].text, item.arguments[0].span
    member = owner.members.get(name)
    if member is None:
        # A node may supply the source of an interface's vector, so an interface alone proves nothing.
        if owner.declaration.kind == "node" and owner.is_complete:
            message = f"`@embed` names `{name}`, which `{owner.declaration.name.text}` does not have"
            yield Finding("S18", message, span, did_you_mean(name, owner.members))
    elif not member.property.type.type.is_text:
        message = f"`@embed` reads `String`, but `{name}` is `{member.property.type.type}`"
        yield Finding("S18", message, span)


def check_unknown_annotations(draft: ast.Draft) -> Iterator[Finding]:
    """Yield S32 for each unknown annotation that the accepted schema does not have at the same position."""
    for position, item in _unknown(draft):
        if position not in draft.legacy:
            yield Finding("S32", f"there is no annotation `@{item.word}`", item.span, _hint(item.word))


def note_legacy_annotations(draft: ast.Draft) -> Iterator[Finding]:
    """Yield a note for each unknown annotation that stays because it was accepted before."""
    for position, item in _unknown(draft):
        if position in draft.legacy:
            message = f"the annotation `@{item.word}` is unknown and has no effect"
            hint = "it stays because this graph accepted it before; remove it"
            yield Finding("S29", message, item.span, hint, Severity.INFO)


def _unknown(draft: ast.Draft) -> Iterator[tuple[ast.AnnotationPosition, ast.Item]]:
    for owner in draft.owners:
        type_ = owner.declaration
        parts: tuple[ast.Declaration | ast.PropertyDeclaration, ...] = (type_, *type_.properties)
        for declared in parts:
            property_name = None if declared is type_ else _former_name(declared)
            for item in declared.annotations:
                if item.word not in KNOWN_ANNOTATIONS:
                    yield ast.AnnotationPosition(type_.kind, _former_name(type_), property_name, item.word), item


def _former_name(declared: ast.Declaration | ast.PropertyDeclaration) -> str:
    """Return the name under which the accepted schema has this, if it has it."""
    return declared.text_of("rename_from") or declared.name.text


def _hint(word: str) -> str:
    near = word if word in _FORMS else nearest_word(word, (*KNOWN_ANNOTATIONS, *_FORMS))
    if near is None:
        known = join_words([f"`@{name}`" for name in KNOWN_ANNOTATIONS], conjunction="and")
        return f"the annotations are {known}"
    return _FORMS.get(near) or f"did you mean `@{near}`?"


def note_inert(draft: ast.Draft) -> Iterator[Finding]:
    """Yield a note for every range that nothing can satisfy."""
    for owner in draft.owners:
        for item in owner.declaration.constraints:
            bounds = item.arguments[-1]
            if item.word != "range" or bounds.low is None or bounds.high is None:
                continue
            low, high = ast.parse_bound(bounds.low), ast.parse_bound(bounds.high)
            if low is not None and high is not None and low > high:
                message = "no value can be within this range: its lower bound is above its upper bound"
                yield Finding("S29", message, bounds.span, severity=Severity.WARNING)


def check_defaults(draft: ast.Draft) -> Iterator[Finding]:
    """Yield S14 and S33; an inherited property is checked where it is written."""
    for owner in draft.owners:
        for item in owner.declaration.annotated("default"):
            message = "`@default` belongs to a property, not to a type"
            yield Finding("S14", message, item.span, "put it behind the property's type")
        for property_ in owner.declaration.properties:
            for index, item in enumerate(property_.annotated("default")):
                yield from _check_default(property_, item, index)


def _check_default(property_: ast.PropertyDeclaration, item: ast.Item, index: int) -> Iterator[Finding]:
    name = property_.name.text
    if index > 0:
        yield Finding("S33", f"`@default` is given twice for `{name}`", item.span, "keep one of them")
    elif not item.arguments:
        hint = "write `@default(0)`, `@default(now())` or `@default(uuid())`"
        yield Finding("S33", f"`@default` of `{name}` needs a value", item.span, hint)
    elif item.keywords:
        message = "`@default` takes no keyword arguments"
        yield Finding("S33", message, item.keywords[0].span, "keep the value alone")
    elif property_.annotated("embed"):
        message = f"`{name}` is embedded from a text, so it has no default"
        yield Finding("S33", message, item.span, "remove one of the two annotations")
    else:
        try:
            read_default(item.arguments[0], property_.type.type)
        except DefaultFault as fault:
            yield Finding("S33", f"default of `{name}`: {fault.reason}", item.arguments[0].span, fault.hint)


# The ends of an edge, which its constraints may name like properties.
ENDS: Final = ("src", "dst")
_ID_HINT: Final = "`id` is always unique and indexed; it needs no constraint"


def check_constraints(draft: ast.Draft) -> Iterator[Finding]:
    """Yield S19 to S24, for every owner."""
    for owner in draft.owners:
        kind, name = owner.declaration.kind, owner.declaration.name.text
        if kind != "interface":
            yield from _check_keys(owner)
        for item in owner.declaration.constraints:
            if kind == "edge" and item.word in ("range", "check"):
                yield Finding("S23", f"`@{item.word}` works on nodes only", item.span)
                continue
            for argument in item.arguments:
                if kind == "edge" and argument.text in ENDS:
                    continue
                if argument.kind == "name":
                    yield from _check_argument(owner, item, argument)
                elif argument.kind == "end" and item.word in ("key", "unique", "index"):
                    message = f"`@{item.word}` names `@{argument.text}`, which `{name}` does not have"
                    yield Finding("S19", message, argument.span, _unknown_end_hint(owner, argument.text))


def _unknown_end_hint(owner: ast.Owner, name: str) -> str | None:
    if name == "id":
        return _ID_HINT
    if name in owner.members:
        return f"a property is written without `@`: `{name}`"
    if owner.declaration.kind != "edge":
        return "only edges have ends, `@src` and `@dst`"
    return "the ends of an edge are `@src` and `@dst`"


def _check_argument(owner: ast.Owner, item: ast.Item, argument: ast.Argument) -> Iterator[Finding]:
    name = argument.text
    member = owner.members.get(name)
    if member is None:
        if owner.is_complete:
            message = f"`@{item.word}` names `{name}`, which `{owner.declaration.name.text}` does not have"
            yield Finding("S19", message, argument.span, _unknown_hint(owner, name))
        return
    type_ = member.property.type.type
    if item.word in ("unique", "index") and type_.is_blob:
        yield Finding("S22", f"`@{item.word}` cannot compare the Blob `{name}`", argument.span)
    elif item.word == "range" and type_.scalar not in NUMBERS:
        yield Finding("S24", f"`@range` bounds numbers, but `{name}` is `{type_}`", argument.span)
    elif item.word == "check" and type_.scalar.facts.family is not Family.TEXT:
        yield Finding("S24", f"`@check` matches `String`, but `{name}` is `{type_}`", argument.span)
    elif item.word == "check":
        yield from _check_pattern(item)
    elif item.word == "key" and not _is_key_type(type_):
        yield _bad_key(name, type_, argument.span)


def _check_pattern(item: ast.Item) -> Iterator[Finding]:
    """Yield S24 for a pattern that is too large; one that is malformed is found by the first write."""
    for argument in item.arguments:
        if argument.kind == "string" and (reason := find_excess(argument.text)) is not None:
            yield Finding("S24", f"the pattern of `@check` is too large: {reason}", argument.span, SHORTER_PATTERN)


def _unknown_hint(owner: ast.Owner, name: str) -> str | None:
    if owner.declaration.kind == "edge" and name in ("from", "to"):
        return f"the endpoints of an edge are called `src` and `dst`: write `{'src' if name == 'from' else 'dst'}`"
    if name == "id":
        return _ID_HINT
    return did_you_mean(name, owner.members)


def _check_keys(owner: ast.Owner) -> Iterator[Finding]:
    keys: list[Span] = []
    for member in sorted(owner.members.values(), key=lambda member: member.via is None):
        for item in member.property.annotated("key")[:1]:
            keys.append(item.span if member.via is None else member.via.span)
            type_ = member.property.type.type
            # Lists, vectors and Blobs with a property-form key are S15's.
            if type_.nullable and _is_key_type(PropertyType(type_.scalar, type_.is_list)):
                yield _bad_key(member.property.name.text, type_, item.span)
    keys += [item.span for item in owner.declaration.constraints if item.word == "key"]
    for span in keys[1:]:
        message = f"{owner.declaration.kind} type `{owner.declaration.name.text}` has more than one key"
        hint = "for a key of several properties write one `@key(a, b)` in the body"
        yield Finding("S20", message, span, hint)


def _is_key_type(type_: PropertyType) -> bool:
    return not (type_.nullable or type_.is_list or type_.scalar not in PLAIN)


def _bad_key(name: str, type_: PropertyType, span: Span) -> Finding:
    hint = "remove the `?`: a key has no null" if type_.nullable else "a key member holds a single scalar value"
    return Finding("S21", f"key member `{name}` cannot be `{type_}`", span, hint)


_ORDERED_WORDS: Final = join_words(["a number", "a String", *(f"a {scalar}" for scalar in TIME_FORMS)])
_RULES: Final = tuple(rule.value for rule in MergeRule)
# What a type as a whole can do; the others need a value to work on.
_OF_TYPES: Final = (MergeRule.OURS, MergeRule.THEIRS, MergeRule.FAIL)


def check_merge_rules(draft: ast.Draft) -> Iterator[Finding]:
    """Yield S30 and S31; an inherited property is checked where it is written."""
    for owner in draft.owners:
        for item in owner.declaration.annotated("merge"):
            if item.value in _RULES and item.value not in _OF_TYPES:
                message = f"`@merge({item.value})` settles values, not whole entities"
                yield Finding("S31", message, item.span, "on a type: `ours`, `theirs` or `fail`")
        yield from _check_form(owner.declaration.annotated("merge"))
        for property_ in owner.declaration.properties:
            type_, items = property_.type.type, property_.annotated("merge")
            for item in items:
                if item.value in _RULES and not _fits(MergeRule(item.value), type_):
                    message = f"`@merge({item.value})` cannot settle `{property_.name.text}` of type `{type_}`"
                    takes = "a list" if item.value == MergeRule.UNION else _ORDERED_WORDS
                    yield Finding("S31", message, item.span, f"`{item.value}` takes {takes}")
            yield from _check_form(items)


def _check_form(items: tuple[ast.Item, ...]) -> Iterator[Finding]:
    for index, item in enumerate(items):
        word = item.value or ""
        if index > 0:
            yield Finding("S30", "`@merge` is given twice", item.span, "keep one of them")
        elif word not in _RULES:
            problem = f"does not know the rule `{word}`" if word else "needs a rule"
            hint = did_you_mean(word, _RULES) or f"the rules are {', '.join(_RULES)}"
            yield Finding("S30", f"`@merge` {problem}", item.span, hint)
        elif item.keywords:
            message = "`@merge` takes no keyword arguments"
            yield Finding("S30", message, item.keywords[0].span, "keep the rule alone")


def _fits(rule: MergeRule, type_: PropertyType) -> bool:
    if rule in (MergeRule.MAX, MergeRule.MIN):
        return type_.scalar in ORDERED and not type_.is_list and type_.enum_values is None
    return rule is not MergeRule.UNION or type_.is_list
