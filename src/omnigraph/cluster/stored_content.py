"""Whether the content that a ledger names is there and intact, and what is forgotten when it is not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from omnigraph.cluster.findings import ClusterError, Finding, error, warning
from omnigraph.cluster.ledger import ClusterState, Ledger, ResourceStatus
from omnigraph.errors import OmniGraphError

_KINDS: Final = ("query", "policy", "pipeline", "schema")
_LOST: Final = ("catalog_payload_missing", "catalog_payload_mismatch")


def check_content(ledger: Ledger, state: ClusterState) -> list[Finding]:
    """Return a finding for each query, policy, pipeline or schema whose stored content is lost or was changed."""
    findings = []
    for address, resource in state.resources.items():
        kind = address.partition(".")[0]
        if kind not in _KINDS:
            continue
        try:
            # The graph itself has its schema, so that its text is only looked at.
            if ledger.read_payload(address, resource["digest"]) is None and kind != "schema":
                message = "its stored content is missing; `cluster apply` stores it again"
                findings.append(warning("catalog_payload_missing", address, message))
        except ClusterError as failure:
            findings.append(replace(failure.findings[0], severity="warning", path=address))
        except OmniGraphError as failure:
            findings.append(error("catalog_payload_read_error", address, failure.message))
    return findings


def forget_lost(state: ClusterState, findings: Iterable[Finding]) -> ClusterState:
    """Forget the digests of lost content, so that the next apply stores it again.

    The resources stay, because what a policy is bound to must not be forgotten: a server refuses a revision without the
    content of a policy, and would serve a graph without a policy to every actor.
    """
    resources, statuses = dict(state.resources), dict(state.statuses)
    for item in findings:
        if item.code in _LOST and not item.path.startswith("schema."):
            resources[item.path] = {**resources[item.path], "digest": ""}
            statuses[item.path] = ResourceStatus("drifted", ("catalog_payload_missing",))
        elif item.code == "catalog_payload_read_error":
            statuses[item.path] = ResourceStatus("error", (item.code,), item.message)
    return replace(state, resources=resources, statuses=statuses)
