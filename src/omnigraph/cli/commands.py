"""The table of all commands of the command line.

`docs/cli.md` is checked against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name

from omnigraph.cli.target import Capability


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its words, the function that runs it (`module:function`), and an example.

    `aliases` are other spellings, not listed in help. `retired` maps options that users may expect to what to do
    instead. A former name of another command works, but help does not list it.
    """

    words: tuple[str, ...]
    function: str
    summary: str
    example: str
    capability: Capability = Capability.LOCAL
    aliases: tuple[tuple[str, ...], ...] = ()
    retired: Mapping[str, str] = field(default_factory=dict)
    is_former_name: bool = False

    @property
    def run(self) -> Callable[..., int]:
        """The function; its module is imported here, so that the table loads quickly."""
        return resolve_name(f"omnigraph.cli.{self.function}")  # type: ignore[no-any-return]

    @property
    def path(self) -> str:
        return " ".join(("omnigraph", *self.words))


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
    Command(
        ("init",), "schema:init", "Create a graph.", "omnigraph init graph.omni --schema schema.pg", Capability.DIRECT
    ),
    Command(
        ("query",),
        "query:query",
        "Run a query and print its rows.",
        "omnigraph query graph.omni queries.gq ecosystems --format csv",
        Capability.ANY,
        aliases=(("read",),),
    ),
    Command(
        ("explain",),
        "query:explain",
        "Show how a query would run, with estimates; `--analyze` runs it and adds measurements.",
        "omnigraph explain graph.omni queries.gq ecosystems --analyze",
        Capability.ANY,
    ),
    Command(
        ("load",),
        "load:load",
        "Load NDJSON, Parquet or CSV of any size, as one commit.",
        "omnigraph load graph.omni data.ndjson",
        Capability.ANY,
    ),
    Command(
        ("ingest",),
        "load:ingest",
        "The former name of `load`.",
        "omnigraph ingest graph.omni --data data.ndjson --mode merge",
        Capability.ANY,
        is_former_name=True,
    ),
    Command(
        ("mutate",),
        "query:mutate",
        "Run a mutation, as one commit.",
        'omnigraph mutate graph.omni queries.gq withdraw --params \'{"code": "CVE-1"}\'',
        Capability.ANY,
        aliases=(("change",),),
    ),
    Command(
        ("shell",),
        "shell:shell",
        "Type queries, mutations and commands at a prompt, or read them from standard input.",
        "omnigraph shell graph.omni",
        Capability.ANY,
    ),
    Command(
        ("snapshot",),
        "export:snapshot",
        "Show the dataset version of each type on a branch.",
        "omnigraph snapshot graph.omni",
        Capability.ANY,
    ),
    Command(
        ("export",),
        "export:export",
        "Export a graph as NDJSON, Parquet or CSV, or as GraphML, GEXF, DOT or Cypher.",
        "omnigraph export graph.omni --type Package > packages.ndjson",
        Capability.ANY,
    ),
    Command(
        ("schema", "show"),
        "schema:show",
        "Print the accepted schema of a graph.",
        "omnigraph schema show graph.omni",
        Capability.ANY,
        aliases=(("schema", "get"),),
    ),
    Command(
        ("schema", "plan"),
        "schema:plan",
        "Show the migration steps from the current schema, or from another file, to a new one.",
        "omnigraph schema plan graph.omni --schema new.pg",
        Capability.DIRECT,
    ),
    Command(
        ("schema", "apply"),
        "schema:apply",
        "Migrate a graph to a new schema, as one commit.",
        "omnigraph schema apply graph.omni --schema new.pg --as ada",
        Capability.ANY,
    ),
    Command(
        ("schema", "infer"),
        "schema:infer",
        "Write a first schema for NDJSON, Parquet or CSV files, with its evidence as comments.",
        "omnigraph schema infer people.csv knows.parquet --out schema.pg",
    ),
    Command(
        ("branch", "create"),
        "branch:create_branch",
        "Create a branch from another branch, a commit or a tag.",
        "omnigraph branch create graph.omni review/ada",
        Capability.ANY,
    ),
    Command(
        ("branch", "list"),
        "branch:list_branches",
        "List the branches.",
        "omnigraph branch list graph.omni",
        Capability.ANY,
    ),
    Command(
        ("branch", "rename"),
        "branch:rename",
        "Rename a branch.",
        "omnigraph branch rename graph.omni review/ada review/ann",
        Capability.ANY,
    ),
    Command(
        ("branch", "delete"),
        "branch:delete_branch",
        "Delete a branch.",
        "omnigraph branch delete graph.omni review/ada",
        Capability.ANY,
    ),
    Command(
        ("branch", "merge"),
        "branch:merge",
        "Merge a branch into another, as one commit.",
        "omnigraph branch merge graph.omni review/ada --into main --dry-run",
        Capability.ANY,
    ),
    Command(
        ("tag", "create"),
        "branch:create_tag",
        "Tag a commit, which protects it from cleanup.",
        "omnigraph tag create graph.omni release-1",
        Capability.ANY,
    ),
    Command(("tag", "list"), "branch:list_tags", "List the tags.", "omnigraph tag list graph.omni", Capability.ANY),
    Command(
        ("tag", "delete"),
        "branch:delete_tag",
        "Delete a tag.",
        "omnigraph tag delete graph.omni release-1",
        Capability.ANY,
    ),
    Command(
        ("revert",),
        "branch:replay",
        "Revert a commit, as a new commit.",
        "omnigraph revert graph.omni 01JCW0V7Q2M4RRP5K3WBF8E1ZD",
        Capability.ANY,
    ),
    Command(
        ("cherry-pick",),
        "branch:replay",
        "Apply the changes of a commit from another branch, as a new commit.",
        "omnigraph cherry-pick graph.omni 01JCW0V7Q2M4RRP5K3WBF8E1ZD --branch main",
        Capability.ANY,
    ),
    Command(
        ("diff",),
        "history:diff",
        "Show the differences between two branches, tags or commits.",
        "omnigraph diff graph.omni main review/ada --type Package",
        Capability.ANY,
    ),
    Command(
        ("log",),
        "history:log",
        "List the commits that changed one entity, newest first.",
        "omnigraph log graph.omni Package left-pad",
        Capability.ANY,
    ),
    Command(
        ("blame",),
        "history:blame",
        "Show which commit last set each property of one entity.",
        "omnigraph blame graph.omni Package left-pad",
        Capability.ANY,
    ),
    Command(
        ("commit", "list"),
        "history:list_commits",
        "List the commits of a branch, newest first.",
        "omnigraph commit list graph.omni --branch main",
        Capability.ANY,
    ),
    Command(
        ("commit", "show"),
        "history:show",
        "Show one commit.",
        "omnigraph commit show graph.omni 01JCW0V7Q2M4RRP5K3WBF8E1ZD",
        Capability.ANY,
    ),
    Command(
        ("commit", "changes"),
        "history:changes",
        "Show what one commit changed.",
        "omnigraph commit changes graph.omni 01JCW0V7Q2M4RRP5K3WBF8E1ZD --op delete",
        Capability.ANY,
    ),
    Command(
        ("changes", "poll"),
        "history:poll",
        "Show the changes on a branch since a cursor, and the next cursor.",
        "omnigraph changes poll graph.omni --start beginning",
        Capability.ANY,
    ),
    Command(
        ("changes", "baseline"),
        "history:baseline",
        "Export a branch to a file, and print the cursor at which its change feed continues.",
        "omnigraph changes baseline graph.omni --out baseline.ndjson",
        Capability.ANY,
    ),
    Command(
        ("blob", "get"),
        "export:get",
        "Read the bytes of a blob.",
        "omnigraph blob get graph.omni node Package wide-term logo --out logo.png",
        Capability.ANY,
    ),
    Command(
        ("blob", "stat"),
        "export:stat",
        "Show the length and ETag of a blob.",
        "omnigraph blob stat graph.omni node Package wide-term logo",
        Capability.ANY,
    ),
    Command(
        ("embed",),
        "load:embed",
        "Compute missing or outdated `@embed` vectors, as one commit.",
        "omnigraph embed graph.omni --type Package",
        Capability.DIRECT,
        retired=dict.fromkeys(("--seed", "--input", "--output", "--spec"), _SEED_FILES),
    ),
    Command(
        ("index", "list"),
        "maintenance:list_indexes",
        "List the indexes that the schema asks for, and whether they are built.",
        "omnigraph index list graph.omni",
        Capability.MAINTENANCE,
    ),
    Command(
        ("index", "build"),
        "maintenance:build_indexes",
        "Build missing indexes, as one commit.",
        "omnigraph index build graph.omni",
        Capability.MAINTENANCE,
    ),
    Command(
        ("optimize",),
        "maintenance:optimize",
        "Compact types and update their indexes, as one commit.",
        "omnigraph optimize graph.omni",
        Capability.MAINTENANCE,
    ),
    Command(
        ("verify",),
        "maintenance:verify",
        "Check the integrity of a graph; changes nothing.",
        "omnigraph verify graph.omni",
        Capability.MAINTENANCE,
    ),
    Command(
        ("clone",),
        "export:clone",
        "Copy a graph with its whole history, or update an earlier copy.",
        "omnigraph clone graph.omni backup.omni",
    ),
    Command(
        ("reconcile",),
        "maintenance:reconcile",
        "Clean up after crashed operations, and compact and index types that need it.",
        "omnigraph reconcile graph.omni --every 30s",
        Capability.MAINTENANCE,
    ),
    Command(
        ("upgrade",),
        "maintenance:upgrade",
        "Upgrade a graph, with its history, to the storage format of this release.",
        "omnigraph upgrade graph.omni",
        Capability.DIRECT,
    ),
    Command(
        ("repair",),
        "maintenance:repair",
        "Show changes that other tools made to the files, and adopt or discard them.",
        "omnigraph repair graph.omni --confirm",
        Capability.MAINTENANCE,
    ),
    Command(
        ("audit", "list"),
        "maintenance:list_entries",
        "List recoveries, repairs, discards and upgrades, newest first.",
        "omnigraph audit list graph.omni --since 7d",
        Capability.MAINTENANCE,
    ),
    Command(
        ("cleanup",),
        "maintenance:cleanup",
        "Delete old versions and orphan files.",
        "omnigraph cleanup graph.omni --keep 10 --older-than 7d --dry-run",
        Capability.MAINTENANCE,
    ),
    Command(
        ("serve",),
        "serve:serve",
        "Serve graphs over HTTP.",
        "omnigraph serve --graph supply=graph.omni --bind 127.0.0.1:8080 --policy supply=policy.yaml",
    ),
    Command(
        ("lint",),
        "query:lint",
        "Check queries against a schema, without running them.",
        "omnigraph lint --schema schema.pg --query queries.gq",
        Capability.DIRECT,
        aliases=(("check",), ("query", "lint"), ("query", "check")),
    ),
    Command(
        ("fmt",),
        "fmt:fmt",
        "Format `.pg` and `.gq` files in place.",
        "omnigraph fmt schema.pg queries.gq --check",
    ),
    Command(
        ("lsp",),
        "fmt:lsp",
        "Run the language server for `.pg` and `.gq` files on standard input and output.",
        "omnigraph lsp",
    ),
    Command(
        ("pipeline", "validate"),
        "pipeline:validate",
        "Check columns, types, keys and SQL of pipelines, before any data moves.",
        "omnigraph pipeline validate graph.omni -f pipelines.yaml",
        Capability.DIRECT,
    ),
    Command(
        ("pipeline", "plan"),
        "pipeline:plan",
        "Show what the next run of a pipeline will do.",
        "omnigraph pipeline plan graph.omni crm -f pipelines.yaml",
        Capability.DIRECT,
    ),
    Command(
        ("pipeline", "run"),
        "pipeline:run",
        "Run a pipeline: read what is new, check it, load it and publish it.",
        "omnigraph pipeline run graph.omni crm -f pipelines.yaml",
        Capability.DIRECT,
    ),
    Command(
        ("pipeline", "backfill"),
        "pipeline:backfill",
        "Run a pipeline for a range of its incremental column.",
        "omnigraph pipeline backfill graph.omni crm -f pipelines.yaml --after 2026-01-01 --up-to 2026-02-01",
        Capability.DIRECT,
    ),
    Command(
        ("pipeline", "status"),
        "pipeline:status",
        "Show the last and next run of each pipeline, and loads that wait on their branches.",
        "omnigraph pipeline status graph.omni -f pipelines.yaml",
        Capability.DIRECT,
    ),
    Command(
        ("pipeline", "history"),
        "pipeline:history",
        "List the published runs of a pipeline, newest first.",
        "omnigraph pipeline history graph.omni crm -f pipelines.yaml",
        Capability.DIRECT,
    ),
    Command(
        ("pipeline", "schedule"),
        "pipeline:schedule",
        "Run pipelines when they are due, until stopped; one runner per graph or cluster.",
        "omnigraph pipeline schedule graph.omni -f pipelines.yaml",
        Capability.DIRECT,
    ),
    Command(
        ("cluster", "validate"),
        "cluster:validate",
        "Check everything that a cluster folder declares, offline.",
        "omnigraph cluster validate --config team",
    ),
    Command(
        ("cluster", "plan"),
        "cluster:plan",
        "Show what `cluster apply` would change.",
        "omnigraph cluster plan --config team",
    ),
    Command(
        ("cluster", "apply"),
        "cluster:apply",
        "Deploy what a cluster folder declares; safe to run again at any time.",
        "omnigraph cluster apply --config team --as ada",
    ),
    Command(
        ("cluster", "approve"),
        "cluster:approve",
        "Approve the deletion of a graph, as the current plan has it.",
        "omnigraph cluster approve graph.old --config team --as ada",
    ),
    Command(
        ("cluster", "diff"),
        "cluster:diff",
        "Show the text of every difference between a cluster folder and what is deployed.",
        "omnigraph cluster diff --config team",
    ),
    Command(
        ("cluster", "status"),
        "cluster:status",
        "Show what is deployed, and who holds the lock.",
        "omnigraph cluster status --config team",
    ),
    Command(
        ("cluster", "refresh"),
        "cluster:refresh",
        "Compare the ledger with the live graphs, and record what has drifted.",
        "omnigraph cluster refresh --config team",
    ),
    Command(
        ("cluster", "import"),
        "cluster:import_graphs",
        "Start the ledger of a cluster from the graphs that exist.",
        "omnigraph cluster import --config team",
    ),
    Command(
        ("cluster", "force-unlock"),
        "cluster:force_unlock",
        "Release the lock of a process that is certainly dead.",
        "omnigraph cluster force-unlock 01KA0000000000000000000000 --config team",
    ),
    Command(
        ("cluster", "history"),
        "cluster:history",
        "List who deployed what, and when.",
        "omnigraph cluster history --config team",
    ),
    Command(
        ("policy", "validate"),
        "policy:validate",
        "Check a bundle of policy rules.",
        "omnigraph policy validate policy.yaml",
    ),
    Command(
        ("policy", "test"),
        "policy:run_tests",
        "Run the test cases of a policy, and report failures.",
        "omnigraph policy test policy.yaml --tests policy-tests.yaml",
    ),
    Command(
        ("policy", "explain"),
        "policy:explain",
        "Explain whether a policy allows an action, and why.",
        "omnigraph policy explain policy.yaml --actor ann --action change --branch main",
    ),
    Command(
        ("queries", "list"),
        "query:list_queries",
        "List stored queries with their parameters.",
        "omnigraph queries list queries/ --schema schema.pg",
        Capability.ANY,
    ),
    Command(
        ("queries", "validate"),
        "query:validate",
        "Check all stored queries against a schema or a graph.",
        "omnigraph queries validate graph.omni queries/",
        Capability.MAINTENANCE,
    ),
    Command(
        ("profile", "list"), "profile:list_profiles", "List the profiles of `config.yaml`.", "omnigraph profile list"
    ),
    Command(("profile", "show"), "profile:show_profile", "Show one profile.", "omnigraph profile show prod"),
    Command(
        ("login",),
        "profile:login",
        "Store the token of a server.",
        "omnigraph login lake < token.txt",
        retired={"--token": _NO_TOKEN_OPTION},
    ),
    Command(("logout",), "profile:logout", "Remove the stored token of a server.", "omnigraph logout lake"),
    Command(
        ("graphs", "list"),
        "profile:list_graphs",
        "List the graphs of a server.",
        "omnigraph graphs list --server lake",
        Capability.SERVED,
    ),
    Command(
        ("alias",),
        "profile:alias",
        "Run a stored query by its alias.",
        "omnigraph alias needs wide-term",
    ),
    Command(
        ("completion",),
        "app:completion",
        "Print the completion script of a shell.",
        'eval "$(omnigraph completion bash)"',
    ),
    Command(
        ("version",), "app:version", "Print the version of OmniGraph and of its storage format.", "omnigraph version"
    ),
)

# Flags that act as commands.
FLAGS: Mapping[str, tuple[str, ...]] = {"--version": ("version",), "-v": ("version",)}


def find_command(arguments: Sequence[str]) -> tuple[Command | None, int]:
    """Return the command that arguments begin with, by its words or an alias, and how many arguments name it.

    >>> command, count = find_command(["query", "lint", "--query", "q.gq"])
    >>> command.path, count
    ('omnigraph lint', 2)
    """
    called: Command | None = None
    longest = 0
    for command in COMMANDS:
        flags = [(flag,) for flag, words in FLAGS.items() if words == command.words]
        for words in (command.words, *command.aliases, *flags):
            if len(words) > longest and words == tuple(arguments[: len(words)]):
                called, longest = command, len(words)
    return called, longest
