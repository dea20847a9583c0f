"""`python -m benchmarks.quick [section …]`: print each ratio beside the recorded one; exit 1 if one is lost.

With `--record`, what was measured becomes the record, and lines that were not measured keep theirs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.page import commit, machine
from benchmarks.quick.lines import SECTIONS
from benchmarks.quick.record import LOSS, Record, Verdict


def main() -> int:
    options = parse()
    before, ratios = Record.read(), dict[str, float]()
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        for name in options.sections or SECTIONS:
            (root := Path(folder) / name).mkdir()
            for line, ratio in SECTIONS[name](root):
                ratios[line] = ratio
                print(Verdict(line, ratio, before.ratios.get(line)), flush=True)
    if options.record:
        kept = {line: round(ratio, 3) for line, ratio in {**before.ratios, **ratios}.items()}
        Record(commit(), machine(), kept).write()
        return 0
    return report(before, ratios, is_whole=not options.sections)


def report(before: Record, ratios: dict[str, float], *, is_whole: bool) -> int:
    """Say which lines were lost or not measured; return what the process ends with."""
    verdicts = [Verdict(line, ratios.get(line), ratio) for line, ratio in before.ratios.items()]
    lost = [verdict.line for verdict in verdicts if verdict.is_lost]
    if is_whole and (missing := [verdict.line for verdict in verdicts if verdict.now is None]):
        print(f"not measured here, because a peer is not installed or the line is gone: {'; '.join(missing)}")
    if lost:
        print(f"below {LOSS:g} of what commit {before.commit} reached: {'; '.join(lost)}")
    return 1 if lost else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__)
    parser.add_argument("sections", nargs="*", help=", ".join(SECTIONS))
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.sections if name not in SECTIONS]:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
