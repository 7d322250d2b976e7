# Everything a developer or a curious user needs, on a fresh machine with Python 3.11 or newer and make:
# each target first makes a local virtual environment in .venv, once.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := -m pip --quiet --quiet --disable-pip-version-check
# Byte code is left to the first import: most of it would never be used, and writing it takes most of the time.
INSTALL := $(PIP) install --no-compile -c constraints.txt
JOBS ?= 2
SECONDS_EACH ?= 600

.PHONY: demo dist quick test lint types pytest coverage fuzz audit docs linkcheck bench bench-speed bench-check results-check clean

demo: $(VENV)/.run  ## a 10^7-point fit, essential matrix and alignment, on data it makes; writes demo/report.html
	$(BIN)/problm demo

quick: lint types  ## while editing: lint, types, and the tests of what has changed
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "not slow" $$($(BIN)/python tests/helpers/quick.py)

test: lint types pytest  ## what continuous integration runs

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

pytest: $(VENV)/.dev
	$(BIN)/problm warmup
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

coverage: $(VENV)/.dev  ## all tests once more, counting the lines that they run; takes half as long again
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --cov --cov-report=term-missing:skip-covered

fuzz: $(VENV)/.dev  ## signals at random moments, hostile input for every parser (SECONDS_EACH=600); for the night
	PROBLM_NIGHTLY=1 $(BIN)/python -m pytest -q tests/hardship/test_signals.py tests/promises/test_machines.py
	$(BIN)/python -m tests.hardship.fuzz --seconds $(SECONDS_EACH)

audit: $(VENV)/.audit  ## known vulnerabilities of the pinned versions; needs the network, and says so without it
	$(BIN)/python tests/helpers/audit.py

docs: $(VENV)/.dev  ## HTML pages in docs/_build/html; warnings and dead internal links are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

bench: $(VENV)/.peers  ## every figure of the paper, with peers; writes out/bench/report.html
	$(BIN)/problm bench all -o out/bench

bench-speed: $(VENV)/.peers  ## compiled fits against the peers, N = 50 to 10^7; writes bench/results/speed.md
	$(BIN)/python -m bench.studies.speed

bench-check: $(VENV)/.dev  ## fails when a measured ratio falls behind the committed baseline
	$(BIN)/python -m bench.harness.check

results-check: $(VENV)/.dev  ## lists the committed results that are older than the code that they measure
	$(BIN)/python -m bench.harness.stale

dist: $(VENV)/.run  ## source distribution, and a wheel with compiled code for this kind of machine, tried out
	rm -rf dist src/problm/jit/compiled
	$(BIN)/python -c "from problm.jit.build import build_for_wheel; build_for_wheel()"
	$(BIN)/python $(PIP) wheel --no-deps -w dist .
	rm -r src/problm/jit/compiled
	$(PYTHON) -m venv dist/env
	dist/env/bin/python $(INSTALL) build
	dist/env/bin/python -m build --sdist -o dist .
	dist/env/bin/python $(INSTALL) dist/*.whl
	cd dist && env/bin/python ../tests/helpers/try_wheel.py
	rm -r dist/env

# Versions are pinned by constraints.txt; dependency groups need the pip that it names. It is installed by the pip of
# the user's Python, or else by ensurepip, which takes five times as long.
$(VENV)/.run: pyproject.toml constraints.txt
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) $(PIP) --python $(BIN)/python install --no-compile -c constraints.txt pip 2>/dev/null \
	  || { $(BIN)/python -m ensurepip >/dev/null && $(BIN)/python $(INSTALL) pip; }
	$(BIN)/python $(INSTALL) -e ".[vision,plot,cli]"
	$(BIN)/problm warmup
	touch $@

$(VENV)/.dev: $(VENV)/.run pyproject.toml constraints.txt
	$(BIN)/python $(INSTALL) -e ".[all]" --group dev --group docs
	touch $@

$(VENV)/.audit: $(VENV)/.run
	$(BIN)/python $(INSTALL) --group audit
	touch $@

# A peer that is not to be had on this machine is left out of the comparison, not an obstacle to it.
$(VENV)/.peers: $(VENV)/.dev
	-$(BIN)/python $(INSTALL) --group peers
	touch $@

clean:
	rm -rf docs/_build demo out .pytest_cache .mypy_cache .ruff_cache .coverage htmlcov
