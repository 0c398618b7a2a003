# Everything happens in a virtual environment, $(VENV), which is made when missing and
# reused when there.  `make help` lists the targets and the variables.

# The first of these that starts (a version manager's stub may be there and not start).
PYTHON ?= $(shell for p in python3.11 python3; do \
            "$$p" -c 'import ensurepip' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
VENV ?= .venv
# PyTorch: the version the tests run with, unless a virtual environment already has one.
TORCH_VERSION ?= 2.13.0
# Empty: a CPU build wherever pip is offered one (see `torch` below).  Or a requirement.
TORCH ?=
PIP_FLAGS ?=
PYTEST_FLAGS ?= -n 2 --dist loadfile --durations 20 --durations-min 3
# The tests that `make sanitize` runs.
SANITIZED ?= tests/engine tests/vocab tests/decoding tests/conformance \
             tests/criterions/test_projected_loss.py
# The tests that `make sanitize-threads` runs.
THREADED ?= tests/decoding/test_threads.py tests/decoding/test_queue.py
# How long `make fuzz` runs, and how often `make kill` kills each program.
MINUTES ?= 60
KILLS ?= 100

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS)
# What sources need to build without isolation, so that nothing fetches PyTorch twice.
BUILD_TOOLS := "cython" "numpy" "setuptools>=64" "wheel"

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-all lint sanitize sanitize-threads fuzz kill docs clean
.DELETE_ON_ERROR:

help:  ## this list
	@echo "Targets:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-16s %s\n", $$1, $$2 }'
	@echo "Variables: PYTHON=$(PYTHON) VENV=$(VENV) TORCH_VERSION=$(TORCH_VERSION) PYTEST_FLAGS=\"$(PYTEST_FLAGS)\""
	@echo "           TORCH=\"torch==X.Y.Z\" (a requirement of your own) PIP_FLAGS=\"...\" (options for pip)"

venv: $(VENV)/.specdec-package  ## set up the virtual environment: PyTorch, fairseq, this package
	@echo "== ready: $(VENV) ($$($(BIN)/python --version))"

demo: venv  ## translate with the trained models: speculative against greedy and fairseq
	@echo "== demo"
	@$(BIN)/specdec-demo

test: $(VENV)/.specdec-test  ## run the tests, but for the slow ones
	@echo "== tests"
	@$(BIN)/python -m pytest -m "not slow" $(PYTEST_FLAGS)

test-all: $(VENV)/.specdec-test  ## run all tests
	@echo "== all tests"
	@$(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: $(VENV)/.specdec-lint  ## style (ruff, clang-format), types (mypy), compiler warnings
	@echo "== ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "== mypy"
	@$(BIN)/mypy
	@echo "== clang-format"
	@find specdec_plugin -name '*.h' -exec $(BIN)/clang-format --dry-run --Werror {} +
	@echo "== the kernels with warnings as errors"
	@$(BIN)/python -m specdec_plugin.engine.native

# The interpreter knows nothing of the sanitizers, so that their libraries are loaded before it.
# Memory that it never frees is not ours.  A report goes to the standard error and ends the
# process, so that pytest must not collect there what it would show after the test.
sanitize: $(VENV)/.specdec-test  ## run tests of the kernels under sanitizers
	@echo "== sanitizers"
	@SPECDEC_SANITIZE=1 ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	    LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	    $(BIN)/python -m pytest -p no:cacheprovider --capture=sys $(PYTEST_FLAGS) $(SANITIZED)

# Libraries that do not know this sanitizer, such as PyTorch, are watched where they call others.
sanitize-threads: $(VENV)/.specdec-test  ## run tests of threads: data races, then random delays
	@echo "== data races"
	@SPECDEC_SANITIZE=thread TSAN_OPTIONS="halt_on_error=1 suppressions=tests/tsan.supp" \
	    LD_PRELOAD="$$($(CXX) -print-file-name=libtsan.so)" \
	    $(BIN)/python -m pytest -p no:cacheprovider --capture=sys $(THREADED)
	@echo "== random delays"
	@SPECDEC_SANITIZE=delays $(BIN)/python -m pytest -p no:cacheprovider $(THREADED)

fuzz: $(VENV)/.specdec-test  ## read damaged files for MINUTES: each gives a sentence or a success
	@$(BIN)/python -m tests.faults.fuzz --minutes $(MINUTES)

kill: $(VENV)/.specdec-test  ## end programs at KILLS random moments each, resume, compare bytes
	@$(BIN)/python -m tests.faults.kill --kills $(KILLS)

docs: $(VENV)/.specdec-docs  ## build the documentation into site/, without PyTorch or fairseq
	@echo "== documentation"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "== ready: site/index.html"

clean:  ## remove the virtual environment, build outputs and caches
	@echo "== removing $(VENV), build outputs and caches"
	@rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find specdec_plugin tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps lie inside $(VENV), so they go with it.

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "No Python that can make virtual environments was found" \
	    "(Debian: python3-venv). Name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "== making $(VENV) with $(PYTHON) ($$($(PYTHON) --version))"
	@$(PYTHON) -m venv $(VENV)

# Where pip is offered CPU builds (+cpu), one of them: the tested version's if it is
# among them, else the newest.  Else the tested version as pip finds it.
$(VENV)/.specdec-torch: | $(BIN)/python
	@if $(BIN)/python -c 'import torch' 2>/dev/null; then \
	    echo "== PyTorch is there: $$($(BIN)/python -c 'import torch; print(torch.__version__)')"; \
	else \
	    want='$(TORCH)'; \
	    if [ -z "$$want" ]; then \
	        cpu=$$($(BIN)/python -m pip index versions torch $(PIP_FLAGS) 2>/dev/null \
	              | sed -n 's/^Available versions: //p' | tr -d ' ' | tr ',' '\n' | grep '+cpu$$'); \
	        want=$$(echo "$$cpu" | grep -x '$(TORCH_VERSION)+cpu' || echo "$$cpu" | sed -n 1p); \
	        test -n "$$want" || echo "== pip is offered no CPU build of PyTorch: taking what there is" \
	            "(for a CPU build, name an index that has one in PIP_FLAGS)"; \
	        want="torch==$${want:-$(TORCH_VERSION)}"; \
	    fi; \
	    echo "== installing $$want and the build tools"; \
	    $(PIP) "$$want"; \
	fi
	@$(PIP) --quiet $(BUILD_TOOLS)
	@touch $@

$(VENV)/.specdec-package: setup.py pyproject.toml $(VENV)/.specdec-torch
	@echo "== installing fairseq (compiles for some minutes the first time) and this package"
	@$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.specdec-test: $(VENV)/.specdec-package
	@echo "== installing what the tests need"
	@$(PIP) --quiet --no-build-isolation --editable '.[test]'
	@touch $@

$(VENV)/.specdec-lint: $(VENV)/.specdec-package
	@echo "== installing what the checks need"
	@$(PIP) --quiet --no-build-isolation --editable '.[lint]'
	@touch $@

# Sources are read and not imported, so that this needs neither PyTorch nor the package.
$(VENV)/.specdec-docs: docs/requirements.txt | $(BIN)/python
	@echo "== installing what the documentation needs"
	@$(PIP) --quiet --requirement docs/requirements.txt
	@touch $@
