# Every target makes its own environment in .venv first, when that is stale. 'make help' says what
# there is: the comment after a target's ##.
PYTHON ?= python3
CXX ?= g++
VENV := .venv
STAMP := $(VENV)/.stamp
PY := $(VENV)/bin/python
# Heavy, and no tests; each is benchmarks/NAME.py, whose docstring says what it does, for how long,
# and which ARGS narrow it.
EXAMINATIONS := blocking canaries cases combinations completeness corpus damaged detection exam fleet instructions kills malformed minifier \
	models parallel overhead provenance rebuilding recording releases replay scale share soak source triage
CASES ?= examples

.PHONY: help venv test test-all test-server lint demo docs pictures compat dependencies gpu bench quality fidelity hostile faults known-forms \
	clean check-browser check-compiler check-python $(EXAMINATIONS)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo; echo "Heavy examinations, make NAME ARGS=...:"
	@for name in $(EXAMINATIONS); do \
	  file=benchmarks/$$name.py; test -f $$file || file=benchmarks/$$name/__main__.py; \
	  printf 'make %-14s %s\n' $$name "$$(sed -n '1s/^"""//p' $$file)"; done

venv: $(STAMP)  ## the environment of all others

$(STAMP): pyproject.toml constraints.txt | check-python
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -c constraints.txt -e '.[dev,transformers,triton,browser]'
	@touch $@

# The tests of a file run in one process, for they share fixtures.
PYTEST := $(PY) -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

test: check-browser check-compiler $(STAMP)  ## the tests that one waits for, and CI: six to twenty minutes on two cores
	$(PYTEST)

test-all: check-browser check-compiler $(STAMP)  ## all tests, the slow ones too: an hour and more on two cores
	$(PYTEST) -m "not exhaustive"

test-server: check-compiler $(STAMP)  ## the tests of the command line, with each store on a PostgreSQL server
	$(PYTEST) --database postgres tests/cli

lint: $(STAMP)  ## ruff, mypy, and the contracts of imports
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

demo: check-compiler $(STAMP)  ## record, replay and minify a real bug of the installed torch
	$(PY) examples/demo.py

docs: check-compiler $(STAMP)  ## run the examples of the documentation, and make its site in site/
	$(PY) -m pytest -m "not exhaustive" tests/docs
	$(PY) -m pip install -q -c constraints.txt -e '.[docs]'
	$(PY) -m zensical build --strict

pictures: check-compiler $(STAMP)  ## the pictures of docs/report.md, taken again in a Chromium
	$(PY) -m tests.report.pictures

# Environments in the user's cache, made once: some three minutes. RELEASES="2.12 newest" names a few.
compat: check-compiler $(STAMP)  ## the tests of record, replay and minify under each release of torch (7 GB each)
	$(PY) -m tests.compat $(RELEASES)

# With the versions that an environment may have had before, and with those that a fresh one gets.
dependencies: check-compiler $(STAMP)  ## the tests with the oldest dependencies that are allowed, and with the newest
	$(PY) -m tests.compat.dependencies $(DEPENDENCIES)

gpu: check-compiler $(STAMP)  ## on a machine with a GPU: record its programs, replay and reduce them there
	$(PY) -m tests.gpu.record $(or $(DIRECTORY),gpu-recordings)

bench: check-compiler $(STAMP)  ## what recording, replaying and minifying cost, in a few minutes
	$(PY) -m benchmarks

quality: check-compiler $(STAMP)  ## 68 planted failures, each to end at its known minimum
	$(PY) -m pytest -m quality tests/quality

# The demonstration reduces failures itself, at its own pace: that is not compared.
fidelity: check-compiler $(STAMP)  ## programs that compute and print the same with and without the recorder
	$(PY) -m benchmarks.fidelity
	$(PY) -m benchmarks.fidelity $(filter-out %/demo.py,$(wildcard $(CASES)/*.py))

hostile: check-compiler $(STAMP)  ## 100,000 graphs and 8,000 checkpoints that attack the rules (an hour; ARGS="--from 40000")
	$(PY) -m benchmarks.hostile $(ARGS)
	$(PY) -m benchmarks.hostile_documents
	$(PY) -m benchmarks.hostile_cases

faults: check-compiler $(STAMP)  ## 210 programs under 36 faults, and 22 ways to start one, with and without the recorder (as root)
	$(PY) -m benchmarks.faults $(ARGS)
	$(PY) -m benchmarks.fault_forms

# RULES=gitleaks.toml COMMIT=... of a checkout of gitleaks.
known-forms: $(STAMP)  ## the table of known forms of secrets, made again from gitleaks' rules
	$(PY) tools/known_forms.py $(RULES) $(COMMIT)

cases: ARGS ?= $(CASES)
$(EXAMINATIONS): check-compiler $(STAMP)
	$(PY) -m benchmarks.$@ $(ARGS)

clean:  ## all that these targets made
	rm -rf $(VENV) build dist site demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch.compile generates C++ and calls a compiler for it: say so before anything else fails.
check-compiler: check-python
	@command -v $(firstword $(CXX)) >/dev/null 2>&1 || { \
	  echo "torchreel needs a C++ compiler, because torch.compile generates C++ on a CPU, and '$(CXX)' was not found: install g++ or set CXX." >&2; exit 1; }

# Nothing that pip could install: without one, pytest skips what needs it, and this says so first.
check-browser:
	@for name in "$$CHROMIUM" chromium chromium-browser google-chrome; do \
	  command -v "$$name" >/dev/null && exit; done; \
	  echo "no Chromium was found: the tests of reports in a browser are skipped. Install your system's, or set CHROMIUM." >&2

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "torchreel needs Python 3.11 or newer, and '$(PYTHON)' is missing or older: set PYTHON=/path/to/python3.11." >&2; exit 1; }
