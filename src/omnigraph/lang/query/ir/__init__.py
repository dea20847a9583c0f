"""The typed intermediate representation (IR) of a query: expressions, reads and writes with their types.

Pure values. Engines run it without asking the catalog; `compile` makes it and `format_plan` prints it.
"""

from __future__ import annotations

from omnigraph.lang.query.ir.expressions import *  # noqa: F403
from omnigraph.lang.query.ir.operations import *  # noqa: F403
