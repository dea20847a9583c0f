"""`cluster.yaml`: graphs, schemas, queries, policies and embedding providers of a cluster, parsed and validated.

Reads the one file and nothing that it names; `desired` reads and compiles those.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from omnigraph.engine.external_blobs import BLOB_SCOPES, BlobBase
from omnigraph.errors import OmniGraphError, UsageError
from omnigraph.findings import ClusterError, Finding, cluster_error
from omnigraph.ids import check_graph_id
from omnigraph.lang.diagnostic import did_you_mean
from omnigraph.limits import CLUSTER_CONFIG_BYTES_MAX
from omnigraph.pipelines.declaration.config import PipelineDeclaration, read_declarations
from omnigraph.pipelines.declaration.document import PipelineDocument
from omnigraph.source_files import read_regular_file
from omnigraph.store.objects.uri import Location
from omnigraph.yaml_document import Document, Problem

CONFIG_NAME: Final = "cluster.yaml"
# What later versions of the format will mean; refused by name, so that nothing is silently ignored.
RESERVED: Final = ("apply", "env_file", "embeddings", "ui", "aliases", "bindings")
PROVIDER_KINDS: Final = ("openai-compatible", "openai", "gemini", "mock")
CLUSTER_SCOPE: Final = "cluster"
_IDENTIFIER: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_CREDENTIALS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@")
_SECRET: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class ProviderDeclaration:
    """An embedding provider, as it is recorded; `api_key` is `${NAME}`, which a server reads from its environment."""

    kind: str
    base_url: str | None
    model: str | None
    api_key: str | None


@dataclass(frozen=True, slots=True)
class GraphDeclaration:
    """A graph. `queries` is a folder, a list of files, or files by the name of the query that each holds."""

    id: str
    schema: str
    queries: str | tuple[str, ...] | Mapping[str, str] | None
    embedding_provider: str | None
    external_blobs: tuple[BlobBase, ...]


@dataclass(frozen=True, slots=True)
class PolicyDeclaration:
    """A policy bundle and the graphs that it is bound to; `("cluster",)` binds it to the server."""

    name: str
    file: str
    applies_to: tuple[str, ...]

    @property
    def is_for_server(self) -> bool:
        return self.applies_to == (CLUSTER_SCOPE,)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """A parsed `cluster.yaml`; `storage` is the root of ledger, catalog and graphs."""

    directory: Path
    storage: str
    uses_lock: bool
    providers: Mapping[str, ProviderDeclaration]
    graphs: Mapping[str, GraphDeclaration]
    policies: Mapping[str, PolicyDeclaration]
    pipelines: Mapping[str, PipelineDeclaration]
    text: str = field(repr=False)


def read_config(directory: str | Path) -> ClusterConfig:
    """Read and check the `cluster.yaml` of a directory.

    Raises:
        ClusterError: The file cannot be read or is not valid; its findings have lines and columns.
    """
    folder = Path(directory)
    try:
        data, _ = read_regular_file(folder / CONFIG_NAME, CLUSTER_CONFIG_BYTES_MAX)
        return parse_config(data.decode(), folder)
    except UsageError as failure:
        raise cluster_error("cluster_yaml_missing", str(folder / CONFIG_NAME), failure.message) from None
    except UnicodeDecodeError as failure:
        message = f"byte {failure.start} is not UTF-8; save the file as UTF-8"
        raise cluster_error("invalid_cluster_yaml", CONFIG_NAME, message) from None


def read_storage(directory: Path) -> str:
    """Return the storage of the `cluster.yaml` of a directory, whatever else the file says.

    For commands that use what is deployed: a server must be able to start while the folder is being edited.
    """
    data, _ = read_regular_file(directory / CONFIG_NAME, CLUSTER_CONFIG_BYTES_MAX)
    document = _ClusterDocument(CONFIG_NAME, CLUSTER_CONFIG_BYTES_MAX)
    root = document.open(data.decode(errors="replace"))
    members = root.value if isinstance(root, yaml.MappingNode) else []
    storage = document.storage(next((value for key, value in members if key.value == "storage"), None), directory)
    document.finish()
    return storage


def parse_config(text: str, directory: Path) -> ClusterConfig:
    """Parse the text of a `cluster.yaml`; relative paths in it start at `directory`."""
    document = _ClusterDocument(CONFIG_NAME, CLUSTER_CONFIG_BYTES_MAX)
    root = document.open(text)
    document.reject_reserved(root)
    optional = ("metadata", "storage", "state", "providers", "graphs", "policies", "pipelines")
    members = document.fields(root, ("version", *optional), ("version", "graphs"))
    if "version" in members:
        document.version(members["version"])
    document.check_metadata(members.get("metadata"))
    storage = document.storage(members.get("storage"), directory)
    uses_lock = document.uses_lock(members.get("state"))
    providers = document.providers(members.get("providers"))
    graphs = document.graphs(members.get("graphs"), providers)
    policies = document.policies(members.get("policies"), graphs)
    pipelines = document.pipelines(members.get("pipelines"), graphs, directory)
    document.finish()
    return ClusterConfig(directory, storage, uses_lock, providers, graphs, policies, pipelines, text)


class _ClusterDocument(Document):
    """A `cluster.yaml` being read; its problems are findings of a cluster command."""

    def error(self, problems: Sequence[Problem]) -> OmniGraphError:
        return ClusterError.of(
            [
                Finding(item.code or "invalid_cluster_yaml", "error", self.name, item.message, item.line, item.column)
                for item in problems
            ]
        )

    def reject_reserved(self, root: yaml.Node | None) -> None:
        """Report members that a later version of the format gives a meaning, and take them out."""
        if not isinstance(root, yaml.MappingNode):
            return
        for key, _ in root.value:
            if key.value in RESERVED:
                self.fault(key, f"`{key.value}` is reserved for a later version; remove it", "future_phase_field")
        root.value = [(key, value) for key, value in root.value if key.value not in RESERVED]

    def named(self, node: yaml.Node | None, noun: str) -> dict[str, yaml.Node]:
        """Return the entries of a mapping whose keys are identifiers."""
        if node is None:
            return {}
        entries = self.entries(node)
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key.value, str) and not _IDENTIFIER.fullmatch(key.value):
                self.fault(
                    key,
                    f"`{key.value}` cannot name a {noun}; use at most 64 letters, digits, `-` and `_`, a letter first",
                    "invalid_name",
                )
        return entries

    def check_graph_ids(self, node: yaml.Node | None) -> None:
        """Report ids that no server can serve."""
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            try:
                check_graph_id(str(key.value))
            except UsageError as failure:
                self.fault(key, failure.message, "invalid_name")

    def boolean(self, node: yaml.Node) -> bool | None:
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:bool":
            return str(node.value).lower() in ("true", "yes", "on")
        self.fault(node, "expected `true` or `false`")
        return None

    def storage(self, node: yaml.Node | None, directory: Path) -> str:
        """Return the root of storage; a relative path starts at the folder, wherever the command runs."""
        folder = str(directory.resolve())
        text = self.text(node) if node is not None else None
        if node is None or text is None:
            return folder
        if _CREDENTIALS.match(text):
            message = "an address must not hold credentials; storage takes them from the environment"
            self.fault(node, message, "inline_secret")
            return folder
        try:
            Location.parse(text)
        except UsageError as failure:
            self.fault(node, failure.message, "invalid_storage")
            return folder
        is_relative = "://" not in text and not text.startswith(("/", "~"))
        return os.path.join(folder, text) if is_relative else text

    def check_metadata(self, node: yaml.Node | None) -> None:
        members = self.fields(node, ("name",), ()) if node is not None else {}
        if "name" in members:
            self.text(members["name"])

    def uses_lock(self, node: yaml.Node | None) -> bool:
        members = self.fields(node, ("backend", "lock"), ()) if node is not None else {}
        if "backend" in members:
            self.word(members["backend"], ("cluster",))
        return self.boolean(members["lock"]) is not False if "lock" in members else True

    def providers(self, node: yaml.Node | None) -> dict[str, ProviderDeclaration]:
        members = self.fields(node, ("embedding",), ()) if node is not None else {}
        providers = {}
        for name, entry in self.named(members.get("embedding"), "provider").items():
            values = self.fields(entry, ("kind", "base_url", "model", "api_key"), ())
            kind = self.word(values["kind"], PROVIDER_KINDS) if "kind" in values else PROVIDER_KINDS[0]
            base_url = self.base_url(values["base_url"]) if "base_url" in values else None
            model = self.text(values["model"]) if "model" in values else None
            secret = self.secret(values["api_key"]) if "api_key" in values else None
            if "api_key" not in values and kind not in ("mock", None):
                self.fault(entry, "the field `api_key` is missing; write it as `${NAME}`", "provider_key_missing")
            providers[name] = ProviderDeclaration(kind or "mock", base_url, model, secret)
        return providers

    def base_url(self, node: yaml.Node) -> str | None:
        """Return the address of a provider; it is stored in the ledger, so no part of it may be a secret."""
        text = self.text(node)
        if text is None:
            return None
        if not text.startswith(("http://", "https://")):
            self.fault(node, "expected an address that starts with `https://` or `http://`")
        elif _CREDENTIALS.match(text) or "?" in text:
            message = "an address must not hold credentials or a query; put the key into `api_key: ${NAME}`"
            self.fault(node, message, "inline_secret")
        return text

    def secret(self, node: yaml.Node) -> str | None:
        match = _SECRET.fullmatch(str(node.value).strip()) if isinstance(node, yaml.ScalarNode) else None
        if match is None:
            message = "a secret must not be in the file; name the environment variable that holds it as `${NAME}`"
            self.fault(node, message, "inline_secret")
            return None
        return match[0]

    def graphs(
        self, node: yaml.Node | None, providers: Mapping[str, ProviderDeclaration]
    ) -> dict[str, GraphDeclaration]:
        graphs = {}
        self.check_graph_ids(node)
        for id_, entry in self.entries(node).items() if node is not None else ():
            values = self.fields(entry, ("schema", "queries", "embedding_provider", "external_blobs"), ("schema",))
            schema = self.text(values["schema"]) if "schema" in values else None
            queries = self.queries(values["queries"]) if "queries" in values else None
            provider = self.text(values["embedding_provider"]) if "embedding_provider" in values else None
            if provider is not None and provider not in providers:
                message = f"there is no provider `{provider}`; declare it under `providers.embedding`"
                self.fault(values["embedding_provider"], message, "unknown_provider")
            blobs = self.blob_bases(values["external_blobs"]) if "external_blobs" in values else ()
            graphs[id_] = GraphDeclaration(id_, schema or "", queries, provider, blobs)
        return graphs

    def queries(self, node: yaml.Node) -> str | tuple[str, ...] | Mapping[str, str] | None:
        if isinstance(node, yaml.SequenceNode):
            return self.texts(node) if node.value else ()
        if not isinstance(node, yaml.MappingNode):
            return self.text(node)
        files = {}
        for name, entry in self.entries(node).items():
            members = self.fields(entry, ("file",), ("file",))
            files[name] = (self.text(members["file"]) if "file" in members else None) or ""
        return files

    def blob_bases(self, node: yaml.Node) -> tuple[BlobBase, ...]:
        members = self.fields(node, ("allow",), ("allow",))
        bases: list[BlobBase] = []
        for item in self.items(members["allow"]) if "allow" in members else ():
            values = self.fields(item, ("base", "scope"), ("base", "scope"))
            text = self.text(values["base"]) if "base" in values else None
            scope = self.word(values["scope"], BLOB_SCOPES) if "scope" in values else None
            if text is None or scope is None:
                continue
            try:
                base = BlobBase.parse(text, scope)
            except UsageError as failure:
                self.fault(values["base"], failure.message, "invalid_blob_base")
                continue
            if any(base.overlaps(other) for other in bases):
                message = f"`{base.uri}` overlaps another base; make them disjoint"
                self.fault(values["base"], message, "overlapping_blob_base")
            bases.append(base)
        return tuple(bases)

    def policies(self, node: yaml.Node | None, graphs: Mapping[str, GraphDeclaration]) -> dict[str, PolicyDeclaration]:
        policies: dict[str, PolicyDeclaration] = {}
        bound: dict[str, str] = {}
        for name, entry in self.named(node, "policy").items():
            values = self.fields(entry, ("file", "applies_to"), ("file", "applies_to"))
            file = self.text(values["file"]) if "file" in values else None
            scopes = self.texts(values["applies_to"]) if "applies_to" in values else ()
            if CLUSTER_SCOPE in scopes and len(scopes) > 1:
                message = "a bundle is bound to graphs or to `cluster`, not to both; make two bundles"
                self.fault(values["applies_to"], message, "policy_mixed_binding_kinds")
            for scope in scopes:
                if scope != CLUSTER_SCOPE and scope not in graphs:
                    hint = did_you_mean(scope, graphs) or "name declared graphs, or `[cluster]` for the server"
                    self.fault(values["applies_to"], f"there is no graph `{scope}`; {hint}", "unknown_graph")
                if bound.setdefault(scope, name) != name:
                    message = f"`{scope}` already has the policy `{bound[scope]}`; a scope takes one bundle"
                    self.fault(values["applies_to"], message, "duplicate_policy_binding")
            policies[name] = PolicyDeclaration(name, file or "", scopes)
        return policies

    def pipelines(
        self, node: yaml.Node | None, graphs: Mapping[str, GraphDeclaration], directory: Path
    ) -> dict[str, PipelineDeclaration]:
        """Read pipelines as in a pipeline file; in a cluster, each must name its graph."""
        if not isinstance(node, yaml.MappingNode):
            if node is not None:
                self.fault(node, "expected a mapping")
            return {}
        declared = read_declarations(
            PipelineDocument(self.name, self.bytes_max, self.problems), node, directory.absolute()
        )
        for key, entry in node.value:
            pipeline = declared.get(str(key.value))
            if pipeline is not None and pipeline.graph not in graphs:
                hint = did_you_mean(pipeline.graph or "", graphs) or "name a declared graph"
                message = (
                    f"the pipeline needs a `graph` of the cluster, and there is no `{pipeline.graph or ''}`; {hint}"
                )
                self.fault(entry, message, "unknown_graph")
        return declared
