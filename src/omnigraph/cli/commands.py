"""The table of commands: what the command line has, in one place.

`docs/cli.md` is checked against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from omnigraph.cli import branch, commit, schema
from omnigraph.cli.init import init
from omnigraph.cli.lint import lint
from omnigraph.cli.load import load
from omnigraph.cli.read import explain, query
from omnigraph.cli.snapshot import export, snapshot
from omnigraph.cli.version import version
from omnigraph.cli.write import ingest, mutate


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the words that call it, the function that does it, and an example."""

    words: tuple[str, ...]
    run: Callable[..., int]
    summary: str
    example: str

    @property
    def path(self) -> str:
        return " ".join(("omnigraph", *self.words))


GROUPS = {
    "schema": "Look at schemas and change them.",
    "branch": "Make, list and delete branches.",
    "commit": "Look at history.",
}

COMMANDS = (
    Command(("init",), init, "Create a graph.", "omnigraph init graph.omni --schema schema.pg"),
    Command(
        ("query",),
        query,
        "Run a query and print its rows.",
        "omnigraph query ecosystems --store graph.omni --query queries.gq --format csv",
    ),
    Command(
        ("explain",),
        explain,
        "Show how a query runs, with estimates, and with --profile what really happened.",
        "omnigraph explain ecosystems --store graph.omni --query queries.gq --profile",
    ),
    Command(
        ("ingest",),
        ingest,
        "Write entities from an NDJSON file, as one commit.",
        "omnigraph ingest graph.omni --data data.ndjson --mode merge",
    ),
    Command(
        ("load",),
        load,
        "Write an input of any size, as one commit: NDJSON, Parquet or CSV, in process or on Spark.",
        "omnigraph load graph.omni --data data.ndjson --mode merge",
    ),
    Command(
        ("mutate",),
        mutate,
        "Run a mutation, as one commit.",
        'omnigraph mutate withdraw --store graph.omni --query queries.gq --params \'{"code": "CVE-1"}\'',
    ),
    Command(
        ("snapshot",),
        snapshot,
        "Show which version of which type a branch is made of.",
        "omnigraph snapshot graph.omni",
    ),
    Command(
        ("export",),
        export,
        "Write a graph as NDJSON that an ingest takes back.",
        "omnigraph export graph.omni --type Package > packages.ndjson",
    ),
    Command(
        ("schema", "show"),
        schema.show,
        "Print the accepted schema of a graph.",
        "omnigraph schema show graph.omni",
    ),
    Command(
        ("schema", "plan"),
        schema.plan,
        "Show the steps from a graph's schema, or from another file, to a new one.",
        "omnigraph schema plan graph.omni --schema new.pg",
    ),
    Command(
        ("schema", "apply"),
        schema.apply,
        "Make a new schema the accepted one, as one commit.",
        "omnigraph schema apply graph.omni --schema new.pg --as ada",
    ),
    Command(
        ("branch", "create"),
        branch.create,
        "Make a branch that starts where another is.",
        "omnigraph branch create review/ada --store graph.omni",
    ),
    Command(("branch", "list"), branch.list_branches, "List the branches.", "omnigraph branch list graph.omni"),
    Command(
        ("branch", "delete"),
        branch.delete,
        "Delete a branch.",
        "omnigraph branch delete review/ada --store graph.omni",
    ),
    Command(
        ("commit", "list"),
        commit.list_commits,
        "List the commits of a branch, newest first.",
        "omnigraph commit list graph.omni --branch main",
    ),
    Command(
        ("commit", "show"),
        commit.show,
        "Show one commit.",
        "omnigraph commit show 01JCW0V7Q2M4RRP5K3WBF8E1ZD --store graph.omni",
    ),
    Command(
        ("lint",),
        lint,
        "Check queries against a schema, without running them.",
        "omnigraph lint --schema schema.pg --query queries.gq",
    ),
    Command(("version",), version, "Print the release and its format.", "omnigraph version"),
)
