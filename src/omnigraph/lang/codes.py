"""Every code of every language, merged from the parts that raise them.

Pure data, for documents, tests and tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from omnigraph.lang.migrate.codes import MIGRATION_CODES
from omnigraph.lang.query.codes import QUERY_CODES
from omnigraph.lang.schema.codes import SCHEMA_CODES

LANGUAGE_CODES: Final[Mapping[str, str]] = MappingProxyType({**SCHEMA_CODES, **MIGRATION_CODES, **QUERY_CODES})
