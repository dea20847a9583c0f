"""Holds answers against our own description: nothing that a server sends may be undescribed.

The description leaves answers open, so that later releases may add members. Here it is closed, so that this one cannot.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import jsonschema_rs
import orjson

from omnigraph.server.handlers.admin import SERVER_ROUTES
from omnigraph.server.openapi import describe

# Of the transport, not of the interface; `Allow` belongs to addresses that are no operation.
TRANSPORT = {"date", "content-type", "content-length", "transfer-encoding", "connection", "server", "allow"}


def closed(value: Any) -> Any:
    """Return schemas in which an object has no members but those that are described."""
    if isinstance(value, list):
        return [closed(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {name: closed(one) for name, one in value.items()}
    if made.get("type") == "object" and "properties" in made:
        made.setdefault("additionalProperties", False)
    return made


class Description:
    """A description, ready to hold answers against."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = deepcopy(dict(document))
        schemas = self.document["components"]["schemas"]
        self._components = {"schemas": {name: closed(one) for name, one in schemas.items()}}
        self._paths = [(_pattern(path), item) for path, item in _by_length(self.document["paths"])]
        self._validator = cache(self._make_validator)

    def problems(self, method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> list[str]:
        """Return what of an answer is not described."""
        operation = self._operation(method, path.partition("?")[0])
        if operation is None:
            # No operation: still a refusal of the one shape.
            return self._json_problems({"$ref": "#/components/schemas/Error"}, body) if body else []
        response = operation["responses"].get(str(status))
        if response is None:
            return [f"{method} {path}: status {status} is not described"]
        response = self._resolved(response)
        known = {name.lower() for name in response.get("headers", {})} | TRANSPORT
        found = [f"header {name} is not described" for name in headers if name not in known]
        media = headers.get("content-type", "").partition(";")[0]
        content = {name.partition(";")[0]: one for name, one in response.get("content", {}).items()}
        if not body or method == "HEAD":
            return found
        if media not in content:
            return [*found, f"{media} is not described, only {sorted(content)}"]
        if media == "application/json":
            found += self._json_problems(content[media]["schema"], body)
        for line in body.splitlines() if "x-line-schema" in content[media] else ():
            found += self._json_problems(content[media]["x-line-schema"], line)
        return [f"{method} {path} ({status}): {one}" for one in found]

    def _operation(self, method: str, path: str) -> dict[str, Any] | None:
        for pattern, item in self._paths:
            if pattern.fullmatch(path):
                found: dict[str, Any] | None = item.get(method.lower())
                if found is not None:
                    return found
        return None

    def _resolved(self, response: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in response:
            return response
        found: dict[str, Any] = self.document["components"]["responses"][response["$ref"].rpartition("/")[2]]
        return found

    def _json_problems(self, schema: Mapping[str, Any], body: bytes) -> list[str]:
        validator = self._validator(json.dumps(closed(schema)))
        return [f"{one.instance_path}: {one.message}" for one in validator.iter_errors(orjson.loads(body))]

    def _make_validator(self, schema: str) -> Any:
        return jsonschema_rs.Draft202012Validator({**json.loads(schema), "components": self._components})


def _by_length(paths: Mapping[str, Any]) -> list[tuple[str, Any]]:
    # A path without parameters is meant before one whose parameter could hold the same text.
    return sorted(paths.items(), key=lambda one: one[0].count("{"))


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)))


OURS = Description(describe(SERVER_ROUTES))
