"""The branch that a run loads to: what earlier runs have left there, and its publication on the target branch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from omnigraph.errors import BranchNotFound, PolicyDenied, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.manifest.model import MESSAGE, Commit
from omnigraph.pipeline.declared import runs as record
from omnigraph.pipeline.declared.check import is_stopped, judge_answers
from omnigraph.pipeline.declared.config import PipelineDeclaration
from omnigraph.pipeline.declared.runs import RunRecorder, RunReport
from omnigraph.pipeline.declared.stored_rows import deletes_message


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes a load, unless an expectation about the loaded branch fails; `queries` are those of expectations."""

    graph: Graph
    pipeline: PipelineDeclaration
    recorder: RunRecorder
    queries: Mapping[str, str]

    def publish_unfinished(self) -> RunReport | None:
        """Publish a load that an interrupted or stopped run has left on its branch; None if there is none."""
        commit = record.find_unfinished(self.graph, self.pipeline)
        if commit is None:
            return None
        self.recorder.set(
            run_id=commit.properties.get(record.RUN, self.recorder.report.run_id),
            commit_id=commit.commit_id,
            nodes=record.read_counts(commit, "node"),
            edges=record.read_counts(commit, "edge"),
            watermarks=record.read_watermarks(commit),
        )
        return self.publish(commit.commit_id)

    def publish(self, commit_id: str) -> RunReport:
        """Merge the branch of a load into its target, if it was not loaded there directly."""
        target = self.pipeline.publication
        if target.merge_into is None:
            return self.recorder.finish("published", f"loaded to `{target.branch}`")
        try:
            return self._judge_and_merge(target.merge_into)
        except BranchNotFound:
            if not record.is_reachable(self.graph, commit_id, target.merge_into):
                raise
            return self.recorder.finish("already_done", f"another run has merged it into `{target.merge_into}`")

    def _judge_and_merge(self, merge_into: str) -> RunReport:
        target = self.pipeline.publication
        with self.recorder.stage("ask"):
            verdicts = judge_answers(self.pipeline, self._count_rows)
        self.recorder.add_verdicts(verdicts)
        if is_stopped(verdicts):
            return self.recorder.finish(
                "stopped",
                f"an expectation failed, and `{merge_into}` is unchanged; `{target.branch}` holds the load. Correct it"
                " there and run the pipeline again, or delete the branch",
            )
        if target.needs_review:
            message = f"`{target.branch}` waits for review; merge it into `{merge_into}` to publish"
            return self.recorder.finish("awaiting_review", message)
        with self.recorder.stage("merge"):
            self.graph.branches.merge(target.branch, merge_into, delete_branch=True)
        return self.recorder.finish("published", f"merged into `{merge_into}`")

    def _count_rows(self, query: str) -> int:
        return len(self.graph.query(self.queries[query], name=query, branch=self.pipeline.publication.branch))


def delete_leftover_branch(graph: Graph, pipeline: PipelineDeclaration) -> None:
    """Delete a branch that was merged by a run which was killed before it could delete it."""
    if _find_unmerged_commits(graph, pipeline) == []:
        # Another run may delete it as well, and an actor who may not delete it can still run the pipeline.
        with suppress(BranchNotFound, PolicyDenied):
            graph.branches.delete(pipeline.publication.branch)


def remove_merged_branch(graph: Graph, pipeline: PipelineDeclaration) -> bool:
    """Delete a branch that was merged by hand, so that the load starts from the newest state of the target.

    So is one that has only deletes of a run that broke off: what they were read from may have changed since, or have
    been a mistake. Returns whether the branch has a load of this pipeline that is not published.
    """
    target, waiting = pipeline.publication, _find_unmerged_commits(graph, pipeline)
    if waiting is None:
        return False
    is_own = [
        commit.properties.get(record.PIPELINE) == pipeline.name
        or commit.properties.get(MESSAGE) == deletes_message(pipeline.name)
        for commit in waiting
    ]
    if not all(is_own):
        raise UsageError(
            f"branch `{target.branch}` has commits that are not of pipeline `{pipeline.name}` and not in"
            f" `{target.merge_into}`; nothing was written. Merge or delete it, or name another `publish.branch`",
            branch=target.branch,
        )
    # What another run has just loaded stays: the load of this run finds that it is done.
    is_loaded = any(record.PIPELINE in commit.properties for commit in waiting)
    if not is_loaded:
        graph.branches.delete(target.branch)
    return is_loaded


def _find_unmerged_commits(graph: Graph, pipeline: PipelineDeclaration) -> list[Commit] | None:
    """Return the commits of the load's branch that its target lacks; None without a branch that has any commit."""
    target = pipeline.publication
    if target.merge_into is None or target.branch not in graph.branches.list():
        return None
    kernel = session_of(graph).kernel
    snapshot = kernel.snapshot(target.branch)
    # A branch without commits was just made, perhaps by another run. After a fast-forward it is at the head of its
    # target, too, but then it has made that commit.
    if snapshot.head is None or kernel.find_commit(snapshot.head).branch != snapshot.state.branch_id:
        return None
    published = {commit.commit_id for commit in kernel.history(target.merge_into)}
    return [commit for commit in kernel.history(target.branch) if commit.commit_id not in published]
