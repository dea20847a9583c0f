"""The parts of a graph that opened and served graphs share, with their documentation: branches, tags, schema, blobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from omnigraph.lang.catalog import Catalog, EdgeType, NodeType
    from omnigraph.lang.migrate import SchemaPlan
    from omnigraph.public_values import Branch, MergeReceipt, SchemaReceipt, Tag

# A state: a revision as text, a manifest version, or a timestamp (naive means UTC).
AsOf: TypeAlias = str | int | datetime
# A path, bytes, or dictionaries; files and bytes hold a JSON array or NDJSON.
ResolutionsInput: TypeAlias = str | Path | bytes | Iterable[Mapping[str, object]] | None


class BranchesProtocol(Protocol):
    """The branches of a graph."""

    def create(self, name: str, from_: str = "main", *, at: AsOf | None = None) -> Branch:
        """Create a branch from the head of another branch, or from a commit or tag.

        Args:
            name: The name of the new branch.
            from_: The branch, commit or tag to start from.
            at: Start from a past state of `from_`: a commit, a tag, a manifest version or a timestamp.

        Returns:
            The branch.

        Raises:
            BranchExists: There is a branch of this name.
            BranchNotFound: There is no branch `from_`.

        Example:
            >>> graph.branches.create("review").name
            'review'
        """
        ...

    def list(self) -> list[str]:
        """Return the names of all branches, sorted; `main` is always among them.

        Returns:
            The names.

        Raises:
            PolicyDenied: The actor may not read the graph.

        Example:
            >>> graph.branches.list()
            ['main']
        """
        ...

    def rename(self, name: str, new_name: str) -> Branch:
        """Rename a branch; work in progress on it continues under the new name.

        Args:
            name: The branch.
            new_name: Its new name.

        Returns:
            The branch under its new name.

        Raises:
            BranchNotFound: There is no such branch.
            BranchExists: The new name is taken.

        Example:
            >>> branch = graph.branches.create("review")
            >>> graph.branches.rename("review", "accepted").name
            'accepted'
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a branch; its commits that were merged stay.

        Args:
            name: The branch.

        Raises:
            BranchNotFound: There is no such branch.
            GraphError: `branch.in_use` if other branches or tags depend on it.

        Example:
            >>> branch = graph.branches.create("review")
            >>> graph.branches.delete("review")
        """
        ...

    def merge(
        self,
        source: str,
        into: str = "main",
        *,
        delete_branch: bool = False,
        dry_run: bool = False,
        resolutions: ResolutionsInput = None,
        message: str | None = None,
    ) -> MergeReceipt:
        """Merge a branch into another, as one commit.

        Args:
            source: The branch to merge.
            into: The branch that receives the commit.
            delete_branch: Delete the source after a successful merge. If that fails, the merge stays and the receipt
                has the reason.
            dry_run: Return the outcome, including conflicts, without writing.
            resolutions: How to resolve conflicts: a JSON or NDJSON file, its bytes, or dictionaries.
            message: What the commit is for, shown in its history.

        Returns:
            The outcome, the changes by type, and the commit.

        Raises:
            MergeConflict: Both sides changed the same entity; `context["conflicts"]` lists all of them.
            BranchNotFound: One of the branches does not exist.

        Example:
            >>> branch = graph.branches.create("review")
            >>> receipt = graph.mutate('query q() { insert Person { name: "Cid" } }', branch="review")
            >>> graph.branches.merge("review", delete_branch=True).outcome.value
            'fast_forward'
        """
        ...


class TagsProtocol(Protocol):
    """The tags of a graph."""

    def create(self, name: str, at: AsOf | None = None, *, branch: str = "main") -> Tag:
        """Tag a commit, by default the newest of a branch, and so protect it from cleanup.

        Args:
            name: The name of the tag.
            at: The commit: its id, another tag, a manifest version or a timestamp.
            branch: The branch whose newest commit is tagged, and to which versions and timestamps refer.

        Returns:
            The tag.

        Raises:
            TagExists: There is a tag of this name.
            CommitNotFound: There is no such commit.

        Example:
            >>> graph.tags.create("v1").name
            'v1'
        """
        ...

    def list(self) -> list[Tag]:
        """Return all tags, by name.

        Returns:
            The tags with their commits.

        Raises:
            PolicyDenied: The actor may not read the graph.

        Example:
            >>> graph.tags.list()
            []
        """
        ...

    def delete(self, name: str) -> None:
        """Delete a tag; its commit stays, but is no longer protected from cleanup.

        Args:
            name: The name of the tag.

        Raises:
            TagNotFound: There is no such tag.

        Example:
            >>> tag = graph.tags.create("v1")
            >>> graph.tags.delete("v1")
        """
        ...


class SchemaProtocol(Protocol):
    """The schema of a graph, always the newest; that of main unless a branch is named."""

    @property
    def source(self) -> str:
        """The text of the accepted schema."""
        ...

    @property
    def catalog(self) -> Catalog:
        """The types and properties of the accepted schema that the actor may see."""
        ...

    @property
    def nodes(self) -> Mapping[str, NodeType]:
        """The node types by name, with their properties, key and constraints."""
        ...

    @property
    def edges(self) -> Mapping[str, EdgeType]:
        """The edge types by name, with the node types at their ends (`source` and `target`) and properties."""
        ...

    @property
    def types(self) -> tuple[NodeType | EdgeType, ...]:
        """All node types, then all edge types; a node type and an edge type may have the same name."""
        ...

    def read(self, branch: str = "main", *, at: AsOf | None = None) -> str:
        """Return the text of the accepted schema of a branch, or of a past state.

        Args:
            branch: The branch.
            at: A past state; see `Graph.at` for how to name one.

        Returns:
            The text.

        Raises:
            BranchNotFound: There is no such branch.

        Example:
            >>> graph.schema.read("main") == graph.schema.source
            True
        """
        ...

    def plan(self, schema: str | Path, *, allow_data_loss: bool = False, branch: str = "main") -> SchemaPlan:
        """Return the migration steps to a new schema; changes nothing.

        Needs permission to apply, because the steps reveal the accepted schema.

        Args:
            schema: The new schema, as text or as the path of a `.pg` file.
            allow_data_loss: Plan drops as permanent.
            branch: The branch whose schema would change.

        Returns:
            The steps; `supported` says whether all of them can be applied.

        Raises:
            LanguageError: The schema is invalid; `diagnostics` has positions.
            PolicyDenied: The actor may not apply schemas.

        Example:
            >>> print(graph.schema.plan(graph.schema.source + "node City { name: String @key }").render())
            Supported: 1 step, all instant.
              + add node City
        """
        ...

    def apply(
        self,
        schema: str | Path,
        *,
        allow_data_loss: bool = False,
        allow_drops: bool = True,
        branch: str = "main",
        message: str | None = None,
    ) -> SchemaReceipt:
        """Apply a new schema as one commit; nothing is applied if a step is unsupported.

        Args:
            schema: The new schema, as text or as the path of a `.pg` file.
            allow_data_loss: Make drops permanent.
            allow_drops: Whether the schema may leave out types, properties and rules that the graph has.
            branch: The branch that gets the schema; others keep theirs until they are merged.
            message: What the commit is for, shown in its history.

        Returns:
            The steps, and the commit, unless nothing changed.

        Raises:
            LanguageError: The schema is invalid, or a step is unsupported.
            GraphError: `schema.drops` if it drops something without `allow_drops`,
                `schema.branches_exist` if other branches still have what is dropped permanently,
                `schema.breaks_queries` if a stored query would not compile any more.

        Example:
            >>> graph.schema.apply(graph.schema.source + "node City { name: String @key }").step_count
            1
        """
        ...


class BlobProtocol(Protocol):
    """A blob in one snapshot; its bytes are read on demand."""

    def read(self, start: int = 0, end: int | None = None) -> Any:
        """Return a range of the bytes.

        Args:
            start: The first byte.
            end: The byte after the last; by default the end of the blob.

        Returns:
            The bytes.

        Raises:
            GraphError: `blob.range` if the range is outside the blob.
            LimitExceeded: The range is too large for one read.

        Example:
            >>> graph.blob("Person", "Ada", "photo").read(1, 3)
            b'NG'
        """
        ...
