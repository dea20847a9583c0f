"""The case runner fails when a graph does something else than a case says."""

from __future__ import annotations

import pytest

from tests.support.case_expectations import CaseFailure
from tests.support.case_file import parse_cases
from tests.support.case_runner import run_case

pytestmark = pytest.mark.slow

PORTS = """== 78 ports
-- fixture F
-- query
query q() {
  match { $p: Port }
  return { $p.code as code, $p.berths as berths }
  order { code }
}
"""
INSERT = """== 78 a new port
-- fixture F
-- mutate
query q() {
  insert Port { code: "P3" country: "FR" berths: 9 }
}
"""
EXPORT = "== 78 export\n-- fixture F\n-- export type=Port\n-- export-lines\n"
P1 = '{"type":"Port","data":{"id":"P1","berths":null,"code":"P1","country":"NL"}}\n'
P2 = '{"type":"Port","data":{"id":"P2","berths":null,"code":"P2","country":"BE"}}\n'


def run_text(text: str) -> None:
    for case in parse_cases("memory.case", text):
        run_case(case)


@pytest.mark.parametrize(
    "text",
    [
        PORTS + '-- rows\n["P2", null]\n["P1", null]',
        PORTS + '-- ordered rows\n["P1", null]\n["P2", null]',
        PORTS + "-- columns code, berths\n-- types Utf8, Int32\n-- descriptor\ncode String\nberths I32?",
        INSERT + "-- affected 1 0\n-- commits 1",
        INSERT.replace("berths: 9", "berths: 501") + "-- error E8\n`@range(berths, 0..500)`",
        EXPORT + P1 + P2,
    ],
)
def test_run_case_right_expectation_of_a_graph_passes(text: str) -> None:
    run_text(text)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        (PORTS + '-- rows\n["P1", null]', 9, "P2"),
        (PORTS + '-- rows\n["P1", null]\n["P2", 1]', 9, '["P2", null]'),
        (PORTS + '-- ordered rows\n["P2", null]\n["P1", null]', 9, '["P1", null]'),
        (PORTS + "-- columns code", 9, "berths"),
        (PORTS + "-- types Utf8, Int64", 9, "Int32"),
        (PORTS + "-- affected 1 0", 9, "a step that gives affected"),
        (PORTS + "-- error E2", 3, "expected E2, found 0"),
        (INSERT + "-- affected 0 1", 7, "1 0"),
        (INSERT + "-- commits 0", 7, "1"),
        (INSERT + "-- rows", 7, "a step that gives rows"),
        (INSERT.replace("berths: 9", "berths: 501") + "-- affected 1 0", 3, "expected nothing wrong, found E8"),
        (INSERT.replace("berths: 9", "berths: 501") + "-- error E9", 3, "expected E9, found E8"),
        (INSERT.replace("berths: 9", "berths: 501") + "-- error E8\nno such words", 7, "no such words"),
        (EXPORT + P1, 4, "P2"),
        (EXPORT + P2 + P1, 4, "P1"),
        (EXPORT + P1.replace('"id":"P1","berths":null', '"berths":null,"id":"P1"') + P2, 4, "P1"),
        (EXPORT + P1.replace('"id":"P1"', '"id":"<ulid>"') + P2, 4, "P1"),
        ("== 78 nowhere\n-- load mode=append dialect=strict\n{}\n-- ok", 2, "needs `-- fixture`"),
        ("== 78 twice\n-- fixture F\n-- branch x\n-- branch x\n-- schema\nnode A {}\n-- ok", 4, "branch.exists"),
    ],
)
def test_run_case_wrong_expectation_of_a_graph_fails_with_its_place(text: str, place: int, reason: str) -> None:
    with pytest.raises(CaseFailure) as caught:
        run_text(text)
    assert str(caught.value).startswith(f"cases/memory.case:{place}: case ")
    assert reason in str(caught.value)
