"""OmniGraph: a typed property graph on open Lance datasets, with a Spark data pipeline."""

# ruff: noqa: F405 - the errors
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph import errors
    from omnigraph.client import AsyncGraph, connect_async
    from omnigraph.connections import connect
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.clone import CloneReport
    from omnigraph.engine.drawing import Drawing
    from omnigraph.engine.embed import EmbedReceipt
    from omnigraph.engine.entity_lookup import Blob
    from omnigraph.engine.infer.api import InferredSchema
    from omnigraph.engine.query.budget import Budget, CancelToken
    from omnigraph.engine.query.physical_plan import Explanation
    from omnigraph.engine.query.result import Result
    from omnigraph.engine.schema import Schema
    from omnigraph.errors import *  # noqa: F403 - `__all__` says which of them are public
    from omnigraph.graph import Graph, check_store, init, open, upgrade  # noqa: A004 - `og.open` reads as it should
    from omnigraph.graph_reads import GraphAt
    from omnigraph.lang.diagnostic import LanguageError
    from omnigraph.lang.migrate import MigrationPlan, SchemaPlan
    from omnigraph.pipeline import infer_schema
    from omnigraph.protocol import GraphProtocol
    from omnigraph.public_values import (
        Branch,
        Commit,
        IngestReceipt,
        MergeReceipt,
        MutationReceipt,
        SchemaReceipt,
        Snapshot,
        Tag,
    )
    from omnigraph.source_files import format_source
    from omnigraph.store.objects.store_checks import StoreReport

__version__ = "0.1.0"
__all__ = [
    "ArithmeticOverflow",
    "AsyncGraph",
    "Blob",
    "BlobNotFound",
    "Branch",
    "BranchExists",
    "BranchNotFound",
    "Budget",
    "BudgetExceeded",
    "CancelToken",
    "ChangeFeedGap",
    "ChangeSet",
    "CloneReport",
    "Commit",
    "CommitNotFound",
    "CommitPage",
    "ConflictError",
    "CursorRejected",
    "DataError",
    "Drawing",
    "DriftDetected",
    "Effect",
    "EmbedReceipt",
    "Explanation",
    "FeedPage",
    "Graph",
    "GraphAt",
    "GraphError",
    "GraphExists",
    "GraphNotFound",
    "GraphProtocol",
    "GraphReadOnly",
    "InferredSchema",
    "IngestReceipt",
    "JobExists",
    "KeyConflict",
    "LanguageError",
    "LimitExceeded",
    "MergeConflict",
    "MergeReceipt",
    "MigrationPlan",
    "MutationReceipt",
    "OmniGraphError",
    "OutputError",
    "PipelineError",
    "PipelineRenamed",
    "PipelineUnavailable",
    "PolicyDenied",
    "PolicyError",
    "PreconditionFailed",
    "QueryCancelled",
    "QueryNotFound",
    "ReachabilityDisputed",
    "ReadSetChanged",
    "Result",
    "Schema",
    "SchemaBoundary",
    "SchemaPlan",
    "SchemaReceipt",
    "ServerUnreachable",
    "Snapshot",
    "StorageError",
    "StorageKind",
    "StoreReport",
    "Tag",
    "TagExists",
    "TagNotFound",
    "UnsafeStore",
    "UsageError",
    "VersionMismatch",
    "check_store",
    "connect",
    "connect_async",
    "errors",
    "format_source",
    "infer_schema",
    "init",
    "open",
    "upgrade",
]

# Loading the engine takes a second, and much of what imports this package (a lint, a `--help`) never needs it, so names
# are imported when they are used. A name that is not listed here is an error class.
_NAMES_OF = {
    "client": ("AsyncGraph", "connect_async"),
    "connections": ("connect",),
    "engine.changes": ("ChangeSet", "CommitPage", "FeedPage"),
    "engine.clone": ("CloneReport",),
    "engine.drawing": ("Drawing",),
    "engine.embed": ("EmbedReceipt",),
    "engine.entity_lookup": ("Blob",),
    "engine.query.budget": ("Budget", "CancelToken"),
    "engine.query.physical_plan": ("Explanation",),
    "engine.query.result": ("Result",),
    "engine.schema": ("Schema",),
    "graph": ("Graph", "check_store", "init", "open", "upgrade"),
    "graph_reads": ("GraphAt",),
    "lang.diagnostic": ("LanguageError",),
    "lang.migrate": ("MigrationPlan", "SchemaPlan"),
    "engine.infer.api": ("InferredSchema",),
    "pipeline": ("infer_schema",),
    "protocol": ("GraphProtocol",),
    "public_values": (
        "Branch",
        "Commit",
        "IngestReceipt",
        "MergeReceipt",
        "MutationReceipt",
        "SchemaReceipt",
        "Snapshot",
        "Tag",
    ),
    "source_files": ("format_source",),
    "store.objects.store_checks": ("StoreReport",),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}


def __getattr__(name: str) -> object:
    if name in ("errors", "pipeline"):
        return import_module(f"omnigraph.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    return getattr(import_module(f"omnigraph.{_MODULE_OF.get(name, 'errors')}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__", "pipeline"]
