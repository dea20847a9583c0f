"""Staged writes: uncommitted Lance transactions, and the proof that their files are whole."""
