"""Blob columns: cells, rows and data files that several versions share."""
