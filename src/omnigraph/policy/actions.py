"""The actions that a policy speaks of, and which limits a rule may put on each.

Pure.
"""

from __future__ import annotations

from typing import Final, Literal

BundleScope = Literal["graph", "server"]

# PolicyBranch by the branch that is read or written, and limited to types if a rule names some.
BRANCH_ACTIONS: Final = ("read", "export", "change")
# PolicyBranch by the branch that comes, goes or changes as a whole.
TARGET_ACTIONS: Final = (
    "schema_apply",
    "branch_create",
    "branch_delete",
    "branch_merge",
    "tag_create",
    "tag_delete",
)
PLAIN_ACTIONS: Final = ("admin", "invoke_query")
GRAPH_ACTIONS: Final = (*BRANCH_ACTIONS, *TARGET_ACTIONS, *PLAIN_ACTIONS)
SERVER_ACTIONS: Final = ("graph_list", "metrics_read")
ACTIONS: Final = (*GRAPH_ACTIONS, *SERVER_ACTIONS)


def own_actions(scope: BundleScope) -> tuple[str, ...]:
    """Return the actions that the bundle of a graph, or of a server, may allow."""
    return GRAPH_ACTIONS if scope == "graph" else SERVER_ACTIONS
