"""OmniGraph: a typed property graph on open Lance datasets, with a Spark data pipeline."""

from __future__ import annotations

__version__ = "0.1.0"
