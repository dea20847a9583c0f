#!/bin/sh
# Resolve pyproject.toml anew and rewrite the lock files. Run it on purpose, then run `make test`.
set -eu
cd "$(dirname "$0")/.."
compile() {
  .venv/bin/uv pip compile --universal --generate-hashes --no-emit-index-url --no-header \
    --python-version 3.11 --quiet "$@"
}
compile pyproject.toml --extra dev --extra spark --extra server --extra shell --extra docs --extra lsp --output-file requirements/dev.lock
# What `pip install omnigraph` and each extra install, and no more: tests run in environments that hold exactly these.
compile pyproject.toml --output-file requirements/base.lock --constraint requirements/dev.lock
compile pyproject.toml --extra shell --output-file requirements/shell.lock --constraint requirements/dev.lock
compile pyproject.toml --extra lsp --output-file requirements/lsp.lock --constraint requirements/dev.lock
compile pyproject.toml --extra java --output-file requirements/java.lock --constraint requirements/dev.lock
compile pyproject.toml --extra server --output-file requirements/server.lock --constraint requirements/dev.lock
compile pyproject.toml --extra spark --output-file requirements/spark.lock --constraint requirements/dev.lock
compile pyproject.toml --extra bench --output-file requirements/bench.lock --constraint requirements/dev.lock
compile requirements/pip.in --output-file requirements/pip.lock --constraint requirements/dev.lock
compile requirements/build.in --output-file requirements/build.lock --constraint requirements/dev.lock --constraint requirements/pip.lock
