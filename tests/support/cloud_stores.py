"""Graphs on the emulators of Google Cloud Storage and Azure, one after the other, as a fixture for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pytest

from omnigraph import ids
from tests.support.azurite import Azurite, running_azurite
from tests.support.gcs_server import GcsServer
from tests.support.identity_services import IDENTITY_SERVICES

TOKEN: Final = "a-token-of-google"
Cloud = GcsServer | Azurite


@pytest.fixture(autouse=True)
def _no_cloud(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Take the settings of this machine away, and everything that leads out of it."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    for name, value in IDENTITY_SERVICES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def azurite_server() -> Iterator[Azurite]:
    with running_azurite() as server:
        yield server


@pytest.fixture
def azurite(azurite_server: Azurite, monkeypatch: pytest.MonkeyPatch) -> Azurite:
    """Azurite, to which the environment of the test points; what other tests left there has other names."""
    use(azurite_server, monkeypatch)
    return azurite_server


@pytest.fixture
def gcs_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsServer]:
    """A fresh server with an empty bucket, to which the environment of the test points."""
    with GcsServer(token=TOKEN) as server:
        use(server, monkeypatch)
        yield server


@pytest.fixture(params=["gs", "az"])
def cloud(request: pytest.FixtureRequest) -> Cloud:
    name = {"gs": "gcs_server", "az": "azurite"}[request.param]
    server: Cloud = request.getfixturevalue(name)
    return server


def use(server: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.settings().items():
        monkeypatch.setenv(name, value)


def new_uri(server: Cloud) -> str:
    """Return an address at which nothing is."""
    return server.uri(f"{ids.new_ulid()}/g.omni".lower())
