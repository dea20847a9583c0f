"""A commit of this process whose link failed: whatever needs it by path finishes the link first."""

from __future__ import annotations

import re

import pytest

import tests.support.s3_server
from omnigraph.errors import StorageError, StorageKind
from omnigraph.manifest import branches
from omnigraph.manifest.kernel import Kernel
from tests.support.kernel_fixtures import PERSON, check_invariants, create, ids_of, insert, open_graph
from tests.support.s3_server import DENY_403, Fault, Request, S3Server

pytestmark = pytest.mark.s3
s3_server = tests.support.s3_server.s3_server

# The final name of a type's version; the staged one has more after `.manifest`.
_LINK = re.compile(r"g/nodes/.*/_versions/\d+\.manifest")


def refuse_links(request: Request) -> Fault | None:
    return DENY_403 if request.method == "PUT" and _LINK.fullmatch(request.key) else None


@pytest.fixture
def unlinked(s3_server: S3Server) -> Kernel:
    """A kernel whose last commit on main could not be linked, and a branch that starts there."""
    kernel = create(s3_server.uri("g"))
    s3_server.fault = refuse_links
    insert(kernel, {PERSON: ["a"]})
    kernel.links.wait()
    branches.create_branch(kernel, "x", kernel.snapshot())
    # Creating the branch tries to link the commit before it, too.
    kernel.links.wait()
    return kernel


def test_branch_write_links_the_last_commit_of_its_own_process(s3_server: S3Server, unlinked: Kernel) -> None:
    s3_server.fault = None
    insert(unlinked, {PERSON: ["b"]}, "x")
    assert ids_of(unlinked, PERSON, "x") == ["a", "b"]
    unlinked.close()
    check_invariants(open_graph(s3_server.uri("g")))


def test_branch_write_says_why_the_link_fails_and_succeeds_later(s3_server: S3Server, unlinked: Kernel) -> None:
    with pytest.raises(StorageError) as refused:
        insert(unlinked, {PERSON: ["b"]}, "x")
    assert refused.value.storage_kind is StorageKind.CONFIGURATION
    s3_server.fault = None
    insert(unlinked, {PERSON: ["b"]}, "x")
    assert ids_of(unlinked, PERSON, "x") == ["a", "b"]
    assert ids_of(unlinked, PERSON) == ["a"]
    unlinked.close()


def test_other_handle_of_the_process_writes_to_the_branch(s3_server: S3Server, unlinked: Kernel) -> None:
    other = open_graph(s3_server.uri("g"))
    s3_server.fault = None
    insert(other, {PERSON: ["b"]}, "x")
    insert(unlinked, {PERSON: ["c"]}, "x")
    assert ids_of(other, PERSON, "x") == ["a", "b", "c"]
    unlinked.close()
    other.close()
