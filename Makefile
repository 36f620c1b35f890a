# The whole tool-box. Every target makes its own environment in .venv first, when that is stale.
PYTHON ?= python3
CXX ?= g++
VENV := .venv
STAMP := $(VENV)/.stamp
PY := $(VENV)/bin/python

.PHONY: help venv test lint demo bench models cases recording instructions fidelity detection completeness rebuilding corpus replay minifier kills faults soak source overhead quality docs clean check-compiler check-python hostile compat releases known-forms exam damaged

help:
	@echo "make venv | test | lint | demo | bench | models | cases | recording | instructions | fidelity | detection | completeness | rebuilding | corpus | replay | minifier | kills | faults | soak | source | overhead | quality | docs | clean | hostile | compat | releases | known-forms | exam | damaged"

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt | check-python
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -c constraints.txt -e '.[dev,transformers,triton]'
	@touch $@

test: check-compiler $(STAMP)
	$(PY) -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# RULES=gitleaks.toml COMMIT=... of a checkout of gitleaks.
known-forms: $(STAMP)
	$(PY) tools/known_forms.py $(RULES) $(COMMIT)

demo: check-compiler $(STAMP)
	$(PY) examples/demo.py

bench: check-compiler $(STAMP)
	$(PY) -m benchmarks

# Heavy, and no tests: three transformers models; the failing programs of a directory.
CASES ?= examples
models: check-compiler $(STAMP)
	$(PY) -m benchmarks.models

cases: check-compiler $(STAMP)
	$(PY) -m benchmarks.cases $(CASES)

# Hours, if run whole: ARGS narrows it, as in ARGS="gpt2-2 aot_eager full --pairs 7".
recording: check-compiler $(STAMP)
	$(PY) -m benchmarks.recording $(ARGS)

# The same without the noise of the machine, by Valgrind (a minute or two for each process).
instructions: check-compiler $(STAMP)
	$(PY) -m benchmarks.instructions $(ARGS)

# The demonstration reduces failures itself, at its own pace: that is not compared.
fidelity: check-compiler $(STAMP)
	$(PY) -m benchmarks.fidelity
	$(PY) -m benchmarks.fidelity $(filter-out %/demo.py,$(wildcard $(CASES)/*.py))

# Every change of a recording, found by its replay at the changed event.
detection: check-compiler $(STAMP)
	$(PY) -m benchmarks.detection $(ARGS)

# Every record of TORCH_TRACE against the store, with Inductor.
completeness: check-compiler $(STAMP)
	$(PY) -m benchmarks.completeness

# ShapeEnvs rebuilt from the tape against the recorded ones, for the same programs (a quarter of an hour).
rebuilding: check-compiler $(STAMP)
	$(PY) -m benchmarks.rebuilding $(ARGS)

# 227 programs, recorded and replayed from every entry (half an hour); ARGS="--every 9 --entries frame".
corpus: check-compiler $(STAMP)
	$(PY) -m benchmarks.corpus $(ARGS)

# 100,000 graphs that attack the rules for stored graphs (half an hour and more; ARGS="--from 40000"),
# and 4,000 changed checkpoints of every kind (another).
hostile: check-compiler $(STAMP)
	$(PY) -m benchmarks.hostile $(ARGS)
	$(PY) -m benchmarks.hostile_documents

# CPU seconds of replays against those of the compiles; for a quiet machine; ARGS="--pairs 7".
replay: check-compiler $(STAMP)
	$(PY) -m benchmarks.replay $(ARGS)

# Side by side with torch's own minifier, 26 faults in real models (hours); ARGS="'mlp three'".
minifier: check-compiler $(STAMP)
	$(PY) -m benchmarks.minifier $(ARGS)

# 300 processes killed at random moments; 2,000 compiles in one process (some 15 minutes).
kills: check-compiler $(STAMP)
	$(PY) -m benchmarks.kills

# 210 programs with and without the recorder, under 36 faults, and 22 ways to start one (half an hour;
# as root, to mount small disks).
faults: check-compiler $(STAMP)
	$(PY) -m benchmarks.faults $(ARGS)
	$(PY) -m benchmarks.fault_forms

# 2,000 damaged and absurd stores, every command on each (hours; goes on where it was stopped);
# ARGS="--folder DIR --light-every 8" runs each command on one of eight.
damaged: check-compiler $(STAMP)
	$(PY) -m benchmarks.damaged $(ARGS)

soak: check-compiler $(STAMP)
	$(PY) -m benchmarks.soak

# Every architecture that transformers can build small, recorded and replayed (hours; resumable);
# ARGS="--every 20", ARGS="--programs FOLDER", ARGS="t5 mamba".
exam: check-compiler $(STAMP)
	$(PY) -m benchmarks.exam $(ARGS)

# How short a program gets that fails while Dynamo traces it.
source: check-compiler $(STAMP)
	$(PY) -m benchmarks.source

# What the search itself costs for a candidate: two seconds.
overhead: $(STAMP)
	$(PY) -m benchmarks.overhead

# 68 planted failures, each to end at its known minimum; 'make test' runs a sample of them.
quality: check-compiler $(STAMP)
	$(PY) -m pytest -m quality tests/quality

# Record, replay and minify under each release of torch, in environments in the user's cache
# (up to 7 GB each, made once: some three minutes); RELEASES="2.12 newest" names a few.
compat: check-compiler $(STAMP)
	$(PY) -m tests.compat $(RELEASES)

# What 'releases' says of public bugs under seven releases, against the bugs themselves (an hour, and
# up to 7 GB of disk for each release; resumable); ARGS="lift --runs 1 --only 2.12,2.13".
releases: check-compiler $(STAMP)
	$(PY) -m benchmarks.releases $(ARGS)

docs: $(STAMP)
	$(PY) -m pytest tests/docs

clean:
	rm -rf $(VENV) build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch.compile generates C++ and calls a compiler for it: say so before anything else fails.
check-compiler: check-python
	@command -v $(firstword $(CXX)) >/dev/null 2>&1 || { \
	  echo "torchreel needs a C++ compiler, because torch.compile generates C++ on a CPU, and '$(CXX)' was not found: install g++ or set CXX." >&2; exit 1; }

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "torchreel needs Python 3.11 or newer, and '$(PYTHON)' is missing or older: set PYTHON=/path/to/python3.11." >&2; exit 1; }
