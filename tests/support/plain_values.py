"""Makes what surfaces say comparable: ids become numbers in order of appearance, and what must differ goes."""

from __future__ import annotations

import re
from typing import Any

# Addresses, moments and names of files are those of each graph; tokens name its commits in other words.
_OWN = frozenset(
    {"uri", "created_at", "authored_at", "operation_id", "etag", "file", "text", "dataset_path"}
    | {"next_page_token", "cursor", "request_id", "path"}
)
# Ids of commits and entities, and the keyed ids of types.
_ID = re.compile(r"\b(?:[0-7][0-9A-HJKMNP-TV-Z]{25}|[0-9a-f]{32})\b")


class Plain:
    """Remembers which id came first."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        """Return a value as it would look on any graph."""
        if isinstance(value, dict):
            return {self._text(name): self.of(one) for name, one in sorted(value.items()) if name not in _OWN}
        if isinstance(value, list):
            return [self.of(one) for one in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        return _ID.sub(lambda found: self._seen.setdefault(found[0], f"id{len(self._seen)}"), text)


def commit_in(value: Any) -> str | None:
    """Return the commit that an outcome names."""
    commit = value.get("commit") if isinstance(value, dict) else None
    return None if commit is None else str(commit["graph_commit_id"])
