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
             tests/criterions/test_projected_loss.py \
             tests/methods/beam/test_strategies.py::test_diverse_beams \
             tests/methods/beam/test_strategies.py::test_phrases_in_the_kernels
# The tests that `make test-levels` runs for each level, and `make test-arm` under emulation.
KERNEL_TESTS ?= tests/engine
ARM_TESTS ?= tests/engine/test_native_linear.py tests/engine/test_linear.py \
             tests/engine/test_cached_decoder.py
# The versions that `make test-matrix` tests, Python/PyTorch/NumPy: the oldest and the newest that
# setup.py allows for each Python that it declares, and that are built for it.
MATRIX ?= 3.11/2.6.0/1.26.4 3.11/newest/newest 3.12/2.6.0/1.26.4 3.12/newest/newest \
          3.13/2.6.0/2.1.3 3.13/newest/newest 3.14/2.9.0/2.3.2 3.14/newest/newest
MATRIX_TESTS ?= tests/engine tests/decoding tests/vocab tests/methods tests/fairseq_compat \
                tests/conformance tests/tasks
# The tests that `make sanitize-threads` runs.
THREADED ?= tests/decoding/test_threads.py tests/decoding/test_queue.py tests/decoding/test_iterations.py \
        tests/decoding/test_clusters.py tests/methods/block_nat/test_chain.py \
        tests/methods/self_draft/test_low_rank.py
# What it leaves out of them under delays, which change a share of time.
UNTIMED := --deselect tests/decoding/test_queue.py::test_time_is_counted_of_the_workers_that_there_are
# How long `make fuzz` runs, and how often `make kill` kills each program.
MINUTES ?= 60
KILLS ?= 100

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS)
# What sources need to build without isolation, so that nothing fetches PyTorch twice.
BUILD_TOOLS := "cython" "numpy" "setuptools>=64" "wheel"

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-all test-levels test-arm test-matrix lint sanitize sanitize-threads fuzz kill docs \
        wheel wheels clean
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

test-levels: $(VENV)/.specdec-test  ## test the kernels of each level that this processor can run
	@for level in $$($(BIN)/python -m specdec_plugin.engine.native --list); do \
	    echo "== kernels for $$level"; \
	    SPECDEC_KERNELS=$$level $(BIN)/python -m pytest -m "not slow" $(PYTEST_FLAGS) $(KERNEL_TESTS) || exit 1; \
	done
	@echo "== the same sentences on every level"
	@$(BIN)/python -m pytest $(PYTEST_FLAGS) tests/engine/test_levels.py

test-arm: $(VENV)/.specdec-test  ## test the kernels for aarch64 under emulation, or tell what is missing
	@$(BIN)/python data_scripts/emulate_arm.py $(ARM_TESTS)

test-matrix:  ## test other versions of Python, PyTorch and NumPy (MATRIX); takes gigabytes and hours
	@data_scripts/test_matrix.sh build/matrix $(MATRIX) -- -m "not slow" $(PYTEST_FLAGS) $(MATRIX_TESTS)

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
	@SPECDEC_SANITIZE=delays $(BIN)/python -m pytest -p no:cacheprovider $(UNTIMED) $(THREADED)

fuzz: $(VENV)/.specdec-test  ## read damaged files for MINUTES: each gives a sentence or a success
	@$(BIN)/python -m tests.faults.fuzz --minutes $(MINUTES)

kill: $(VENV)/.specdec-test  ## end programs at KILLS random moments each, resume, compare bytes
	@$(BIN)/python -m tests.faults.kill --kills $(KILLS)

docs: $(VENV)/.specdec-docs  ## build the documentation into site/, without PyTorch or fairseq
	@echo "== documentation"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "== ready: site/index.html"

# glibc 2.28 is what PyTorch's own wheels ask for. auditwheel refuses a name that does not hold. For
# other processors than this machine's it takes no name, and finds one.
MACHINE ?= $(shell uname -m)
MANYLINUX = $(if $(filter $(MACHINE),$(shell uname -m)),manylinux_2_28_$(MACHINE),auto)
BUILD_WHEEL = PATH="$(BIN):$$PATH" $(BIN)/python -m build --wheel --no-isolation --outdir build/wheel

wheel: $(VENV)/.specdec-wheel  ## build a wheel with compiled kernels into dist/, for x86_64 (or MACHINE=)
	@echo "== compiling the kernels for $(MACHINE)"
	@rm -rf build/wheel && mkdir -p build
	@$(BUILD_WHEEL) -C--build-option=--plat-name=linux_$(MACHINE) >build/wheel.log 2>&1 \
	    || { tail -n 30 build/wheel.log >&2; exit 1; }
	@grep "^The wheel has no compiled kernels" build/wheel.log >&2 && exit 1 || true
	@PATH="$(BIN):$$PATH" $(BIN)/auditwheel repair --plat $(MANYLINUX) --only-plat \
	    --wheel-dir dist build/wheel/*.whl

# fairseq-fixed has no wheel. The one that is made here is for this version of Python and this
# system. On another machine: pip install --find-links dist specdec-plugin
wheels: wheel  ## and one for aarch64, and one of fairseq, so that another machine needs no compiler
	@if command -v aarch64-linux-gnu-g++ >/dev/null; then $(MAKE) wheel MACHINE=aarch64; else \
	    echo "== no wheel for aarch64: aarch64-linux-gnu-g++ is missing (Debian: g++-aarch64-linux-gnu)"; fi
	@echo "== building a wheel of fairseq (compiles for some minutes, unless pip has kept one)"
	@$(PIP:install=wheel) --no-deps --no-build-isolation --wheel-dir dist \
	    "$$(sed -n 's/^FAIRSEQ = "\(.*\)"/\1/p' setup.py)"
	@ls dist

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
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 14))'; then \
	    data_scripts/mend_fairseq.sh $(BIN)/python; \
	fi
	@touch $@

$(VENV)/.specdec-test: $(VENV)/.specdec-package
	@echo "== installing what the tests need"
	@$(PIP) --quiet --no-build-isolation --editable '.[test]'
	@touch $@

$(VENV)/.specdec-lint: $(VENV)/.specdec-package
	@echo "== installing what the checks need"
	@$(PIP) --quiet --no-build-isolation --editable '.[lint]'
	@touch $@

$(VENV)/.specdec-wheel: $(VENV)/.specdec-package
	@echo "== installing what wheels need"
	@$(PIP) --quiet --no-build-isolation --editable '.[wheel]'
	@touch $@

# Sources are read and not imported, so that this needs neither PyTorch nor the package.
$(VENV)/.specdec-docs: docs/requirements.txt | $(BIN)/python
	@echo "== installing what the documentation needs"
	@$(PIP) --quiet --requirement docs/requirements.txt
	@touch $@
