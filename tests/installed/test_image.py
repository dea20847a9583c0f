"""The image of the server, built by the steps of its Dockerfile and run as the documentation says.

Isolated as a container would be: user 10001, no capability, a read-only root; see `tests/support/server_image.py`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.installed_environments import ROOT
from tests.support.s3_server import S3Server
from tests.support.s3_server import s3_server as s3_server
from tests.support.server_image import Image, Volume, server_image, why_impossible

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_impossible()), reason=f"no image can be run: {why_impossible()}"),
]

PAGE = re.sub(r"\\\n\s*", "", (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
USER = 10001
TOKEN = "a-token-of-twenty-characters"
COUNT = {"query": "match { $p: Package } return { count($p) as packages }"}
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def image() -> Image:
    return server_image()


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A copy of `deploy/` with the tokens that the page tells to put there."""
    folder = tmp_path / "deploy"
    folder.mkdir()
    (folder / "policy.yaml").write_bytes((ROOT / "deploy" / "policy.yaml").read_bytes())
    (folder / "tokens.json").write_text(json.dumps({"ada": TOKEN}))
    (folder / "tokens.json").chmod(0o600)
    os.chown(folder / "tokens.json", USER, USER)
    return folder


def run(image: Image, *words: str, **given: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(image.isolated(words, **given), capture_output=True, text=True)


@contextmanager
def serving(image: Image, words: list[str], log: Path, **given: Any) -> Iterator[tuple[int, str]]:
    """Run a server with arguments of its documentation, at a free port instead of theirs; yields its id and URL."""
    words[words.index("--bind") + 1] = "127.0.0.1:0"
    with log.open("w") as errors:
        command = image.isolated([*image.entrypoint, *words], **given)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line.startswith("OMNIGRAPH_LISTEN_ADDR="), (line, log.read_text())
        yield process.pid, f"http://{line.partition('=')[2]}"
    finally:
        process.kill()
        process.communicate()


def status_of(pid: int) -> Mapping[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_image_runs_its_entry_point_as_its_user(image: Image) -> None:
    assert (image.user, image.entrypoint, image.folder) == (f"{USER}:{USER}", ["omnigraph"], "/data")
    done = run(image, *image.entrypoint, "--version")
    assert done.stdout.startswith("omnigraph "), done.stderr
    assert run(image, "id", "-un").stdout == "omnigraph\n"
    # The counterproof: what is asked is the process, not the Dockerfile.
    assert run(replace(image, user="0:0"), "id", "-un").stdout == "root\n"
    assert not {path.name for path in image.root.iterdir()} & {"build", "wheels"}


@pytest.mark.parametrize(
    ("place", "may_write"), [("/tmp", True), ("/data", False), ("/opt/omnigraph/bin", False), ("/etc", False)]
)
def test_image_is_read_only_but_for_its_places(image: Image, place: str, may_write: bool) -> None:
    """Without a volume at `/data`, even that is a part of the read-only root."""
    done = run(image, "touch", f"{place}/new")
    assert (done.returncode == 0) == may_write, done.stderr
    assert may_write or "Read-only file system" in done.stderr


def test_image_has_no_library_of_other_extras(image: Image) -> None:
    done = run(image, "python", "-c", "import cedarpy, httptools, uvloop, lance; import pyspark")
    assert done.stderr.strip().endswith("No module named 'pyspark'")


def test_docker_run_of_the_page_serves_a_graph(image: Image, settings: Path, tmp_path: Path) -> None:
    [line] = [line for line in PAGE.splitlines() if line.startswith("docker run ")]
    words = shlex.split(line)
    assert {"--read-only", "--cap-drop", "--tmpfs"} <= set(words)
    assert [words[i + 1].rpartition(":/")[2] for i, word in enumerate(words) if word == "--volume"] == [
        "data",
        "etc/omnigraph:ro",
    ]
    (tmp_path / "data").mkdir(mode=0o750)
    os.chown(tmp_path / "data", USER, USER)
    data = Volume(tmp_path / "data", "/data", is_read_only=False)
    volumes = [data, Volume(settings, "/etc/omnigraph"), Volume(ROOT / "examples" / "supply", "/examples")]
    for command in ("init graph.omni --schema /examples/schema.pg", "load graph.omni /examples/data.ndjson"):
        done = run(image, *image.entrypoint, *command.split(), volumes=volumes)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    variables = dict([words[words.index("--env") + 1].split("=", 1)])
    served = words[words.index("omnigraph") + 1 :]
    with serving(image, served, tmp_path / "log", volumes=volumes[:2], variables=variables) as (pid, url):
        assert httpx.get(f"{url}/healthz").json()["status"] == "ok"
        port = url.rpartition(":")[2]
        for number, expected in ((port, 0), ("1", 1)):
            health = [word.replace(":8080/", f":{number}/") for word in image.health]
            assert run(image, *health).returncode == expected
        answer = httpx.post(f"{url}/graphs/graph/query", json=COUNT, headers=HEADERS)
        assert '"packages":60' in answer.text.replace(" ", ""), answer.text
        status = status_of(pid)
        assert set(status["Uid"].split()) == {str(USER)}
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
        assert status["NoNewPrivs"] == "1"
    assert "Traceback" not in (tmp_path / "log").read_text()


def volumes_of(service: Mapping[str, Any], settings: Path) -> list[Volume]:
    """Return the volumes of a service, with a folder of the test instead of that of the settings."""
    result = []
    for text in service.get("volumes", ()):
        source, target, mode = text.split(":")
        assert mode == "ro"
        result.append(Volume(settings if source == "./deploy" else ROOT / source, target))
    return result


@pytest.mark.s3
def test_compose_commands_of_the_page_run(image: Image, settings: Path, tmp_path: Path, s3_server: S3Server) -> None:
    """`docker compose` of the page, in its order, with the bucket that it names; the S3 store is that of the tests."""
    lines = [line for line in PAGE.splitlines() if line.startswith("docker compose ")]
    ran = []
    for line in lines:
        _, _, tail = line.partition(" run --rm tools ")
        if not tail:
            ran.append(line.removeprefix("docker compose ").split()[0])
            continue
        tools = SERVICES["tools"]
        variables = {**tools["environment"], "AWS_ENDPOINT_URL": s3_server.endpoint}
        given = {"volumes": volumes_of(tools, settings), "variables": variables}
        done = run(image, *image.entrypoint, *shlex.split(tail), **given)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (line, done.stderr)
        ran.append(tail.split()[0])
    # Of the rest, `up` starts the store and the server, and the last line needs a Spark cluster.
    assert ran == ["up", "init", "load", "up", "--profile"]
    server = SERVICES["server"]
    variables = {**server["environment"], "AWS_ENDPOINT_URL": s3_server.endpoint}
    given = {"volumes": volumes_of(server, settings), "variables": variables}
    with serving(image, list(server["command"]), tmp_path / "log", **given) as (_, url):
        answer = httpx.post(f"{url}/graphs/supply/query", json=COUNT, headers=HEADERS, timeout=30)
        assert '"packages":60' in answer.text.replace(" ", ""), answer.text
        [line] = [line for line in PAGE.splitlines() if line.startswith("omnigraph doctor s3:")]
        done = run(image, *shlex.split(line), variables=variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert httpx.get(f"{url}/readyz", headers=HEADERS, timeout=30).status_code == 200
    assert "Traceback" not in (tmp_path / "log").read_text()
