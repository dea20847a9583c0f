"""Ledgers of files as objects beside the graph, which the commits of loads name."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from omnigraph.graph import Graph, session_of
from omnigraph.limits import PIPELINE_LEDGER_FILES_MAX
from omnigraph.manifest.model import Commit
from omnigraph.pipelines import history as record
from omnigraph.pipelines.declaration.config import PipelineDeclaration
from omnigraph.pipelines.rejected_rows import GRAPH_FOLDER
from omnigraph.pipelines.sources.file_ledger import FileLedger


def read_ledgers(graph: Graph, pipeline: PipelineDeclaration, commit: Commit | None) -> dict[str, FileLedger]:
    """Return the ledgers that a run has left, by source; none if they are gone or another declaration made them."""
    path = None if commit is None else commit.properties.get(record.LEDGER)
    if path is None or commit is None:
        return {}
    data = session_of(graph).kernel.store.objects.read_if_exists(path)
    if data is None:
        return {}
    places = record.read_json(commit, record.PLACES)
    return {
        name: FileLedger({file: (size, time) for file, size, time in noted["files"]}, noted["schema"])
        for name, noted in orjson.loads(data).items()
        if name in pipeline.sources and places.get(name) == pipeline.sources[name].location
    }


def write_ledgers(graph: Graph, pipeline: str, run_id: str, ledgers: Mapping[str, FileLedger]) -> dict[str, str]:
    """Write the ledgers of a run, and return the property of its commit that names them."""
    if not ledgers or sum(len(ledger.files) for ledger in ledgers.values()) > PIPELINE_LEDGER_FILES_MAX:
        return {}
    noted = {
        name: {"files": [(file, *status) for file, status in ledger.files.items()], "schema": ledger.schema}
        for name, ledger in ledgers.items()
    }
    path = f"{GRAPH_FOLDER}/{pipeline}/{run_id}/files.json"
    session_of(graph).kernel.store.objects.write(path, orjson.dumps(noted))
    return {record.LEDGER: path}
