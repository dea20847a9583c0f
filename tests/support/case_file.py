"""Parser of `.case` files: titled cases made of steps and their expectations.

Knows the format only; `tests.support.case_runner` knows what a step means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parents[1] / "cases"
CONFORMANCE_MAX = 120

SETUP = frozenset({"fixture", "accepted", "params", "index", "embedder", "branch"})
ACTIONS = frozenset({"schema", "migrate", "query", "mutate", "lint", "load", "export", "values"})
EXPECTATIONS = frozenset(
    {"ok", "error", "note", "rows", "ordered", "columns", "types", "affected", "commits", "export-lines"}
    | {"steps", "ids", "findings", "reads", "writes", "descriptor", "key", "plan"}
)
PENDING = frozenset({"reads", "writes", "branches"})

_TITLE = re.compile(r"== (?P<id>\d+[a-z]*|x-[a-z0-9-]+) (?P<title>\S.*)")
_STEP = re.compile(r"-- (?P<verb>[a-z-]+)(?: (?P<arguments>\S.*))?")


class CaseSyntaxError(Exception):
    """A case file that cannot be read, with its place as `file:line: reason`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One `-- verb arguments` line and the text below it."""

    verb: str
    arguments: str
    body: str
    line: int

    @property
    def lines(self) -> list[str]:
        """The body without blank lines."""
        return [line.strip() for line in self.body.splitlines() if line.strip()]

    def option(self, name: str) -> str | None:
        """Return the value of a `name=value` argument.

        >>> Step("load", "mode=merge repeat=3", "", 1).option("repeat")
        '3'
        """
        found = re.search(rf"(?:^|\s){name}=(\S+)", self.arguments)
        return found.group(1) if found else None


@dataclass(frozen=True, slots=True)
class Case:
    """A titled sequence of steps; `pending` names the engine it waits for."""

    id: str
    title: str
    file: str
    line: int
    pending: str | None
    steps: tuple[Step, ...]

    @property
    def number(self) -> int | None:
        """The conformance number, or None for a case of our own."""
        digits = re.match(r"\d+", self.id)
        return int(digits.group()) if digits else None


def read_cases(path: Path) -> tuple[Case, ...]:
    """Parse the case file at `path`."""
    return parse_cases(path.name, path.read_text(encoding="utf-8"))


def parse_cases(file: str, text: str) -> tuple[Case, ...]:
    """Parse the text of a case file.

    >>> [case] = parse_cases("a.case", "== 1 twice\\n-- schema\\nnode A {} node A {}\\n-- error S25\\n")
    >>> case.id, [step.verb for step in case.steps]
    ('1', ['schema', 'error'])
    """
    lines = text.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("==")]
    for index, line in enumerate(lines[: starts[0]] if starts else lines):
        if line.strip() and not line.startswith("#"):
            raise _bad(file, index, "text before the first `== ` title")
    ends = [*starts[1:], len(lines)]
    cases = [_case(file, lines, start, end) for start, end in zip(starts, ends, strict=False)]
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise _bad(file, case.line - 1, f"case {case.id} appears twice")
        seen.add(case.id)
    return tuple(cases)


def _case(file: str, lines: list[str], start: int, end: int) -> Case:
    title = _TITLE.fullmatch(lines[start].rstrip())
    if title is None:
        raise _bad(file, start, "a title is `== NUMBER text` or `== x-slug text`")
    steps = list(_steps(file, lines, start, end))
    pending = None
    if steps and steps[0].verb == "pending":
        pending = steps.pop(0).arguments
        if pending not in PENDING:
            raise _bad(file, start + 1, f"pending waits for one of {', '.join(sorted(PENDING))}")
    _check_order(file, start, steps)
    number = re.match(r"\d+", title["id"])
    if number and not 1 <= int(number.group()) <= CONFORMANCE_MAX:
        raise _bad(file, start, f"conformance numbers end at {CONFORMANCE_MAX}; our own cases are called `x-slug`")
    return Case(title["id"], title["title"], file, start + 1, pending, tuple(steps))


def _steps(file: str, lines: list[str], start: int, end: int) -> Iterator[Step]:
    index = start + 1
    while index < end and (not lines[index].strip() or lines[index].startswith("#")):
        index += 1
    while index < end:
        header = _STEP.fullmatch(lines[index].rstrip())
        if header is None:
            raise _bad(file, index, "a step is `-- verb arguments`")
        known = SETUP | ACTIONS | EXPECTATIONS | {"pending"}
        if header["verb"] not in known:
            raise _bad(file, index, f"unknown verb `{header['verb']}`; known: {', '.join(sorted(known))}")
        first = index + 1
        index = first
        while index < end and not lines[index].startswith("-- "):
            index += 1
        body = lines[first:index]
        # Comments and blank lines between two cases belong to neither.
        while body and (not body[-1].strip() or body[-1].startswith("#")):
            body.pop()
        yield Step(header["verb"], header["arguments"] or "", "\n".join(body), first)


def _check_order(file: str, start: int, steps: list[Step]) -> None:
    acted = False
    for step in steps:
        if step.verb == "pending":
            raise _bad(file, step.line - 1, "`-- pending` comes right after the title")
        if step.verb in EXPECTATIONS and not acted:
            raise _bad(file, step.line - 1, f"`-- {step.verb}` expects something of no step")
        acted = acted or step.verb in ACTIONS
    if not acted:
        raise _bad(file, start, "a case needs a step that does something")
    if steps[-1].verb not in EXPECTATIONS:
        raise _bad(file, steps[-1].line - 1, f"nothing is expected of the last step `-- {steps[-1].verb}`")


def _bad(file: str, index: int, reason: str) -> CaseSyntaxError:
    return CaseSyntaxError(f"cases/{file}:{index + 1}: {reason}")
