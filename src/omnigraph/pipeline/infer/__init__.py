"""Inference of a first schema from files and frames. Start reading at `api.infer_schema`."""

from omnigraph.pipeline.infer.api import InferredSchema, infer_schema

__all__ = ["InferredSchema", "infer_schema"]
