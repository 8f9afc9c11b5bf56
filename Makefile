# Every target sets up what it needs: the virtual environment and, for `make test`, Debian packages.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2
# Debian packages that tests use; installed by `make test` when root, otherwise named.
SYSTEM_PACKAGES := openssl openssh-client openssh-server qemu-user-static xvfb xdotool libgl1 libgl1-mesa-dri

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-device test-lowest lint format bench proto clean system-packages

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(VENV)/.user  ## compare the embedded float and int8 pair
	@$(BIN)/visualquant demo

test: system-packages lint  ## every quick check and test (below 15 minutes on 2 cores)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow and not device"

test-slow: $(VENV)/.dev  ## the tests that take minutes
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "slow and not device"

test-device: system-packages $(VENV)/.dev  ## the host against an emulated aarch64 board (builds it on first use)
	$(BIN)/python -m pytest -m device tests/device

test-lowest: build/lowest/.dev  ## the tests on the oldest dependencies that pyproject.toml allows
	build/lowest/bin/python -m pytest -n $(JOBS) --dist loadfile -m "not slow and not device and not window"

lint: $(VENV)/.dev  ## ruff, mypy, import contracts, generated code, the agent's Python 3.9
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin -q -t=3.9- --no-tips --violations --exclude visualquant_agent.wire.v1 agent/src
	$(BIN)/python proto/generate.py --check

format: $(VENV)/.dev  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev  ## speed as ratios, rivals side by side
	$(BIN)/python -m benchmarks

proto: $(VENV)/.dev  ## regenerate the committed gRPC code
	$(BIN)/python proto/generate.py

clean:  ## remove the virtual environments and build output
	rm -rf $(VENV) build

system-packages:
	@missing=""; for p in $(SYSTEM_PACKAGES); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; \
	  else echo "Please install the packages$$missing, then run make test again." >&2; exit 1; fi; fi

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "visualquant needs Python 3.11 or newer: name one with make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: pyproject.toml agent/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ./agent -e .
	@touch $@

$(VENV)/.dev: pyproject.toml agent/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ./agent -e '.[dev]'
	@touch $@ $(VENV)/.user

build/lowest/.dev: pyproject.toml agent/pyproject.toml
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	build/lowest/bin/uv pip install --quiet --python build/lowest/bin/python --resolution lowest-direct -e ./agent -e '.[dev]'
	@touch $@
