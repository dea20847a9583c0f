"""Every method of a graph as a call: the route, the request and the parser of the response.

Pure. Signatures and names are those of an opened graph, without the parts that need direct access to storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from omnigraph.client import responses
from omnigraph.client.blobs import BlobCalls, find_blob
from omnigraph.client.request import AsOf, Call, Request, encode, get, post, post_data, target_fields, with_operation_id
from omnigraph.client.responses import parse_as
from omnigraph.public_values import (
    Branch,
    Commit,
    IngestReceipt,
    MergeReceipt,
    MutationReceipt,
    Operation,
    Snapshot,
    Tag,
)
from omnigraph.server import wire
from omnigraph.source_files import SourceInput, query_source, schema_source

if TYPE_CHECKING:
    from omnigraph.engine.changes import ChangeSet, CommitPage, FeedPage
    from omnigraph.engine.merge.conflicts import ResolutionsInput
    from omnigraph.engine.query.explain import Explanation
    from omnigraph.engine.query.result import Result
    from omnigraph.engine.schema import SchemaPlan, SchemaReceipt


MAIN = "main"
Params = Mapping[str, object] | None
Names = Sequence[str] | None
# Arrow rows if possible; JSON if a proxy does not pass Arrow.
_ROWS = {"accept": f"{wire.ARROW}, {wire.JSON};q=0.5"}


class GraphCalls:
    """Calls of a graph itself."""

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
        """Run a read on the newest state of a branch, or at a commit, a tag, a manifest version or a point in time.

        An older state is asked with the names of today; with `names="then"`, with its own.
        """
        text = query_source(source).text
        request_input = wire.Query(
            query=text, name=name, params=_optional_dict(params), names=names, **target_fields(branch, at)
        )
        return Call(post("/query", request_input, _ROWS), responses.parse_result, source=text)

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
        """Return the plan of a read with estimates; with `profile` it is run, and the plan adds what happened."""
        text = query_source(source).text
        request_input = wire.Explain(
            query=text,
            name=name,
            params=_optional_dict(params),
            names=names,
            profile=profile,
            **target_fields(branch, at),
        )
        return Call(post("/explain", request_input), responses.parse_explanation, source=text)

    def mutate(
        self,
        source: SourceInput,
        params: Params = None,
        *,
        name: str | None = None,
        branch: str = MAIN,
        if_commit: str | None = None,
    ) -> Call[MutationReceipt]:
        """Run a mutation as one commit. `if_commit` lets it through only while the branch is at that commit."""
        text = query_source(source).text
        request_input = wire.Mutate(query=text, name=name, params=_optional_dict(params), branch=branch)
        path, headers = _conditional_path("/mutate", if_commit)
        return Call(
            with_operation_id(post(path, request_input, headers)),
            parse_as(MutationReceipt),
            is_write=True,
            source=text,
        )

    def queries(self) -> Call[list[dict[str, Any]]]:
        """Return the stored queries of the graph, with their parameters."""
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
        """Run a stored read."""
        request_input = wire.Invoke(
            params=_optional_dict(params), expect_mutation=False, names=names, **target_fields(branch, at)
        )
        return Call(post(f"/queries/{_escape(name)}", request_input, _ROWS), responses.parse_result)

    def invoke_mutation(
        self, name: str, params: Params = None, *, branch: str = MAIN, if_commit: str | None = None
    ) -> Call[MutationReceipt]:
        """Run a stored mutation as one commit."""
        request_input = wire.Invoke(params=_optional_dict(params), branch=branch, expect_mutation=True)
        path, headers = _conditional_path(f"/queries/{_escape(name)}", if_commit)
        return Call(with_operation_id(post(path, request_input, headers)), parse_as(MutationReceipt), is_write=True)

    def ingest(
        self,
        data: Any = None,
        *,
        nodes: Mapping[str, Any] | None = None,
        edges: Mapping[str, Any] | None = None,
        mode: Literal["append", "merge", "overwrite"] = "merge",
        branch: str = MAIN,
        from_branch: str | None = None,
    ) -> Call[IngestReceipt]:
        """Write NDJSON (a path, bytes or a file object), dictionaries, or data frames by type, as one commit."""
        request_input = wire.LoadLines(branch=branch, from_=from_branch, mode=mode)
        request = post_data("/load/ndjson", request_input, wire.NDJSON, _ndjson_bytes(data, nodes, edges))
        return Call(with_operation_id(request), parse_as(IngestReceipt), is_write=True)

    def snapshot(self, branch: str = MAIN) -> Call[Snapshot]:
        """Return the newest state of a branch."""
        return Call(get("/snapshot", wire.BranchInput(branch=branch)), parse_as(Snapshot))

    def commits(self, branch: str = MAIN, *, limit: int | None = None, before: str | None = None) -> Call[list[Commit]]:
        """Return the commits that a branch is made of, newest first; at most `limit`, those `before` one of them."""
        request = get("/commits", wire.Commits(branch=branch, limit=limit, before=before))
        return Call(request, lambda response: [Commit.from_json(item) for item in response.json()["commits"]])

    def commit(self, commit_id: str) -> Call[Commit]:
        """Return one commit of any branch."""
        return Call(get(f"/commits/{_escape(commit_id)}"), parse_as(Commit))

    def operation(self, operation_id: str) -> Call[Operation]:
        """Look up the outcome of a write by its operation id."""
        return Call(get(f"/operations/{_escape(operation_id)}"), parse_as(Operation))

    def revert(
        self, commit_id: str, branch: str = MAIN, *, dry_run: bool = False, resolutions: ResolutionsInput = None
    ) -> Call[MergeReceipt]:
        """Revert a commit, given by id or tag, as a new commit. Reverting a merge undoes everything it merged."""
        return _replay("/revert", commit_id, branch, dry_run, resolutions)

    def cherry_pick(
        self, commit_id: str, branch: str = MAIN, *, dry_run: bool = False, resolutions: ResolutionsInput = None
    ) -> Call[MergeReceipt]:
        """Apply the change of a commit of another branch, or of one that a tag names, as a new commit."""
        return _replay("/cherry-pick", commit_id, branch, dry_run, resolutions)

    def export(
        self,
        branch: str = MAIN,
        *,
        at: AsOf | None = None,
        types: Names = None,
        names: wire.Naming = "now",
    ) -> Request:
        """Return the graph as NDJSON that a load takes back, in chunks of whole lines."""
        return post("/export", wire.Export(type_names=_optional_list(types), names=names, **target_fields(branch, at)))

    def baseline(self, branch: str = MAIN, *, kinds: Names = None, types: Names = None, ops: Names = None) -> Request:
        """Return a branch as NDJSON, with a last record that names the cursor from which its feed goes on."""
        return post("/changes/baseline", wire.Baseline(branch=branch, **_selection(kinds, types, ops)))

    def diff(
        self,
        a: str | int,
        b: str | int,
        *,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        branch: str = MAIN,
        names: wire.Naming = "now",
    ) -> Call[ChangeSet]:
        """Return what differs between two branches, tags, commits, or manifest versions of `branch`."""
        request_input = wire.Diff(from_=a, to=b, branch=branch, names=names, **_selection(kinds, types, ops))
        return Call(post("/diff", request_input), responses.parse_diff)

    def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Names = None,
        types: Names = None,
        ops: Names = None,
        limit: int | None = None,
        page_token: str | None = None,
        names: wire.Naming = "now",
    ) -> Call[CommitPage]:
        """Return a page of what a commit changed against its first parent, with images before and after."""
        request_input = wire.CommitChanges(
            page_token=page_token, limit=limit, names=names, **_selection(kinds, types, ops)
        )
        return Call(get(f"/commits/{_escape(commit_id)}/changes", request_input), responses.parse_commit_page)

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
        """Return the next page of a branch's feed, from `start`, a `cursor` or a `page_token` on."""
        request_input = wire.Changes(
            branch=branch,
            start=start,
            cursor=cursor,
            page_token=page_token,
            limit=limit,
            max_commits=commits_max,
            **_selection(kinds, types, ops),
        )
        return Call(get("/changes", request_input), responses.parse_feed_page)

    def blob(
        self,
        type_name: str,
        entity_id: str,
        property_name: str,
        *,
        entity: str = "node",
        branch: str = MAIN,
        at: str | None = None,
        names: wire.Naming = "now",
    ) -> BlobCalls:
        """Find a blob: its length, its tag, and ranges of its bytes."""
        which = {"entity": entity, "type": type_name, "id": entity_id, "property": property_name}
        # Ranges are read from the commit that it was found at; the newest state has been asked with its own names.
        return find_blob({**which, "names": "then" if at is None else names}, target_fields(branch, at))


class BranchCalls:
    """Calls of the branches of a graph."""

    def create(self, name: str, from_: str = MAIN, *, at: AsOf | None = None) -> Call[Branch]:
        """Make a branch from the newest state of another, or from a commit, a tag, or a moment of a branch."""
        state = {member: value for member, value in target_fields(from_, at).items() if member != "branch"}
        request = post("/branches", wire.NewBranch(name=name, from_=from_, **state))
        return Call(request, parse_as(Branch), is_write=True)

    def list(self) -> Call[list[str]]:
        """Return the names of all branches, sorted; `main` is always among them."""
        return Call(get("/branches"), lambda response: list(response.json()["branches"]))

    def rename(self, name: str, new_name: str) -> Call[Branch]:
        """Rename a branch."""
        return Call(
            post("/branches/rename", wire.Rename(name=name, new_name=new_name)), parse_as(Branch), is_write=True
        )

    def delete(self, name: str) -> Call[None]:
        """Delete a branch; raises while other branches or tags depend on it."""
        return Call(Request("DELETE", f"/branches/{_escape(name)}"), lambda response: None, is_write=True)

    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        delete_branch: bool = False,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
    ) -> Call[MergeReceipt]:
        """Merge a branch into another, as one commit; `dry_run` only says what would come out."""
        request_input = wire.Merge(
            source=source,
            target=into,
            delete_branch=delete_branch,
            dry_run=dry_run,
            resolutions=_resolutions(resolutions),
        )
        return Call(
            with_operation_id(post("/branches/merge", request_input)), parse_as(MergeReceipt), is_write=not dry_run
        )


class TagCalls:
    """Calls of the tags of a graph."""

    def create(self, name: str, at: AsOf | None = None, *, branch: str = MAIN) -> Call[Tag]:
        """Name a commit and protect it from cleanup: the newest of a branch, or the one at a moment of it."""
        state = target_fields(branch, at)
        request_input = wire.NewTag(name=name, branch=branch, at=state.get("snapshot"), as_of=state.get("as_of"))
        return Call(post("/tags", request_input), parse_as(Tag), is_write=True)

    def list(self) -> Call[list[Tag]]:
        """Return all tags, by name."""
        return Call(get("/tags"), lambda response: [Tag.from_json(item) for item in response.json()["tags"]])

    def delete(self, name: str) -> Call[None]:
        """Delete a tag; its commit stays, but loses its protection from cleanup."""
        return Call(Request("DELETE", f"/tags/{_escape(name)}"), lambda response: None, is_write=True)


class SchemaCalls:
    """Calls of the schema of a graph."""

    def source(self) -> Call[str]:
        """The text of the accepted schema."""
        return Call(get("/schema"), lambda response: str(response.json()["schema_source"]))

    def plan(self, schema: str | Path, *, allow_data_loss: bool = False) -> Call[SchemaPlan]:
        """Show the steps to a new schema, given as text or as the path of a `.pg` file; changes nothing."""
        text = _schema_text(schema)
        request_input = wire.NewSchema(schema_source=text, allow_data_loss=allow_data_loss)
        return Call(post("/schema/plan", request_input), responses.parse_schema_plan, source=text)

    def apply(self, schema: str | Path, *, allow_data_loss: bool = False) -> Call[SchemaReceipt]:
        """Migrate to a new schema, as one commit; raises if a step is not supported."""
        text = _schema_text(schema)
        request_input = wire.NewSchema(schema_source=text, allow_data_loss=allow_data_loss)
        return Call(
            with_operation_id(post("/schema/apply", request_input)),
            responses.parse_schema_receipt,
            is_write=True,
            source=text,
        )


def _replay(path: str, commit_id: str, branch: str, dry_run: bool, resolutions: ResolutionsInput) -> Call[MergeReceipt]:
    settled = _resolutions(resolutions)
    request_input = wire.Replay(commit=commit_id, branch=branch, dry_run=dry_run, resolutions=settled)
    return Call(with_operation_id(post(path, request_input)), parse_as(MergeReceipt), is_write=not dry_run)


def _conditional_path(path: str, if_commit: str | None) -> tuple[str, dict[str, str]]:
    return (path, {}) if if_commit is None else (f"{path}/if-graph-commit", {wire.IF_COMMIT: if_commit})


def _selection(kinds: Names, types: Names, ops: Names) -> dict[str, Any]:
    return {"kind": _optional_list(kinds), "type": _optional_list(types), "op": _optional_list(ops)}


def _optional_list(names: Names) -> list[str] | None:
    return None if names is None else list(names)


def _optional_dict(params: Params) -> dict[str, Any] | None:
    return None if params is None else dict(params)


def _escape(name: str) -> str:
    return quote(name, safe="")


def _schema_text(schema: str | Path) -> str:
    return schema_source(schema).text


def _resolutions(resolutions: ResolutionsInput) -> list[dict[str, Any]] | None:
    from omnigraph.engine.merge.conflicts import resolution_objects

    return None if resolutions is None else resolution_objects(resolutions)


def _ndjson_bytes(data: Any, nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None) -> bytes:
    import orjson

    from omnigraph.engine.write.frames import resolve_input
    from omnigraph.engine.write.ndjson.reader import is_records, read_blocks, records

    data = resolve_input(data, nodes, edges)
    if is_records(data):
        return b"".join(encode(record, orjson.OPT_APPEND_NEWLINE) for record in records(data))
    return b"".join(read_blocks(data))
