"""Reads of one pinned dataset version: scans, lookups and differences between versions."""
