"""The table of commands: what the command line has, in one place.

`docs/cli.md` is checked against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pkgutil import resolve_name

from omnigraph.cli.target import Capability


@dataclass(frozen=True, slots=True)
class Command:
    """One command: the words that call it, the module and function that do it, and an example.

    `aliases` are other words for it, which help does not list. `retired` are options that it does not have, although
    a user may expect them, each with what to do instead.
    """

    words: tuple[str, ...]
    function: str
    summary: str
    example: str
    capability: Capability = Capability.LOCAL
    aliases: tuple[tuple[str, ...], ...] = ()
    retired: Mapping[str, str] = field(default_factory=dict)

    @property
    def run(self) -> Callable[..., int]:
        """The function; its module is loaded only now, so that the table costs nothing."""
        return resolve_name(f"omnigraph.cli.{self.function}")  # type: ignore[no-any-return]

    @property
    def path(self) -> str:
        return " ".join(("omnigraph", *self.words))


GROUPS = {
    "schema": "Look at schemas and change them.",
    "branch": "Make, list, rename, delete and merge branches.",
    "tag": "Name commits.",
    "commit": "Look at history.",
    "changes": "Follow what happens on a branch.",
    "blob": "Read blobs.",
    "audit": "See what was recovered and repaired.",
    "policy": "Check, test and ask policies.",
    "queries": "List and check stored queries.",
    "profile": "Look at the places that are written down.",
    "graphs": "Look at what a server has.",
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
        "omnigraph query ecosystems --store graph.omni --query queries.gq --format csv",
        Capability.ANY,
        aliases=(("read",),),
    ),
    Command(
        ("explain",),
        "query:explain",
        "Show how a query runs, with estimates, and with --profile what really happened.",
        "omnigraph explain ecosystems --store graph.omni --query queries.gq --profile",
        Capability.ANY,
    ),
    Command(
        ("ingest",),
        "write:ingest",
        "Write entities from an NDJSON file, as one commit.",
        "omnigraph ingest graph.omni --data data.ndjson --mode merge",
        Capability.ANY,
    ),
    Command(
        ("load",),
        "load:load",
        "Write an input of any size, as one commit: NDJSON, Parquet or CSV, in process or on Spark.",
        "omnigraph load graph.omni --data data.ndjson --mode merge",
        Capability.ANY,
    ),
    Command(
        ("mutate",),
        "write:mutate",
        "Run a mutation, as one commit.",
        'omnigraph mutate withdraw --store graph.omni --query queries.gq --params \'{"code": "CVE-1"}\'',
        Capability.ANY,
        aliases=(("change",),),
    ),
    Command(
        ("snapshot",),
        "export:snapshot",
        "Show which version of which type a branch is made of.",
        "omnigraph snapshot graph.omni",
        Capability.ANY,
    ),
    Command(
        ("export",),
        "export:export",
        "Write a graph as NDJSON that a load takes back.",
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
        "Show the steps from a graph's schema, or from another file, to a new one.",
        "omnigraph schema plan graph.omni --schema new.pg",
        Capability.DIRECT,
    ),
    Command(
        ("schema", "apply"),
        "schema:apply",
        "Make a new schema the accepted one, as one commit.",
        "omnigraph schema apply graph.omni --schema new.pg --as ada",
        Capability.ANY,
    ),
    Command(
        ("branch", "create"),
        "branch:create_branch",
        "Make a branch that starts where another is, or at a commit or tag.",
        "omnigraph branch create review/ada --store graph.omni",
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
        "Give a branch another name.",
        "omnigraph branch rename review/ada review/ann --store graph.omni",
        Capability.ANY,
    ),
    Command(
        ("branch", "delete"),
        "branch:delete_branch",
        "Delete a branch.",
        "omnigraph branch delete review/ada --store graph.omni",
        Capability.ANY,
    ),
    Command(
        ("branch", "merge"),
        "branch:merge",
        "Merge a branch into another, as one commit.",
        "omnigraph branch merge review/ada --into main --store graph.omni --dry-run",
        Capability.ANY,
    ),
    Command(
        ("tag", "create"),
        "branch:create_tag",
        "Name a commit, and protect it from cleanup.",
        "omnigraph tag create release-1 --store graph.omni",
        Capability.ANY,
    ),
    Command(("tag", "list"), "branch:list_tags", "List the tags.", "omnigraph tag list graph.omni", Capability.ANY),
    Command(
        ("tag", "delete"),
        "branch:delete_tag",
        "Delete a tag.",
        "omnigraph tag delete release-1 --store graph.omni",
        Capability.ANY,
    ),
    Command(
        ("revert",),
        "branch:revert",
        "Take the change of a commit back, as a new commit.",
        "omnigraph revert 01JCW0V7Q2M4RRP5K3WBF8E1ZD --store graph.omni",
        Capability.ANY,
    ),
    Command(
        ("cherry-pick",),
        "branch:cherry_pick",
        "Apply the change of a commit of another branch, as a new commit.",
        "omnigraph cherry-pick 01JCW0V7Q2M4RRP5K3WBF8E1ZD --branch main --store graph.omni",
        Capability.ANY,
    ),
    Command(
        ("diff",),
        "history:diff",
        "Show what differs between two branches, tags or commits.",
        "omnigraph diff main review/ada --store graph.omni --type Package",
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
        "omnigraph commit show 01JCW0V7Q2M4RRP5K3WBF8E1ZD --store graph.omni",
        Capability.ANY,
    ),
    Command(
        ("commit", "changes"),
        "history:changes",
        "Show what one commit changed.",
        "omnigraph commit changes 01JCW0V7Q2M4RRP5K3WBF8E1ZD --store graph.omni --op delete",
        Capability.ANY,
    ),
    Command(
        ("changes", "poll"),
        "history:poll",
        "Show what the commits of a branch changed since a position, and the next position.",
        "omnigraph changes poll graph.omni --start beginning",
        Capability.ANY,
    ),
    Command(
        ("changes", "baseline"),
        "history:baseline",
        "Write a whole branch to a file, and print the position from which its feed goes on.",
        "omnigraph changes baseline graph.omni --out baseline.ndjson",
        Capability.ANY,
    ),
    Command(
        ("blob", "get"),
        "export:get",
        "Read the bytes of a blob.",
        "omnigraph blob get node Package wide-term logo --store graph.omni --out logo.png",
        Capability.ANY,
    ),
    Command(
        ("blob", "stat"),
        "export:stat",
        "Show the length and tag of a blob.",
        "omnigraph blob stat node Package wide-term logo --store graph.omni",
        Capability.ANY,
    ),
    Command(
        ("embed",),
        "embed:embed",
        "Make the vectors of `@embed` properties that are missing or out of date, as one commit.",
        "omnigraph embed graph.omni --type Package",
        Capability.DIRECT,
        retired=dict.fromkeys(("--seed", "--input", "--output", "--spec"), _SEED_FILES),
    ),
    Command(
        ("optimize",),
        "maintenance:optimize",
        "Compact types and bring their indexes up to date, as one commit.",
        "omnigraph optimize graph.omni",
        Capability.DIRECT,
    ),
    Command(
        ("verify",),
        "maintenance:verify",
        "Check that everything published can be read and agrees, without changing anything.",
        "omnigraph verify graph.omni",
        Capability.DIRECT,
    ),
    Command(
        ("clone",),
        "export:clone",
        "Copy a graph whole, with its history, or bring such a copy up to date.",
        "omnigraph clone graph.omni backup.omni",
        Capability.LOCAL,
    ),
    Command(
        ("reconcile",),
        "maintenance:reconcile",
        "Finish what crashed work left, and compact and index what is past a threshold.",
        "omnigraph reconcile graph.omni --every 30s",
        Capability.DIRECT,
    ),
    Command(
        ("upgrade",),
        "maintenance:upgrade",
        "Bring a graph of an older format to the one of this release, with its history.",
        "omnigraph upgrade graph.omni",
        Capability.DIRECT,
    ),
    Command(
        ("repair",),
        "maintenance:repair",
        "Show what foreign tools wrote by path, and take it over or throw it away.",
        "omnigraph repair graph.omni --confirm",
        Capability.DIRECT,
    ),
    Command(
        ("audit", "list"),
        "maintenance:list_entries",
        "List recoveries, repairs, discards and upgrades, newest first.",
        "omnigraph audit list graph.omni --since 7d",
        Capability.DIRECT,
    ),
    Command(
        ("cleanup",),
        "maintenance:cleanup",
        "Remove old versions.",
        "omnigraph cleanup graph.omni --keep 10 --older-than 7d --dry-run",
        Capability.DIRECT,
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
        ("policy", "validate"),
        "policy:validate",
        "Check a bundle of policy rules.",
        "omnigraph policy validate policy.yaml",
    ),
    Command(
        ("policy", "test"),
        "policy:run_tests",
        "Ask a policy questions whose answers are written down, and tell which do not hold.",
        "omnigraph policy test policy.yaml --tests policy-tests.yaml",
    ),
    Command(
        ("policy", "explain"),
        "policy:explain",
        "Ask a policy whether somebody may do something, and why.",
        "omnigraph policy explain policy.yaml --actor ann --action change --branch main",
    ),
    Command(
        ("queries", "list"),
        "query:list_queries",
        "List stored queries with their parameters.",
        "omnigraph queries list queries/ --schema schema.pg",
        Capability.DIRECT,
    ),
    Command(
        ("queries", "validate"),
        "query:validate",
        "Check stored queries against a schema or a graph, all at once.",
        "omnigraph queries validate queries/ --store graph.omni",
        Capability.DIRECT,
    ),
    Command(
        ("profile", "list"), "profile:list_profiles", "List the profiles of `config.yaml`.", "omnigraph profile list"
    ),
    Command(("profile", "show"), "profile:show_profile", "Show one profile.", "omnigraph profile show prod"),
    Command(
        ("login",),
        "profile:login",
        "Keep the token for a server.",
        "omnigraph login lake < token.txt",
        retired={"--token": _NO_TOKEN_OPTION},
    ),
    Command(("logout",), "profile:logout", "Forget the token for a server.", "omnigraph logout lake"),
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
        "Run a stored query under a name of your own.",
        "omnigraph alias needs wide-term",
    ),
    Command(
        ("completion",),
        "completion:completion",
        "Print a script with which a shell completes commands and options.",
        'eval "$(omnigraph completion bash)"',
    ),
    Command(("version",), "completion:version", "Print the release and its format.", "omnigraph version"),
)

# What may stand where a command does, and the command that it calls.
FLAGS: Mapping[str, tuple[str, ...]] = {"--version": ("version",), "-v": ("version",)}


def find_command(given: Sequence[str]) -> tuple[Command | None, int]:
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
            if len(words) > longest and words == tuple(given[: len(words)]):
                called, longest = command, len(words)
    return called, longest
