"""The values that travel from the caller to the driver (`LoadOptions`), and from the driver to every task (`Job`).

Tasks never read the manifest: all they know of the graph is in a `Job`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omnigraph import clock
from omnigraph.engine.tasks import GraphAccess, parse_catalog
from omnigraph.lang.catalog import Catalog, TypeKey
from omnigraph.limits import VIOLATIONS_MAX
from omnigraph.rules.delta import INTENTS, Intent
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.write.fragments import claims

if TYPE_CHECKING:
    from omnigraph.pipeline.bulk_load.stage_split import EmbedJob

# How violations of an input name a row: "line 7".
UNIT: Final = "line"
# The digest of inputs that are not compared.
NO_DIGEST: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the caller asked of a load.

    Attributes:
        mode: `append`, `merge` or `overwrite`.
        branch: The branch to write to.
        base: The branch to create it from; None if it exists.
        job_id: Idempotency key of the load.
        is_repeatable: Whether the caller chose the key, so that it may be used again.
        digest: Digest of the input, if the load is repeatable.
        is_rejecting: Whether wrong entities, up to `errors_max`, are left out and written to `report_folder`.
        embed: Whether missing `@embed` vectors are made.
        properties: Further properties of the commit.
        commits_empty: Whether an input without entities is committed as well.
    """

    mode: str
    branch: str
    base: str | None = None
    job_id: str = ""
    is_repeatable: bool = False
    digest: str = ""
    is_rejecting: bool = False
    errors_max: int = 0
    report_folder: Path | None = None
    embed: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    commits_empty: bool = False


@dataclass(frozen=True, slots=True)
class InputSchema:
    """The schema that an input is read with: the types that the actor may write, as JSON.

    The hash is that of the full schema, which must be the same when the load is published. So what the actor may see is
    computed once, and every task agrees on it.
    """

    ir: str
    full_hash: str

    @property
    def catalog(self) -> Catalog:
        return parse_catalog(self.ir)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A load as its tasks see it.

    Attributes:
        options: What the caller asked for.
        access: Where the graph is; its operation id names all files of the load.
        scratch: Folder for key segments and other temporary files.
        schema: The schema that the input is read with.
        base_version: Manifest version that an overwrite was planned on; None if it may replace newer rows.
        targets: The datasets that rows of each type are staged for.
        embed: How to make missing `@embed` vectors; None if they are not made.
        now_ms: What the default `now()` means in all tasks, in milliseconds since 1970.
    """

    options: LoadOptions
    access: GraphAccess
    scratch: str
    schema: InputSchema
    base_version: int | None
    targets: Mapping[TypeKey, DatasetRef]
    embed: EmbedJob | None = None
    now_ms: int = field(default_factory=lambda: clock.now_us() // 1_000)

    @property
    def operation_id(self) -> str:
        return self.access.operation_id

    @property
    def intent(self) -> Intent:
        return INTENTS[self.options.mode]

    @property
    def is_rejecting(self) -> bool:
        return self.options.is_rejecting

    @property
    def violations_max(self) -> int:
        """How many violations a task reports."""
        return self.options.errors_max + 1 if self.is_rejecting else VIOLATIONS_MAX

    @property
    def claims(self) -> list[str]:
        """The path prefixes under which tasks stage files."""
        return [path for ref in self.targets.values() for path in claims(ref, self.operation_id)]

    @property
    def catalog(self) -> Catalog:
        return self.schema.catalog
