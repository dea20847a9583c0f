"""The references of the site are built from the code, all of them, and what is written by hand keeps to its budget."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from omnigraph.cli.commands import COMMANDS
from tools import built_docs, cli_reference, tables

# The manual is what people write and have to read; references that are built and the appendix come on top.
MANUAL_WORDS_MAX = 60_000
BY_PATH = {command.path: command for command in COMMANDS}


def manual_words(folder: Path) -> Counter[str]:
    """Return the words of each page of the manual, references and appendix left out."""
    pages = (path for path in folder.rglob("*.md") if "appendix" not in path.parts)
    return Counter({path.relative_to(folder).as_posix(): len(path.read_text().split()) for path in pages})


def test_manual_keeps_to_its_budget_of_words() -> None:
    words = manual_words(built_docs.DOCS)
    by_page = "\n".join(f"{count:6,}  {page}" for page, count in words.most_common())
    assert words.total() <= MANUAL_WORDS_MAX, f"the manual has {words.total():,} words:\n{by_page}"


def test_words_of_the_appendix_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "appendix").mkdir()
    (tmp_path / "appendix" / "more.md").write_text("many more words")
    (tmp_path / "page.md").write_text("# Two words\n\n<!-- built: limits -->\n")
    assert manual_words(tmp_path) == {"page.md": 7}


def test_every_reference_belongs_to_one_page() -> None:
    texts = [path.read_text(encoding="utf-8") for path in built_docs.DOCS.rglob("*.md")]
    assert Counter(name for text in texts for name in built_docs.MARKER.findall(text)) == Counter(
        dict.fromkeys(built_docs.REFERENCES, 1)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(built_docs.REFERENCES))
def test_reference_is_built(name: str) -> None:
    assert len(built_docs.render_reference(name)) > 200


def test_limit_takes_its_meaning_from_its_comment() -> None:
    source = (
        "# Reads\nROWS: Final = 4 * 2  #: rows of a query\n#: bytes that one query\n#: may hold\nBYTES: Final = 1\n"
    )
    assert list(tables.read_limits(source)) == [
        tables.Limit("Reads", "ROWS", "rows of a query"),
        tables.Limit("Reads", "BYTES", "bytes that one query may hold"),
    ]


def test_page_of_commands_has_sections_in_the_order_of_the_table() -> None:
    page = cli_reference.add_sections("# Command line\n\n## Which graph\n\nAny.\n\n## omnigraph verify\n\nBy hand.\n")
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["Which graph", *BY_PATH]
    assert "\n| `--data` | Also compare all files with their checksums. |" in page
    assert "\n\nBy hand.\n\n" in page


def test_section_of_an_unknown_command_is_refused() -> None:
    with pytest.raises(ValueError, match="omnigraph guess"):
        cli_reference.add_sections("# Command line\n\n## omnigraph guess\n\nText.\n")


def test_examples_by_hand_take_the_place_of_the_example() -> None:
    notes = "\n```sh\nomnigraph version   # of this release\n```\n\nBy hand.\n"
    section = cli_reference.render_section(BY_PATH["omnigraph version"], [], notes)
    assert section == "## omnigraph version\n\n```sh\nomnigraph version   # of this release\n```\n\nBy hand."
