# Two commands: `make demo` shows it, `make test` proves it. Both set everything up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: help setup demo test check slow laws bench clean

help:
	@echo "make demo    set up and watch two streams being correlated"
	@echo "make test    set up and run the tests"
	@echo "make setup   set up only: .venv, dependencies, a JDK if there is none"
	@echo "make check   ruff, mypy and the tests"
	@echo "make slow    the tests that take minutes"
	@echo "make laws    plan changes under 50,000 random streams (about half an hour)"
	@echo "make bench   benchmarks, results under benchmarks/results"

setup: $(VENV)/.ready
	@sh scripts/ensure-java.sh

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "anabranch needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "could not make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "installing dependencies into $(VENV) (a minute or two, once) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup
	@$(BIN)/anabranch demo

# What needs Spark, and the rest beside it: one session, and two cores in use.
define run-tests
	@echo "running what needs Spark; the rest runs beside it and is shown at the end"
	@$(BIN)/python -m pytest -m "not slow and not spark" > $(VENV)/pure-tests.log 2>&1 & pure=$$!; \
	$(BIN)/python -m pytest -m "not slow and spark"; spark=$$?; \
	wait $$pure; status=$$?; cat $(VENV)/pure-tests.log; exit $$((spark | status))
endef

test: setup
	$(run-tests)

slow: setup
	$(BIN)/python -m pytest -m slow

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(run-tests)

laws: setup
	ANABRANCH_EXAMPLES=50000 $(BIN)/python -m pytest tests/test_plan_changes.py

bench: setup
	$(BIN)/python -m benchmarks.correlate
	$(BIN)/python -m benchmarks.place
	$(BIN)/python -m benchmarks.nearest
	$(BIN)/python -m papers.vico.on_spark
	$(BIN)/python -m benchmarks.emd
	$(BIN)/python -m papers.dssis.queues
	$(BIN)/python -m papers.dssis.windows
	$(BIN)/python -m benchmarks.assemble --seconds 4
	$(BIN)/python -m benchmarks.assemble --seconds 12

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
