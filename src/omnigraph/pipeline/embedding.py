"""Embedding while loading: rows that come without a vector get one before they are checked and staged.

Runs inside the tasks of a load; asks the provider only for what the cache of the graph does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from omnigraph.engine.core import View
from omnigraph.engine.embed.cache import Space
from omnigraph.engine.embed.filler import Tally
from omnigraph.engine.embed.plan import Mask, Needs, Target, has_text, plan_types
from omnigraph.engine.embed.tasks import with_vectors
from omnigraph.engine.read.search import embedder_of
from omnigraph.engine.tasks import Runner
from omnigraph.lang.catalog import Catalog, Property
from omnigraph.limits import EMBED_STAGE_BYTES, EMBED_WINDOW_TEXTS
from omnigraph.pipeline.asking import Elsewhere, site_of, slots
from omnigraph.pipeline.job import Job, catalog_from
from omnigraph.rules.delta import one_array
from omnigraph.rules.kernels import pc


@dataclass(frozen=True)
class EmbedJob:
    """What the tasks of a load have to know to embed: how to reach the provider, and by type the properties."""

    site: Elsewhere
    targets: Mapping[str, tuple[Target, ...]]

    @property
    def spaces(self) -> set[Space | None]:
        return {one.space for targets in self.targets.values() for one in targets}

    def window(self, table_key: str) -> int:
        """Return how many rows of a type get their vectors at a time."""
        width = sum(4 * one.dimension for one in self.targets[table_key])
        return max(EMBED_WINDOW_TEXTS, EMBED_STAGE_BYTES // max(width, 1))


def reading_catalog(job: Job) -> Catalog:
    """Return the catalog by which input is read: what will be made from a text need not be given."""
    return job.catalog if job.embed is None else _relaxed(job.ir, frozenset(job.embed.targets))


@lru_cache(maxsize=4)
def _relaxed(ir: str, table_keys: frozenset[str]) -> Catalog:
    catalog = catalog_from(ir)
    nodes = {
        name: replace(one, properties={key: _optional(property_) for key, property_ in one.properties.items()})
        if one.table_key in table_keys
        else one
        for name, one in catalog.nodes.items()
    }
    return replace(catalog, nodes=nodes)


def _optional(property_: Property) -> Property:
    return property_ if property_.embed is None else replace(property_, type=replace(property_.type, nullable=True))


def plan_embedding(view: View, operation_id: str, runner: Runner) -> EmbedJob:
    """Return how a load embeds; refuses a schema without `@embed`, and models that do not agree."""
    embedder = embedder_of(view)
    plans = plan_types(view.catalog, None, "fill_missing", (), embedder)
    site = site_of(view.kernel.store.root.uri, operation_id, slots(runner))
    return EmbedJob(site, {one.type.table_key: one.targets for one in plans})


def windows(job: EmbedJob, table_key: str, count: int) -> Iterator[slice]:
    """Yield the rows that are embedded together."""
    step = job.window(table_key)
    yield from (slice(start, min(start + step, count)) for start in range(0, max(count, 1), step))


def fill_rows(
    job: EmbedJob, table_key: str, rows: pa.Table, tallies: dict[str, Tally]
) -> tuple[pa.Table, dict[str, Mask]]:
    """Return rows with vectors where they had a text and none, and by property which these are.

    What that took is added to the tallies; how many were filled is not known before some rows are left out.
    """
    filled: dict[str, Mask] = {}
    for target in job.targets[table_key]:
        vectors, texts = one_array(rows.column(target.name)), one_array(rows.column(target.source))
        needed = has_text(texts) & ~np.asarray(pc.is_valid(vectors), np.bool_)
        if not needed.any():
            continue
        assert target.space is not None, "a load never only clears"
        fresh, tally = job.site.filler(target.space).vectors(texts.filter(pa.array(needed)))
        needs = Needs(needed, np.zeros(len(needed), np.bool_))
        place = rows.schema.get_field_index(target.name)
        column = with_vectors(vectors, needs, fresh, target.dimension)
        rows = rows.set_column(place, rows.schema.field(place), column)
        name = f"{table_key.partition(':')[2]}.{target.name}"
        tallies[name] = tallies.get(name, Tally()) + replace(tally, filled=0)
        filled[name] = needed
    return rows, filled
