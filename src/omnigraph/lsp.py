"""The language server of editors, on pygls: translates between the Language Server Protocol and `lang.editor`.

Needs the `lsp` extra, so it is imported when the server starts. Positions are converted by pygls, which knows the
encoding that the client counts in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from omnigraph import __version__
from omnigraph.lang.diagnostic import Diagnostic, LanguageError, Severity, Source, Span
from omnigraph.lang.editor import (
    SchemaView,
    check_source,
    complete,
    describe,
    find_definition,
    read_schema,
)
from omnigraph.lang.editor.completion import CompletionKind
from omnigraph.lang.format import LanguageName, format_source

_SEVERITIES: Final = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.INFO: types.DiagnosticSeverity.Information,
}
_KINDS: Final[dict[CompletionKind, Any]] = {
    "keyword": types.CompletionItemKind.Keyword,
    "type": types.CompletionItemKind.Class,
    "edge": types.CompletionItemKind.Reference,
    "property": types.CompletionItemKind.Field,
    "variable": types.CompletionItemKind.Variable,
    "function": types.CompletionItemKind.Function,
    "annotation": types.CompletionItemKind.Property,
}
_TRIGGERS: Final = ["$", ".", "@", ":", "{", " "]
_cached_schema = lru_cache(maxsize=16)(read_schema)
_PREFERRED: Final = "schema.pg"


def start() -> None:
    """Serve one editor on standard input and output until it closes them."""
    Tools(LanguageServer("omnigraph", __version__)).register().start_io()


class Tools:
    """Answers requests about the documents of one editor."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._schema_setting: str | None = None

    def register(self) -> Any:
        """Register all features, and return the server."""
        handlers: dict[str, Callable[[Any], Any]] = {
            types.INITIALIZE: self._initialize,
            types.WORKSPACE_DID_CHANGE_CONFIGURATION: self._did_change_configuration,
            types.TEXT_DOCUMENT_DID_OPEN: self._did_change,
            types.TEXT_DOCUMENT_DID_CHANGE: self._did_change,
            types.TEXT_DOCUMENT_DID_SAVE: self._did_change,
            types.TEXT_DOCUMENT_DID_CLOSE: self._did_close,
            types.TEXT_DOCUMENT_HOVER: self._hover,
            types.TEXT_DOCUMENT_COMPLETION: self._complete,
            types.TEXT_DOCUMENT_DEFINITION: self._definition,
            types.TEXT_DOCUMENT_FORMATTING: self._format,
        }
        options = {types.TEXT_DOCUMENT_COMPLETION: types.CompletionOptions(trigger_characters=_TRIGGERS)}
        for method, handler in handlers.items():
            self._server.feature(method, options.get(method))(_as_function(handler))
        return self._server

    def _initialize(self, params: Any) -> None:
        self._read_setting(params.initialization_options)

    def _did_change_configuration(self, params: Any) -> None:
        self._read_setting(params.settings)
        self._check_all()

    def _read_setting(self, settings: Any) -> None:
        section = _member(settings, "omnigraph") or settings
        schema = _member(section, "schema")
        self._schema_setting = schema if isinstance(schema, str) and schema else None

    def _source(self, uri: str) -> Source:
        return Source(uri, self._server.workspace.get_text_document(uri).source)

    def _view(self, uri: str) -> SchemaView | None:
        """Return the schema of a document: its own, or the one that belongs to its queries."""
        if _language(uri) == "pg":
            return _cached_schema(self._source(uri))
        path, root = uris.to_fs_path(uri), self._server.workspace.root_path
        if path is None:
            return None
        schema = find_schema(Path(path), Path(root) if root else None, self._schema_setting)
        if schema is None or not schema.is_file():
            return None
        # An open schema is read as it is in the editor.
        return _cached_schema(self._source(uris.from_fs_path(str(schema))))

    def _did_change(self, params: Any) -> None:
        uri = params.text_document.uri
        # A change of a schema concerns the queries that are open.
        self._check_all() if _language(uri) == "pg" else self._check(uri)

    def _did_close(self, params: Any) -> None:
        self._publish(params.text_document.uri, [])

    def _check_all(self) -> None:
        for uri in list(self._server.workspace.text_documents):
            self._check(uri)

    def _check(self, uri: str) -> None:
        view = self._view(uri) if _language(uri) == "gq" else None
        findings = check_source(self._source(uri), _language(uri), view.catalog if view is not None else None)
        self._publish(uri, [self._diagnostic(uri, finding) for finding in findings])

    def _publish(self, uri: str, diagnostics: list[Any]) -> None:
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, diagnostics))

    def _diagnostic(self, uri: str, finding: Diagnostic) -> Any:
        return types.Diagnostic(
            range=self._range(uri, finding.span),
            message=f"{finding.message}\n{finding.hint}" if finding.hint else finding.message,
            severity=_SEVERITIES[finding.severity],
            code=finding.code,
            source="omnigraph",
        )

    def _hover(self, params: Any) -> Any:
        uri = params.text_document.uri
        described = describe(self._source(uri), _language(uri), self._offset(params), self._view(uri))
        if described is None:
            return None
        content = types.MarkupContent(types.MarkupKind.Markdown, described.text)
        return types.Hover(content, self._range(uri, described.span))

    def _complete(self, params: Any) -> Any:
        uri = params.text_document.uri
        offered = complete(self._source(uri), _language(uri), self._offset(params), self._view(uri))
        items = [
            types.CompletionItem(
                label=item.label,
                kind=_KINDS[item.kind],
                detail=item.detail or None,
                sort_text=f"{position:04}",
                text_edit=types.TextEdit(self._range(uri, item.span), item.label),
            )
            for position, item in enumerate(offered)
        ]
        return types.CompletionList(is_incomplete=False, items=items)

    def _definition(self, params: Any) -> Any:
        uri = params.text_document.uri
        target = find_definition(self._source(uri), _language(uri), self._offset(params), self._view(uri))
        if target is None:
            return None
        source, span = target
        return types.Location(source.name, self._range(source.name, span))

    def _format(self, params: Any) -> Any:
        uri = params.text_document.uri
        source = self._source(uri)
        try:
            text = format_source(source, _language(uri))
        except LanguageError:
            # Its diagnostics are shown already.
            return None
        if text == source.text:
            return []
        return [types.TextEdit(self._range(uri, Span(0, len(source.text))), text)]

    def _offset(self, params: Any) -> int:
        """Return the offset of a position, whose column counts the units of the client."""
        source, position = self._source(params.text_document.uri), params.position
        line = min(position.line + 1, source.position(len(source.text)).line)
        text = source.line_text(line)
        column = bisect_left(range(len(text)), position.character, key=lambda column: self._units(text[:column]))
        return source.offset(line, column + 1)

    def _range(self, uri: str, span: Span) -> Any:
        source = self._source(uri)
        return types.Range(*(self._client_position(source, offset) for offset in (span.start, span.end)))

    def _client_position(self, source: Source, offset: int) -> Any:
        position = source.position(offset)
        start = source.offset(position.line, 1)
        return types.Position(position.line - 1, self._units(source.text[start : start + position.column - 1]))

    def _units(self, text: str) -> int:
        return int(self._server.workspace.position_codec.client_num_units(text))


def _as_function(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a method as a function, to which pygls can attach what it knows of it."""
    return lambda params: handler(params)


def _language(uri: str) -> LanguageName:
    return "pg" if uri.endswith(".pg") else "gq"


def _member(value: Any, name: str) -> Any:
    """Return a member of a JSON object, which pygls gives as a dictionary or as an object."""
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def find_schema(query: Path, root: Path | None, configured: str | None) -> Path | None:
    """Return the schema of a query file, or None: as `configured` relative to `root`, else found in a folder up to it.

    `root` is the folder that is open in the editor.
    """
    if configured:
        path = Path(configured).expanduser()
        return path if path.is_absolute() or root is None else root / path
    for folder in query.parents:
        schemas = sorted(path for path in folder.glob("*.pg") if path.is_file())
        if schemas:
            preferred = folder / _PREFERRED
            return preferred if preferred in schemas else schemas[0]
        if root is None or folder == root:
            # Without a folder, only the one of the file is searched.
            return None
    return None
