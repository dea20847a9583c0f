"""Whose progress a run continues: a watermark belongs to a source and the types that are loaded from it, not to a name.

The commit of a load has the names and places of its sources. A pipeline or source whose name is new, and whose rows
another name has loaded, is a rename: the declaration must say so, or else rows would be read from the beginning again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from omnigraph.errors import PipelineRenamed, UsageError
from omnigraph.graph import Graph, session_of
from omnigraph.lang.catalog import Catalog
from omnigraph.manifest.model import Commit
from omnigraph.pipelines import history as record
from omnigraph.pipelines.declaration.config import PipelineDeclaration, SourceDeclaration
from omnigraph.pipelines.declaration.sql_text import find_inputs


def require_own_progress(graph: Graph, pipeline: PipelineDeclaration, before: Commit | None) -> None:
    """Refuse a run that would read from the beginning what an earlier run has loaded under another name.

    Raises:
        PipelineRenamed: The pipeline, or one of its sources, has another name or location than in the earlier run.
    """
    for name in pipeline.renamed_from or ():
        _require_finished(graph, pipeline, name)
    if before is None and pipeline.renamed_from is None:
        _require_new_pipeline(graph, pipeline)
    elif before is not None:
        for source in _counted_sources(pipeline):
            _require_same_source(pipeline, source, before)


def _require_finished(graph: Graph, pipeline: PipelineDeclaration, name: str) -> None:
    """Refuse to continue from a run whose load waits on the branch of its former name: it would be loaded twice."""
    former = replace(pipeline, publication=replace(pipeline.publication, branch=f"load/{name}"))
    if former.publication != pipeline.publication and record.find_unfinished(graph, former) is not None:
        raise PipelineRenamed(
            f"a load of `{name}`, the former name of pipeline `{pipeline.name}`, waits on the branch `load/{name}`;"
            " nothing was written. Merge or delete this branch first, or run the pipeline under its former name",
            pipeline=pipeline.name,
            part="renamed_from",
        )


def _counted_sources(pipeline: PipelineDeclaration) -> list[SourceDeclaration]:
    """Return the sources of which a row must not be read twice; a merge of the whole source changes nothing."""
    is_appending = pipeline.mode == "append"
    return [source for source in pipeline.sources.values() if source.incremental is not None or is_appending]


def _require_new_pipeline(graph: Graph, pipeline: PipelineDeclaration) -> None:
    places = {source.location: source for source in _counted_sources(pipeline)}
    types = {str(item.table_key) for item in pipeline.mappings}
    for commit in _newest_of_each(graph, pipeline) if places else ():
        other = commit.properties[record.PIPELINE]
        loaded = types & record.read_json(commit, "counts").keys()
        for name, location in record.read_json(commit, record.PLACES).items():
            if location not in places or not loaded:
                continue
            raise PipelineRenamed(
                f"pipeline `{other}` has loaded `{location}`, the source `{name}`, into {_shown(loaded)}; pipeline"
                f" `{pipeline.name}` would load it again from the beginning. Nothing was written. If it is the same"
                f" pipeline, add `renamed_from: {other}` to it, and if it is another one, `renamed_from: []`",
                pipeline=pipeline.name,
                other=other,
                part=f"sources.{places[location].name}",
            )


def _newest_of_each(graph: Graph, pipeline: PipelineDeclaration) -> Iterable[Commit]:
    """Yield the newest load of each other pipeline that is no longer declared beside this one."""
    known = {*pipeline.names, *pipeline.siblings}
    for commit in session_of(graph).kernel.history(pipeline.target_branch):
        name = commit.properties.get(record.PIPELINE)
        if name is not None and name not in known and record.BACKFILL not in commit.properties:
            known.add(name)
            yield commit


def _require_same_source(pipeline: PipelineDeclaration, source: SourceDeclaration, before: Commit) -> None:
    # Loads of earlier releases have no places; an unknown one may be any.
    places = record.read_json(before, record.PLACES)
    places = places or dict.fromkeys(record.read_json(before, record.WATERMARKS), "")
    part = f"sources.{source.name}"
    former = source.name if source.name in places else source.renamed_from or source.name
    if former in places:
        if places[former] not in ("", source.location, source.moved_from):
            raise PipelineRenamed(
                f"source `{source.name}` was `{places[former]}` and is now `{source.location}`; the rows below its"
                " watermark would not be read. Nothing was written. If the same rows have moved, add `moved_from:"
                f' "{places[former]}"` to it; if they are others, give the source another name',
                source=source.name,
                part=part,
            )
        return
    for name, location in places.items():
        if name not in pipeline.sources and location in ("", source.location):
            raise PipelineRenamed(
                f"`{source.location}` was loaded as the source `{name}`, and source `{source.name}` would load it again"
                f" from the beginning. Nothing was written. Add `renamed_from: {name}` to it",
                source=source.name,
                part=part,
            )


def _shown(types: Iterable[str]) -> str:
    return ", ".join(f"`{name.partition(':')[2]}`" for name in sorted(types))


def continue_sources(pipeline: PipelineDeclaration, values: Mapping[str, str]) -> dict[str, str]:
    """Return what earlier runs have noted by source, under the names that the sources have now."""
    renamed = {
        source.renamed_from: source.name
        for source in pipeline.sources.values()
        if source.renamed_from is not None and source.name not in values
    }
    return {renamed.get(name, name): value for name, value in values.items()}


def describe_places(pipeline: PipelineDeclaration, before: Commit | None) -> dict[str, str]:
    """Return the location of every source, also of those that are no longer declared: they may come back."""
    earlier = {} if before is None else continue_sources(pipeline, record.read_json(before, record.PLACES))
    return {**earlier, **{source.name: source.location for source in pipeline.sources.values()}}


def require_no_doubles(pipeline: PipelineDeclaration, catalog: Catalog) -> None:
    """Refuse to append once more what is read whole by every run; entities with a key are refused by the load."""
    if pipeline.mode != "append":
        return
    inputs = find_inputs(pipeline.transforms, pipeline.sources)
    for mapping in pipeline.mappings:
        sources = [pipeline.sources[name] for name in sorted(inputs[mapping.from_view])]
        if catalog.type_of(mapping.table_key).key or any(source.incremental for source in sources):
            continue
        raise UsageError(
            f"`{mapping.from_view}` is read whole by every run, and an earlier run has appended its rows to"
            f" `{mapping.type_name}`; they would be there twice. Nothing was written. Name an `incremental` column, or"
            " use `mode: merge` or `overwrite`",
            part=f"{mapping.kind}s.{mapping.type_name}",
        )
