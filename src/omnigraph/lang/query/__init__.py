"""The `.gq` query language: parser, checker, typed IR, lowering, lint.

Pure. May import the ground modules, `lang.catalog`, `lang.diagnostic` and `lang.parsing` only.
"""

from omnigraph.lang.query.compile import CompiledQuery, QueryKey, compile_query, require_kind
from omnigraph.lang.query.format_plan import format_plan
from omnigraph.lang.query.lint import LintFinding, LintReport, QueryReport, lint_queries

__all__ = [
    "CompiledQuery",
    "LintFinding",
    "LintReport",
    "QueryKey",
    "QueryReport",
    "compile_query",
    "format_plan",
    "lint_queries",
    "require_kind",
]
