# Everything a developer runs. `make demo` and `make test` work from a fresh clone; both call `setup` first.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
RUN := .venv/bin/python
QUICK := not (slow or s3 or spark or long)
# `make test SKIP_QUICK=1`, for what follows a `make check`, leaves out the tests that it has run.
TESTS := $(if $(SKIP_QUICK),(slow or s3 or spark) and not long,not (long))
# Twice as many as a small machine has cores: tests wait for processes, disks and Spark. The quick ones wait for nothing.
WORKERS ?= 4
PYTEST = $(RUN) -m pytest -q -n $(WORKERS) --dist worksteal
# Tests write some 100,000 small files, up to 2 GB at a time: less work for the system where there is room for them in
# memory. They are removed at the end. A test gives up being root, and must still get there.
MEMORY := /dev/shm
ROOM := $(shell test -w $(MEMORY) && df -Pk $(MEMORY) | awk 'NR == 2 && $$4 > 4000000 {print "$(MEMORY)"}')
IN_MEMORY = export TMPDIR="$$(mktemp -d "$(or $(ROOM),$${TMPDIR:-/tmp})/omnigraph-XXXXXX")"; trap 'rm -rf "$$TMPDIR"' EXIT INT TERM; chmod 755 "$$TMPDIR";
# The tests start hundreds of processes, which would compile every module again without its bytecode on disk.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-pythons check format bench bench-quick docs lock clean

##@ Start here
demo: setup ## from a fresh clone: set everything up, then run the main job on the example graph
	@$(RUN) examples/demo.py
test: setup ## from a fresh clone: set everything up, then run all tests
	@$(IN_MEMORY) $(PYTEST) -m "$(TESTS)"

##@ While you work
setup: ## make .venv hold the locked dependencies (quick when it already does)
	@test -n "$(PYTHON)" || { echo "OmniGraph needs Python 3.11 or newer on PATH (or make PYTHON=...)"; exit 1; }
	@$(PYTHON) tools/setup.py
check: WORKERS = 2
check: setup ## format, lint, types, layers and the quick tests, in about a minute
	@$(RUN) -m ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(RUN) -m ruff check --quiet .
	@$(RUN) -m mypy --no-error-summary
	@$(IN_MEMORY) $(PYTEST) -m "$(QUICK)"
format: setup ## rewrite the code in the house format
	@$(RUN) -m ruff check --quiet --fix-only . && $(RUN) -m ruff format --quiet .
	@$(RUN) -m omnigraph fmt examples tests/cases

##@ Once in a while
test-long: setup ## the long campaigns, with everything else
	@OMNIGRAPH_TEST_LONG=1 $(PYTEST)
test-pythons: setup ## the quick tests under every other supported Python that this machine has
	@$(RUN) tools/setup.py pythons
bench: setup ## measure against the peers it installs first, and rewrite docs/appendix/benchmarks.md
	-@$(PYTHON) tools/setup.py bench
	@$(RUN) -m benchmarks
	@$(IN_MEMORY) $(RUN) -m benchmarks.quick --record
	@$(RUN) tools/draw.py
bench-quick: setup ## a tenth of it in three minutes: fails if a ratio fell below half of the recorded one
	-@$(PYTHON) tools/setup.py bench
	@$(IN_MEMORY) $(RUN) -m benchmarks.quick
docs: setup ## build the documentation into site/, strictly
	@$(RUN) tools/draw.py
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet && echo "open site/index.html"
lock: setup ## resolve the dependencies anew and rewrite requirements/
	@tools/lock.sh
clean: ## remove what the other targets made
	@rm -rf .venv .venv-bench .venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

help:
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*##/ {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
