# Needs python3 (3.11+), make and a package index; everything else is installed into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
RUNTIME := $(VENV)/.runtime
# Many tests wait for a deadline or another process: more workers than processors keep these busy.
PYTEST := $(BIN)/pytest -n $(shell expr $$(nproc) '*' 3 / 2) --dist worksteal

# Without bytecode each worker and each command of the tests would compile its sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-rest test-all lint types warm figures docs wheel compiled-wheel deb matrix coverage bpf clean
.PHONY: checked native responses release test-arm

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

# $(call install,WHAT,STAMP): WHAT in pip's words; pip's exit status decides, not that of the filter. Without bytecode: two
# fifths of pip's processor time and 40 MB go to modules that are never imported; the others get theirs at first import.
define install
	@echo "setup: virtual environment in $(VENV)"
	@rm -f $(2)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@{ $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --no-compile -c constraints.txt -e '$(1)' && touch $(2); } | grep -vE '^(Requirement already|Looking in|Obtaining)' | cut -c1-150
	@test -e $(2) || { echo "setup: pip could not install everything, see above" >&2; exit 1; }
endef

setup: $(STAMP)  ## make the virtual environment and install everything into it

$(STAMP): pyproject.toml constraints.txt
	$(call install,.[dev],$@)

# What the demo needs; an environment with everything has it too.
$(RUNTIME): pyproject.toml constraints.txt
	$(if $(wildcard $(STAMP)),$(MAKE) --no-print-directory $(STAMP) && touch $@,$(call install,.,$@))

warm: setup      ## compile the engine once, and cache it
	@$(BIN)/python -m openmrc.programs.warm

demo: $(RUNTIME)  ## move data over four planes while planes die, beside TCP, then simulate a fabric
	@$(BIN)/mrc demo

lint: setup      ## style, spelling, layers, functions that no program reaches
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell openmrc tests bench harness docs README.md
	@$(BIN)/lint-imports --no-cache | tail -n 12
	@$(BIN)/python -m spec.reachability

types: setup     ## strict type checking
	@$(BIN)/mypy

checked: setup
	@$(MAKE) --no-print-directory -j2 --output-sync=line lint warm

# $(call tested,OPTIONS): tests, and beside them the types, which keep one processor busy for a minute.
define tested
	@$(BIN)/mypy >$(VENV)/types.txt 2>&1 & types=$$!; $(PYTEST) $(1); status=$$?; \
	wait $$types || status=1; cat $(VENV)/types.txt; exit $$status
endef

test: checked    ## style, types, and all tests that need neither root nor programs of others
	$(call tested,--fast)

test-rest: setup warm  ## the tests that `make test` leaves out: root, programs of others, exhaustive searches
	@$(PYTEST) --rest

test-all: export MRC_FUZZ_SECONDS ?= 200
test-all: checked ## style, types, and every test: random searches go on where test-rest ends
	$(call tested)

figures: setup   ## write the tables of the docs from bench/results
	@$(BIN)/python -m bench.figures --write

responses: setup ## measure again what failures cost collectives, for `mrc plan job`; half an hour
	@$(BIN)/python -m bench.jobs.responses --to runs/responses.jsonl
	@$(BIN)/python -m bench.jobs.responses --to runs/responses.jsonl --assemble

docs: setup      ## build the documentation site into site/, links checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q && echo "docs: open site/index.html"

wheel: setup     ## build the wheel, install it into an empty environment, use it
	@tests/wheel.sh $(BIN)/python

compiled-wheel: setup  ## build a wheel into dist/ that ships compiled code for this Python
	@packaging/compiled_wheel.sh $(BIN)/python dist

release: setup   ## build what a release consists of into dist/: wheels, Debian packages, digests, bill of materials
	@packaging/release.sh dist

native: setup    ## build libmrc.so, the engine and a verbs device for C programs (cc, libibverbs-dev)
	@$(BIN)/mrc native

deb: setup       ## build the Debian packages libmrc1 and libmrc-dev into dist/ (cc, libibverbs-dev, dpkg-deb)
	@packaging/debian.sh $(BIN)/python dist

matrix:          ## the fast part of the tests on every supported Python that is here
	@tests/matrix.sh

test-arm: setup  ## the engine, the wire and the native library on AArch64 under qemu (root; an hour)
	@.ci/arm runs/arm64

coverage: setup  ## statements that tests reach, interpreted, with a floor for each folder
	@tests/coverage.sh $(BIN)

BPF := openmrc/lab/bpf/port.bpf

bpf: $(BPF).o    ## compile the lab's switch port; the object ships, so this is for those who change it (clang, libbpf-dev)

# No path of this machine may be in it, so that the same compiler makes the same bytes anywhere.
$(BPF).o: $(BPF).c
	@cd $(@D) && clang -O2 -g -target bpf -mcpu=v3 -fdebug-prefix-map=$$PWD=. -I/usr/include/$$(uname -m)-linux-gnu \
	  -Wall -Werror -c $(<F) -o $(@F) && llvm-strip -g $(@F)

clean:           ## remove the environment and caches of this folder
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build site *.egg-info
