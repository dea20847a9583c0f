"""Checks declarations: names, types, bounds and arguments, then references between them (S2 to S10, S25 to S28).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.lang.catalog import TEXT
from omnigraph.lang.diagnostic import Finding, Span, did_you_mean
from omnigraph.lang.schema import ast
from omnigraph.limits import VECTOR_DIMENSION_MAX

RESERVED_NAMES: Final = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


def check_values(draft: ast.Draft) -> Iterator[Finding]:
    """Yield S2 to S7."""
    for owner in draft.owners:
        declaration = owner.declaration
        for property_ in declaration.properties:
            yield from _check_property(property_)
        if declaration.cardinality is not None:
            yield from _check_cardinality(declaration.cardinality)
        for item in declaration.constraints:
            yield from _check_arguments(item)


def _check_property(property_: ast.PropertyDeclaration) -> Iterator[Finding]:
    name, type_ = property_.name, property_.type
    if name.text in RESERVED_NAMES:
        hint = "the storage format uses this name for a column of its own; choose another"
        yield Finding("S2", f"property name `{name.text}` is reserved", name.span, hint)
    if type_.dimension is not None and not 1 <= (type_.type.dimension or 0) <= VECTOR_DIMENSION_MAX:
        message = f"vector dimension `{type_.dimension.text[:20]}` is not between 1 and {VECTOR_DIMENSION_MAX}"
        yield Finding("S3", message, type_.dimension.span)
    if type_.type.is_list and type_.type.is_blob:
        hint = "give each blob a node of its own and an edge to it"
        yield Finding("S4", "a list cannot hold `Blob`", type_.span, hint)
    values: set[str] = set()
    for value in type_.values:
        if value.text in values:
            yield Finding("S5", f"enum value `{value.text}` is listed twice", value.span, "remove one of them")
        values.add(value.text)


def _check_cardinality(item: ast.Item) -> Iterator[Finding]:
    bounds = item.arguments[0]
    low = ast.parse_count(bounds.low or "0")
    high = ast.parse_count(bounds.high) if bounds.high is not None else ast.COUNT_MAX
    if low is None or high is None:
        yield Finding("S6", f"a cardinality bound is at most {ast.COUNT_MAX}", bounds.span)
    elif low > high:
        message = f"the minimum {low} is greater than the maximum {high}"
        yield Finding("S6", message, bounds.span, f"did you mean `@card({high}..{low})`?")


def _check_arguments(item: ast.Item) -> Iterator[Finding]:
    if item.word in ("key", "unique", "index"):
        for argument in item.arguments:
            if argument.kind not in ("name", "end"):
                message = f"`@{item.word}(…)` takes bare property names"
                hint = f"write `{argument.text}` without quotes" if argument.kind == "string" else None
                yield Finding("S7", message, argument.span, hint)
        return
    form = "`@range(property, low..high)`" if item.word == "range" else '`@check(property, "pattern")`'
    expected = "range" if item.word == "range" else "string"
    kinds = [argument.kind for argument in item.arguments]
    if kinds != ["name", expected]:
        wrong = next((a for a, kind in zip(item.arguments, ("name", expected), strict=False) if a.kind != kind), None)
        span = wrong.span if wrong is not None else item.span
        yield Finding("S7", f"`@{item.word}` takes a property name and a {expected}", span, f"write {form}")
        return
    bounds = item.arguments[1]
    if any(text is not None and ast.parse_bound(text) is None for text in (bounds.low, bounds.high)):
        yield Finding("S7", "a bound of `@range` is too large for a 64-bit float", bounds.span)


def check_names(draft: ast.Draft) -> Iterator[Finding]:
    """Yield S25 to S28."""
    first_offsets: dict[tuple[str, str], int] = {}
    edge_words: dict[str, str] = {}
    for owner in draft.owners:
        declaration = owner.declaration
        name, kind = declaration.name.text, declaration.kind
        if (kind, name) in first_offsets:
            noun = kind if kind == "interface" else f"{kind} type"
            line = draft.source.position(first_offsets[kind, name]).line
            hint = f"the first one is at line {line}; rename or remove one of them"
            yield Finding("S25", f"{noun} `{name}` is declared twice", declaration.name.span, hint)
        elif kind == "edge" and name.lower() in edge_words:
            message = f"edge type `{name}` differs from `{edge_words[name.lower()]}` in case only"
            hint = "traversals ignore the case of edge names, so they must differ in more than case"
            yield Finding("S27", message, declaration.name.span, hint)
        first_offsets.setdefault((kind, name), declaration.name.span.start)
        if kind == "edge":
            edge_words.setdefault(name.lower(), name)
            yield from _check_endpoints(draft, declaration)
        yield from _check_properties(declaration)


def _check_endpoints(draft: ast.Draft, declaration: ast.Declaration) -> Iterator[Finding]:
    for word in (declaration.source, declaration.target):
        if word is not None and word.text not in draft.nodes:
            message = f"endpoint `{word.text}` of edge `{declaration.name.text}` is not a node type"
            hint = did_you_mean(word.text, draft.nodes)
            if word.text in draft.interfaces:
                hint = "an interface cannot be an endpoint; declare one edge type for each node type"
            yield Finding("S26", message, word.span, hint)


def _check_properties(declaration: ast.Declaration) -> Iterator[Finding]:
    names: set[str] = set()
    for property_ in declaration.properties:
        name, span = property_.name.text, property_.name.span
        if name in names:
            message = f"property `{name}` of `{declaration.name.text}` is declared twice"
            yield Finding("S25", message, span, "rename or remove one of them")
        elif name == "id" and not _is_declared_id(declaration, property_):
            yield _reserved_id(declaration.kind, span)
        elif declaration.kind == "edge" and name in ("src", "dst"):
            hint = "every edge has `src` and `dst` already: they are its endpoints"
            yield Finding("S28", f"an edge property cannot be called `{name}`", span, hint)
        names.add(name)


def _is_declared_id(declaration: ast.Declaration, property_: ast.PropertyDeclaration) -> bool:
    """Return True if a property is the id of a node by another name: a text, and the whole key."""
    keys = [item.arguments for item in declaration.constraints if item.word == "key"]
    is_key = bool(property_.annotated("key")) or ["id"] in [[argument.text for argument in key] for key in keys]
    is_plain = property_.type.type == TEXT and not property_.annotated("default")
    return declaration.kind == "node" and is_key and is_plain


def _reserved_id(kind: str, span: Span) -> Finding:
    if kind == "node":
        message = "a property cannot be called `id`, unless it is the key"
        hint = "every node has an `id` already; write `id: String @key` if this is it, or choose another name"
    else:
        message = f"a property of an {kind} cannot be called `id`"
        hint = "every node and edge has an `id` already; choose another name. A node may declare it: `id: String @key`"
    return Finding("S28", message, span, hint)


def check_interfaces(draft: ast.Draft) -> Iterator[Finding]:
    """Yield S8, S9 and S10, at the node that implements the interfaces."""
    for owner in draft.owners:
        for word in owner.declaration.implements:
            interface = draft.interfaces.get(word.text)
            if interface is None:
                hint = did_you_mean(word.text, draft.interfaces)
                if word.text in draft.nodes:
                    hint = f"`{word.text}` is a node type; only an interface can be implemented"
                yield Finding("S8", f"unknown interface `{word.text}`", word.span, hint)
                continue
            for name, contributed in interface.members.items():
                yield from _compare(owner, word, owner.members[name], contributed.property)


def _compare(
    owner: ast.Owner, word: ast.Word, member: ast.Member, contributed: ast.PropertyDeclaration
) -> Iterator[Finding]:
    if member.property is contributed:
        return
    name = contributed.name.text
    ours, theirs = member.property.type.type, contributed.type.type
    if ours != theirs:
        if member.via is None:
            message = f"`{owner.declaration.name.text}.{name}` is `{ours}`, but interface `{word.text}` says `{theirs}`"
            hint = f"declare it as `{theirs}`, or leave it to the interface"
            yield Finding("S9", message, member.property.type.span, hint)
        else:
            message = (
                f"interfaces `{member.via.text}` and `{word.text}` give `{name}` the types `{ours}` and `{theirs}`"
            )
            yield Finding("S9", message, word.span, "rename the property in one of the interfaces")
    elif member.via is not None and _meaning(member.property) != _meaning(contributed):
        message = f"interfaces `{member.via.text}` and `{word.text}` annotate `{name}` differently"
        hint = f"declare `{name}` in `{owner.declaration.name.text}` itself to settle it"
        yield Finding("S10", message, word.span, hint)


def _meaning(property_: ast.PropertyDeclaration) -> frozenset[object]:
    return frozenset(
        (item.word, item.value, frozenset((keyword.key, keyword.text) for keyword in item.keywords))
        for item in property_.annotations
    )
