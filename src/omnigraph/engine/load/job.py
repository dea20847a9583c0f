"""What a load is asked to do, and what its tasks know: they never read the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from omnigraph import clock
from omnigraph.engine.external_blobs import BlobReader, BlobRules
from omnigraph.engine.input.reading import Bounds, Reading
from omnigraph.engine.tasks import GraphAccess, parse_catalog
from omnigraph.errors import ReadSetChanged
from omnigraph.lang.catalog import Catalog, Type, TypeKey
from omnigraph.limits import VIOLATIONS_MAX
from omnigraph.manifest.commit_loop import has_only_upkeep
from omnigraph.manifest.model import Pin, Snapshot
from omnigraph.public_values import Mode, OnDuplicate
from omnigraph.rules.delta import INTENTS, Intent, choose_winner
from omnigraph.store.read.dataset import DatasetRef
from omnigraph.store.write.fragments import claims

if TYPE_CHECKING:
    from omnigraph.engine.load.kept_rows import EmbedJob

# The digest of inputs that are not compared.
NO_DIGEST: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the caller asked of a load.

    Attributes:
        kind: The verb, which is the kind of the commit.
        base: The branch to create it from; None if it exists.
        job_id: Idempotency key of the load.
        is_repeatable: Whether the caller chose the key, so that it may be used again.
        digest: Digest of the input, if the load is repeatable.
        is_rejecting: Whether wrong entities, up to `errors_max`, are left out and written to `report_folder`.
        embed: Whether missing `@embed` vectors are made.
        properties: Further properties of the commit.
        commits_empty: Whether an input without entities is committed as well.
        on_duplicate: Which of several incoming entities with one id is loaded: the `first`, the `last`, or none, which
            is an `error`.
        bounds: How much one small write may hold; None for a load.
        is_compatible: Whether NDJSON is of the compatible dialect.
    """

    kind: Literal["ingest", "load"] = "load"
    mode: Mode
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
    on_duplicate: OnDuplicate = "error"
    bounds: Bounds | None = None
    is_compatible: bool = False


class InputSchema:
    """The schema that an input is read with: the types that the actor may write. Tasks elsewhere are sent its JSON.

    The hash is that of the full schema, which must be the same when the load is published. So what the actor may see is
    computed once, and every task agrees on it.
    """

    def __init__(self, ir: str, full_hash: str, catalog: Catalog | None = None) -> None:
        self.ir = ir
        self.full_hash = full_hash
        self.catalog = parse_catalog(ir) if catalog is None else catalog

    def __reduce__(self) -> tuple[object, ...]:
        return InputSchema, (self.ir, self.full_hash)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What an overwrite found when it began: a version of the manifest, and the version of each type."""

    version: int
    pins: Mapping[TypeKey, Pin]

    @classmethod
    def of(cls, snapshot: Snapshot, table_keys: Iterable[TypeKey]) -> Replaced:
        pins = snapshot.state.pins
        return cls(snapshot.version, {key: pins[key] for key in table_keys if key in pins})

    def require_unchanged(self, snapshot: Snapshot, table_keys: Iterable[TypeKey]) -> None:
        """Refuse to overwrite entities that were written after the load began; maintenance writes none."""
        if has_only_upkeep(self.version, snapshot):
            return
        for key in table_keys:
            before, now = self.pins[key], snapshot.state.pins[key]
            if before != now:
                raise ReadSetChanged(
                    f"`{key}` was changed on branch `{snapshot.branch}` while its replacement was being read; nothing"
                    " was written. Retry to replace its new content",
                    member=key,
                    expected=before.version,
                    actual=now.version,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowJob:
    """What is known where rows are read and checked.

    Attributes:
        unit: What errors call a place in the input: `line`, `record` or `row`.
        blob_rules: Which external blobs may be read; None if none are allowed.
        embed: How to make missing `@embed` vectors; None if they are not made.
        replaced: What an overwrite may replace; None for newer rows as well.
        now_ms: What the default `now()` means in all tasks, in milliseconds since 1970.
    """

    options: LoadOptions
    schema: InputSchema
    unit: str = "line"
    blob_rules: BlobRules | None = None
    embed: EmbedJob | None = None
    replaced: Replaced | None = None
    now_ms: int = field(default_factory=lambda: clock.now_us() // 1_000)

    @property
    def intent(self) -> Intent:
        return INTENTS[self.options.mode]

    def winner(self, type_: Type) -> OnDuplicate:
        """Return which of several incoming entities with one id is loaded."""
        return choose_winner(self.options.on_duplicate, self.intent, type_)

    @property
    def is_rejecting(self) -> bool:
        return self.options.is_rejecting

    @property
    def violations_max(self) -> int:
        """How many violations a task reports."""
        return self.options.errors_max + 1 if self.is_rejecting else VIOLATIONS_MAX

    @property
    def catalog(self) -> Catalog:
        return self.schema.catalog

    def reading(self) -> Reading:
        """Return how one task reads; vectors that will be embedded are optional in its catalog."""
        catalog = self.catalog if self.embed is None else self.embed.with_optional_vectors(self.catalog)
        blobs = None if self.blob_rules is None else BlobReader(self.blob_rules)
        return Reading(catalog, self.now_ms, blobs, self.options.bounds, self.options.is_compatible)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(RowJob):
    """What tasks know that write files of an input.

    Attributes:
        access: Where the graph is; its operation id names all files of the load.
        scratch: Folder for key segments and other temporary files.
        targets: The datasets that rows of each type are staged for.
    """

    access: GraphAccess
    scratch: str
    targets: Mapping[TypeKey, DatasetRef]

    @property
    def operation_id(self) -> str:
        return self.access.operation_id

    @property
    def claims(self) -> list[str]:
        """The path prefixes under which tasks stage files."""
        return [path for ref in self.targets.values() for path in claims(ref, self.operation_id)]
