"""Every method of a graph as a call: the route, the request and the parser of the response.

Pure. Signatures and names are those of an opened graph, without the parts that need direct access to storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote

from omnigraph import wire
from omnigraph.client import messages
from omnigraph.client.messages import (
    AsOf,
    BlobInfo,
    Call,
    Request,
    Response,
    encode,
    find_blob,
    get,
    parse_as,
    post,
    post_data,
    state_text,
    with_operation_id,
)
from omnigraph.errors import UsageError
from omnigraph.limits import SERVER_LOAD_SECONDS_MAX, WRITE_BYTES_MAX
from omnigraph.public_values import (
    Branch,
    Commit,
    EntityLog,
    IngestReceipt,
    MergeReceipt,
    MutationReceipt,
    Operation,
    PropertyBlame,
    Snapshot,
    Tag,
)
from omnigraph.source_files import SourceInput, query_source, schema_source

if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.input.frames import FrameLines
    from omnigraph.engine.merge.conflicts import ResolutionsInput
    from omnigraph.engine.query.physical_plan import Explanation
    from omnigraph.engine.query.result import Result
    from omnigraph.engine.schema import SchemaReceipt
    from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
    from omnigraph.lang.migrate import SchemaPlan


T = TypeVar("T")
MAIN = "main"
Params = Mapping[str, object] | None
Names = Sequence[str] | None
# Arrow rows if possible; JSON if a proxy does not pass Arrow.
_ROWS = {"accept": f"{wire.ARROW}, {wire.JSON};q=0.5"}


class GraphCalls:
    """Calls of a graph itself; those without a docstring are documented in `GraphProtocol`."""

    def query(
        self,
        source: SourceInput,
        params: Params = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: wire.Naming = "now",
    ) -> Call[Result]:
        text = query_source(source).text
        request_input = wire.Query(
            query=text, name=name, params=_optional_dict(params), names=names, branch=branch, at=state_text(at)
        )
        return Call(post("/query", request_input, _ROWS), messages.parse_result, source=text)

    def explain(
        self,
        source: SourceInput,
        params: Params = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: wire.Naming = "now",
        profile: bool = False,
    ) -> Call[Explanation]:
        text = query_source(source).text
        request_input = wire.Explain(
            query=text,
            name=name,
            params=_optional_dict(params),
            names=names,
            profile=profile,
            branch=branch,
            at=state_text(at),
        )
        return Call(post("/explain", request_input), messages.parse_explanation, source=text)

    def mutate(
        self,
        source: SourceInput,
        params: Params = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        if_commit: str | None = None,
        message: str | None = None,
        dry_run: bool = False,
    ) -> Call[MutationReceipt]:
        text = query_source(source).text
        request_input = wire.Mutate(
            query=text, name=name, params=_optional_dict(params), branch=branch, message=message, dry_run=dry_run
        )
        return _write("/mutate", request_input, parse_as(MutationReceipt), if_commit=if_commit, source=text)

    def queries(self) -> Call[list[dict[str, Any]]]:
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
        return Call(get("/queries"), lambda response: list(response.json()["queries"]))

    def invoke(
        self,
        name: str,
        params: Params = None,
        *,
        branch: str = MAIN,
        at: AsOf | None = None,
        names: wire.Naming = "now",
    ) -> Call[Result]:
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
        request_input = wire.Invoke(
            params=_optional_dict(params), expect_mutation=False, names=names, branch=branch, at=state_text(at)
        )
        return Call(post(f"/queries/{_escape(name)}", request_input, _ROWS), messages.parse_result)

    def invoke_mutation(
        self,
        name: str,
        params: Params = None,
        *,
        branch: str = MAIN,
        if_commit: str | None = None,
        message: str | None = None,
    ) -> Call[MutationReceipt]:
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
        request_input = wire.Invoke(params=_optional_dict(params), branch=branch, expect_mutation=True, message=message)
        path = f"/queries/{_escape(name)}"
        return _write(path, request_input, parse_as(MutationReceipt), if_commit=if_commit)

    def load(
        self,
        data: Any = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Literal["append", "merge", "overwrite"] = "merge",
        on_duplicate: Literal["error", "first", "last"] = "error",
        branch: str = MAIN,
        from_branch: str | None = None,
        message: str | None = None,
    ) -> Call[IngestReceipt]:
        request_input = wire.LoadLines(
            branch=branch, from_=from_branch, mode=mode, on_duplicate=on_duplicate, message=message
        )
        body = _ndjson_body(data, nodes, edges, mode)
        request = post_data("/load/ndjson", request_input, wire.NDJSON, body, SERVER_LOAD_SECONDS_MAX)
        return Call(with_operation_id(request), parse_as(IngestReceipt), is_write=True)

    # The former name.
    ingest = load

    def snapshot(self, branch: str = MAIN, *, at: AsOf | None = None, names: wire.Naming = "now") -> Call[Snapshot]:
        state = None if at is None else str(state_text(at))
        return Call(get("/snapshot", wire.SnapshotInput(branch=branch, at=state, names=names)), parse_as(Snapshot))

    def commits(self, branch: str = MAIN, *, limit: int | None = None, before: str | None = None) -> Call[list[Commit]]:
        request = get("/commits", wire.Commits(branch=branch, limit=limit, before=before))
        return Call(request, lambda response: [Commit.from_json(item) for item in response.json()["commits"]])

    def commit(self, at: AsOf, branch: str = MAIN) -> Call[Commit]:
        return Call(get(f"/commits/{_escape(str(state_text(at)))}", wire.BranchInput(branch=branch)), parse_as(Commit))

    def get(
        self, type_name: str, key: Any, *, branch: str = MAIN, at: AsOf | None = None, names: wire.Naming = "now"
    ) -> Call[dict[str, Any] | None]:
        request_input = wire.GetEntity(type=type_name, key=key, branch=branch, at=state_text(at), names=names)
        return Call(post("/entity", request_input, _ROWS), messages.parse_entity)

    def log(
        self, type_name: str, key: Any, *, branch: str = MAIN, at: AsOf | None = None, limit: int | None = None
    ) -> Call[EntityLog]:
        request_input = wire.LogEntity(type=type_name, key=key, branch=branch, at=state_text(at), limit=limit)
        return Call(post("/log", request_input), parse_as(EntityLog))

    def blame(self, type_name: str, key: Any, *, branch: str = MAIN, at: AsOf | None = None) -> Call[PropertyBlame]:
        request_input = wire.Entity(type=type_name, key=key, branch=branch, at=state_text(at))
        return Call(post("/blame", request_input), parse_as(PropertyBlame))

    def operation(self, operation_id: str) -> Call[Operation]:
        return Call(get(f"/operations/{_escape(operation_id)}"), parse_as(Operation))

    def revert(
        self,
        commit_id: str,
        branch: str = MAIN,
        *,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
        message: str | None = None,
    ) -> Call[MergeReceipt]:
        return _replay("/revert", commit_id, branch, dry_run, resolutions, message)

    def cherry_pick(
        self,
        commit_id: str,
        branch: str = MAIN,
        *,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
        message: str | None = None,
    ) -> Call[MergeReceipt]:
        return _replay("/cherry-pick", commit_id, branch, dry_run, resolutions, message)

    def export(
        self,
        branch: str = MAIN,
        *,
        at: AsOf | None = None,
        types: Names = None,
        names: wire.Naming = "now",
        format: Literal["ndjson", "graphml", "gexf", "dot", "cypher"] = "ndjson",  # noqa: A002 - as of an opened graph
    ) -> Request:
        request = wire.Export(
            type_names=_optional_list(types), names=names, format=format, branch=branch, at=state_text(at)
        )
        return post("/export", request)

    def baseline(self, branch: str = MAIN, *, kinds: Names = None, types: Names = None, ops: Names = None) -> Request:
        return post("/changes/baseline", wire.Baseline(branch=branch, **_selection(kinds, types, ops)))

    def diff(
        self,
        a: AsOf,
        b: AsOf,
        *,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        branch: str = MAIN,
        names: wire.Naming = "now",
        images: bool = False,
    ) -> Call[ChangeSet]:
        request_input = wire.Diff(
            from_=state_text(a),
            to=state_text(b),
            branch=branch,
            names=names,
            images=images,
            **_selection(kinds, types, ops),
        )
        return Call(post("/diff", request_input), messages.parse_diff)

    def commit_changes(
        self,
        commit_id: AsOf,
        *,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        limit: int | None = None,
        page_token: str | None = None,
        names: wire.Naming = "now",
    ) -> Call[CommitPage]:
        request_input = wire.CommitChanges(
            page_token=page_token, limit=limit, names=names, **_selection(kinds, types, ops)
        )
        path = f"/commits/{_escape(str(state_text(commit_id)))}/changes"
        return Call(get(path, request_input), messages.parse_commit_page)

    def changes(
        self,
        branch: str = MAIN,
        *,
        start: str | None = None,
        cursor: str | None = None,
        page_token: str | None = None,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        limit: int | None = None,
        commits_max: int | None = None,
    ) -> Call[FeedPage]:
        request_input = wire.Changes(
            branch=branch,
            start=start,
            cursor=cursor,
            page_token=page_token,
            limit=limit,
            max_commits=commits_max,
            **_selection(kinds, types, ops),
        )
        return Call(get("/changes", request_input), messages.parse_feed_page)

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = MAIN,
        at: AsOf | None = None,
        names: wire.Naming = "now",
    ) -> Call[BlobInfo]:
        which = {"entity": entity, "type": type_name, "id": entity_id, "property": property_name}
        # Ranges are read from the commit that it was found at; the newest state has been asked with its own names.
        return find_blob({**which, "names": "then" if at is None else names}, {"branch": branch, "at": state_text(at)})


class BranchCalls:
    """Calls of the branches of a graph."""

    def create(self, name: str, from_: str = MAIN, *, at: AsOf | None = None) -> Call[Branch]:
        request = post("/branches", wire.NewBranch(name=name, from_=from_, at=state_text(at)))
        return Call(request, parse_as(Branch), is_write=True)

    def list(self) -> Call[list[str]]:
        return Call(get("/branches"), lambda response: list(response.json()["branches"]))

    def rename(self, name: str, new_name: str) -> Call[Branch]:
        request = post("/branches/rename", wire.Rename(name=name, new_name=new_name))
        return Call(request, parse_as(Branch), is_write=True)

    def delete(self, name: str) -> Call[None]:
        return Call(Request("DELETE", f"/branches/{_escape(name)}"), lambda response: None, is_write=True)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        delete_branch: bool = False,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
        message: str | None = None,
    ) -> Call[MergeReceipt]:
        request_input = wire.Merge(
            source=source,
            target=into,
            delete_branch=delete_branch,
            dry_run=dry_run,
            resolutions=_resolutions(resolutions),
            message=message,
        )
        return _write("/branches/merge", request_input, parse_as(MergeReceipt), dry_run=dry_run)


class TagCalls:
    """Calls of the tags of a graph."""

    def create(self, name: str, at: AsOf | None = None, *, branch: str = MAIN) -> Call[Tag]:
        request_input = wire.NewTag(name=name, branch=branch, at=state_text(at))
        return Call(post("/tags", request_input), parse_as(Tag), is_write=True)

    def list(self) -> Call[list[Tag]]:
        return Call(get("/tags"), lambda response: [Tag.from_json(item) for item in response.json()["tags"]])

    def delete(self, name: str) -> Call[None]:
        return Call(Request("DELETE", f"/tags/{_escape(name)}"), lambda response: None, is_write=True)


class SchemaCalls:
    """Calls of the schema of a graph."""

    def read(self, branch: str = "main", *, at: AsOf | None = None) -> Call[str]:
        state = None if at is None else str(state_text(at))
        request = get("/schema", wire.SchemaInput(branch=branch, at=state))
        return Call(request, lambda response: str(response.json()["schema_source"]))

    def catalog(self) -> Call[Catalog]:
        return Call(get("/schema"), messages.parse_catalog)

    def nodes(self) -> Call[Mapping[str, NodeType]]:
        return Call(get("/schema"), lambda response: messages.parse_catalog(response).nodes)

    def edges(self) -> Call[Mapping[str, EdgeType]]:
        return Call(get("/schema"), lambda response: messages.parse_catalog(response).edges)

    def types(self) -> Call[tuple[NodeType | EdgeType, ...]]:
        return Call(get("/schema"), lambda response: messages.parse_catalog(response).types)

    def plan(self, schema: str | Path, *, allow_data_loss: bool = False, branch: str = "main") -> Call[SchemaPlan]:
        text = schema_source(schema).text
        request_input = wire.NewSchema(schema_source=text, allow_data_loss=allow_data_loss, branch=branch)
        return Call(post("/schema/plan", request_input), messages.parse_schema_plan, source=text)

    def apply(
        self,
        schema: str | Path,
        *,
        allow_data_loss: bool = False,
        allow_drops: bool = True,
        branch: str = "main",
        message: str | None = None,
    ) -> Call[SchemaReceipt]:
        text = schema_source(schema).text
        request_input = wire.ApplySchema(
            schema_source=text,
            allow_data_loss=allow_data_loss,
            allow_drops=allow_drops,
            branch=branch,
            message=message,
        )
        return _write("/schema/apply", request_input, messages.parse_schema_receipt, source=text)


def _replay(
    path: str, commit_id: str, branch: str, dry_run: bool, resolutions: ResolutionsInput, message: str | None
) -> Call[MergeReceipt]:
    settled = _resolutions(resolutions)
    request_input = wire.Replay(commit=commit_id, branch=branch, dry_run=dry_run, resolutions=settled, message=message)
    return _write(path, request_input, parse_as(MergeReceipt), dry_run=dry_run)


def _write(
    path: str,
    request_input: object,
    read: Callable[[Response], T],
    *,
    source: str | None = None,
    if_commit: str | None = None,
    dry_run: bool = False,
) -> Call[T]:
    """Return a call with an operation id, which makes it safe to retry."""
    headers = {}
    if if_commit is not None:
        path, headers = f"{path}/if-graph-commit", {wire.IF_COMMIT: if_commit}
    return Call(with_operation_id(post(path, request_input, headers)), read, not dry_run, source)


def _selection(kinds: Names, types: Names, ops: Names) -> dict[str, Any]:
    return {"kind": _optional_list(kinds), "type": _optional_list(types), "op": _optional_list(ops)}


def _optional_list(names: Names) -> list[str] | None:
    return None if names is None else list(names)


def _optional_dict(params: Params) -> dict[str, Any] | None:
    return None if params is None else dict(params)


def _escape(name: str) -> str:
    return quote(name, safe="")


def _resolutions(resolutions: ResolutionsInput) -> list[dict[str, Any]] | None:
    from omnigraph.engine.merge.conflicts import resolution_objects

    return None if resolutions is None else resolution_objects(resolutions)


def _ndjson_body(
    data: Any, nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None, mode: str
) -> bytes | Path:
    import orjson

    from omnigraph.engine.input.frames import FrameLines, resolve_input
    from omnigraph.engine.input.ndjson.reader import is_records, read_blocks, records

    data = resolve_input(data, nodes, edges)
    if isinstance(data, str | PathLike) and (path := Path(data)).is_file() and path.stat().st_size > WRITE_BYTES_MAX:
        return path
    if is_records(data):
        return b"".join(encode(record, orjson.OPT_APPEND_NEWLINE) for record in records(data))
    body = b"".join(read_blocks(data))
    if mode == "overwrite" and isinstance(data, FrameLines):
        _refuse_empty_frames(data)
    return body


def _refuse_empty_frames(frames: FrameLines) -> None:
    """Raise if a frame has no rows: the lines that are sent would not name its type, which would keep its entities."""
    empty = [name for names in frames.type_names.values() for name in names if name not in frames.filled_names]
    if empty:
        raise UsageError(
            f"the frame of `{empty[0]}` has no rows, so no line of it names the type to a server, which would keep its"
            " entities; load it into the graph itself, or delete the entities with a mutation",
            type=empty[0],
        )
