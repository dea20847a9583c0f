"""Values of arguments and options: the plain ones are taken as they are, and Typer decides about all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from omnigraph.cli.app import build
from omnigraph.cli.commands import COMMANDS, find_command
from omnigraph.cli.conversion import PlainValue
from omnigraph.cli.options import Format


class TyperConverter:
    """Stands for the converter of Typer, whose answer shows that it was asked."""

    def coerce(self, value: Any, **about: Any) -> tuple[str, Any]:
        return "asked", value


class Parameter:
    """What `PlainValue` reads of a parameter."""

    def __init__(self, annotation: Any, *, multiple: bool = False, nargs: int = 1) -> None:
        self.type_descriptor = self
        self.annotation, self.multiple, self.nargs = annotation, multiple, nargs


def coerce(annotation: Any, value: Any, **shape: Any) -> Any:
    return PlainValue(TyperConverter).coerce(value, Parameter(annotation, **shape), None)


@pytest.mark.parametrize(
    ("annotation", "value", "converted"),
    [
        (str, "a", "a"),
        (Path, "a/b", Path("a/b")),
        (int, 3, 3),
        (bool, True, True),
        (Literal["now", "then"], "then", "then"),
        (Format, "csv", Format.CSV),
        (Format, Format.CSV, Format.CSV),
        (list[Path], ("a", "b"), [Path("a"), Path("b")]),
        (str, None, None),
    ],
)
def test_coerce_value_of_its_type_asks_nobody(annotation: Any, value: Any, converted: Any) -> None:
    assert coerce(annotation, value) == converted


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(int, "3"), (int, "x"), (int, True), (Literal["now", "then"], "soon"), (Format, "pdf"), (list[Format], ("pdf",))],
)
def test_coerce_other_value_is_left_to_typer(annotation: Any, value: Any) -> None:
    assert coerce(annotation, value) == ("asked", value)


@pytest.mark.parametrize("shape", [{"multiple": True}, {"nargs": -1}])
def test_coerce_list_that_is_not_given_is_empty(shape: dict[str, Any]) -> None:
    assert coerce(list[str], None, **shape) == ()


@pytest.mark.parametrize(
    ("arguments", "names"), [(["query", "g.omni"], ["query"]), (["branch", "list"], ["branch"]), (["zz"], None)]
)
def test_build_of_a_known_command_has_only_that(arguments: list[str], names: list[str] | None) -> None:
    app = build(arguments, find_command(arguments)[0])
    built = {command.name for command in app.registered_commands} | {group.name for group in app.registered_groups}
    assert built == ({command.words[0] for command in COMMANDS} if names is None else set(names))
