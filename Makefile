# The commands of this project; CI runs the same ones (.ci/run).
#   PYTHON=  the Python to use (else the newest of 3.13, 3.12, 3.11 that works)
#   VENV=    the virtual environment's folder
#   ARGS=    more arguments for pytest

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export PYTHON
export VENV ?= .venv
BIN := $(VENV)/bin
MANIFEST ?= examples/hello.yaml
TYPED := runner/agentrun operator/agentrun_operator api/agentrun_api tests requirements \
  $(if $(wildcard benchmarks/*.py),benchmarks)
PROTO_FILES := $(wildcard proto/agentrun/proto/*.proto)
# So many tests on a cluster at once; those that are marked `alone` come behind, one by one.
SIDE_BY_SIDE := -n 3 --dist loadgroup --no-loadscope-reorder
PROTOC = $(BIN)/python -m grpc_tools.protoc -I proto

.PHONY: help run test node-servers check fmt proto crds openapi e2e-model images kind-up kind-load deploy e2e e2e-slow kind-down lock upgrade clean dev

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## run a manifest on this machine (MANIFEST=examples/hello.yaml)
	@requirements/setup run
	@$(BIN)/agentrun run $(MANIFEST)

test: dev ## unit tests, then integration tests
	@$(BIN)/python -m pytest -n auto tests/unit $(ARGS)
	@$(BIN)/python -m pytest -n auto tests/integration $(ARGS)

node-servers: ## install the MCP servers of node that some tests use (put build/node/node_modules/.bin on PATH)
	@mkdir -p build/node && cp requirements/node/package*.json build/node/
	@npm ci --prefix build/node --no-audit --no-fund --silent

check: dev ## format, lint, types, layers, the chart, and that generated files are fresh
	@$(BIN)/ruff format --check --quiet . || { echo "format: run \`make fmt\`"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy $(TYPED)
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python requirements/lock.py --check
	@out=$$(mktemp -d); trap 'rm -rf "$$out"' EXIT; \
	$(PROTOC) --python_out="$$out" --pyi_out="$$out" $(PROTO_FILES); \
	for file in "$$out"/agentrun/proto/*; do \
	  cmp -s "$$file" "runner/agentrun/proto/$$(basename "$$file")" \
	    || { echo "runner/agentrun/proto/$$(basename "$$file"): not that of proto/ any more; run \`make proto\`"; exit 1; }; \
	done
	@$(BIN)/python -m agentrun_operator.crd --check
	@$(BIN)/python -m agentrun_api.openapi --check
	@$(BIN)/python -m pytest -q -n auto tests/unit/chart
	@echo "check: all is well"

fmt: dev ## format the code, mend what the linter can
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

crds: dev ## generate the CRD, the chart's copy of it and Argo CD's patch
	@$(BIN)/python -m agentrun_operator.crd

openapi: dev ## generate the API's OpenAPI document
	@$(BIN)/python -m agentrun_api.openapi

proto: dev ## generate runner/agentrun/proto from proto/
	@$(PROTOC) --python_out=runner --pyi_out=runner $(PROTO_FILES)

e2e-model: dev ## tests against a real small model (SHARED=folder that has model/serve)
	@.ci/with-model $(BIN)/python -m pytest tests/e2e/model $(ARGS)

images: ## build the images of runner and operator (CLUSTER=kind or lab; see .ci/cluster)
	@.ci/cluster images

kind-up: ## bring up a cluster on this machine
	@.ci/cluster up

kind-load: images ## build the images and put them on its nodes
	@.ci/cluster load

deploy: $(if $(shell command -v helm),,dev) ## install agentrun on it, or bring it up to date
	@.ci/cluster deploy

e2e: dev ## tests on a cluster that is brought up for them (KEEP=1 keeps it, or uses one that is up)
	@.ci/with-cluster $(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/e2e/cluster $(ARGS)

e2e-slow: dev ## tests on a cluster, by hand: minutes without the store, hundreds of runs
	@.ci/with-cluster $(BIN)/python -m pytest tests/e2e/slow $(ARGS)

kind-down: ## take the cluster down
	@.ci/cluster down

lock: dev ## write requirements/*.txt for the dependencies in pyproject.toml
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python requirements/lock.py

upgrade: dev ## the same, with the newest versions
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python requirements/lock.py --upgrade

dev: # the environment for development
	@requirements/setup dev

clean: ## remove what was made here, the environment included
	@rm -rf "$(VENV)" build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
