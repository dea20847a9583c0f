"""Turn what `apt-cache dumpavail` prints into the graph of Debian's packages, as compressed NDJSON beside this file.

    apt-cache dumpavail | python examples/debian/take_snapshot.py

Run it to renew the snapshot; the demo only reads what lies here. Needs no package but pyarrow.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

FOLDER = Path(__file__).parent
LEVEL = 19
_ITEM = re.compile(r"^(?P<name>[a-z0-9][a-z0-9+.\-]+)(?::\w+)?\s*(?:\((?P<version>[^)]*)\))?")
_STRENGTHS = {"Depends": "depends", "Pre-Depends": "pre_depends"}
_WISHES = {"Recommends": "recommends", "Suggests": "suggests"}

Stanza = dict[str, str]
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One way to meet a clause: a name, and the versions that will do."""

    name: str
    version: str | None


@dataclass
class Archive:
    """The packages by name, and who else offers a name, with the version that is offered."""

    packages: dict[str, Stanza] = field(default_factory=dict)
    offers: dict[str, dict[str, str | None]] = field(default_factory=lambda: defaultdict(dict))

    def ways(self, asked: Asked) -> list[str]:
        """Return the packages that meet a request; as for dpkg, only an offer with a version meets one with a version.

        Whether the versions fit is not looked at: an archive of one release is taken to be consistent.
        """
        found = [asked.name] if asked.name in self.packages else []
        offers = self.offers.get(asked.name, {})
        return found + [one for one in sorted(offers) if asked.version is None or offers[one] is not None]


def stanzas(lines: Iterable[str]) -> Iterator[Stanza]:
    """Yield the fields of each package; lines that begin with a blank go on with the field before."""
    one: Stanza = {}
    name = ""
    for line in [*lines, ""]:
        if not line.strip():
            if one:
                yield one
            one = {}
        elif line[0].isspace():
            one[name] += f" {line.strip()}"
        else:
            name, _, value = line.partition(":")
            one[name] = value.strip()


def clauses(text: str) -> list[list[Asked]]:
    """Return what a field asks for: clauses that must all be met, each with the ways to meet it.

    >>> clauses("libc6 (>= 2.36), debconf | cdebconf")[1]
    [Asked(name='debconf', version=None), Asked(name='cdebconf', version=None)]
    """
    found = []
    for clause in filter(None, map(str.strip, text.split(","))):
        matches = (_ITEM.match(way.strip()) for way in clause.split("|"))
        found.append([Asked(match["name"], match["version"]) for match in matches if match])
    return found


def read_archive(lines: Iterable[str]) -> Archive:
    archive = Archive()
    for stanza in stanzas(lines):
        # What is installed here but in no archive has no file name.
        if "Filename" in stanza:
            archive.packages[stanza["Package"]] = stanza
    for name, stanza in archive.packages.items():
        for [offer, *_] in clauses(stanza.get("Provides", "")):
            if offer.name != name:
                archive.offers[offer.name][name] = offer.version
    return archive


def nodes(archive: Archive) -> Iterator[Record]:
    sections = sorted({stanza["Section"] for stanza in archive.packages.values()})
    maintainers = sorted({maintainer(stanza) for stanza in archive.packages.values()})
    yield from ({"type": "Section", "data": {"name": name}} for name in sections)
    yield from ({"type": "Maintainer", "data": {"name": name}} for name in maintainers)
    yield from ({"type": "VirtualPackage", "data": {"name": name}} for name in virtual_names(archive))
    yield from ({"type": "Package", "data": package(archive.packages[name])} for name in sorted(archive.packages))


def maintainer(stanza: Stanza) -> str:
    """Return the name alone: the graph needs no addresses."""
    return stanza["Maintainer"].partition("<")[0].strip().strip('"')


def package(stanza: Stanza) -> Record:
    data: Record = {
        "name": stanza["Package"],
        "version": stanza["Version"],
        "summary": stanza["Description"],
        "priority": stanza["Priority"],
        "architecture": stanza["Architecture"],
        "download_bytes": int(stanza["Size"]),
        "essential": stanza.get("Essential") == "yes",
    }
    if "Installed-Size" in stanza:
        data["installed_kib"] = int(stanza["Installed-Size"])
    if "Tag" in stanza:
        data["tags"] = sorted(_expanded(stanza["Tag"]))
    return data


def _expanded(text: str) -> Iterator[str]:
    """Yield tags; the archive shortens several of one facet: `role::{program,plugin}`."""
    for facet, values in re.findall(r"([^\s,:]+)::(\{[^}]*\}|[^\s,]+)", text):
        yield from (f"{facet}::{value.strip()}" for value in values.strip("{}").split(","))


def virtual_names(archive: Archive) -> list[str]:
    """Return the names that no package has, some package offers, and some package asks for."""
    asked = {
        one.name
        for stanza in archive.packages.values()
        for field_name in (*_STRENGTHS, *_WISHES)
        for clause in clauses(stanza.get(field_name, ""))
        for one in clause
    }
    return sorted(name for name in asked if name in archive.offers and name not in archive.packages)


def edges(archive: Archive) -> Iterator[Record]:
    for name, stanza in sorted(archive.packages.items()):
        yield _edge("InSection", name, stanza["Section"])
        yield _edge("MaintainedBy", name, maintainer(stanza))
    for virtual in virtual_names(archive):
        yield from (_edge("Provides", name, virtual) for name in sorted(archive.offers[virtual]))
    for name in sorted(archive.packages):
        yield from dependencies(archive, name)


def dependencies(archive: Archive, name: str) -> Iterator[Record]:
    """Yield what a package needs, and what it can use instead of something else, and what it only wishes for."""
    stanza = archive.packages[name]
    needs: dict[str, Record] = {}
    group = 0
    for field_name, strength in _STRENGTHS.items():
        for clause in clauses(stanza.get(field_name, "")):
            ways = _ways(archive, name, clause)
            if len(ways) == 1:
                _add_need(needs, *ways.popitem(), strength)
            elif ways:
                group += 1
                for other, asked in ways.items():
                    yield _edge("Accepts", name, other, clause=group, **_via(asked, other))
    yield from (_edge("Needs", name, other, **data) for other, data in sorted(needs.items()))
    wishes = {
        other: strength
        for field_name, strength in reversed(_WISHES.items())
        for clause in clauses(stanza.get(field_name, ""))
        for other in _ways(archive, name, clause)
    }
    yield from (_edge("Wishes", name, other, strength=wishes[other]) for other in sorted(wishes))


def _ways(archive: Archive, name: str, clause: list[Asked]) -> dict[str, Asked]:
    """Return the packages that meet a clause, the first named first; none if the package meets it itself."""
    ways: dict[str, Asked] = {}
    for asked in clause:
        for other in archive.ways(asked):
            ways.setdefault(other, asked)
    return {} if name in ways else ways


def _add_need(needs: dict[str, Record], other: str, asked: Asked, strength: str) -> None:
    """Add a need; two of one package, such as two bounds of its version, become one edge."""
    data = needs.setdefault(other, {"strength": strength, **_via(asked, other)})
    if strength == "pre_depends":
        data["strength"] = strength
    if asked.version is not None:
        data["versions"] = ", ".join(filter(None, [data.get("versions"), asked.version]))


def _via(asked: Asked, other: str) -> Record:
    return {"via": asked.name} if asked.name != other else {}


def _edge(kind: str, source: str, target: str, **data: Any) -> Record:
    return {"edge": kind, "from": source, "to": target, **({"data": data} if data else {})}


def render(records: Iterable[Record]) -> bytes:
    return b"".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for one in records)


def main() -> None:
    archive = read_archive(sys.stdin.read().splitlines())
    codec = pa.Codec("zstd", compression_level=LEVEL)
    for name, records in (("nodes", nodes(archive)), ("edges", edges(archive))):
        raw = render(records)
        packed = codec.compress(raw, asbytes=True)
        (FOLDER / f"{name}.ndjson.zst").write_bytes(packed)
        print(f"{name}: {raw.count(10):,} records, {len(raw):,} bytes, compressed {len(packed):,}")


if __name__ == "__main__":
    main()
