"""The table of all commands of the command line, from which help texts and the reference are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import Final

from omnigraph.cli.output import Output
from omnigraph.cli.target import Capability


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its words, the function that runs it (`module:function`), and the arguments of an example.

    `aliases` are other spellings, not listed in help. `retired` maps options that users may expect to what to do
    instead. A former name of another command works, but help does not list it.
    """

    name: str
    function: str
    summary: str
    # The whole line where the command is not its beginning.
    arguments: str = ""
    capability: Capability = Capability.ANY
    aliases: tuple[tuple[str, ...], ...] = ()
    retired: Mapping[str, str] = field(default_factory=dict)
    is_former_name: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.name.split())

    @property
    def path(self) -> str:
        return f"omnigraph {self.name}"

    @property
    def example(self) -> str:
        return self.arguments if self.path in self.arguments else f"{self.path} {self.arguments}".rstrip()

    @property
    def run(self) -> Callable[..., int | Output]:
        """The function; its module is imported here, so that the table loads quickly."""
        return resolve_name(f"omnigraph.cli.{self.function}")  # type: ignore[no-any-return]


DIRECT, MAINTENANCE, SERVED, LOCAL = Capability.DIRECT, Capability.MAINTENANCE, Capability.SERVED, Capability.LOCAL

GROUPS = {
    "schema": "Show and change schemas.",
    "branch": "Create, list, rename, delete and merge branches.",
    "tag": "Create, list and delete tags.",
    "commit": "Show the commit history.",
    "changes": "Read the change feed of a branch.",
    "blob": "Read blobs.",
    "index": "List and build indexes.",
    "audit": "Show the audit log of recoveries and repairs.",
    "policy": "Validate, test and query policies.",
    "queries": "List and validate stored queries.",
    "cluster": "Deploy graphs, schemas, queries and policies from a folder.",
    "pipeline": "Run pipelines that a YAML file declares, on Spark.",
    "profile": "Show configured profiles.",
    "graphs": "List the graphs of a server.",
}

_SEED_FILES = (
    "`omnigraph embed` works on a graph, not on seed files; load the file with"
    " `omnigraph load GRAPH --data FILE --mode merge --embed`"
)
_NO_TOKEN_OPTION = (
    "a token on the command line can be read by every user of this machine; leave `--token` out and type the token when"
    " asked, or give it on standard input: `omnigraph login NAME < token.txt`"
)

COMMANDS = (
    Command("init", "schema:init", "Create a graph.", "graph.omni --schema schema.pg", DIRECT),
    Command("query", "query:query", "Run a query and print its rows.", "graph.omni queries.gq ecosystems --format csv",
            aliases=(("read",),)),
    Command("explain", "query:explain",
            "Show how a query would run, with estimates; `--analyze` runs it and adds measurements.",
            "graph.omni queries.gq ecosystems --analyze"),
    Command("load", "load:load", "Load NDJSON, Parquet or CSV of any size, as one commit.", "graph.omni data.ndjson"),
    Command("ingest", "load:ingest", "The former name of `load`.", "graph.omni --data data.ndjson --mode merge",
            is_former_name=True),
    Command("mutate", "query:mutate", "Run a mutation, as one commit.",
            'graph.omni queries.gq withdraw --params \'{"code": "CVE-1"}\'', aliases=(("change",),)),
    Command("shell", "shell:shell",
            "Type queries, mutations and commands at a prompt, or read them from standard input.", "graph.omni"),
    Command("snapshot", "export:snapshot", "Show the dataset version of each type on a branch.", "graph.omni"),
    Command("export", "export:export", "Export a graph as NDJSON, Parquet or CSV, or as GraphML, GEXF, DOT or Cypher.",
            "graph.omni --type Package > packages.ndjson"),
    Command("schema show", "schema:show", "Print the accepted schema of a graph.", "graph.omni",
            aliases=(("schema", "get"),)),
    Command("schema plan", "schema:plan",
            "Show the migration steps from the current schema, or from another file, to a new one.",
            "graph.omni --schema new.pg", DIRECT),
    Command("schema apply", "schema:apply", "Migrate a graph to a new schema, as one commit.",
            "graph.omni --schema new.pg --allow-drops --as ada"),
    Command("schema infer", "schema:infer",
            "Write a first schema for NDJSON, Parquet or CSV files, with its evidence as comments.",
            "people.csv knows.parquet --out schema.pg", LOCAL),
    Command("branch create", "branch:create_branch", "Create a branch from another branch, a commit or a tag.",
            "graph.omni review/ada"),
    Command("branch list", "branch:list_branches", "List the branches.", "graph.omni"),
    Command("branch rename", "branch:rename", "Rename a branch.", "graph.omni review/ada review/ann"),
    Command("branch delete", "branch:delete_branch", "Delete a branch.", "graph.omni review/ada"),
    Command("branch merge", "branch:merge", "Merge a branch into another, as one commit.",
            "graph.omni review/ada --into main --dry-run"),
    Command("tag create", "branch:create_tag", "Tag a commit, which protects it from cleanup.", "graph.omni release-1"),
    Command("tag list", "branch:list_tags", "List the tags.", "graph.omni"),
    Command("tag delete", "branch:delete_tag", "Delete a tag.", "graph.omni release-1"),
    Command("revert", "branch:replay", "Revert a commit, as a new commit.", "graph.omni 01JCW0V7Q2M4RRP5K3WBF8E1ZD"),
    Command("cherry-pick", "branch:replay", "Apply the changes of a commit from another branch, as a new commit.",
            "graph.omni 01JCW0V7Q2M4RRP5K3WBF8E1ZD --branch main"),
    Command("diff", "history:diff", "Show the differences between two branches, tags or commits.",
            "graph.omni main review/ada --type Package"),
    Command("log", "history:log", "List the commits that changed one entity, newest first.",
            "graph.omni Package left-pad"),
    Command("blame", "history:blame", "Show which commit last set each property of one entity.",
            "graph.omni Package left-pad"),
    Command("commit list", "history:list_commits", "List the commits of a branch, newest first.",
            "graph.omni --branch main"),
    Command("commit show", "history:show", "Show one commit.", "graph.omni 01JCW0V7Q2M4RRP5K3WBF8E1ZD"),
    Command("commit changes", "history:changes", "Show what one commit changed.",
            "graph.omni 01JCW0V7Q2M4RRP5K3WBF8E1ZD --op delete"),
    Command("changes poll", "history:poll", "Show the changes on a branch since a cursor, and the next cursor.",
            "graph.omni --start beginning"),
    Command("changes baseline", "history:baseline",
            "Export a branch to a file, and print the cursor at which its change feed continues.",
            "graph.omni --out baseline.ndjson"),
    Command("blob get", "export:get", "Read the bytes of a blob.",
            "graph.omni node Package wide-term logo --out logo.png"),
    Command("blob stat", "export:stat", "Show the length and ETag of a blob.",
            "graph.omni node Package wide-term logo"),
    Command("embed", "load:embed", "Compute missing or outdated `@embed` vectors, as one commit.",
            "graph.omni --type Package", DIRECT,
            retired=dict.fromkeys(("--seed", "--input", "--output", "--spec"), _SEED_FILES)),
    Command("index list", "maintenance:list_indexes",
            "List the indexes that the schema asks for, and whether they are built.", "graph.omni", MAINTENANCE),
    Command("index build", "maintenance:build_indexes", "Build missing indexes, as one commit.", "graph.omni",
            MAINTENANCE),
    Command("optimize", "maintenance:optimize", "Compact types and update their indexes, as one commit.", "graph.omni",
            MAINTENANCE),
    Command("verify", "maintenance:verify", "Check the integrity of a graph; changes nothing.", "graph.omni",
            MAINTENANCE),
    Command("doctor", "maintenance:doctor", "Check whether a store is fit for graphs; changes nothing.",
            "s3://graphs/supply.omni", LOCAL),
    Command("clone", "export:clone", "Copy a graph with its whole history, or update an earlier copy.",
            "graph.omni backup.omni", LOCAL),
    Command("reconcile", "maintenance:reconcile",
            "Clean up after crashed operations, and compact and index types that need it.", "graph.omni --every 30s",
            MAINTENANCE),
    Command("upgrade", "maintenance:upgrade",
            "Upgrade a graph, with its history, to the storage format of this release.", "graph.omni", DIRECT),
    Command("repair", "maintenance:repair",
            "Show changes that other tools made to the files, and adopt or discard them.", "graph.omni --confirm",
            MAINTENANCE),
    Command("audit list", "maintenance:list_entries", "List recoveries, repairs, discards and upgrades, newest first.",
            "graph.omni --since 7d", MAINTENANCE),
    Command("cleanup", "maintenance:cleanup", "Delete old versions and orphan files.",
            "graph.omni --keep 10 --older-than 7d --dry-run", MAINTENANCE),
    Command("serve", "serve:serve", "Serve graphs over HTTP.",
            "--graph supply=graph.omni --bind 127.0.0.1:8080 --policy supply=policy.yaml", LOCAL),
    Command("lint", "query:lint", "Check queries against a schema, without running them.",
            "--schema schema.pg --query queries.gq", DIRECT,
            aliases=(("check",), ("query", "lint"), ("query", "check"))),
    Command("fmt", "fmt:fmt", "Format `.pg` and `.gq` files in place.", "schema.pg queries.gq --check", LOCAL),
    Command("lsp", "fmt:lsp", "Run the language server for `.pg` and `.gq` files on standard input and output.",
            capability=LOCAL),
    Command("pipeline validate", "pipeline:validate",
            "Check columns, types, keys and SQL of pipelines, before any data moves.", "graph.omni -f pipelines.yaml",
            DIRECT),
    Command("pipeline plan", "pipeline:plan", "Show what the next run of a pipeline will do.",
            "graph.omni crm -f pipelines.yaml", DIRECT),
    Command("pipeline run", "pipeline:run", "Run a pipeline: read what is new, check it, load it and publish it.",
            "graph.omni crm -f pipelines.yaml", DIRECT),
    Command("pipeline backfill", "pipeline:backfill", "Run a pipeline for a range of its incremental column.",
            "graph.omni crm -f pipelines.yaml --after 2026-01-01 --up-to 2026-02-01", DIRECT),
    Command("pipeline retry-rejected", "pipeline:retry_rejected",
            "Load rows again that runs of a pipeline have rejected.",
            "graph.omni crm -f pipelines.yaml --report report", DIRECT),
    Command("pipeline status", "pipeline:status",
            "Show the last and next run of each pipeline, and loads that wait on their branches.",
            "graph.omni -f pipelines.yaml", DIRECT),
    Command("pipeline history", "pipeline:history", "List the published runs of a pipeline, newest first.",
            "graph.omni crm -f pipelines.yaml", DIRECT),
    Command("pipeline schedule", "pipeline:schedule",
            "Run pipelines when they are due, until stopped; one runner per graph or cluster.",
            "graph.omni -f pipelines.yaml", DIRECT),
    Command("cluster validate", "cluster:validate", "Check everything that a cluster folder declares, offline.",
            "--config team", LOCAL),
    Command("cluster plan", "cluster:plan", "Show what `cluster apply` would change.", "--config team", LOCAL),
    Command("cluster apply", "cluster:apply", "Deploy what a cluster folder declares; safe to run again at any time.",
            "--config team --as ada", LOCAL),
    Command("cluster approve", "cluster:approve", "Approve the deletion of a graph, as the current plan has it.",
            "graph.old --config team --as ada", LOCAL),
    Command("cluster diff", "cluster:diff",
            "Show the text of every difference between a cluster folder and what is deployed.", "--config team", LOCAL),
    Command("cluster status", "cluster:status", "Show what is deployed, and who holds the lock.", "--config team",
            LOCAL),
    Command("cluster refresh", "cluster:refresh",
            "Compare the ledger with the live graphs, and record what has drifted.", "--config team", LOCAL),
    Command("cluster import", "cluster:import_graphs", "Start the ledger of a cluster from the graphs that exist.",
            "--config team", LOCAL),
    Command("cluster force-unlock", "cluster:force_unlock", "Release the lock of a process that is certainly dead.",
            "01KA0000000000000000000000 --config team", LOCAL),
    Command("cluster history", "cluster:history", "List who deployed what, and when.", "--config team", LOCAL),
    Command("policy validate", "policy:validate", "Check a bundle of policy rules.", "policy.yaml", LOCAL),
    Command("policy test", "policy:run_tests", "Run the test cases of a policy, and report failures.",
            "policy.yaml --tests policy-tests.yaml", LOCAL),
    Command("policy explain", "policy:explain", "Explain whether a policy allows an action, and why.",
            "policy.yaml --actor ann --action change --branch main", LOCAL),
    Command("queries list", "query:list_queries", "List stored queries with their parameters.",
            "queries/ --schema schema.pg"),
    Command("queries validate", "query:validate", "Check all stored queries against a schema or a graph.",
            "graph.omni queries/", MAINTENANCE),
    Command("profile list", "profile:list_profiles", "List the profiles of `config.yaml`.", capability=LOCAL),
    Command("profile show", "profile:show_profile", "Show one profile.", "prod", LOCAL),
    Command("login", "profile:login", "Store the token of a server.", "lake < token.txt", LOCAL,
            retired={"--token": _NO_TOKEN_OPTION}),
    Command("logout", "profile:logout", "Remove the stored token of a server.", "lake", LOCAL),
    Command("graphs list", "profile:list_graphs", "List the graphs of a server.", "--server lake", SERVED),
    Command("alias", "profile:alias", "Run a stored query by its alias.", "needs wide-term", LOCAL),
    Command("completion", "app:completion", "Print the completion script of a shell.",
            'eval "$(omnigraph completion bash)"', LOCAL),
    Command("version", "app:version", "Print the version of OmniGraph and of its storage format.", capability=LOCAL),
)  # fmt: skip

_BY_WORDS: Final[dict[tuple[str, ...], Command]] = {
    **{words: command for command in COMMANDS for words in (tuple(command.name.split()), *command.aliases)},
    # Flags that act as commands.
    **dict.fromkeys([("--version",), ("-v",)], COMMANDS[-1]),
}


def find_command(arguments: Sequence[str]) -> tuple[Command | None, int]:
    """Return the command that arguments begin with, by its words or an alias, and how many arguments name it.

    >>> command, count = find_command(["query", "lint", "--query", "q.gq"])
    >>> command.path, count
    ('omnigraph lint', 2)
    """
    for words in (tuple(arguments[:2]), tuple(arguments[:1])):
        if (command := _BY_WORDS.get(words)) is not None:
            return command, len(words)
    return None, 0
