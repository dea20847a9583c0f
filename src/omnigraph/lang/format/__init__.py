"""The formatter of `.pg` and `.gq` sources: one layout for each program, comments kept, tokens unchanged.

Pure. It reads the parse tree by its brackets and tokens, so that a new rule of a grammar needs no rule here.
"""

from omnigraph.lang.format.formatter import LANGUAGES, LanguageName, format_source

__all__ = ["LANGUAGES", "LanguageName", "format_source"]
