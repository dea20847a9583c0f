"""The command line: exit statuses, what it prints where, and that it starts light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import __version__
from omnigraph.cli import main
from omnigraph.cli.commands import COMMANDS
from omnigraph.manifest.catalog_format import FORMAT_STAMP

SCHEMA = "node Port {\n  code: String @key\n  berths: I32?\n}\n"
GOOD = "query q($c: String) {\n  match { $p: Port { code: $c } }\n  return { $p.berths }\n}\n"
BAD = "query q() {\n  match { $p: Prot }\n  return { $p.berths }\n}\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {
        "schema.pg": SCHEMA,
        "good.gq": GOOD,
        "bad.gq": BAD,
        "broken.pg": "node Port {",
        "latin.pg": "node Pört {}",
        "wider.pg": SCHEMA.replace("}", "  country: String?\n}"),
        "refused.pg": SCHEMA.replace("}", "  country: String\n}"),
        "smaller.pg": "node Port {\n  code: String @key\n}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="latin-1" if name == "latin.pg" else "utf-8")
    return {name: str(tmp_path / name) for name in texts}


def test_main_version_prints_the_release_and_the_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"omnigraph {__version__}\ninternal-schema {FORMAT_STAMP}\n"


def test_main_without_arguments_prints_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all((command.words[0] in out) is not command.is_former_name for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.path)
def test_main_help_shows_summary_and_example(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    [known] = [c for c in COMMANDS if c is command]
    assert main([*known.words, "--help"]) == 0
    out = capsys.readouterr().out
    assert known.summary in " ".join(out.split())
    assert known.example in out


@pytest.mark.slow
def test_lint_valid_query_is_ok(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--schema", files["schema.pg"], "--query", files["good.gq"]]) == 0
    captured = capsys.readouterr()
    assert captured.out == "1 query, 0 findings: ok\n"
    assert captured.err == ""


def test_lint_wrong_query_shows_place_code_and_hint(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    given = ["lint", "--schema", files["schema.pg"], "--query", files["good.gq"], "--query", files["bad.gq"]]
    assert main(given) == 1
    captured = capsys.readouterr()
    assert "error[T1]" in captured.err
    assert f"{files['bad.gq']}:2:15" in captured.err
    assert "^^^^" in captured.err
    assert "Port" in captured.err
    assert captured.out.endswith(": error\n")


def test_lint_json_gives_the_report(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--schema", files["schema.pg"], "--query", files["bad.gq"], "--json"]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["status"] == "error"
    assert [finding["code"] for finding in report["findings"]] == ["T1"]
    assert captured.err == ""


@pytest.mark.parametrize(("schema", "column"), [("broken.pg", 12), ("latin.pg", 7)])
def test_lint_wrong_schema_is_refused(
    files: dict[str, str], schema: str, column: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", "--schema", files[schema], "--query", files["good.gq"]]) == 1
    err = capsys.readouterr().err
    assert "error[S1]" in err
    assert f"{files[schema]}:1:{column}" in err


def test_lint_wrong_schema_json_has_the_error_shape(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--schema", files["broken.pg"], "--query", files["good.gq"], "--json"]) == 1
    error = json.loads(capsys.readouterr().out)
    assert error["code"] == "language.rejected"
    assert (error["diagnostics"][0]["code"], error["diagnostics"][0]["line"]) == ("S1", 1)


def test_schema_plan_supported_change_is_shown(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "plan", "--schema", files["wider.pg"], "--against", files["schema.pg"]]) == 0
    out = capsys.readouterr().out
    assert "country" in out


def test_schema_plan_refused_change_exits_1(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    given = ["schema", "plan", "--schema", files["refused.pg"], "--against", files["schema.pg"], "--json"]
    assert main(given) == 1
    plan = json.loads(capsys.readouterr().out)
    assert plan["supported"] is False
    assert plan["steps"][0]["kind"] == "unsupported_change"
    assert plan["steps"][0]["code"] == "OG-MF-103"


def test_schema_plan_refused_change_shows_its_place(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "plan", "--schema", files["refused.pg"], "--against", files["schema.pg"]]) == 1
    captured = capsys.readouterr()
    assert "country" in captured.out
    assert "error[OG-MF-103]" in captured.err
    assert f"{files['refused.pg']}:4:3" in captured.err


@pytest.mark.parametrize(("option", "mode"), [((), "soft"), (("--allow-data-loss",), "hard")])
def test_schema_plan_drop_mode_follows_the_option(
    files: dict[str, str], option: tuple[str, ...], mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["schema", "plan", "--schema", files["smaller.pg"], "--against", files["schema.pg"], "--json", *option]
    assert main(given) == 0
    [step] = json.loads(capsys.readouterr().out)["steps"]
    assert (step["kind"], step["mode"]) == ("drop_property", mode)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["lint"], "omnigraph lint --schema schema.pg --query queries.gq"),
        (["lint", "--schma", "x"], "--schema"),
        (["schema", "plan", "--schema", "x"], "--against FILE"),
        (["schema"], "omnigraph schema --help"),
        (["lnt"], "lint"),
        (["lint", "--schema", "no-such.pg", "--query", "x.gq"], "cannot read `no-such.pg`"),
    ],
)
def test_main_wrong_usage_says_what_to_type(given: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error[usage.invalid]: ")
    assert says in captured.err
    assert captured.out == ""


def test_main_wrong_usage_json_has_the_error_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["code"] == "usage.invalid"


@pytest.mark.slow
@pytest.mark.parametrize("given", [["version"], ["--help"], ["lint", "--help"], ["query", "--help"]])
def test_main_light_commands_import_no_compiler(given: list[str]) -> None:
    heavy = ["lark", "rich", "pyarrow", "numpy", "lance", "orjson", "pydantic", "yaml", "httpx", "httptools", "pyspark"]
    heavy += ["omnigraph.lang", "omnigraph.graph", "omnigraph.client", "ulid"]
    program = (
        f"import sys; from omnigraph.cli import main; main({given}); print([m for m in {heavy} if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
def test_main_query_process_loads_neither_pandas_nor_pydantic(files: dict[str, str]) -> None:
    store = str(Path(files["schema.pg"]).parent / "g.omni")
    assert main(["init", store, "--schema", files["schema.pg"], "--quiet"]) == 0
    given = ["omnigraph", "query", "--store", store, "--query", files["good.gq"], "--params", '{"c": "x"}']
    program = (
        f"import sys; sys.argv = {given}; from omnigraph.cli import main; status = main()\n"
        "loaded = {'pandas', 'pydantic'} & set(sys.modules)\n"
        "import pyarrow; print(status, loaded, len(pyarrow.table({'a': [1]}).to_pandas()))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "0 set() 1"


@pytest.mark.slow
def test_module_run_as_program_exits_with_the_status() -> None:
    run = subprocess.run([sys.executable, "-m", "omnigraph", "lint"], capture_output=True, text=True)
    assert run.returncode == 1
    assert "Traceback" not in run.stderr


def test_flood_of_findings_is_summarised(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, data = str(tmp_path / "g.omni"), tmp_path / "d.ndjson"
    (tmp_path / "s.pg").write_text(SCHEMA, encoding="utf-8")
    assert main(["init", store, "--schema", str(tmp_path / "s.pg")]) == 0
    data.write_text("root:x\n" * 14 + '{"type": "Prot"}\n' * 5, encoding="utf-8")
    capsys.readouterr()
    assert main(["ingest", store, "--data", str(data), "--quiet"]) == 1
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 11
    assert err[-1] == "and 9 more: 4 × N1, 5 × N4; --json lists them"
    data.write_text('{"type": "Prot"}\n' + "root:x\n" * 500, encoding="utf-8")
    assert main(["ingest", store, "--data", str(data), "--quiet"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "and at least 90 more: 90 × N1; --json lists them"
    assert main(["ingest", store, "--data", str(data), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["violations"]) == 100
