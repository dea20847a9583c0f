"""Every code of the schema language and the planner is shown, with its place, by a case or a test named here."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.language_codes import MIGRATION_CODES, SCHEMA_CODES

CASES = Path(__file__).parents[2] / "cases"
# A counter near its end and a damaged stored schema cannot be written as a case; test_ir.py has both.
SHOWN_ELSEWHERE = {"I7"}


def test_corpus_every_code_has_a_case_with_its_place() -> None:
    text = "".join((CASES / f"{name}.case").read_text(encoding="utf-8") for name in ("schema", "migrate"))
    shown = set(re.findall(r"^-- (?:error|note) (\S+) \d+:\d+$", text, re.MULTILINE))
    assert (SCHEMA_CODES.keys() | MIGRATION_CODES.keys()) - shown == SHOWN_ELSEWHERE
