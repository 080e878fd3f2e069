# make demo   the main job, on embedded data
# make check  format, lint, types, import contracts, quick tests
# make test   check, every slow test, and the documentation
# make coverage  which lines the tests reach: a figure, and a page in .venv/coverage
PYTHON ?= python3
PY := .venv/bin/python
# Bytecode is kept, or every process that the tests start would compile the sources again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --maxprocesses 4 --dist worksteal
# Checking shapes slows code down by a sixth: tests that take long, or compile, do without.
UNCHECKED := INVINT_SHAPE_CHECKS=0 $(PYTEST)
MARKED = $(shell grep -rlE "mark\.(slow|unchecked)" tests --include=*.py)
STAMP := .venv/.installed-$(shell (pwd; cat pyproject.toml constraints.txt) | cksum | cut -d' ' -f1)

.PHONY: demo check test coverage lint docs browser figures bench clean

demo: $(STAMP)
	@$(PY) -m invint study digits --only cnn,pooling,local-ws,monomials --sizes 100,all --seeds 3 \
		--jobs 2 --threads 1 --runs demo/runs --report demo/report.html
	@echo "next: your own pictures, a folder for each class: .venv/bin/invint fit FOLDER"

check: lint
	$(PYTEST) -m "not slow and not unchecked and not gpu"
	$(UNCHECKED) -m "unchecked and not slow and not gpu" $(MARKED)

test: lint docs browser
	$(PYTEST) -m "not slow and not unchecked" --durations=5
	$(UNCHECKED) -m "slow or unchecked" --durations=5 $(MARKED)

coverage: $(STAMP) browser
	rm -f .venv/.coverage*
	COVERAGE_FILE=.venv/.coverage $(PYTEST) -m "not slow and not unchecked" --cov --cov-report=
	COVERAGE_FILE=.venv/.coverage $(UNCHECKED) -m "slow or unchecked" --cov --cov-append \
		--cov-report=term:skip-covered --cov-report=html:.venv/coverage $(MARKED)

lint: $(STAMP)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()'

# Some tests look at pages in Chromium. Where it cannot be installed they are skipped and say so.
browser:
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1 || \
		echo "invint: chromium could not be installed; tests that need it are skipped"

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --site-dir .venv/site

figures: $(STAMP)
	$(PY) benchmarks/basis.py
	$(PY) benchmarks/integration.py
	$(PY) benchmarks/joint.py
	$(PY) benchmarks/tables.py

bench: $(STAMP)
	$(PY) benchmarks/layers.py
	$(PY) benchmarks/heads.py

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "invint needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "invint: setting up .venv (once; about two minutes)"
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@rm -f .venv/.installed-*
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
