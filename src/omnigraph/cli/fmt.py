"""`omnigraph fmt` and `lsp`: format `.pg` and `.gq` files, and run the language server of editors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from omnigraph.cli.options import Json, argument, option, switch
from omnigraph.cli.output import echo, plural, print_diagnostics, print_json, write_atomically
from omnigraph.errors import UsageError
from omnigraph.extras import requiring_extra

if TYPE_CHECKING:
    from omnigraph.lang.diagnostic import Diagnostic, Source


Language = Literal["pg", "gq"]
_STDIN: Final = "-"

Files = Annotated[
    list[Path], argument("FILES", "Files or directories with `.pg` and `.gq` files; `-` reads standard input.")
]
Check = Annotated[bool, switch("--check", "Write nothing; exit with 1 if a file would change.")]
Diff = Annotated[bool, switch("--diff", "Write nothing; print what would change.")]
LanguageOption = Annotated[
    Language | None, option("--language", "NAME", "pg or gq, for standard input and other endings.")
]


@dataclass(frozen=True, slots=True)
class _Formatted:
    """A source before and after; `text` is None if it does not parse."""

    source: Source
    text: str | None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def is_changed(self) -> bool:
        return self.text is not None and self.text != self.source.text


def fmt(
    files: Files, check: Check = False, diff: Diff = False, language: LanguageOption = None, as_json: Json = False
) -> int:
    if [str(file) for file in files] == [_STDIN]:
        outcomes = [_format_input(language)]
    else:
        outcomes = [_format_file(path, language) for path in _list_files(files)]
    changed = [outcome for outcome in outcomes if outcome.is_changed]
    rejected = [outcome for outcome in outcomes if outcome.text is None]
    is_stream = str(files[0]) == _STDIN
    if not (check or diff or is_stream):
        for outcome in changed:
            _rewrite(Path(outcome.source.name), outcome.text or "")
    if as_json:
        print_json(_summary(outcomes))
    else:
        _print_outcomes(outcomes, check=check, diff=diff, is_stream=is_stream)
    return 1 if rejected or (changed and (check or diff)) else 0


def _list_files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if str(path) == _STDIN:
            raise UsageError("`-` reads standard input and stands alone; leave the other files out")
        if path.is_dir():
            yield from sorted(file for ending in ("pg", "gq") for file in path.rglob(f"*.{ending}") if file.is_file())
        else:
            yield path


def _format_file(path: Path, language: Language | None) -> _Formatted:
    from omnigraph.source_files import read_source

    name = _language_of(path, language)
    return _format(read_source(path, "S1" if name == "pg" else "Q000"), name)


def _format_input(language: Language | None) -> _Formatted:
    from omnigraph.lang.diagnostic import decode_source
    from omnigraph.limits import SOURCE_BYTES_MAX

    if language is None:
        raise UsageError("the language of standard input is unknown; add `--language pg` or `--language gq`")
    code = "S1" if language == "pg" else "Q000"
    data = sys.stdin.buffer.read(SOURCE_BYTES_MAX + 1)
    return _format(decode_source("<stdin>", data, code), language)


def _language_of(path: Path, language: Language | None) -> Language:
    name = language if language is not None else path.suffix.removeprefix(".")
    if name not in ("pg", "gq"):
        raise UsageError(f"`{path}` ends neither in `.pg` nor in `.gq`; add `--language pg` or `--language gq`")
    return name  # type: ignore[return-value]


def _format(source: Source, language: Language) -> _Formatted:
    # The parsers are imported here so that `--help` does not pay for them.
    from omnigraph.lang.diagnostic import LanguageError
    from omnigraph.lang.format import format_source

    try:
        return _Formatted(source, format_source(source, language))
    except LanguageError as error:
        return _Formatted(source, None, error.diagnostics)


def _rewrite(path: Path, text: str) -> None:
    """Replace the content of a file; a link stays a link, and the permissions stay as they are."""
    target = path.resolve()
    mode = target.stat().st_mode
    write_atomically(target, [text.encode()])
    target.chmod(mode)


def _summary(outcomes: Sequence[_Formatted]) -> dict[str, object]:
    return {
        "files": [
            {
                "file": outcome.source.name,
                "changed": outcome.is_changed,
                "diagnostics": [diagnostic.to_json() for diagnostic in outcome.diagnostics],
            }
            for outcome in outcomes
        ]
    }


def _print_outcomes(outcomes: Sequence[_Formatted], *, check: bool, diff: bool, is_stream: bool) -> None:
    for outcome in outcomes:
        print_diagnostics(outcome.diagnostics)
        if outcome.text is None:
            continue
        if diff:
            _print_diff(outcome.source, outcome.text)
        elif is_stream and not check:
            echo(outcome.text, nl=False)
        elif outcome.is_changed:
            echo(f"{'would change' if check else 'formatted'} {outcome.source.name}")
    if is_stream or diff:
        return
    changed = sum(outcome.is_changed for outcome in outcomes)
    rejected = sum(outcome.text is None for outcome in outcomes)
    words = [f"{plural(len(outcomes), 'file')}", f"{changed} {'to change' if check else 'changed'}"]
    echo(", ".join([*words, *([f"{rejected} with errors, left as they are"] if rejected else [])]))


def _print_diff(source: Source, text: str) -> None:
    lines = unified_diff(
        source.text.splitlines(keepends=True), text.splitlines(keepends=True), source.name, f"{source.name} (formatted)"
    )
    for line in lines:
        echo(line.rstrip("\n"))


def lsp() -> int:
    with requiring_extra("language servers"):
        from omnigraph.lsp import start
    start()
    return 0
