"""What an editor asks about a source: diagnostics, hover texts, completions and definitions.

Pure: no I/O and no protocol. Works on sources that do not parse, as sources do while they are typed.
"""

from omnigraph.lang.editor.completion import Completion, complete
from omnigraph.lang.editor.definition import find_definition
from omnigraph.lang.editor.diagnostics import check_source
from omnigraph.lang.editor.hover import Hover, describe
from omnigraph.lang.editor.schema_view import SchemaView, read_schema

__all__ = [
    "Completion",
    "Hover",
    "SchemaView",
    "check_source",
    "complete",
    "describe",
    "find_definition",
    "read_schema",
]
