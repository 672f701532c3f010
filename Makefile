# Everything a person or CI does with this checkout. `make` alone lists the targets.
#   PYTHON  the Python that makes .venv (3.11 or 3.12)     PROFILE  cpu (default) or gpu     ARGS  passed on to spade up or pytest

PYTHON ?= python3
PROFILE ?= cpu
EXTRA ?= $(if $(filter gpu,$(PROFILE)),gpu,cpu)
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast test-swap lint format lock lock-check clean
MAKEFLAGS += --no-print-directory
# Sleeping threads: spinning ones make a machine with few cores 20 to 50 times slower.
export OMP_WAIT_POLICY ?= PASSIVE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv from the locked requirements (quick when nothing changed)
	@$(PYTHON) ops/setup.py --quiet --extra $(EXTRA)

run: setup ## Set up, then run everything on this machine until Ctrl-C; PROFILE=gpu
	@exec $(BIN)/spade --profile $(PROFILE) up $(ARGS)

test: setup ## Set up, then all tests: the fast ones first, then those that start servers
	@exec env OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m pytest -p plugin_order $(ARGS)

test-fast: setup ## Only the tests that start no model server and no trainer
	@exec env OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not servers" $(ARGS)

test-swap: setup ## Only the tests of the weight swap in a real vLLM server
	@exec env OMP_NUM_THREADS=1 $(BIN)/python -m pytest -k swap $(ARGS)

lint: setup ## ruff, format check, mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m mypy
	@MYPYPATH=ops $(BIN)/python -m mypy --explicit-package-bases ops

format: setup ## Let ruff format and fix what it can
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

lock: setup ## Resolve pyproject.toml into ops/locks; ARGS=--upgrade takes newer versions
	@$(BIN)/python ops/lock.py $(ARGS)

lock-check: setup ## Fail when ops/locks does not fit pyproject.toml
	@$(BIN)/python ops/lock.py --check

clean: ## Remove .venv and caches; runs and models stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
