"""Inference of a first schema from files and frames. Start reading at `api.infer_schema`."""
