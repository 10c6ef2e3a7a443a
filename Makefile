# Two commands do everything from a bare clone: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INTEROP := .venv-interop
JOBS ?= 2
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo reproduce test test-slow test-browser test-baselines test-bench test-more test-interop lint fuzz attacks lock verify sbom bench bench-check
.PHONY: bench-sbi docs docs-serve test-docs dist clean help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(VENV)/.package  ## install, run the main job on contaminated g-and-k data, write pictures and a page to demo/
	$(BIN)/nsmbayes demo --out demo

reproduce: $(VENV)/.package  ## install and run the paper's experiments: hours; the same command takes a stopped run up again
	$(BIN)/python -m pip install --quiet --editable ".[flows]"
	$(BIN)/nsmbayes reproduce all --resume --out reproduction

test: $(VENV)/.dev  ## install and run the tests
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-slow: $(VENV)/.dev  ## install and run the slow tests: pages of the docs, many columns, killed runs
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow tests

test-browser: $(VENV)/.dev  ## the page of nsmbayes explore in a real browser; needs chromium and chromedriver
	$(BIN)/python -m pytest -m slow tests/explore

test-interop: $(INTEROP)/.dev  ## install sbi and torch apart and run the tests that need them
	$(INTEROP)/bin/python -m pytest tests/interop

test-baselines: $(VENV)/.dev  ## install and run the tests of the methods that ours are compared with
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m baselines tests

test-more: $(VENV)/.dev  ## install and run the slow tests, those of the baselines and every benchmark at a tiny size
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "slow or baselines or bench" tests

test-bench: $(VENV)/.dev  ## install and run every benchmark at a tiny size
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m bench tests/test_bench.py

lint: $(VENV)/.dev  ## ruff and pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(VENV)/.dev  ## build the documentation site into build/docs; warnings are errors
	$(BIN)/python -m sphinx -b html -W --keep-going -q -d build/doctrees docs build/docs

docs-serve: docs  ## build the documentation site and show it at http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs 8000

test-docs: $(VENV)/.dev  ## run the pages that no test runs, one by one, and note when: about half an hour
	$(BIN)/python -m tools.run_docs

fuzz: $(VENV)/.dev  ## a minute of random files for the CSV reader and the model loader
	$(BIN)/python -m attacks.fuzz --seconds 60

attacks: $(VENV)/.dev  ## 1,000 hostile models, 100 files, 100 kills, 500 posteriors, 30,000 replaced rows: hours
	$(BIN)/python -m attacks all

lock: $(VENV)/.dev  ## write the checksums of all packages to hashes.txt, after a change of constraints.txt
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report - ".[dev,docs]" | $(BIN)/python -m tools.lock

verify: $(VENV)/.dev  ## compare what the index offers with hashes.txt; nothing is installed
	PIP_CONSTRAINT= $(BIN)/python -m pip install --quiet --dry-run --ignore-installed --no-deps --require-hashes -r hashes.txt

sbom: $(VENV)/.dev  ## write what is installed to build/sbom.json, as CycloneDX
	mkdir -p build
	$(BIN)/python -m tools.sbom > build/sbom.json

bench: $(VENV)/.dev  ## measure side by side, results as JSON in bench/results
	$(BIN)/python -m bench

bench-check: $(VENV)/.dev  ## measure again and name what got worse than the stored baseline, on an idle machine
	$(BIN)/python -m bench.check

bench-sbi: $(INTEROP)/.dev  ## measure beside sbi: most of an hour, nearly all of it spent by sbi
	$(INTEROP)/bin/python -m bench sbi held-out

dist: $(VENV)/.dev  ## build wheel and sdist into dist/, and check what is in them
	rm -rf dist
	test -x build/backend/bin/python || $(PYTHON) -m venv build/backend
	build/backend/bin/python -m pip install --quiet hatchling
	build/backend/bin/python -m hatchling build -d dist
	$(BIN)/python -m tools.dist dist

clean:  ## remove everything that was built or installed
	rm -rf $(VENV) $(INTEROP) demo build dist .pytest_cache .ruff_cache .hypothesis

$(VENV)/.package: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --editable ".[dev,docs]"
	touch $@

# torch by this very spelling and before all else: another may bring gigabytes of CUDA along.
$(INTEROP)/.dev: pyproject.toml constraints.txt
	test -x $(INTEROP)/bin/python || $(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python -m pip install --quiet torch==2.13.0
	$(INTEROP)/bin/python -m pip install --quiet --editable ".[dev,sbi]"
	touch $@
