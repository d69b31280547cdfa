# make book   the environment, every notebook executed, the site built
# make test   the environment, everything checked
# make dist   archives of the site and of the notebooks, with checksums, in _build/dist
SHELL := bash
PYTHON ?= python3
# More options for pip, such as the index of PyTorch's CPU build: see README.md.
PIP_FLAGS ?=
BIN := .venv/bin
# One thread a process: sums in a fixed order, and two processes share two cores.
export OMP_NUM_THREADS := 1
export PYTHONHASHSEED := 0

.PHONY: book test dist env notebooks site lint format browser clean

book: notebooks site
	@echo "Open file://$(CURDIR)/_build/html/index.html"

test: lint site browser
	$(BIN)/pytest -n 2 --dist loadgroup

dist: site
	$(BIN)/icl site dist

env: .venv/.ready

.venv/.ready: requirements.txt constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed: make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt -c constraints.txt $(PIP_FLAGS)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

notebooks: env
	$(BIN)/icl notebooks run
	$(BIN)/icl notebooks figure fig-pulled-line book/_static/pulled-line.png # for README.md

site: env
	$(BIN)/icl site build

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: env
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

browser: env
	$(BIN)/python tests/browser.py

clean:
	rm -rf _build .pytest_cache .ruff_cache .mypy_cache .hypothesis
