# hpcserve: `make demo` shows it working on this machine, `make test` tests everything. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
PYTHON ?= python3.11
BIN := $(VENV)/bin
TEST_CLUSTER := test

.PHONY: help demo announce test check verify setup packages packages-with-accounting engine clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

demo: announce setup packages engine  ## set everything up, serve a model on a one-machine Slurm cluster, measure two placements
	@slurm/demo

announce:
	@echo "This installs, where it is missing: Python packages into $(VENV); Debian packages: $$(slurm/cluster packages);"
	@echo "vLLM's CPU build (2.6 GB) and SmolLM2-135M-Instruct (0.3 GB) into ~/.cache/hpcserve. Nothing else is changed."

test: setup packages-with-accounting engine check  ## everything: the fast tests, then real Slurm, vLLM and NIXL
	$(BIN)/pytest -m real tests/slurm tests/provision
	@trap 'slurm/cluster --name $(TEST_CLUSTER) down' EXIT; \
	slurm/cluster --name $(TEST_CLUSTER) up; \
	slurm/cluster --name $(TEST_CLUSTER) exec env HPCSERVE_TEST_CLUSTER=$(TEST_CLUSTER) \
	  $(CURDIR)/$(BIN)/pytest -m real --ignore tests/slurm --ignore tests/provision

check: setup  ## format, lint, types, import contract and the fast tests (no root, no Slurm, no vLLM)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -n 2 -m "not real and not soak"

verify: setup packages engine  ## soaks and long runs, over an hour; not part of `make test`
	$(BIN)/pytest -m soak tests/router
	@trap 'slurm/cluster --name $(TEST_CLUSTER) down' EXIT; \
	slurm/cluster --name $(TEST_CLUSTER) up; \
	slurm/cluster --name $(TEST_CLUSTER) exec env HPCSERVE_TEST_CLUSTER=$(TEST_CLUSTER) \
	  $(CURDIR)/$(BIN)/pytest -m soak tests/real

setup: $(VENV)/.installed  ## the project's own virtual environment

$(VENV)/.installed: pyproject.toml
	@echo "Installing hpcserve and its development tools into $(VENV) (about a minute)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

packages:  ## Debian packages of the one-machine cluster (Slurm, munge, iproute2), where they are missing
	@slurm/packages

packages-with-accounting:  # and what tests compare with and import from; Open MPI for `hpcserve site measure`
	@HPCSERVE_MORE_PACKAGES="chromium fonts-dejavu-core ibsim-utils infiniband-diags iperf3 libopenmpi3 libpmix-dev opensm" slurm/packages --accounting slurmdbd

engine: setup  ## vLLM for CPU in an environment of its own, and the SmolLM2-135M model
	@$(BIN)/hpcserve engine install
	@$(BIN)/hpcserve model fetch smollm2-135m-instruct

clean:  ## remove what the targets above made in this directory (not the caches under ~/.cache/hpcserve)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis demo-results
