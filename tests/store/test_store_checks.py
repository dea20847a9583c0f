"""`omnigraph doctor`: what the checks of a store find, and that they leave nothing behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
import tests.support.s3_server
from omnigraph import clock
from omnigraph.cli import main
from omnigraph.store.objects.backend import ObjectInfo
from omnigraph.store.objects.bucket_objects import BucketObjects
from omnigraph.store.objects.control_objects import Objects
from omnigraph.store.objects.uri import Location
from tests.support.s3_server import CONDITIONS, DENY_403, Fault, Request, S3Server

s3_server = tests.support.s3_server.s3_server


def outcomes(report: og.StoreReport) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks}


def detail(report: og.StoreReport, name: str) -> str:
    return next(check.detail for check in report.checks if check.name == name)


def keys(server: S3Server) -> list[str]:
    return [info.path for info in Objects(Location.parse(server.uri("g"))).list("")]


@pytest.mark.s3
def test_store_that_honours_conditions_is_fit_and_left_empty(s3_server: S3Server) -> None:
    report = og.check_store(s3_server.uri("g"))
    assert report.is_fit
    assert set(outcomes(report).values()) == {"ok"}, report
    assert len(report.checks) == 7
    assert report.endpoint == s3_server.endpoint
    assert keys(s3_server) == []
    assert any("uploadId" in request.query for request in s3_server.requests)


@pytest.mark.s3
def test_store_that_ignores_conditions_fails_puts_and_race(s3_server: S3Server) -> None:
    s3_server.ignored_headers = CONDITIONS
    report = og.check_store(s3_server.uri("g"))
    assert not report.is_fit
    assert outcomes(report) == {
        "permissions": "ok",
        "conditional put": "failed",
        "conditional match": "warning",
        "concurrent race": "failed",
        "large file": "ok",
        "listing": "ok",
        "clock": "ok",
    }
    assert "commits would be lost" in detail(report, "concurrent race")
    assert keys(s3_server) == []


def denied(method: str, query: str = "") -> Callable[[Request], Fault | None]:
    return lambda request: DENY_403 if request.method == method and query in request.query else None


@pytest.mark.s3
@pytest.mark.parametrize(("method", "query"), [("PUT", ""), ("GET", ""), ("GET", "list-type"), ("POST", "delete")])
def test_missing_permission_fails_the_first_check_and_skips_others(
    s3_server: S3Server, method: str, query: str
) -> None:
    s3_server.fault = denied(method, query)
    report = og.check_store(s3_server.uri("g"))
    assert list(outcomes(report).values()) == ["failed", *["skipped"] * 6]
    assert "permission denied" in report.checks[0].detail


@pytest.mark.s3
def test_store_without_multipart_uploads_fails_large_files(s3_server: S3Server) -> None:
    s3_server.fault = denied("POST", "uploads")
    report = og.check_store(s3_server.uri("g"))
    assert [name for name, outcome in outcomes(report).items() if outcome != "ok"] == ["large file"]


@pytest.mark.s3
def test_store_that_lists_in_another_order_fails_listing(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    list_in_order = BucketObjects.list

    def list_backwards(self: BucketObjects, prefix: str) -> list[ObjectInfo]:
        return list(list_in_order(self, prefix))[::-1]

    monkeypatch.setattr(BucketObjects, "list", list_backwards)
    report = og.check_store(s3_server.uri("g"))
    assert [name for name, outcome in outcomes(report).items() if outcome != "ok"] == ["listing"]


def test_wrong_clock_is_a_warning(tmp_path: Path) -> None:
    with clock.replaced(storage=lambda modified_us: modified_us + 3_600_000_000):
        report = og.check_store(tmp_path)
    assert outcomes(report)["clock"] == "warning"
    assert "3600 seconds behind" in detail(report, "clock")
    assert report.is_fit


def test_local_path_without_a_directory_is_checked_and_not_created(tmp_path: Path) -> None:
    report = og.check_store(tmp_path / "later" / "graph.omni")
    assert report.is_fit
    assert outcomes(report)["conditional match"] == "skipped"
    assert list(tmp_path.iterdir()) == []


def test_doctor_prints_a_table_and_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "conditional put" in shown
    assert shown.rstrip().endswith(f"{tmp_path} is fit for graphs")


@pytest.mark.s3
def test_doctor_of_an_unfit_store_exits_with_1_and_says_so_in_json(
    s3_server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    s3_server.ignored_headers = CONDITIONS
    assert main(["doctor", s3_server.uri("g"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["is_fit"], document["endpoint"]) == (False, s3_server.endpoint)
    assert {check["name"]: check["outcome"] for check in document["checks"]}["conditional put"] == "failed"
