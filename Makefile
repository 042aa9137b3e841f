# The two set-up commands: `make demo` and `make test`. Each makes its own environment in .venv.
PYTHON ?= python3
BIN := .venv/bin

# Tests start kvwise some thousand times: it should not be compiled anew each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test setup lint types imports slow bench accuracy lock clean

help:           ## these lines
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

setup:
	@PYTHON=$(PYTHON) scripts/setup

demo: setup     ## read a real model, account for every byte, plan, and prove it on the real engine
	@$(BIN)/python scripts/demo.py

test: setup lint types imports  ## everything CI runs: lint, types, import rules, tests
	$(BIN)/pytest -n 2 --dist loadgroup -q -m "not slow"

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

imports:
	$(BIN)/lint-imports

slow: setup     ## soak runs that `make test` leaves out
	KVWISE_BUILD_ORACLE=1 $(BIN)/pytest -n 0 -q -m slow

bench: setup    ## ratios against peers, in one run each
	$(BIN)/python benchmarks/header.py
	$(BIN)/python benchmarks/account.py
	$(BIN)/python benchmarks/compute.py
	$(BIN)/python benchmarks/table.py

accuracy: setup ## compare all that can be compared and write docs/accuracy.md
	$(BIN)/python benchmarks/accuracy --engine embedded

lock:           ## write requirements/*.txt again
	scripts/lock

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
