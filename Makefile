# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: help demo test check scenarios explore fuzz bench clean

help:
	@echo "make demo       a real bisection on an embedded example (creates .venv, local Ray, SQLite)"
	@echo "make test       the tests (creates .venv if needed)"
	@echo "make check      linters: ruff, mypy, import rules"
	@echo "make scenarios  trains all scenarios anew (minutes)"
	@echo "make explore    property tests with many new examples"
	@echo "make fuzz       a million hostile inputs for every reader of text (docs/fuzzing.md)"
	@echo "make bench      benchmarks, printed; it stops where a bound is missed (docs/benchmarks.md)"

# torch first: its pinned build, before anything can ask for another one
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/bisect-train demo

# the long files first, so that no worker is left alone with one at the end
test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not scenario" tests/ray tests/integration \
		tests/browser tests/contracts tests/security tests/unit

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

scenarios: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m scenario --timeout 1800 tests/scenarios tests/ray tests/integration

# property tests with new examples each time; what they find becomes a test of its own
explore: $(STAMP)
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -n $(WORKERS) --timeout 3600 $$(grep -rl '^@given' tests/unit)

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --seed $(or $(SEED),9) --inputs $(or $(INPUTS),1000000) --jobs $(WORKERS)

bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks.bench_search
	$(BIN)/python -m tests.benchmarks.bench_history
	$(BIN)/python -m tests.benchmarks.bench_recorder
	$(BIN)/python -m tests.benchmarks.bench_warm
	$(BIN)/python -m tests.benchmarks.bench_planning
	$(BIN)/python -m tests.benchmarks.bench_overhead
	$(BIN)/python -m tests.benchmarks.bench_scale --real
	$(BIN)/python -m tests.benchmarks.bench_bisect
	$(BIN)/python -m tests.benchmarks.bench_early
	$(BIN)/python -m tests.benchmarks.bench_nightly
	$(BIN)/python -m tests.benchmarks.bench_service

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
