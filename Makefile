# `make demo` and `make test` work on a fresh machine: both go through `make setup`, which is quick when nothing changed.

PYTHON ?= python3
TORCH  ?= 2.13.0
VENV   := .venv
PY     := $(VENV)/bin/python
# A new pyproject.toml, torch or place of the checkout means a new set-up.
KEY    := $(shell { cat pyproject.toml; echo "$(TORCH) $(CURDIR)"; } | sha256sum | cut -c1-16)
READY  := $(VENV)/.ready-$(KEY)
MAKEFLAGS += --no-print-directory

.PHONY: help setup test quick lint format demo bench soak peers clean

help:
	@echo "make setup   a .venv with torch $(TORCH), flatout and the development tools"
	@echo "make test    the tests            make lint    ruff, mypy --strict, import contracts"
	@echo "make demo    a bundled workload   make format  ruff's formatter and safe fixes"
	@echo "make bench   quick benchmarks     make soak    the slow ones"

setup: $(READY)
	@true

$(READY):
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { \
	    echo "python3 -m venv failed; trying: apt-get install python3-venv"; \
	    rm -rf $(VENV); apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
	$(PY) -m pip install --quiet --disable-pip-version-check torch==$(TORCH)
	$(PY) -m pip install --quiet --disable-pip-version-check torch==$(TORCH) --editable '.[dev]'
	@rm -f $(VENV)/.ready-*; touch $@

quick: setup
	@$(PY) -c "import torch; assert torch.__version__.split('+')[0] == '$(TORCH)', f'expected torch $(TORCH), found {torch.__version__}: rm -r $(VENV)'"
	@$(PY) -m flatout --version

test: quick
	@$(PY) -m pytest -m timing
	@$(PY) -m pytest -m "not timing" -n 2 --dist worksteal

lint: setup
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@for script in src/flatout/workloads/*/train.py benchmarks/experts/*/train.py; do $(PY) -m mypy $$script || exit; done
	@$(VENV)/bin/lint-imports --no-cache

format: setup
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

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
	FLATOUT_WHOLE_TREES=1 $(PY) -m pytest tests/integration/test_check_robust.py

clean:
	rm -rf .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
