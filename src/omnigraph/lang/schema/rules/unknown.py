"""Refuses annotations that the language does not know (S32).

Pure. Earlier releases kept any word; where the accepted schema has one, it may stay until it is removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from omnigraph.lang.diagnostic import Diagnostic, Severity
from omnigraph.lang.schema.expand import AnnotationPlace, Draft
from omnigraph.lang.schema.nearest import did_you_mean
from omnigraph.lang.schema.syntax import Declaration, Item, PropertyDeclaration

KNOWN_ANNOTATIONS: Final = ("description", "embed", "index", "instruction", "key", "merge", "rename_from", "unique")
_FORMS: Final = {
    "range": "a range is a constraint: `@range(property, low..high)`",
    "check": 'a check is a constraint: `@check(property, "pattern")`',
    "card": "a cardinality is a range behind the target of an edge: `@card(0..1)`",
}
_ALL: Final = ", ".join(f"`@{word}`" for word in KNOWN_ANNOTATIONS[:-1]) + f" and `@{KNOWN_ANNOTATIONS[-1]}`"


def check_unknown_annotations(draft: Draft) -> Iterator[Diagnostic]:
    """Yield S32 for each unknown annotation that the accepted schema does not have at the same place."""
    for place, item in _unknown(draft):
        if place not in draft.legacy:
            yield Diagnostic("S32", f"there is no annotation `@{item.word}`", draft.source, item.span, _hint(item.word))


def note_legacy_annotations(draft: Draft) -> Iterator[Diagnostic]:
    """Yield a note for each unknown annotation that stays because it was accepted before."""
    for place, item in _unknown(draft):
        if place in draft.legacy:
            message = f"the annotation `@{item.word}` is unknown and has no effect"
            hint = "it stays because this graph accepted it before; remove it"
            yield Diagnostic("S29", message, draft.source, item.span, hint, Severity.INFO)


def _unknown(draft: Draft) -> Iterator[tuple[AnnotationPlace, Item]]:
    for owner in draft.owners:
        declaration = owner.declaration
        former = _former_name(declaration)
        for item in declaration.annotations:
            if item.word not in KNOWN_ANNOTATIONS:
                yield AnnotationPlace(declaration.kind, former, None, item.word), item
        for property_ in declaration.properties:
            for item in property_.annotations:
                if item.word not in KNOWN_ANNOTATIONS:
                    yield AnnotationPlace(declaration.kind, former, _former_name(property_), item.word), item


def _former_name(declared: Declaration | PropertyDeclaration) -> str:
    """Return the name under which the accepted schema has this, if it has it."""
    renames = declared.annotated("rename_from")
    return (renames[0].value if renames else None) or declared.name.text


def _hint(word: str) -> str:
    near = did_you_mean(word, (*KNOWN_ANNOTATIONS, *_FORMS))
    if near is not None and word not in _FORMS:
        name = near.removeprefix("did you mean `").removesuffix("`?")
        return _FORMS.get(name) or f"did you mean `@{name}`?"
    return _FORMS.get(word) or f"the annotations are {_ALL}"
