"""NDJSON input decoded into typed tables."""
