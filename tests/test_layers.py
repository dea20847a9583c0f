"""The import contract: arrows point down only, heavy libraries have one home each, and the languages are pure.

Reads the syntax tree of every module, so imports inside functions count like those at the top.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from omnigraph.extras import EXTRA_OF
from tests.support.syntax_trees import syntax_nodes, syntax_tree

SRC = Path(__file__).parent.parent / "src"

# From the ground up; a module imports from its own layer and those before it. `""` is `omnigraph/__init__.py`.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "docstrings",
            "errors",
            "extras",
            "limits",
            "display",
            "ids",
            "arrow_import",
            "clock",
            "failpoints",
            "lru",
            "prometheus",
            "settings",
        }
    ),
    frozenset({"lang"}),
    frozenset({"findings", "source_files", "stored_queries", "part_protocols", "public_values", "yaml_document"}),
    frozenset({"store"}),
    frozenset({"manifest"}),
    frozenset({"rules"}),
    frozenset({"engine"}),
    frozenset({"protocol"}),
    frozenset({"spark"}),
    frozenset({"graph", "graph_reads"}),
    frozenset({"pipelines"}),
    frozenset({"pipeline"}),
    frozenset({"policy"}),
    frozenset({"wire"}),
    frozenset({"client"}),
    frozenset({"connections"}),
    frozenset({""}),
    frozenset({"server"}),
    frozenset({"cluster"}),
    frozenset({"cli", "lsp", "__main__"}),
)
# The same inside a layer, for its folders and modules: what reads comes before what writes, and that before upkeep.
SUBLAYERS: dict[str, tuple[frozenset[str], ...]] = {
    "lang": (
        frozenset({"catalog", "diagnostic", "scalars", "times"}),
        frozenset({"parsing", "regular_expressions"}),
        frozenset({"query", "schema"}),
        frozenset({"format", "migrate"}),
        frozenset({"editor"}),
    ),
    "engine": (
        frozenset({"arguments", "external_blobs", "json_text", "tasks"}),
        frozenset({"runners"}),
        frozenset({"authorization", "past_schemas", "revisions"}),
        frozenset({"session"}),
        frozenset({"entity_lookup", "export", "history", "information_flow", "query"}),
        frozenset({"changes"}),
        frozenset({"drawing", "exact_conversion", "pinned_scan"}),
        frozenset({"key_buckets", "input"}),
        frozenset({"branches", "entity_history", "merge", "schema_data", "write"}),
        frozenset({"algo", "embed", "export_files"}),
        frozenset({"infer", "load"}),
        frozenset({"schema"}),
        frozenset({"maintain"}),
        frozenset({"clone"}),
    ),
    "spark": (
        frozenset({"daemon", "java"}),
        frozenset({"worker_python"}),
        frozenset({"session"}),
        frozenset({"executors"}),
        frozenset({"datasource", "diff"}),
        frozenset({"algo", "query"}),
    ),
    "pipelines": (
        frozenset({"declaration"}),
        frozenset({"frame_columns", "redaction"}),
        frozenset({"lineage", "metrics", "row_operations", "sources"}),
        frozenset({"selection", "transform"}),
        frozenset({"check"}),
        frozenset({"history"}),
        frozenset({"identity", "ledger_objects", "rejected_rows"}),
        frozenset({"load_branch"}),
        frozenset({"run"}),
        frozenset({"scheduler"}),
    ),
}
HOMES = {"lance": ("store",), "pyspark": ("spark", "pipelines")}
IMPURE_LIBRARIES = frozenset(
    {"os", "io", "pathlib", "shutil", "tempfile", "glob", "socket", "subprocess", "urllib", "http", "asyncio"}
    | {"time", "random", "secrets", "uuid", "ulid", "threading", "multiprocessing", "logging", "obstore"}
)
IMPURE_GROUND = frozenset({"omnigraph.clock", "omnigraph.ids", "omnigraph.failpoints", "omnigraph.settings"})
IMPURE_CALLS = frozenset({"open", "print", "input"})


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((SRC / "omnigraph").rglob("*.py"))}


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def rank(module: str) -> int | None:
    return next((index for index, layer in enumerate(LAYERS) if part_of(module) in layer), None)


def subrank(module: str) -> int | None:
    """Return the place of a module inside its layer; None for the package of the layer, or a layer without an order."""
    names = module.split(".")
    order = SUBLAYERS.get(part_of(module), ())
    if len(names) < 3 or not order:
        return None
    place = next((index for index, units in enumerate(order) if names[2] in units), None)
    return len(order) if place is None else place


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and full name of everything a module imports, by statement or by call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from omnigraph import clock` names a module, `from omnigraph import __version__` the package.
            for alias in node.names:
                longer = f"{node.module}.{alias.name}"
                is_module = longer in MODULES or (node.module == "omnigraph" and rank(longer) is not None)
                yield node.lineno, longer if is_module else node.module or ""
        elif isinstance(node, ast.Call) and is_import(node.func):
            name = node.args[0] if node.args else None
            constant = isinstance(name, ast.Constant) and isinstance(name.value, str)
            yield node.lineno, str(name.value) if constant and isinstance(name, ast.Constant) else "<computed>"


def is_import(called: ast.expr) -> bool:
    match called:
        case ast.Name(id="__import__") | ast.Attribute(value=ast.Name(id="importlib"), attr="import_module"):
            return True
    return False


def violations(module: str, tree: ast.Module) -> list[str]:
    """Return every breach of the contract in one module, as `module:line: reason`."""
    own = rank(module)
    if own is None:
        return [f"{module}: give `{part_of(module)}` a place in LAYERS"]
    found: list[tuple[int, str]] = []
    if subrank(module) == len(SUBLAYERS.get(part_of(module), ())):
        found.append((1, f"give `{module.split('.')[2]}` a place in SUBLAYERS"))
    for line, name in imports(tree):
        root = name.split(".")[0]
        if name == "<computed>":
            found.append((line, "imports a module whose name is computed"))
        if root in HOMES and part_of(module) not in HOMES[root]:
            found.append((line, f"imports `{root}`, whose home is `{'/` or `'.join(HOMES[root])}/`"))
        if root == "omnigraph":
            other = rank(name)
            if other is None or other > own:
                found.append((line, f"imports `{name}` of a higher layer"))
            inner, outer = subrank(module), subrank(name)
            if part_of(name) == part_of(module) and inner is not None and outer is not None and outer > inner:
                found.append((line, f"imports `{name}`, which comes later in SUBLAYERS"))
        if part_of(module) == "lang" and (root in IMPURE_LIBRARIES or name in IMPURE_GROUND):
            found.append((line, f"imports `{name}`, but languages are pure"))
    if part_of(module) == "lang":
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        names = ((call.lineno, call.func.id) for call in calls if isinstance(call.func, ast.Name))
        found += [(line, f"calls `{name}`") for line, name in names if name in IMPURE_CALLS]
    return [f"{module}:{line}: {reason}" for line, reason in sorted(found)]


def test_layers_name_every_part_and_no_other() -> None:
    listed = [part for layer in LAYERS for part in layer]
    assert sorted(listed) == sorted({part_of(module) for module in MODULES})
    for part, order in SUBLAYERS.items():
        inside = {module.split(".")[2] for module in MODULES if module.startswith(f"omnigraph.{part}.")}
        assert sorted(name for names in order for name in names) == sorted(inside)


def test_imports_of_every_module_keep_the_contract() -> None:
    assert [reason for module, path in MODULES.items() for reason in violations(module, syntax_tree(path))] == []


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("omnigraph.errors", "import omnigraph.lang.source", "higher layer"),
        ("omnigraph.lang.query.x", "from omnigraph.store import y", "higher layer"),
        ("omnigraph.lang.query.x", "from omnigraph import source_files", "higher layer"),
        ("omnigraph.store.x", "def f():\n    from omnigraph import manifest", "higher layer"),
        ("omnigraph.manifest.x", "from omnigraph.rules import y", "higher layer"),
        ("omnigraph.rules.x", "from omnigraph.engine.query import y", "higher layer"),
        ("omnigraph.engine.query.x", "from omnigraph.graph import Graph", "higher layer"),
        ("omnigraph.engine.query.x", "from omnigraph import __version__", "higher layer"),
        ("omnigraph.spark.diff", "import omnigraph", "higher layer"),
        ("omnigraph.graph", "from omnigraph.pipeline import load", "higher layer"),
        ("omnigraph.spark.diff", "from omnigraph.graph import Graph", "higher layer"),
        ("omnigraph.spark.diff", "from omnigraph.pipelines.run import run", "higher layer"),
        ("omnigraph.spark.diff", "from omnigraph.cli import main", "higher layer"),
        ("omnigraph.policy.x", "import importlib\nimportlib.import_module('omnigraph.server')", "higher layer"),
        ("omnigraph.engine.query.x", "import lance", "home is `store/`"),
        ("omnigraph.spark.diff", "def task():\n    import lance.fragment", "home is `store/`"),
        ("omnigraph.store.x", "from pyspark.sql import DataFrame", "home is `spark/` or `pipelines/`"),
        ("omnigraph.cli.x", "__import__('pyspark')", "home is `spark/` or `pipelines/`"),
        ("omnigraph.cli.x", "__import__(name)", "computed"),
        ("omnigraph.lang.query.x", "import os.path", "pure"),
        ("omnigraph.lang.query.x", "def f():\n    import time", "pure"),
        ("omnigraph.lang.query.x", "from omnigraph import settings", "pure"),
        ("omnigraph.lang.query.x", "from pathlib import Path", "pure"),
        ("omnigraph.lang.query.x", "from random import random", "pure"),
        ("omnigraph.lang.query.x", "from omnigraph import clock", "pure"),
        ("omnigraph.lang.query.x", "from omnigraph.ids import new_ulid", "pure"),
        ("omnigraph.lang.query.x", "open('a.pg')", "calls `open`"),
        ("omnigraph.newcomer", "", "LAYERS"),
        ("omnigraph.engine.newcomer", "", "SUBLAYERS"),
        ("omnigraph.lang.schema.ir", "from omnigraph.lang.migrate import plan", "SUBLAYERS"),
        ("omnigraph.engine.query.scan", "from omnigraph.engine.write.mutate import mutate", "SUBLAYERS"),
        ("omnigraph.engine.input.splits", "from omnigraph.engine.load.load import load", "SUBLAYERS"),
    ],
)
def test_violations_deliberate_breach_is_found(module: str, source: str, reason: str) -> None:
    [found] = violations(module, ast.parse(source))
    assert reason in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "omnigraph.lang.query.x",
            "from omnigraph.errors import UsageError\nfrom omnigraph.lang.diagnostic import Source",
        ),
        ("omnigraph.store.x", "import lance\nimport os"),
        ("omnigraph.pipelines.run", "import pyspark\nfrom omnigraph.graph import Graph"),
        ("omnigraph.cli.x", "from omnigraph import __version__, files\nfrom omnigraph.client import Client"),
        ("omnigraph", "from omnigraph.client import connect"),
    ],
)
def test_violations_allowed_import_is_not_found(module: str, source: str) -> None:
    assert violations(module, ast.parse(source)) == []


@pytest.mark.slow
def test_compile_path_imports_no_heavy_library() -> None:
    heavy = ["pyarrow", "numpy", "lance", "pyspark", "pandas"]
    modules = "omnigraph.lang.schema, omnigraph.lang.migrate, omnigraph.lang.query, omnigraph.cli"
    program = f"import sys, {modules}; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def loaded_statements(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the statements that run when a module is loaded, which those for type checkers do not."""
    for node in nodes:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from loaded_statements(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.expr):
            yield node
            yield from loaded_statements(ast.iter_child_nodes(node))


def loaded_modules(path: Path) -> set[str]:
    """Return everything that is loaded with a module, with the packages around it."""
    statements = loaded_statements([syntax_tree(path)])
    tree = ast.Module([node for node in statements if isinstance(node, ast.Import | ast.ImportFrom)], [])
    return {
        ".".join(parts[:end])
        for parts in (name.split(".") for _, name in imports(tree))
        for end in range(1, len(parts) + 1)
    }


def test_libraries_of_extras_are_loaded_with_a_few_modules_alone() -> None:
    """Whatever loads one of these modules at its top cannot be loaded without the extra."""
    loads = {module: loaded_modules(path) for module, path in MODULES.items()}
    needs: dict[str, set[str]] = {}
    is_growing = True
    while is_growing:
        found = {
            module: {EXTRA_OF[name] for name in loaded if name in EXTRA_OF}.union(*(needs.get(n, ()) for n in loaded))
            for module, loaded in loads.items()
        }
        is_growing, needs = found != needs, found
    assert {module: extras for module, extras in needs.items() if extras} == {
        "omnigraph.lsp": {"lsp"},
        "omnigraph.spark.datasource.stream": {"spark"},
        "omnigraph.spark.datasource.tables": {"spark"},
        "omnigraph.server.http.connection": {"server"},
        "omnigraph.server.http.listener": {"server"},
        "omnigraph.server.run": {"server"},
    }


def test_functions_with_a_session_take_no_actor_beside_it() -> None:
    for module in MODULES.values():
        for node in syntax_nodes(module, "session", "actor"):
            if isinstance(node, ast.FunctionDef):
                names = {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
                assert not {"session", "actor"} <= names, f"{module}:{node.lineno}"


def test_session_of_a_graph_is_reached_by_session_of_alone() -> None:
    for module in MODULES.values():
        if "engine" in module.parts or module.name == "graph.py":
            continue
        for node in syntax_nodes(module, "session"):
            if isinstance(node, ast.Attribute) and node.attr in ("session", "_session"):
                # An object's own attribute is its own matter; that of a graph is not.
                assert ast.unparse(node.value) == "self", f"{module}:{node.lineno}"


def scheme_questions(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that ask where a store is, instead of what it can do."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="is_local"):
                yield node.lineno
            case ast.Compare(left=ast.Attribute(attr="scheme", value=ast.Name(id="location" | "root"))):
                yield node.lineno
            case ast.Compare(left=ast.Attribute(attr="scheme", value=ast.Attribute(attr="location" | "root"))):
                yield node.lineno


def test_schemes_are_known_to_the_store_alone() -> None:
    for module in MODULES.values():
        if "store" not in module.relative_to(SRC).parts:
            assert list(scheme_questions(syntax_tree(module))) == [], module


@pytest.mark.parametrize(
    "source", ["store.root.is_local", "if location.scheme == 's3': pass", "a.root.scheme != 'file'"]
)
def test_question_for_a_scheme_is_found(source: str) -> None:
    assert list(scheme_questions(ast.parse(source))) == [1]
