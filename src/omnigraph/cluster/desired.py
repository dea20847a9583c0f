"""The desired state of a cluster: every file that `cluster.yaml` names, read once, compiled and digested.

A resource has an address and a digest. Its payload is what `apply` stores, so a server never reads the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from omnigraph.cluster.config import CONFIG_NAME, ClusterConfig, GraphDeclaration, PolicyDeclaration
from omnigraph.errors import PolicyError, UsageError
from omnigraph.findings import Finding, error, warning
from omnigraph.ids import new_ulid
from omnigraph.lang.catalog import Catalog
from omnigraph.lang.diagnostic import LanguageError, Source, decode_source, did_you_mean
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.limits import POLICY_BYTES_MAX, SOURCE_BYTES_MAX
from omnigraph.pipelines.declaration.config import PipelineDeclaration
from omnigraph.source_files import read_regular_file
from omnigraph.stored_queries import StoredQueries, check_queries


@dataclass(frozen=True, slots=True)
class Resource:
    """A declared resource. `metadata` is what the ledger keeps beside the digest; `payload` is stored by digest."""

    address: str
    digest: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes | None = None
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DesiredGraph:
    """A declared graph with its compiled schema and queries."""

    schema: Source
    catalog: Catalog
    queries: StoredQueries


@dataclass(frozen=True, slots=True)
class DesiredState:
    """All declared resources by address, and what was noticed while reading them."""

    config: ClusterConfig
    resources: Mapping[str, Resource]
    graphs: Mapping[str, DesiredGraph]
    findings: tuple[Finding, ...]

    @property
    def digests(self) -> dict[str, str]:
        return {address: resource.digest for address, resource in self.resources.items()}

    @property
    def config_digest(self) -> str:
        """A digest of everything that is declared."""
        return digest_of({"config": sha256(self.config.text.encode()), "resources": self.digests})


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_of(value: object) -> str:
    """Return the digest of a JSON value, independent of the order of its members."""
    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


def select_queries(source: Source, names: Set[str]) -> Source:
    """Return a source with only the named queries; the others are blank, so that positions stay.

    >>> text = "query a() { match { $x: A } return { $x.id } }  query b() { match { $x: B } return { $x.id } }"
    >>> select_queries(Source("q.gq", text), {"b"}).text.strip()
    'query b() { match { $x: B } return { $x.id } }'
    """
    text = source.text
    try:
        queries = parse_queries(source)
    except LanguageError:
        # Compiling it reports why.
        return source
    if any(query.name.span.end == 0 for query in queries):
        return source
    starts = [text.rindex("query", 0, query.name.span.start) for query in queries]
    for query, start, end in zip(queries, starts, [*starts[1:], len(text)], strict=True):
        if query.name.text not in names:
            text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return Source(source.name, text)


def read_desired(config: ClusterConfig) -> DesiredState:
    """Read, compile and digest everything that a configuration declares; problems become findings."""
    reader = _Reader(config)
    for name, provider in config.providers.items():
        profile = asdict(provider)
        reader.add(Resource(f"provider.embedding.{name}", digest_of(profile), {"embedding_profile": profile}))
    for graph in config.graphs.values():
        reader.read_graph(graph)
    for policy in config.policies.values():
        reader.read_policy(policy)
    for pipeline in config.pipelines.values():
        reader.read_pipeline(pipeline)
    return DesiredState(config, dict(sorted(reader.resources.items())), reader.graphs, tuple(reader.findings))


class _Reader:
    """Collects resources and findings; goes on after a problem, so that all of them are reported at once."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self.resources: dict[str, Resource] = {}
        self.graphs: dict[str, DesiredGraph] = {}
        self.findings: list[Finding] = []

    def add(self, resource: Resource) -> None:
        self.resources[resource.address] = resource

    def read_graph(self, graph: GraphDeclaration) -> None:
        schema = self._read(graph.schema, f"graphs.{graph.id}.schema", "S1", "schema_not_found")
        if schema is None:
            return
        try:
            catalog = compile_schema(schema, domain=new_ulid()).catalog
        except LanguageError as failure:
            self._fault("schema_invalid", f"graphs.{graph.id}.schema", str(failure))
            return
        address = f"schema.{graph.id}"
        text = schema.text.encode()
        self.add(Resource(address, sha256(text), payload=text, depends_on=(f"graph.{graph.id}",)))
        queries = self._read_queries(graph, catalog)
        self.graphs[graph.id] = DesiredGraph(schema, catalog, queries)
        self.add(self._graph_resource(graph, address))

    def _graph_resource(self, graph: GraphDeclaration, schema: str) -> Resource:
        prefix = f"query.{graph.id}."
        queries = {name: item.digest for name, item in sorted(self.resources.items()) if name.startswith(prefix)}
        content: dict[str, Any] = {"id": graph.id, "schema": self.resources[schema].digest, "queries": queries}
        metadata: dict[str, Any] = {}
        depends_on: tuple[str, ...] = ()
        if graph.embedding_provider is not None:
            provider = f"provider.embedding.{graph.embedding_provider}"
            metadata["embedding_provider"] = graph.embedding_provider
            content["embedding_provider"] = [graph.embedding_provider, self.resources[provider].digest]
            depends_on = (provider,)
        if graph.external_blobs:
            allow = [{"base": item.uri, "scope": item.scope} for item in graph.external_blobs]
            metadata["external_blob_policy"] = {"allow": allow, "digest": digest_of(allow)}
            content["external_blob_policy"] = allow
        return Resource(f"graph.{graph.id}", digest_of(content), metadata, depends_on=depends_on)

    def _read_queries(self, graph: GraphDeclaration, catalog: Catalog) -> StoredQueries:
        sources: list[Source] = []
        for name, file in self._query_files(graph):
            source = self._read(file, f"graphs.{graph.id}.queries", "Q000", "query_not_found")
            if source is not None and self._add_queries(graph.id, source, name):
                sources.append(source if name is None else select_queries(source, {name}))
        stored = check_queries(sources, catalog)
        for broken in stored.broken:
            self._fault("query_invalid", f"query.{graph.id}.{broken.name}", broken.render())
        for item in stored.warnings:
            self.findings.append(warning("query_warning", f"graphs.{graph.id}.queries", item.message))
        return stored

    def _query_files(self, graph: GraphDeclaration) -> Iterator[tuple[str | None, str]]:
        queries = graph.queries
        if isinstance(queries, Mapping):
            yield from queries.items()
        elif isinstance(queries, tuple):
            for name in queries:
                is_folder = (self.config.directory / name).is_dir()
                yield from ((None, file) for file in (self._files_in(name) if is_folder else [name]))
        elif queries is not None:
            folder = self.config.directory / queries
            if not folder.is_dir():
                is_file = f"`{queries}` is a file; write `[{queries}]`"
                message = is_file if folder.is_file() else f"there is no directory `{queries}`; check the path"
                self._fault("query_not_found", f"graphs.{graph.id}.queries", message)
            yield from ((None, file) for file in self._files_in(queries))

    def _files_in(self, folder: str) -> list[str]:
        return [f"{folder.rstrip('/')}/{path.name}" for path in sorted((self.config.directory / folder).glob("*.gq"))]

    def _add_queries(self, graph_id: str, source: Source, expected: str | None) -> bool:
        """Add the queries of a file; they share the digest of the file. With a name, the file must hold that query."""
        try:
            names = [query.name.text for query in parse_queries(source)]
        except LanguageError as failure:
            self._fault("query_invalid", f"graphs.{graph_id}.queries", str(failure))
            return False
        if expected is not None and expected not in names:
            present = ", ".join(f"`{name}`" for name in names) or "none"
            self._fault(
                "query_name_mismatch",
                f"graphs.{graph_id}.queries.{expected}",
                f"`{source.name}` has no query of this name; it has {present}",
            )
        data = source.text.encode()
        for name in names if expected is None else [expected]:
            address = f"query.{graph_id}.{name}"
            if address in self.resources:
                self._fault("duplicate_query_name", address, f"`{source.name}` declares it a second time; rename one")
            self.add(Resource(address, sha256(data), payload=data, depends_on=(f"schema.{graph_id}",)))
        return True

    def read_policy(self, policy: PolicyDeclaration) -> None:
        from omnigraph.policy import BundleScope, Policy, parse_bundle

        member = f"policies.{policy.name}.file"
        data = self._read_file(policy.file, member, POLICY_BYTES_MAX, "policy_not_found")
        if data is None:
            return
        scope: BundleScope = "server" if policy.is_for_server else "graph"
        try:
            # Compiled as well: some rules are only refused there.
            Policy(parse_bundle(data.decode(), name=policy.file, scope=scope), scope, "graph")
        except UnicodeDecodeError as failure:
            self._fault("policy_invalid", member, f"byte {failure.start} is not UTF-8; save the file as UTF-8")
            return
        except PolicyError as failure:
            self._fault("policy_invalid", member, str(failure))
            return
        bindings = [scope if policy.is_for_server else f"graph.{scope}" for scope in policy.applies_to]
        depends_on = () if policy.is_for_server else tuple(bindings)
        self.add(Resource(f"policy.{policy.name}", sha256(data), {"applies_to": bindings}, data, depends_on))

    def read_pipeline(self, pipeline: PipelineDeclaration) -> None:
        """Check what a pipeline names: the types and stored queries of its graph. Its sources are read by a run."""
        member, graph = f"pipelines.{pipeline.name}", self.graphs.get(str(pipeline.graph))
        if graph is None:
            return
        for kind, mappings, types in (
            ("node", pipeline.nodes, graph.catalog.nodes),
            ("edge", pipeline.edges, graph.catalog.edges),
        ):
            for name in mappings:
                if name not in types:
                    hint = did_you_mean(name, types) or f"the schema has {', '.join(types) or 'none'}"
                    self._fault("unknown_type", f"{member}.{kind}s.{name}", f"there is no {kind} type `{name}`; {hint}")
        for expectation in pipeline.expectations:
            if expectation.query is not None and graph.queries.get(expectation.query) is None:
                message = f"the graph `{pipeline.graph}` has no stored query `{expectation.query}`"
                self._fault("query_not_found", f"{member}.expect", message)
        data = pipeline.text.encode()
        depends_on = (f"graph.{pipeline.graph}",)
        self.add(Resource(f"pipeline.{pipeline.name}", sha256(data), {"graph": str(pipeline.graph)}, data, depends_on))

    def _read(self, file: str, member: str, diagnostic: str, code: str) -> Source | None:
        data = self._read_file(file, member, SOURCE_BYTES_MAX, code)
        try:
            return None if data is None else decode_source(file, data, diagnostic)
        except LanguageError as failure:
            self._fault("source_invalid", member, str(failure))
        return None

    def _read_file(self, file: str, member: str, bytes_max: int, code: str) -> bytes | None:
        """Read a file of the folder. What is deployed was reviewed with the folder, so all of it must be in there."""
        path = self.config.directory / file
        try:
            if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.config.directory)):
                message = f"`{file}` is outside the folder of `{CONFIG_NAME}`; move or copy the file into it"
                self._fault("path_outside_folder", member, message)
                return None
            return read_regular_file(path, bytes_max)[0]
        except UsageError as failure:
            self._fault(code, member, failure.message)
        except ValueError:
            self._fault(code, member, f"{file!r} is not the name of a file; check the path")
        return None

    def _fault(self, code: str, path: str, message: str) -> None:
        self.findings.append(error(code, path, message))
