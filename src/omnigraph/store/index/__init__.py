"""Scalar, full-text and vector indexes: building and searching them."""
