"""Where the parts of a schema stand in its source, and which renames it asks for.

Pure values, kept beside the shape so that later checks can still point at the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.lang.schema.syntax import Kind, Word
from omnigraph.lang.source import Span


@dataclass(frozen=True, slots=True)
class PropertyOrigin:
    """`span` is the name, `type_span` the type; `hint` is the old name a `@rename_from` gives."""

    span: Span
    type_span: Span
    hint: Word | None = None
    is_injected: bool = False


@dataclass(frozen=True, slots=True)
class TypeOrigin:
    """`constraints` maps the text of a body constraint to its place."""

    span: Span
    properties: Mapping[str, PropertyOrigin]
    constraints: Mapping[str, Span]
    hint: Word | None = None


Origins = Mapping[tuple[Kind, str], TypeOrigin]
