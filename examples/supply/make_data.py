"""Writes data.ndjson: a small, invented supply chain, the same at every run.

Run it as `python examples/supply/make_data.py` after a change here; a test holds the file to it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

SEED: Final = 7
PACKAGES: Final = 60
MAINTAINERS: Final = 24
ADVISORIES: Final = 10
FIRST_DAY: Final = date(2021, 1, 1)

_HEADS: Final = ("tiny", "fast", "safe", "open", "blue", "deep", "flat", "lean", "warm", "wide")
_TAILS: Final = ("json", "http", "zip", "cron", "yaml", "hash", "pool", "term", "rope", "diff", "mime", "toml")
_DOES: Final = ("Parses", "Writes", "Checks", "Streams", "Caches", "Signs", "Packs", "Schedules")
_WHAT: Final = (
    "configuration files",
    "web requests",
    "archives",
    "log lines",
    "time zones",
    "tokens",
    "tables",
    "text",
)
_HANDLES: Final = ("ada", "bea", "cyd", "dov", "eli", "fay", "gil", "hal", "ivy", "jan", "kai", "lea")

Record = dict[str, object]


def records(seed: int = SEED) -> Iterator[Record]:
    """Yield the records of the graph: nodes first, then the edges between them."""
    dice = random.Random(seed)
    names = sorted(dice.sample([f"{head}-{tail}" for head in _HEADS for tail in _TAILS], PACKAGES))
    people = [f"{name}{number or ''}" for number in range(2) for name in _HANDLES][:MAINTAINERS]
    releases = [(name, f"{major}.{minor}") for name in names for major, minor in _versions(dice)]
    yield from (_package(dice, name) for name in names)
    yield from (_release(dice, *one) for one in releases)
    yield from (_maintainer(dice, handle) for handle in people)
    advisories = [f"OG-2025-{number:04}" for number in range(1, ADVISORIES + 1)]
    yield from (_advisory(dice, code) for code in advisories)
    for number, one in enumerate(releases):
        yield _edge("Publishes", one[0], _release_id(one), number)
    yield from _dependencies(dice, names)
    yield from _maintenance(dice, names, people)
    hit = [(code, one) for code in advisories for one in dice.sample(releases, dice.randint(1, 3))]
    yield from (_edge("Affects", code, _release_id(one), number) for number, (code, one) in enumerate(hit))
    yield _edge("SucceededBy", names[0], names[1], 0)


def _versions(dice: random.Random) -> list[tuple[int, int]]:
    return [(1, minor) for minor in range(dice.randint(1, 3))]


def _package(dice: random.Random, name: str) -> Record:
    summary = f"{dice.choice(_DOES)} {dice.choice(_WHAT)} and {dice.choice(_WHAT)}."
    data: Record = {"name": name, "summary": summary, "ecosystem": dice.choice(("pypi", "npm", "crates", "debian"))}
    data["downloads"] = int(10 ** dice.uniform(2, 7))
    data["embedding"] = [round(dice.uniform(-1, 1), 3) for _ in range(4)]
    if dice.random() < 0.7:
        data["homepage"] = f"https://example.org/{name}"
    return {"type": "Package", "data": data}


def _release(dice: random.Random, package: str, version: str) -> Record:
    moment = datetime(2021, 1, 1, 8, tzinfo=UTC) + timedelta(days=dice.randrange(1_500), minutes=dice.randrange(600))
    data: Record = {"package": package, "version": version, "released": moment.strftime("%Y-%m-%dT%H:%M:%SZ")}
    data["yanked"] = dice.random() < 0.06
    data["size_bytes"] = dice.randrange(2_000, 4_000_000)
    if dice.random() < 0.9:
        data["licenses"] = dice.sample(["MIT", "Apache-2.0", "BSD-3-Clause"], dice.randint(1, 2))
    return {"type": "Release", "data": data}


def _maintainer(dice: random.Random, handle: str) -> Record:
    since = FIRST_DAY + timedelta(days=dice.randrange(1_500))
    return {"type": "Maintainer", "data": {"handle": handle, "email": f"{handle}@example.org", "since": str(since)}}


def _advisory(dice: random.Random, code: str) -> Record:
    score = round(dice.uniform(2, 9.9), 1)
    severity = "low" if score < 4 else "medium" if score < 7 else "high" if score < 9 else "critical"
    title = f"Crafted input makes it {dice.choice(('hang', 'crash', 'leak memory', 'skip a check'))}"
    published = str(FIRST_DAY + timedelta(days=1_460 + dice.randrange(120)))
    data: Record = {"code": code, "title": title, "severity": severity, "score": score, "published": published}
    return {"type": "Advisory", "data": data}


def _dependencies(dice: random.Random, names: list[str]) -> Iterator[Record]:
    # Packages depend on earlier ones, mostly on the first few, as they do in the wild.
    number = 0
    for position, name in enumerate(names[1:], start=1):
        wanted = {min(int(dice.expovariate(0.15)), position - 1) for _ in range(dice.randint(1, 4))}
        for target in sorted(wanted):
            data = {"requirement": f">={dice.randint(1, 2)}.{dice.randint(0, 3)}", "optional": dice.random() < 0.2}
            yield _edge("DependsOn", name, names[target], number, data)
            number += 1


def _maintenance(dice: random.Random, names: list[str], people: list[str]) -> Iterator[Record]:
    number = 0
    for name in names:
        for rank, handle in enumerate(dice.sample(people, dice.choice((0, 1, 1, 2)))):
            since = FIRST_DAY + timedelta(days=dice.randrange(1_500))
            yield _edge("Maintains", handle, name, number, {"role": "member" if rank else "owner", "since": str(since)})
            number += 1


def _edge(kind: str, source: str, target: str, number: int, data: Record | None = None) -> Record:
    return {"edge": kind, "from": source, "to": target, "data": {"id": f"{kind}-{number:03}", **(data or {})}}


def _release_id(release: tuple[str, str]) -> str:
    return json.dumps(release, separators=(",", ":"))


def render() -> str:
    """Return the text of the file."""
    return "".join(f"{json.dumps(record)}\n" for record in records())


if __name__ == "__main__":
    (Path(__file__).parent / "data.ndjson").write_text(render(), encoding="utf-8")
