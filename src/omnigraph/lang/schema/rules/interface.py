"""Checks that interfaces exist and that their properties agree (S8 to S10).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.diagnostic import Diagnostic
from omnigraph.lang.schema.expand import Draft, Member, Owner
from omnigraph.lang.schema.nearest import did_you_mean
from omnigraph.lang.schema.syntax import PropertyDeclaration, Word


def check_interfaces(draft: Draft) -> Iterator[Diagnostic]:
    """Yield S8, S9 and S10, at the node that implements the interfaces."""
    for owner in draft.owners:
        for word in owner.declaration.implements:
            interface = draft.interfaces.get(word.text)
            if interface is None:
                hint = did_you_mean(word.text, draft.interfaces)
                if word.text in draft.nodes:
                    hint = f"`{word.text}` is a node type; only an interface can be implemented"
                yield Diagnostic("S8", f"unknown interface `{word.text}`", draft.source, word.span, hint)
                continue
            for name, contributed in interface.members.items():
                yield from _compare(draft, owner, word, owner.members[name], contributed.property)


def _compare(
    draft: Draft, owner: Owner, word: Word, member: Member, contributed: PropertyDeclaration
) -> Iterator[Diagnostic]:
    if member.property is contributed:
        return
    name = contributed.name.text
    ours, theirs = member.property.type.type, contributed.type.type
    if ours != theirs:
        if member.via is None:
            message = f"`{owner.declaration.name.text}.{name}` is `{ours}`, but interface `{word.text}` says `{theirs}`"
            hint = f"declare it as `{theirs}`, or leave it to the interface"
            yield Diagnostic("S9", message, draft.source, member.property.type.span, hint)
        else:
            message = (
                f"interfaces `{member.via.text}` and `{word.text}` give `{name}` the types `{ours}` and `{theirs}`"
            )
            yield Diagnostic("S9", message, draft.source, word.span, "rename the property in one of the interfaces")
    elif member.via is not None and _meaning(member.property) != _meaning(contributed):
        message = f"interfaces `{member.via.text}` and `{word.text}` annotate `{name}` differently"
        hint = f"declare `{name}` in `{owner.declaration.name.text}` itself to settle it"
        yield Diagnostic("S10", message, draft.source, word.span, hint)


def _meaning(property_: PropertyDeclaration) -> frozenset[object]:
    return frozenset(
        (item.word, item.value, frozenset((keyword.key, keyword.text) for keyword in item.keywords))
        for item in property_.annotations
    )
