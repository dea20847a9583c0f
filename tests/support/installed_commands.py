"""A line for every command of the command line, in an order in which they work, with the extra that each needs."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.cluster_folder import write_folder
from tests.support.installed_environments import ROOT, Installed

DRIVER = Path(__file__).parent / "installed_driver.py"
SUPPLY = ROOT / "examples" / "supply"
ROWS = 20_000
CONFIG = """\
servers:
  lake: {url: "http://127.0.0.1:9"}
profiles:
  prod: {server: lake, default_graph: supply}
aliases:
  needs: {server: lake, graph: supply, query: dependencies, args: [name]}
"""
PIPELINES = """\
version: 1
pipelines:
  staff:
    publish: { merge_into: main }
    schedule: "0 2 * * *"
    sources: { rows: { format: json, path: staff.json, incremental: age } }
    nodes: { Person: { from: rows } }
"""
POLICY_TESTS = """\
version: 1
cases:
  - {id: reads, actor: ada, action: read, branch: main, expect: allow}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """A command line; without the libraries of its extra it fails and says how to install them."""

    text: str
    extra: str | None = None
    status: int = 0
    stdin: str = ""
    # What it prints among other things, on either stream.
    shows: str = ""
    # One of those that are run with every extra; the others with none alone.
    is_core: bool = False

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


NO_SERVER = "127.0.0.1:9"
STATEMENTS = "match { $p: Package } return { count($p) as packages }\n"

LINES = (
    Line("version", shows="omnigraph "),
    Line("--version", shows="omnigraph "),
    Line("completion bash", shows="_omnigraph_completion"),
    Line("init g.omni --schema schema.pg", is_core=True),
    Line("load g.omni data.ndjson", shows="commit", is_core=True),
    Line("load g.omni ten.ndjson --mode append", shows="10", is_core=True),
    Line("load g.omni many.ndjson", shows="20000", is_core=True),
    Line("load g.omni --node Package=more.csv --mode merge", shows="2"),
    Line("ingest g.omni --data ten.ndjson --mode merge"),
    Line("query g.omni queries.gq ecosystems --format csv", shows="ecosystem", is_core=True),
    Line('query g.omni queries.gq dependencies --params \'{"name": "wide-term", "most": 5}\'', shows="hops"),
    Line("explain g.omni queries.gq ecosystems"),
    Line("explain g.omni queries.gq ecosystems --analyze"),
    Line('mutate g.omni queries.gq withdraw --params \'{"code": "OG-2025-0001"}\' --as ada'),
    Line("shell g.omni", stdin=STATEMENTS, shows="packages", is_core=True),
    Line("snapshot g.omni", shows="Package"),
    Line("export g.omni --type Package", shows='"row-7"', is_core=True),
    *(Line(f"export g.omni --type Maintainer --format {name}") for name in ("graphml", "gexf", "dot", "cypher")),
    *(
        Line(f"export g.omni --out out-{name} --format {name}", is_core=name == "ndjson")
        for name in ("ndjson", "parquet", "csv")
    ),
    Line("schema show g.omni", shows="node Package"),
    Line("schema plan g.omni --schema next.pg"),
    Line("schema infer people.csv --out inferred.pg"),
    Line("schema infer ten.ndjson", shows="node Package", is_core=True),
    Line("branch create g.omni review/ada"),
    Line("load g.omni ten.ndjson --branch review/ada --mode overwrite", status=1, shows="would lose its source"),
    Line("branch list g.omni", shows="review/ada"),
    Line("branch rename g.omni review/ada review/ann"),
    Line("diff g.omni main review/ann"),
    Line("branch merge g.omni review/ann --into main --dry-run"),
    Line("branch create g.omni review/bob", is_core=True),
    Line('mutate g.omni \'insert Package { name: "left-pad" ecosystem: "npm" }\' --branch review/bob', is_core=True),
    Line("branch merge g.omni review/bob --into main", shows="commit", is_core=True),
    Line("branch delete g.omni review/ann --yes"),
    Line("tag create g.omni release-1"),
    Line("tag list g.omni", shows="release-1"),
    Line("tag delete g.omni release-1"),
    Line("commit list g.omni --branch main"),
    Line("commit list g.omni --draw"),
    Line("commit show g.omni HEAD"),
    Line("commit changes g.omni HEAD"),
    Line("revert g.omni HEAD"),
    Line("cherry-pick g.omni review/bob"),
    Line("log g.omni Package left-pad"),
    Line("blame g.omni Package left-pad", shows="ecosystem"),
    Line("changes poll g.omni --start beginning --limit 3"),
    Line("changes baseline g.omni --out baseline.ndjson"),
    Line('mutate b.omni \'insert File { name: "a" body: "base64:aGVsbG8=" }\'', status=1),
    Line("init b.omni --schema blob.pg"),
    Line("load b.omni blobs.ndjson"),
    Line("blob get b.omni node File a body --out body.bin"),
    Line("blob stat b.omni node File a body", shows="5"),
    Line("embed g.omni --type Advisory", status=1, shows="@embed"),
    Line("index list g.omni"),
    Line("index build g.omni"),
    Line("optimize g.omni", is_core=True),
    Line("verify g.omni", shows="OK", is_core=True),
    Line("verify g.omni --data", shows="OK"),
    Line("doctor ."),
    Line("clone g.omni backup.omni"),
    Line("reconcile g.omni"),
    Line("upgrade g.omni"),
    Line("repair g.omni --confirm"),
    Line("audit list g.omni --since 7d"),
    Line("cleanup g.omni --keep 10 --older-than 7d --dry-run"),
    Line("schema apply g.omni --schema next.pg --allow-drops --as ada", shows="commit", is_core=True),
    Line("lint --schema schema.pg --query queries.gq"),
    Line("fmt schema.pg queries.gq --check"),
    Line("queries list queries.gq --schema schema.pg", shows="ecosystems"),
    Line("queries validate queries.gq --schema schema.pg"),
    Line("profile list", shows="prod"),
    Line("profile show prod", shows="lake"),
    Line("login lake", stdin="secret-token-of-twenty-characters\n"),
    Line("logout lake"),
    Line("graphs list --server lake", status=1, shows=NO_SERVER),
    Line("alias needs wide-term", status=1, shows=NO_SERVER),
    Line("cluster validate --config team", is_core=True),
    Line("cluster import --config team"),
    Line("cluster plan --config team"),
    Line("cluster apply --config team --as ada"),
    Line("cluster diff --config team"),
    Line("cluster status --config team"),
    Line("cluster refresh --config team"),
    Line("cluster history --config team"),
    Line("cluster approve graph.old --config team --as ada", status=1),
    Line("cluster force-unlock 01KA0000000000000000000000 --config team", status=1),
    Line("policy validate policy.yaml", extra="server"),
    Line("policy test policy.yaml --tests policy-tests.yaml", extra="server"),
    Line("policy explain policy.yaml --actor ada --action read --branch main", extra="server"),
    Line("cluster validate --config guarded", extra="server"),
    Line("serve g.omni --bind nowhere:x", extra="server", status=1),
    Line("lsp", extra="lsp"),
    Line("init staff.omni --schema staff.pg", is_core=True),
    Line("pipeline status staff.omni -f pipelines.yaml", shows="never run", is_core=True),
    Line("pipeline history staff.omni staff -f pipelines.yaml"),
    Line("pipeline schedule staff.omni -f pipelines.yaml --dry-run"),
    Line("pipeline plan staff.omni staff -f pipelines.yaml"),
    Line("load staff.omni staff.ndjson --engine spark", extra="spark"),
    Line("pipeline validate staff.omni -f pipelines.yaml", extra="spark"),
    Line("pipeline run staff.omni staff -f pipelines.yaml", extra="spark"),
    Line("pipeline backfill staff.omni staff -f pipelines.yaml --after 1 --up-to 60", extra="spark"),
    Line("pipeline retry-rejected staff.omni staff -f pipelines.yaml"),
    Line("export staff.omni --out spark-out --engine spark", extra="spark"),
    Line("branch create staff.omni side", is_core=True),
    Line("branch merge staff.omni side --engine spark", extra="spark"),
    Line("optimize staff.omni --engine spark", extra="spark"),
)


def write_files(folder: Path) -> None:
    """Write what the lines read."""
    for name in ("schema.pg", "next.pg", "queries.gq", "data.ndjson"):
        shutil.copy(SUPPLY / name, folder)
    for name, count in (("ten", 10), ("many", ROWS)):
        _write_packages(folder / f"{name}.ndjson", count)
    (folder / "more.csv").write_text("name,ecosystem\nfirst,npm\nsecond,pypi\n")
    (folder / "people.csv").write_text("name,age\nAnn,51\nBob,33\n")
    (folder / "blob.pg").write_text("node File { name: String @key  body: Blob? }\n")
    (folder / "blobs.ndjson").write_text('{"type": "File", "data": {"name": "a", "body": "base64:aGVsbG8="}}\n')
    (folder / "staff.pg").write_text("node Person { name: String @key  age: I64? }\n")
    (folder / "staff.json").write_text('{"name": "Ann", "age": 51}\n{"name": "Bob", "age": 33}\n')
    (folder / "staff.ndjson").write_text('{"type": "Person", "data": {"name": "Cid", "age": 4}}\n')
    (folder / "pipelines.yaml").write_text(PIPELINES)
    (folder / "policy.yaml").write_text((ROOT / "deploy" / "policy.yaml").read_text())
    (folder / "policy-tests.yaml").write_text(POLICY_TESTS)
    (folder / "home").mkdir()
    (folder / "home" / "config.yaml").write_text(CONFIG)
    write_folder(folder / "team")
    write_folder(folder / "guarded", extra="policies:\n  team: {file: team.yaml, applies_to: [knowledge]}\n")


def _write_packages(path: Path, count: int) -> None:
    rows = ({"type": "Package", "data": {"name": f"row-{i}", "ecosystem": "npm"}} for i in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_lines(installed: Installed, lines: tuple[Line, ...], folder: Path) -> list[dict[str, Any]]:
    """Run lines one after another in one process of an environment, and return what each of them said."""
    asked = json.dumps([{"words": line.words, "stdin": line.stdin} for line in lines])
    variables = {"OMNIGRAPH_HOME": str(folder / "home"), "OMNIGRAPH_DURABILITY": "process"}
    done = installed.run("python", "-P", str(DRIVER), cwd=folder, stdin=asked, variables=variables)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers
