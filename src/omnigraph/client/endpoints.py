"""Every method of a served graph as an endpoint: its route, what it sends, and the parser of the response.

Pure. Signatures and documentation are those of the protocols, without the parts that need direct access to storage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import quote

from omnigraph import wire
from omnigraph.client import messages
from omnigraph.client.messages import Call, Request, Response, parse_as, parse_member
from omnigraph.limits import SERVER_LOAD_SECONDS_MAX, WRITE_BYTES_MAX
from omnigraph.part_protocols import AsOf, BranchesProtocol, SchemaProtocol, TagsProtocol
from omnigraph.protocol import GraphProtocol
from omnigraph.protocol.reads import Naming, Params
from omnigraph.public_values import (
    Branch,
    Commit,
    EntityLog,
    IngestReceipt,
    MergeReceipt,
    MutationReceipt,
    Operation,
    PropertyBlame,
    SchemaReceipt,
    Snapshot,
    Tag,
)
from omnigraph.source_files import query_source, schema_source

if TYPE_CHECKING:
    from omnigraph.engine.query.result import Result


class ServedGraph(GraphProtocol, Protocol):
    """A graph of a server: the methods of every graph, and its stored queries."""

    def snapshot(self, branch: str = "main", *, at: AsOf | None = None, names: Naming = "now") -> Snapshot: ...

    def queries(self) -> list[dict[str, Any]]:
        """Return the stored queries of the graph.

        Returns:
            Each query with its name and parameters.

        Raises:
            ServerUnreachable: There is no response.
            PolicyDenied: The actor may not see them.

        Example:
            >>> [query["name"] for query in graph.queries()]
            ['add_person', 'people']
        """

    def invoke(
        self,
        name: str,
        params: Params = None,
        *,
        branch: str = "main",
        at: AsOf | None = None,
        names: Naming = "now",
    ) -> Result:
        """Run a stored read query.

        Args:
            name: The name of the stored query.
            params: Values of the query's `$parameters`.
            branch: The branch to read.
            at: Read a past state, as in `query`.
            names: Which names a past state has, as in `query`.

        Returns:
            An Arrow-backed `Result`.

        Raises:
            QueryNotFound: There is no such stored query.
            PolicyDenied: The actor may not run it.
            BudgetExceeded: The query needs more than its budget.

        Example:
            >>> graph.invoke("people").rows()
            [{'name': 'Ada'}, {'name': 'Bob'}]
        """

    def invoke_mutation(
        self,
        name: str,
        params: Params = None,
        *,
        branch: str = "main",
        if_commit: str | None = None,
        message: str | None = None,
    ) -> MutationReceipt:
        """Run a stored mutation as one commit.

        Args:
            name: The name of the stored query.
            params: Values of the query's `$parameters`.
            branch: The branch to write.
            if_commit: Write only if this commit is the head of the branch.
            message: What the commit is for, shown in its history.

        Returns:
            How many nodes and edges changed, and the commit, unless nothing changed.

        Raises:
            QueryNotFound: There is no such stored query.
            PolicyDenied: The actor may not run it.
            DataError: The result would violate a rule of the schema; nothing was written.

        Example:
            >>> graph.invoke_mutation("add_person", {"name": "Cid"}).affected_nodes
            1
        """


_PARAMETER: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How the arguments of a method become a request: parameters of its path, or members of `takes`.

    `read` parses the response; None if that is a stream. A commit gets an operation id, which makes it safe to retry.
    """

    route: str
    read: Callable[[Response], Any] | None
    takes: type = wire.NoInput
    writes: Literal["nothing", "a name", "a commit"] = "nothing"
    headers: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)

    def call(self, arguments: Mapping[str, Any]) -> Call[Any]:
        """Return the call of the method with some arguments."""
        members = {
            name: _json_member(name, argument, arguments[argument])
            for name, argument in wire.arguments_of(self.takes).items()
            if argument in arguments
        }
        request = self._request(arguments, self.takes(**members, **self.constants))
        is_write = self.writes != "nothing" and not arguments.get("dry_run")
        source = members.get("query") or members.get("schema_source")
        if self.writes == "a commit":
            request = messages.with_operation_id(request)
        return Call(request, self.read or (lambda response: response), is_write, source)

    def _request(self, arguments: Mapping[str, Any], sent: object) -> Request:
        method, path = self.route.split()
        path = _PARAMETER.sub(lambda name: quote(str(messages.state_text(arguments[name[1]])), safe=""), path)
        if method == "DELETE":
            return Request(method, path)
        if method == "GET":
            return messages.get(path, sent)
        if isinstance(sent, wire.LoadLines):
            return messages.post_data(path, sent, wire.NDJSON, _ndjson_body(arguments), SERVER_LOAD_SECONDS_MAX)
        if arguments.get("if_commit") is None:
            return messages.post(path, sent, self.headers)
        return messages.post(f"{path}/if-graph-commit", sent, {**self.headers, wire.IF_COMMIT: arguments["if_commit"]})


def _json_member(member: str, argument: str, value: Any) -> Any:
    """Return an argument of a method as a member of a request."""
    if value is None:
        return None
    match member, argument:
        case "query", _:
            return query_source(value).text
        case "schema_source", _:
            return schema_source(value).text
        case _, "at" | "a" | "b":
            return messages.state_text(value)
        case _, "params":
            return dict(value)
        case _, "kinds" | "types" | "ops":
            return list(value)
        case _, "resolutions":
            from omnigraph.engine.merge.conflicts import resolution_objects

            return resolution_objects(value)
    return value


# Arrow rows if possible; JSON if a proxy does not pass Arrow.
_ROWS: Final = {"accept": f"{wire.ARROW}, {wire.JSON};q=0.5"}
_load: Final = Endpoint("POST /load/ndjson", parse_as(IngestReceipt), wire.LoadLines, "a commit")
ENDPOINTS: Final[Mapping[object, Endpoint]] = {
    ServedGraph.query: Endpoint("POST /query", messages.parse_result, wire.Query, headers=_ROWS),
    ServedGraph.explain: Endpoint("POST /explain", messages.parse_explanation, wire.Explain),
    ServedGraph.mutate: Endpoint("POST /mutate", parse_as(MutationReceipt), wire.Mutate, "a commit"),
    ServedGraph.queries: Endpoint("GET /queries", parse_member("queries")),
    ServedGraph.invoke: Endpoint(
        "POST /queries/{name}",
        messages.parse_result,
        wire.Invoke,
        headers=_ROWS,
        constants={"expect_mutation": False},
    ),
    ServedGraph.invoke_mutation: Endpoint(
        "POST /queries/{name}",
        parse_as(MutationReceipt),
        wire.Invoke,
        "a commit",
        constants={"expect_mutation": True},
    ),
    ServedGraph.load: _load,
    ServedGraph.ingest: _load,
    ServedGraph.snapshot: Endpoint("GET /snapshot", parse_as(Snapshot), wire.SnapshotInput),
    ServedGraph.commits: Endpoint("GET /commits", parse_member("commits", Commit), wire.Commits),
    ServedGraph.commit: Endpoint("GET /commits/{at}", parse_as(Commit), wire.BranchInput),
    ServedGraph.get: Endpoint("POST /entity", messages.parse_entity, wire.GetEntity, headers=_ROWS),
    ServedGraph.log: Endpoint("POST /log", parse_as(EntityLog), wire.LogEntity),
    ServedGraph.blame: Endpoint("POST /blame", parse_as(PropertyBlame), wire.Entity),
    ServedGraph.operation: Endpoint("GET /operations/{operation_id}", parse_as(Operation)),
    ServedGraph.revert: Endpoint("POST /revert", parse_as(MergeReceipt), wire.Replay, "a commit"),
    ServedGraph.cherry_pick: Endpoint("POST /cherry-pick", parse_as(MergeReceipt), wire.Replay, "a commit"),
    ServedGraph.export: Endpoint("POST /export", None, wire.Export),
    ServedGraph.baseline: Endpoint("POST /changes/baseline", None, wire.Baseline),
    ServedGraph.diff: Endpoint("POST /diff", messages.parse_diff, wire.Diff),
    ServedGraph.commit_changes: Endpoint(
        "GET /commits/{commit_id}/changes", messages.parse_commit_page, wire.CommitChanges
    ),
    ServedGraph.changes: Endpoint("GET /changes", messages.parse_feed_page, wire.Changes),
    BranchesProtocol.create: Endpoint("POST /branches", parse_as(Branch), wire.NewBranch, "a name"),
    BranchesProtocol.list: Endpoint("GET /branches", parse_member("branches")),
    BranchesProtocol.rename: Endpoint("POST /branches/rename", parse_as(Branch), wire.Rename, "a name"),
    BranchesProtocol.delete: Endpoint("DELETE /branches/{name}", lambda response: None, writes="a name"),
    BranchesProtocol.merge: Endpoint("POST /branches/merge", parse_as(MergeReceipt), wire.Merge, "a commit"),
    TagsProtocol.create: Endpoint("POST /tags", parse_as(Tag), wire.NewTag, "a name"),
    TagsProtocol.list: Endpoint("GET /tags", parse_member("tags", Tag)),
    TagsProtocol.delete: Endpoint("DELETE /tags/{name}", lambda response: None, writes="a name"),
    SchemaProtocol.read: Endpoint("GET /schema", parse_member("schema_source"), wire.SchemaInput),
    SchemaProtocol.plan: Endpoint("POST /schema/plan", messages.parse_schema_plan, wire.NewSchema),
    SchemaProtocol.apply: Endpoint("POST /schema/apply", parse_as(SchemaReceipt), wire.ApplySchema, "a commit"),
    SchemaProtocol.source: Endpoint("GET /schema", parse_member("schema_source")),
    SchemaProtocol.catalog: Endpoint("GET /schema", messages.parse_catalog),
    SchemaProtocol.nodes: Endpoint("GET /schema", lambda response: messages.parse_catalog(response).nodes),
    SchemaProtocol.edges: Endpoint("GET /schema", lambda response: messages.parse_catalog(response).edges),
    SchemaProtocol.types: Endpoint("GET /schema", lambda response: messages.parse_catalog(response).types),
}


def _ndjson_body(arguments: Mapping[str, Any]) -> bytes | Path:
    import orjson

    from omnigraph.client.frame_lines import encode_frames
    from omnigraph.engine.input.frames import check_sources
    from omnigraph.engine.input.ndjson.reader import is_records, read_blocks, records

    data, nodes, edges = (arguments.get(name) for name in ("data", "nodes", "edges"))
    check_sources(data, nodes, edges)
    if nodes or edges:
        return b"".join(encode_frames(nodes, edges, is_overwriting=arguments.get("mode") == "overwrite"))
    if isinstance(data, str | PathLike) and (path := Path(data)).is_file() and path.stat().st_size > WRITE_BYTES_MAX:
        return path
    if is_records(data):
        return b"".join(messages.encode(record, orjson.OPT_APPEND_NEWLINE) for record in records(data))
    return b"".join(read_blocks(data))
