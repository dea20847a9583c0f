"""From bytes to a `Source`: where files and request bodies enter the languages.

Pure: it takes bytes, not paths; `omnigraph.files` reads them from disk.
"""

from __future__ import annotations

from omnigraph.lang.diagnostic import Diagnostic, LanguageError
from omnigraph.lang.source import Source, Span
from omnigraph.limits import SOURCE_BYTES_MAX


def decode_source(name: str, data: bytes, code: str) -> Source:
    """Return the text of a source, or refuse it with `code` if it is too large or not UTF-8.

    A leading byte order mark is dropped: editors add it and no grammar wants it.

    >>> decode_source("s.pg", b"\\xef\\xbb\\xbfnode A {}", "S1").text
    'node A {}'
    """
    if len(data) > SOURCE_BYTES_MAX:
        message = f"the source is larger than {SOURCE_BYTES_MAX:,} bytes"
        # The text is left out, so that the refusal stays small whatever was sent.
        raise _refused(code, message, Source(name, ""), 0, "split it into several files")
    try:
        return Source(name, data.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        shown = Source(name, data.decode("utf-8", errors="replace").removeprefix("\ufeff"))
        message = f"byte 0x{data[error.start]:02x} is not valid UTF-8"
        raise _refused(code, message, shown, len(before), "save the file as UTF-8") from None


def _refused(code: str, message: str, source: Source, offset: int, hint: str) -> LanguageError:
    span = Span(offset, min(offset + 1, len(source.text)))
    return LanguageError(diagnostics=(Diagnostic(code, message, source, span, hint),))
