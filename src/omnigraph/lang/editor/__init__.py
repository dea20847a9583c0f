"""Editor support for sources: diagnostics, hover texts, completions and definitions.

Pure: no I/O and no protocol. Works on sources that do not parse, as sources do while they are typed.
"""

from omnigraph.lang.editor.completion import Completion, complete
from omnigraph.lang.editor.lookup import Hover, describe, find_definition
from omnigraph.lang.editor.sources import SchemaView, check_source, read_schema

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
