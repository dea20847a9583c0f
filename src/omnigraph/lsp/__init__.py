"""The language server: the language tools over the Language Server Protocol, for editors.

`server` needs the `lsp` extra and is imported when the server starts.
"""
