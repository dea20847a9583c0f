"""Reads on a social graph, ours beside Kuzu, Ladybug, DuckDB and LanceDB; `benchmarks.reads.topic` writes the page.

To try a change, without the page and without other peers than DuckDB, at a tenth of the size:

    .venv/bin/python -m benchmarks.reads                      # every line
    .venv/bin/python -m benchmarks.reads --lines hop1 point   # some lines; --size full, --engines ours kuzu …
"""
