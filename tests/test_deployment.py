"""Dockerfile, compose file and deployment page agree with the project; `tests/installed/test_image.py` runs them."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.models import ParameterInfo

from omnigraph.cli import main
from omnigraph.cli.app import own_parameters
from omnigraph.cli.commands import COMMANDS
from omnigraph.limits import SERVER_SHUTDOWN_SECONDS_MAX
from omnigraph.settings import SETTINGS
from tests.support.guide_runner import run_guide
from tests.support.server_image import stages

ROOT = Path(__file__).parent.parent
TOML = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = TOML["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
STEPS = [line.split(" ", 1) for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
PORT = "8080"


def known_options(command: str) -> set[str]:
    [known] = [c for c in COMMANDS if c.path == f"omnigraph {command}"]
    hints = [parameter.annotation for parameter in own_parameters(known.run)]
    infos = [extra for hint in hints for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, ParameterInfo)]
    names = (name for info in infos for name in (info.default, *(info.param_decls or ())))
    return {name for name in names if isinstance(name, str)}


def unknown_words(words: list[str]) -> list[str]:
    """Return the options of a command line of ours that its command does not have."""
    given = [word for word in words[1:] if word.startswith("--")]
    shared = {"--store", "--server", "--graph", "--profile", "--as", "--yes"}
    return [word for word in given if word not in known_options(words[0]) | shared]


def test_dockerfile_copies_only_what_exists_and_is_not_ignored() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = [word for step, rest in STEPS if step == "COPY" and "--from" not in rest for word in rest.split()[:-1]]
    assert copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name.rstrip('/')}" in ignore, name


def test_dockerfile_installs_locks_of_the_right_extras() -> None:
    script = (ROOT / "tools" / "lock.sh").read_text(encoding="utf-8")
    assert "--extra server --output-file requirements/server.lock" in script
    assert "--extra spark --output-file requirements/spark.lock" in script
    for lock, extras in {"server.lock": ("server",), "spark.lock": ("spark",)}.items():
        assert f"--requirement requirements/{lock}" in DOCKERFILE
        pinned = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / lock).read_text("utf-8"), re.MULTILINE))
        wanted = [
            *PROJECT["dependencies"],
            *(need for extra in extras for need in PROJECT["optional-dependencies"][extra]),
        ]
        assert {re.split(r"[^\w-]", need)[0].lower() for need in wanted} <= pinned


def test_locks_of_images_pin_the_versions_of_the_tests() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^\S+==\S+", (ROOT / "requirements" / name).read_text(encoding="utf-8"), re.MULTILINE))

    assert pins("server.lock") | pins("spark.lock") <= pins("dev.lock")
    assert pins("build.lock") <= pins("dev.lock") | pins("pip.lock")


def unlocked_builds(text: str) -> list[str]:
    """Return the commands of pip that may build with, or install, what no lock names."""
    commands = [part.strip() for part in re.split(r"&&|^RUN |\n", text.replace("\\\n", " "), flags=re.MULTILINE)]
    run = [command for command in commands if re.match(r"\S*pip (install|wheel) ", command)]
    local = [command for command in run if "--no-index --no-deps" in command]
    hashed = [c for c in run if "--require-hashes" in c and ("--no-binary" not in c or "--no-build-isolation" in c)]
    ours = [c for c in run if c.split()[1] == "wheel" and "--no-build-isolation" in c and "--no-deps" in c]
    return [command for command in run if command not in {*local, *hashed, *ours}]


def test_dockerfile_builds_with_a_locked_backend_alone() -> None:
    assert unlocked_builds(DOCKERFILE) == []
    requires = TOML["build-system"]["requires"]
    assert set(requires) <= set((ROOT / "requirements" / "build.in").read_text(encoding="utf-8").splitlines())
    assert "compile requirements/build.in --output-file requirements/build.lock" in (
        ROOT / "tools" / "lock.sh"
    ).read_text(encoding="utf-8")
    assert unlocked_builds(DOCKERFILE.replace("--no-build-isolation", ""))
    assert unlocked_builds(DOCKERFILE.replace("--require-hashes", ""))


def test_image_is_not_root_and_has_a_health_check() -> None:
    server = stages()["base"] + stages()["server"]
    users = [rest for step, rest in server if step == "USER"]
    assert users == ["10001:10001"]
    assert [rest for step, rest in stages()["spark"] if step == "USER"][-1] == "10001:10001"
    assert "useradd --uid 10001 " in DOCKERFILE
    [check] = [rest for step, rest in server if step == "HEALTHCHECK"]
    program = json.loads(check.partition(" CMD ")[2])[-1]
    compile(program, "Dockerfile", "exec")
    assert f"127.0.0.1:{PORT}/healthz" in program
    assert [rest for step, rest in server if step == "EXPOSE"] == [PORT]


def test_image_runs_a_command_that_exists() -> None:
    server = {step: rest for step, rest in stages()["server"] if step in ("ENTRYPOINT", "CMD")}
    assert json.loads(server["ENTRYPOINT"])[0] in PROJECT["scripts"]
    words = json.loads(server["CMD"])
    assert unknown_words(words) == []
    assert words[words.index("--bind") + 1] == f"0.0.0.0:{PORT}"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_compose_service_is_sound(name: str) -> None:
    service = SERVICES[name]
    assert ("build" in service) != ("image" in service)
    if "build" in service:
        assert service["build"]["target"] in stages()
    else:
        assert ":" in service["image"]
        assert not service["image"].endswith(":latest")
    for volume in service.get("volumes", ()):
        source = volume.partition(":")[0]
        assert (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
    assert set(service.get("depends_on", ())) <= SERVICES.keys()
    known = set(SETTINGS) | {"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"}
    assert set(service.get("environment", ())) <= known


def test_compose_server_is_hardened_and_local() -> None:
    server = SERVICES["server"]
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    assert unknown_words(server["command"]) == []
    assert server["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert int(server["stop_grace_period"].rstrip("s")) > SERVER_SHUTDOWN_SECONDS_MAX
    assert main(["policy", "validate", str(ROOT / "deploy" / "policy.yaml")]) == 0


def test_page_commands_and_settings_exist() -> None:
    lines = re.sub(r"\\\n\s*", "", PAGE).splitlines()
    ours = [
        line for line in lines if re.search(r"(?:omnigraph|run --rm tools|run --rm load) (?:serve|init|load) ", line)
    ]
    assert len(ours) >= 5
    for line in ours:
        words = shlex.split(re.split(r"omnigraph (?=serve)|--rm tools |--rm load ", line)[-1])
        assert unknown_words(words) == [], line
    named = set(re.findall(r"\b(?:OMNIGRAPH|AWS|GOOGLE|AZURE)_[A-Z_]+[A-Z]\b", PAGE))
    assert named <= set(SETTINGS)


def test_page_policy_and_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_guide("deployment.md", capsys)
    unit = (tmp_path / "omnigraph.service").read_text(encoding="utf-8")
    stop = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert stop is not None
    assert int(stop[1]) > SERVER_SHUTDOWN_SECONDS_MAX
    config = (tmp_path / "nginx.conf").read_text(encoding="utf-8")
    assert config.count("{") == config.count("}")
