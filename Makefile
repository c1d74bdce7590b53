# Needs Python 3.11+, git and make. Everything else goes into .venv, which the first target to need it sets up.
PYTHON ?= python3
PYTEST_ARGS ?=
ARGS ?=
BENCHMARK ?= wikitext

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHOSEN = $(if $(MODELS),--models $(MODELS)) $(if $(SCALE),scale=$(SCALE))

.DEFAULT_GOAL := help
.PHONY: help setup quickstart reproduce-wikitext reproduce-diagnostics reproduce-cub200 reproduce-ucf101 data-cub200 data-ucf101 tables figures report dashboard benchmark-scan test test-all lint format clean

help: ## show this page
	@echo "tensormem: make TARGET [VARIABLE=value]"
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Variables:"
	@echo "  PYTHON=$(PYTHON)       interpreter that makes .venv (3.11 or later)"
	@echo "  MODELS=base,tensor   reproduce-...: only these models (default: all)"
	@echo "  SCALE=smoke          reproduce-...: smoke, cpu or paper (default: paper with CUDA, else cpu)"
	@echo "  PARTS=binding        reproduce-diagnostics: only these parts of the suite (default: all)"
	@echo "  BENCHMARK=wikitext   tables, figures: wikitext, quickstart, diagnostics, cub200 or ucf101"
	@echo "  ARGS='...'           handed on by quickstart, reproduce-..., data-..., tables, figures, report, dashboard,"
	@echo "                       benchmark-scan"
	@echo "                       e.g. make reproduce-wikitext ARGS='seed=0,1,2'"
	@echo "  PYTEST_ARGS='...'    handed on by test and test-all, e.g. make test PYTEST_ARGS='-k scan -x'"
	@echo "Environment:"
	@echo "  TENSORMEM_DATA       folder with the data sets (wikitext-2/ and so on)"
	@echo "  TENSORMEM_RUNS       folder for runs (default: outputs/)"

# Made again when the dependencies change. An interrupted install leaves no stamp, so it is resumed.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "make: $(PYTHON) is missing or older than Python 3.11; name another: make setup PYTHON=python3.12" >&2; \
	  exit 1; }
	@echo "Setting up $(VENV): the first time takes some minutes (PyTorch is large)."
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[all]'
	@touch $@

setup: $(STAMP) ## set up .venv with the project (editable) and all its extras

quickstart: $(STAMP) ## see the leak in five minutes: tiny models on a language of known entropy, no data needed
	$(BIN)/python -m experiments.reproduce quickstart $(ARGS)

reproduce-wikitext: $(STAMP) ## train the WikiText-2 models, then print the table beside the paper's numbers
	$(BIN)/python -m experiments.reproduce wikitext $(CHOSEN) $(ARGS)

reproduce-diagnostics: $(STAMP) ## train the diagnostic suite (generated, no data needed), then print its tables
	$(BIN)/python -m experiments.reproduce diagnostics $(if $(PARTS),--parts $(PARTS)) $(CHOSEN) $(ARGS)

reproduce-cub200: $(STAMP) ## train the masked autoencoders on CUB-200, then print their tables
	$(BIN)/python -m experiments.reproduce cub200 $(CHOSEN) $(ARGS)

reproduce-ucf101: $(STAMP) ## train the models of video on UCF-101, then print their tables
	$(BIN)/python -m experiments.reproduce ucf101 $(CHOSEN) $(ARGS)

data-cub200: $(STAMP) ## download CUB-200-2011 into the data root, check and unpack it
	$(BIN)/python scripts/data_cub200.py $(ARGS)

data-ucf101: $(STAMP) ## download UCF-101 into the data root, check and unpack it
	$(BIN)/python scripts/data_ucf101.py $(ARGS)

tables: $(STAMP) ## print the tables of a BENCHMARK (default: wikitext) from the result files
	$(BIN)/python -m experiments.tables $(BENCHMARK) $(ARGS)

figures: $(STAMP) ## draw the figures of a BENCHMARK (default: wikitext) into outputs/figures
	$(BIN)/python -m experiments.figures $(BENCHMARK) --output outputs/figures $(ARGS)

report: $(STAMP) ## make one HTML page of all results: tables, curves, figures and runs, in outputs/report.html
	$(BIN)/python -m experiments.report --output outputs/report.html $(ARGS)

dashboard: $(STAMP) ## look at the offline W&B runs in the terminal
	$(BIN)/python scripts/dashboard.py $(ARGS)

benchmark-scan: $(STAMP) ## measure the scan on this machine against the plain loop, then a training step
	MALLOC_ARENA_MAX=1 $(BIN)/python scripts/benchmark_scan.py $(ARGS)
	MALLOC_ARENA_MAX=1 $(BIN)/python scripts/benchmark_training.py

# Two workers with a thread each: more would only wait for one another on the small tensors of the tests.
test: $(STAMP) ## run the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not slow" $(PYTEST_ARGS)

test-all: $(STAMP) ## run all tests, those that take minutes too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

lint: $(STAMP) ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy tensormem

format: $(STAMP) ## rewrite the code in the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and caches (runs under outputs/ stay)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
