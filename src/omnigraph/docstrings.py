"""Inherits documentation section by section, so that each argument of the public API is described in one place.

`inspect.getdoc` inherits a docstring only as a whole. An implementation that takes more arguments than its protocol, or
fewer, describes only the difference, and gets the rest from here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from inspect import cleandoc, getdoc, signature
from typing import Any, Final, TypeVar

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
_SECTIONS: Final = ("Args", "Returns", "Raises", "Example")
_SECTION: Final = re.compile(rf"^({'|'.join(_SECTIONS)}):\n", re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^    (?=\w)", re.MULTILINE)


def inherit_docs(protocol: type) -> Callable[[C], C]:
    """Return a class decorator that completes the docstrings of methods with those of a protocol.

    A subclass of the protocol inherits a missing docstring without this, as Python does it.
    """

    inherited = {name for name in dir(protocol) if not name.startswith("_")}

    def complete(kind: C) -> C:
        for name in inherited & vars(kind).keys():
            member = vars(kind)[name]
            if member.__doc__ is None and protocol in kind.__mro__:
                continue
            parameters = () if isinstance(member, property) else signature(member).parameters
            member.__doc__ = merge_docstrings(member.__doc__ or "", getdoc(getattr(protocol, name)) or "", parameters)
        return kind

    return complete


def complete_docs(*sources: Callable[..., Any] | str) -> Callable[[F], F]:
    """Return a decorator that completes the docstring of a function with those of others, the first of them first."""

    def complete(function: F) -> F:
        for source in sources:
            text = source if isinstance(source, str) else getdoc(source) or ""
            function.__doc__ = merge_docstrings(function.__doc__ or "", text, signature(function).parameters)
        return function

    return complete


def merge_docstrings(docstring: str, inherited: str, parameters: Iterable[str]) -> str:
    """Return a docstring with sections that it lacks from another, and a line for each parameter that either describes.

    >>> text = "Read.\\n\\nArgs:\\n    at: When.\\n    name: What.\\n\\nReturns:\\n    It."
    >>> print(merge_docstrings("Read today.", text, ["name"]))
    Read today.
    <BLANKLINE>
    Args:
        name: What.
    <BLANKLINE>
    Returns:
        It.
    """
    text, sections = _split(docstring)
    inherited_text, inherited_sections = _split(inherited)
    arguments = _arguments(inherited_sections.get("Args", "")) | _arguments(sections.get("Args", ""))
    described = [arguments[name] for name in parameters if name in arguments]
    merged = {**inherited_sections, **sections, "Args": "\n".join(described)}
    parts = [f"{name}:\n{merged[name]}" for name in _SECTIONS if merged.get(name)]
    return "\n\n".join([text or inherited_text, *parts])


def _split(docstring: str) -> tuple[str, dict[str, str]]:
    text, *parts = _SECTION.split(cleandoc(docstring))
    return text.rstrip(), {name: body.rstrip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _arguments(section: str) -> dict[str, Any]:
    described = [f"    {part.rstrip()}" for part in _ARGUMENT.split(section) if part]
    return {entry.split(":")[0].strip(" *"): entry for entry in described}
