"""Commands of git that people type here, each with what to write instead."""

from __future__ import annotations

from typing import Final

_NO_WORKING_COPY: Final = (
    "there is no working copy to switch: name the branch in each command with `--branch NAME`, and create one with"
    " `omnigraph branch create GRAPH NAME`"
)
_NO_STAGE: Final = "nothing is staged: each `load` and `mutate` is one commit, with `-m TEXT` as its message"
_NO_REMOTE: Final = (
    "there is no remote: a graph has one address, which every process reads and writes. Copy it with `omnigraph clone"
    " SOURCE TARGET`, and update the copy with `--update`"
)
_MERGE: Final = "write `omnigraph branch merge GRAPH SOURCE`, with `--into NAME` for another branch than main"
_BRANCHES: Final = "write `omnigraph branch list GRAPH`"
_COMMIT: Final = "write `omnigraph commit show GRAPH ID`, or `omnigraph commit changes GRAPH ID` for what it changed"

GIT_WORDS: Final = {
    "merge": _MERGE,
    "checkout": _NO_WORKING_COPY,
    "switch": _NO_WORKING_COPY,
    "show": f"{_COMMIT}; a schema is shown by `omnigraph schema show GRAPH`",
    "status": "write `omnigraph snapshot GRAPH` for the state of a branch, or `omnigraph branch list GRAPH`",
    "add": _NO_STAGE,
    "stash": _NO_STAGE,
    "pull": _NO_REMOTE,
    "push": _NO_REMOTE,
    "fetch": _NO_REMOTE,
    "remote": _NO_REMOTE,
    "branches": _BRANCHES,
    "commits": "write `omnigraph commit list GRAPH`",
    "tags": "write `omnigraph tag list GRAPH`",
    "history": "write `omnigraph commit list GRAPH`, or `omnigraph log GRAPH TYPE KEY` for one entity",
    "reset": "history is never rewritten: take a commit back with `omnigraph revert GRAPH ID`",
    "rebase": f"history is never rewritten: {_MERGE}",
    "rm": 'delete entities with `omnigraph mutate GRAPH "delete TYPE where …"`',
    "gc": "write `omnigraph cleanup GRAPH`",
    "fsck": "write `omnigraph verify GRAPH`",
}
# What follows a group of commands, or the arguments of a command, where git means something else.
GROUP_WORDS: Final = {
    "omnigraph commit": f"to list commits, write `omnigraph commit list GRAPH`; {_NO_STAGE}",
    "omnigraph branch": "write `omnigraph branch create GRAPH NAME`, or `omnigraph branch list GRAPH`",
    "omnigraph tag": "write `omnigraph tag create GRAPH NAME`, or `omnigraph tag list GRAPH`",
}
ARGUMENT_WORDS: Final = {
    "omnigraph log": "for the commits of a branch, write `omnigraph commit list GRAPH`",
}
