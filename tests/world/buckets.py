"""Histories in a bucket: a server on loopback that loses conditions, refuses links, and stores copies in parts.

Written from docs/storage.md and docs/operations.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from hashlib import md5
from random import Random
from typing import Any
from unittest import mock

from omnigraph.graph import session_of
from omnigraph.store.objects import conditional_puts
from tests.support.s3_server import DENY_403, Fault, Request, S3Server
from tests.world import branching
from tests.world.idioms import Idiom, do, mutate_on, write, write_type
from tests.world.model import same_state
from tests.world.steps import Step
from tests.world.world import World

# The final name of a type's version on main; the staged one has more after `.manifest`.
LINK = re.compile(r".*/(nodes|edges)/[^/]+/_versions/\d+\.manifest")
CONDITION = frozenset({"If-None-Match"})


def _etag_of_upload(key: Any) -> str:
    """Return an ETag as of an upload in parts or an encrypted one: no digest of the bytes, and others have another."""
    if key._etag is None:
        key._etag = f"{md5(key.name.encode() + key.value, usedforsecurity=False).hexdigest()}-1"
    return f'"{key._etag}"'


@contextmanager
def bucket(*, is_opaque: bool) -> Iterator[S3Server]:
    """Start a server with an empty bucket, and lead this process to it; `is_opaque` if ETags say nothing of bytes."""
    from moto.s3.models import FakeKey

    etags = mock.patch.object(FakeKey, "etag", property(_etag_of_upload)) if is_opaque else nullcontext()
    with etags, S3Server() as server:
        settings = server.environment()
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            yield server
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _change(world: World, random: Random) -> Step | None:
    """Return a write that succeeds and changes something."""
    for _ in range(6):
        branch = branching.any_branch(world.model, random)
        step = mutate_on(world.model, random, branch)
        if step is None or step.errors or step.state is None:
            continue
        if not same_state(step.state, world.model.state(branch)):
            return step
    return None


def lose_conditions(world: World, random: Random) -> bool:
    """Write through a proxy that strips conditions: two writers could both believe that they published."""
    step = _change(world, random)
    if step is None or world.server is None:
        return False
    step.errors, step.must_fail = {"storage.unsafe"}, True
    world.note("conditions of requests are lost from here")
    world.server.ignored_headers = CONDITION
    conditional_puts.forget_proven()
    try:
        return do(world, step)
    finally:
        world.server.ignored_headers = frozenset()
        conditional_puts.forget_proven()
        world.note("conditions of requests are kept from here")


def refuse_links(world: World, random: Random) -> bool:
    """Publish while links are refused, branch there, and write to the branch when they no longer are."""
    if world.server is None or len(world.model.branches) >= branching.BRANCHES_MAX:
        return False
    source = "main"
    type_ = random.choice(list(world.model.schema(source).values()))

    def refuse(request: Request) -> Fault | None:
        return DENY_403 if request.method == "PUT" and LINK.fullmatch(request.key) else None

    links = session_of(world.graph).kernel.links
    links.wait()
    world.note("links are refused from here")
    world.server.fault = refuse
    try:
        do(world, write_type(world, random, source, type_))
        links.wait()
        step = branching.create_named(world.model, random, source)
        if step is None or not do(world, step):
            return True
        links.wait()
    finally:
        world.server.fault = None
        world.note("links are allowed from here")
    name = str(step.call["name"])
    return do(world, write_type(world, random, name, type_)) or write(world, random, name)


IDIOMS: dict[Idiom, float] = {lose_conditions: 1, refuse_links: 2}
