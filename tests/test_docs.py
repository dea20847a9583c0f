"""The documents are true: limits, codes, commands, links and examples in them are checked, as the site shows them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import get_type_hints

import pytest
from typer.models import ParameterInfo

from omnigraph import limits
from omnigraph.cli import main
from omnigraph.cli.app import own_parameters
from omnigraph.cli.commands import COMMANDS
from omnigraph.cli.output import Output
from omnigraph.errors import ERRORS
from omnigraph.lang.diagnostic import Source
from omnigraph.lang.query import lint_queries
from omnigraph.lang.schema import CompiledSchema, compile_schema
from omnigraph.settings import SETTINGS
from tests.support.case_runner import DOMAIN, fixture
from tests.support.language_codes import LANGUAGE_CODES
from tools import built_docs

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/*.md")])
LIMITS = {name: value for name, value in vars(limits).items() if name.isupper()}
BLOCK = re.compile(
    r"(?:^<!-- schema: (?P<schema>\S+) -->\n+)?^```(?P<language>pg|gq)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def read(path: Path) -> str:
    """Return a document; pages of the site with the references that are built into them."""
    if path.is_relative_to(built_docs.DOCS):
        return built_docs.read_page(path.relative_to(built_docs.DOCS).as_posix())
    return path.read_text(encoding="utf-8")


@cache
def rows(text: str) -> dict[str, list[str]]:
    """Return the table rows of a document by their first cell, backticks removed."""
    cells = ([c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|"))
    return {first.strip("`"): rest for first, *rest in cells if not first.startswith("---")}


def examples(language: str) -> Iterator[tuple[Path, int, str | None, str]]:
    for path in DOCUMENTS:
        text = read(path)
        for found in BLOCK.finditer(text):
            if found["language"] == language:
                line = text.count("\n", 0, found.start("text")) + 1
                yield path, line, found["schema"], found["text"]


def schema_for(path: Path, named: str | None) -> CompiledSchema:
    if named is None:
        return fixture("F")
    text = (path.parent / named).read_text(encoding="utf-8")
    return compile_schema(Source(named, text), domain=DOMAIN)


def broken_links(path: Path, text: str) -> list[str]:
    """Return the relative links of a document that lead nowhere, headings included."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        if re.match(r"[a-z]+:", link) or link == "openapi.json":  # which is built with the site
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors(read(target))):
            broken.append(link)
    return broken


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_limits_page_states_each_limit_with_value_and_meaning() -> None:
    stated = {name: rest for name, rest in rows(read(ROOT / "docs/limits.md")).items() if name.isupper()}
    assert {name: value for name, [value, _] in stated.items()} == {name: str(value) for name, value in LIMITS.items()}
    assert all(len(meaning.split()) > 2 for _, meaning in stated.values())


def test_errors_page_states_codes_with_their_statuses() -> None:
    page = rows(read(ROOT / "docs/errors.md"))
    expected = {
        code: [str(kind.http_status), str(kind.exit_status), "yes" if kind.retryable else "no", kind.summary]
        for code, kind in ERRORS.items()
    }
    assert {code: page.get(code) for code in expected} == expected


def test_settings_page_states_each_setting_with_default_and_choices() -> None:
    page = rows(read(ROOT / "docs/settings.md"))
    for setting in SETTINGS.values():
        [default, meaning] = page[setting.name]
        assert default.strip("`") == setting.default
        assert all(f"`{word}`" in meaning for word in setting.choices)


def test_language_pages_list_every_code() -> None:
    assert set(LANGUAGE_CODES) <= {*rows(read(ROOT / "docs/languages.md")), *rows(read(ROOT / "docs/schema.md"))}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.path)
def test_cli_page_describes_command_and_options(command: object) -> None:
    [known] = [c for c in COMMANDS if c is command]
    page = read(ROOT / "docs/cli.md")
    _, _, section = page.partition(f"## {known.path}\n")
    section = section.split("\n## ")[0]
    assert known.example in section
    assert any(known.path in first and known.summary in rest for first, rest in rows(page).items())
    documented = {first.split()[0]: rest for first, rest in rows(section).items() if first.startswith("-")}
    assert documented.keys() == options(known.run)


def options(run: Callable[..., int | Output]) -> set[str]:
    """Return the options in the annotations of a command, the settings of a `--master`, and `--json` of its output."""
    hints = [parameter.annotation for parameter in own_parameters(run)]
    metadata = [extra for hint in hints for extra in getattr(hint, "__metadata__", ())]
    told = (one for one in metadata if isinstance(one, ParameterInfo))
    names = (name for option in told for name in (option.default, *(option.param_decls or ())))
    declared = {name for name in names if isinstance(name, str)}
    added = {"--conf": "--master" in declared, "--json": get_type_hints(run)["return"] is Output}
    return declared | {option for option, is_added in added.items() if is_added}


@pytest.mark.slow
def test_readme_quickstart_runs_twice_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    text = read(ROOT / "README.md")
    [block] = re.findall(r"<!-- quickstart -->\n```sh\n(.*?)```", text, re.DOTALL)
    first, *lines = block.splitlines()
    assert first == "GRAPH=$(mktemp -d)/supply.omni"
    [program] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for run in ("first", "second"):
        for line in lines:
            name, *words = shlex.split(line.replace("$GRAPH", str(tmp_path / run / "supply.omni")))
            assert name == "omnigraph"
            assert main(words) == 0, (line, capsys.readouterr().err)
            assert capsys.readouterr().out.strip(), f"{line} prints nothing"
        exec(compile(program, "README.md", "exec"), {})  # what a reader would paste
        assert "{'name': 'Bob', 'team': 'air'}" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"examples", "first", "second"}


def test_readme_names_the_two_commands_on_its_first_screen() -> None:
    first_screen = "\n".join(read(ROOT / "README.md").splitlines()[:20])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_links_of_documents_resolve() -> None:
    broken = {path.name: broken_links(path, read(path)) for path in DOCUMENTS}
    assert {name: links for name, links in broken.items() if links} == {}


@pytest.mark.parametrize("link", ["gone.md", "docs/gone.md", "README.md#no-such-heading", "#no-such-heading"])
def test_broken_links_deliberate_breach_is_found(link: str) -> None:
    assert broken_links(ROOT / "README.md", f"# Here\n\n[text]({link})") == [link]


@pytest.mark.parametrize(
    ("path", "line", "text"),
    [pytest.param(p, n, t, id=f"{p.relative_to(ROOT)}:{n}") for p, n, _, t in examples("pg")],
)
def test_schema_example_compiles(path: Path, line: int, text: str) -> None:
    compile_schema(Source(f"{path.name}:{line}", text), domain=DOMAIN)


@pytest.mark.parametrize(
    ("path", "line", "schema", "text"),
    [pytest.param(p, n, s, t, id=f"{p.relative_to(ROOT)}:{n}") for p, n, s, t in examples("gq")],
)
def test_query_example_compiles(path: Path, line: int, schema: str | None, text: str) -> None:
    report = lint_queries([Source(f"{path.name}:{line}", text)], schema_for(path, schema).catalog)
    assert [finding.render() for finding in report.findings if finding.severity == "error"] == []


def test_examples_are_found_in_the_readme() -> None:
    for language in ("pg", "gq"):
        assert any(path.name == "README.md" for path, *_ in examples(language)), language


def test_index_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([a-z-]+\.md)\)", read(ROOT / "docs/index.md")))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"} <= linked
