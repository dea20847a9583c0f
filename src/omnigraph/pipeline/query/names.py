"""Names of DataFrame columns: made up, because Spark does not tell `$a` from `$A`.

Pure; one table of names serves one query.
"""

from __future__ import annotations

from collections.abc import Iterable

ID = "id"
HOPS = "hops"


class Names:
    """The column of each variable's id, properties and marks."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, object], str] = {}

    def __call__(self, variable: str, what: object) -> str:
        return self._names.setdefault((variable, what), f"c{len(self._names)}")

    def of(self, variables: Iterable[str], columns: Iterable[str]) -> list[str]:
        """Return those of the columns that belong to the variables."""
        wanted, present = set(variables), set(columns)
        return [name for (variable, _), name in self._names.items() if variable in wanted and name in present]

    def keys(self, variables: Iterable[str], columns: Iterable[str]) -> list[str]:
        """Return the columns that tell what the variables are bound to."""
        wanted, present = set(variables), set(columns)
        return [
            name
            for (variable, what), name in self._names.items()
            if variable in wanted and what in (ID, HOPS) and name in present
        ]
