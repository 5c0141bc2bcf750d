# `make demo` and `make test` work on a fresh machine: both go through `make setup`, which is quick when nothing changed.

PYTHON ?= python3
TORCH  ?= 2.13.0
VENV   := .venv
PY     := $(VENV)/bin/python
# A new pyproject.toml, torch or place of the checkout means a new set-up.
KEY    := $(shell { cat pyproject.toml; echo "$(TORCH) $(CURDIR)"; } | sha256sum | cut -c1-16)
READY  := $(VENV)/.ready-$(KEY)
MAKEFLAGS += --no-print-directory
# Hundreds of processes import the same modules: they are compiled once, those that are imported at all.
unexport PYTHONDONTWRITEBYTECODE
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile

.PHONY: help setup browser test quick lint format demo docs bench soak peers clean

help:
	@echo "make setup   a .venv with torch $(TORCH), flatout and the development tools"
	@echo "make test    the tests            make lint    ruff, mypy --strict, import contracts"
	@echo "make demo    a bundled workload   make format  ruff's formatter and safe fixes"
	@echo "make bench   quick benchmarks     make soak    the slow ones"
	@echo "make docs    the documentation site, in build/site"

setup: $(READY)
	@true

$(READY):
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { \
	    echo "python3 -m venv failed; trying: apt-get install python3-venv"; \
	    rm -rf $(VENV); apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
	$(PIP) torch==$(TORCH)
	$(PIP) torch==$(TORCH) --editable '.[dev]'
	@rm -f $(VENV)/.ready-*; touch $@

# What tests/browser drives. Where it cannot be installed these tests are skipped, and say so.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	    echo "installing chromium for tests/browser"; \
	    { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 \
	    || echo "chromium could not be installed: tests/browser will be skipped"; }

quick: setup
	@$(PY) -c "import torch; assert torch.__version__.split('+')[0] == '$(TORCH)', f'expected torch $(TORCH), found {torch.__version__}: rm -r $(VENV)'"
	@$(PY) -m flatout --version

# Two tests at once have a core each, and torch one thread. Every process of the tests inherits the mark, by which the last ones find what was left behind.
test: export TESTS_OF := $(shell date +%s%N)
test: export TESTS_OF_BEFORE := $(VENV)/.before-tests.json
test: quick browser
	@$(PY) tests/last/before.py $(TESTS_OF_BEFORE)
	@$(PY) -m pytest -m "timing and not variant" $$(grep -rl --include='test_*.py' mark.timing tests)
	@OMP_NUM_THREADS=1 $(PY) -m pytest -m "not timing and not variant" -n 2 --dist worksteal
	@$(PY) -m pytest tests/last

lint: setup
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@for script in src/flatout/workloads/*/train.py benchmarks/experts/*/train.py; do $(PY) -m mypy $$script || exit; done
	@$(VENV)/bin/lint-imports --no-cache

format: setup
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

docs: setup
	@$(PY) -m mkdocs build --strict

demo: setup
	@$(PY) -m flatout demo

# The peers live apart: they must never become a dependency. Their environment borrows this one's torch.
peers: setup
	@$(PY) -m benchmarks.peers

bench: peers
	$(PY) -m benchmarks.startup
	$(PY) -m benchmarks.overhead

soak: setup
	$(PY) -m benchmarks.soak
	$(PY) -m pytest -m variant
	$(PY) -m pip install --quiet --disable-pip-version-check --target build/trackers wandb mlflow-skinny
	PYTHONPATH=build/trackers $(PY) -m pytest tests/unit/app/test_export.py
	FLATOUT_WHOLE_TREES=1 $(PY) -m pytest tests/integration/test_check_robust.py

clean:
	rm -rf .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
