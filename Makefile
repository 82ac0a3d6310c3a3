# `make` alone lists what there is. Everything is installed into .venv, once; pyproject.toml says what.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
ARGS   ?=
BRIEF  := not proof and not soak
# RECORD=1: what comes of it is kept in tests/results, and told in docs/reliability.md
RECORD ?=
KEEP    = $(if $(strip $(RECORD)),--record)

.DEFAULT_GOAL := help
.PHONY: help demo quick test proof explore lint bench docs release soak clean
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE  # each worker of pytest would compile all tests anew

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s  %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/demo.done  ## the whole cycle on invented readings, in an embedded MongoDB (ARGS=--keep leaves it up)
	@$(BIN)/bucketwise demo $(ARGS)

quick: $(VENV)/dev.done  ## the tests that need no server and no process, in less than a minute
	@$(BIN)/pytest -n 2 --dist worksteal -m "$(BRIEF) and not process" $(ARGS)

test: $(VENV)/dev.done  ## what each part does, in some minutes (ARGS="-k restore" narrows it)
	@.ci/test-programs
	@$(BIN)/pytest -n 3 --dist worksteal -m "$(BRIEF)" $(KEEP:%=% $@) $(ARGS)

proof: $(VENV)/dev.done  ## what takes long: faults, races, browsers, images, more examples of properties
	@.ci/test-programs proof
	@$(BIN)/pytest -n 4 --dist worksteal -m "(proof or hypothesis) and not soak" --hypothesis-profile=thorough --second-reader $(KEEP:%=% $@) $(ARGS)

explore: $(VENV)/dev.done  ## schedules of runs, writers and crashes, in a world in memory (ARGS="--schedules 20000 --seed 7")
	@$(BIN)/python -m tests.explore $(KEEP) $(ARGS)

lint: $(VENV)/dev.done  ## style, format, types, and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: $(VENV)/docs.done  ## the manual as a site in build/site, with pages of reference made of the code
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet $(ARGS)
	@echo "build/site has versions $$($(BIN)/python docs/versions.py build/site | xargs). To read them: $(BIN)/python -m http.server -d build/site"

release: $(VENV)/release.done  ## packages, image, bill of materials and manual in build/release; uploads nothing
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python ops/release.py $(ARGS)

bench: $(VENV)/bench.done  ## how fast each job is, beside its bounds and other ways (ARGS="--scale 17M")
	@$(BIN)/python -m bench $(ARGS)

soak: $(VENV)/dev.done  ## what takes hours: an application and all that befalls it, each fault at each moment, mutants
	@.ci/test-programs soak
ifeq ($(ARGS),)
	@$(BIN)/python -m tests.soak $(KEEP)
endif
	@$(BIN)/pytest -m soak $(KEEP:%=% $@) $(ARGS)
	@$(BIN)/pytest -n 3 -m "not soak" --hypothesis-profile=long tests/buckets tests/rollups tests/test_broken_input.py $(ARGS)
ifeq ($(ARGS),)
	@$(BIN)/pytest -n 3 -m "$(BRIEF)" --cov --cov-config=tests/coverage.ini --cov-context=test --cov-report=
	@$(BIN)/python -m tests.mutants .coverage $(KEEP)
endif

clean:  ## remove what was installed and cached
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@.ci/make-venv "$(PYTHON)" $(VENV)

$(VENV)/demo.done: $(BIN)/python pyproject.toml config/__init__.py
	@echo "Installing what the demo needs into $(VENV); this happens once."
	@$(PIP) install --editable '.[demo]'
	@.ci/system-libraries $(BIN)/python
	@touch $@

$(VENV)/bench.done: $(BIN)/python pyproject.toml config/__init__.py
	@echo "Installing what the bench needs into $(VENV); this happens once."
	@$(PIP) install --editable '.[bench]'
	@.ci/system-libraries $(BIN)/python
	@touch $@ $(VENV)/demo.done

$(VENV)/docs.done: $(BIN)/python pyproject.toml config/__init__.py
	@echo "Installing what the site needs into $(VENV); this happens once."
	@$(PIP) install --editable '.[docs]'
	@touch $@

$(VENV)/release.done: $(VENV)/dev.done
	@echo "Installing what a release needs into $(VENV); this happens once."
	@$(PIP) install --editable '.[release]'
	@touch $@ $(VENV)/docs.done

$(VENV)/dev.done: $(BIN)/python pyproject.toml config/__init__.py
	@echo "Installing what tests and lint need into $(VENV); this happens once."
	@$(PIP) install --editable '.[test,lint]'
	@.ci/system-libraries $(BIN)/python
	@touch $@ $(VENV)/demo.done
