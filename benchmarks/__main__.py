"""`python -m benchmarks`: run every topic and rewrite `docs/benchmarks.md`."""

from __future__ import annotations

from pathlib import Path

from benchmarks import kernel, languages
from benchmarks.page import render_page

TOPICS = (languages.run, kernel.run)
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main() -> None:
    text = render_page([run() for run in TOPICS])
    PAGE.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
