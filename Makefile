# Two commands: `make demo` shows it, `make test` proves it. Both set everything up first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python

.PHONY: help setup demo test check slow services laws fuzz soak chaos worlds kills news compat wheel docs scale bench flink pictures images notebooks cast words clean pathway

help:
	@echo "make demo    set up and watch live channels being correlated: real video if it can be fetched in 30 s, else made up"
	@echo "make news    the same with three channels of real video, and their topics"
	@echo "make test    set up and run the tests"
	@echo "make setup   set up only: .venv, dependencies, a JDK if there is none"
	@echo "make check   what must pass: ruff, mypy, the import contract, the tests"
	@echo "make slow    the tests that take minutes: kills, executors, long streams"
	@echo "make services  sinks against a real Kafka, PostgreSQL, Delta and Iceberg, a real cluster, killed at each step; the page in a browser; networks and text on pictures"
	@echo "make laws    every law with ten to twenty times as many examples, drawn at random; 10,000 worlds of devices"
	@echo "make fuzz    100,000 random calls and their rows against the twins (CASES=, SPARK_CASES=, REPORT=)"
	@echo "make soak    correlate, how=, dedupe, groups, nearest and assemble for an hour (HOURS=, SHORT=1: undecided figures pass, REPORT=): flat memory, exact answers, report and picture"
	@echo "make chaos   the same queries while plans change and things break (KILLS=, PLANS=, MINUTES=, REPORT=, SCENE=local, cluster, broker or clock): nothing lost, nothing double; needs root (WITHOUT=disk: not), Maven and a C compiler"
	@echo "make worlds  devices, relay, keeper and views in a box (SEEDS=0:20000), added up over runs of the same code"
	@echo "make kills   devices, relay, broker and the query on Spark as processes, killed at random (KILLS=100 of each): nothing lost, nothing double"
	@echo "make compat  every verb on Spark 4.1, 4.2 and 4.3, each in an environment of its own (SPARK=4.2: one)"
	@echo "make wheel   build the wheel, install it read-only, and run it as a user without a home"
	@echo "make docs    the documentation as a site, with the API reference, under site/"
	@echo "make scale   simulate 4 to 1,000 workers with costs measured here; writes docs/internals/scale.md"
	@echo "make bench   benchmarks, results under benchmarks/results and papers/*/results"
	@echo "make flink   an environment with Apache Flink, which make bench then compares with; make pathway: one with Pathway"
	@echo "make pictures  the pictures of the documentation; make cast: that of the demo; make images: both"
	@echo "make notebooks  the examples of the gallery: packages with their data, every notebook run, the pictures"
	@echo "make words   length of sentences and words to avoid in the documentation and in messages"
	@echo "make clean   remove what the above have made"

setup: $(VENV)/.ready
	@sh scripts/ensure-java.sh

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "anabranch needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "could not make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "installing dependencies into $(VENV) (a minute or two, once) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: setup
	@$(BIN)/anabranch news --within 30 --speed 2

# Two processes, each with a Spark session of its own where it needs one. They take the tests file by
# file, so that neither core waits for the other.
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Fetches real clips once, and records three channels out of them.
news: setup
	@$(BIN)/anabranch news

test: setup
	$(PYTEST) -m "not slow and not services"

# The import contract comes early, for it takes seconds, and is then left out of the tests.
check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layout.py
	$(PYTEST) --ignore=tests/test_layout.py -m "not slow and not services"

# Without the test of the wheel, which has `make wheel`: it needs root, and fails in CI without.
slow: setup
	$(PYTEST) --ignore=tests/test_wheel.py -m "slow and not services"

# Brokers, servers and jars are fetched into .services and torn down after the tests. The page is
# opened in the system's Chromium.
services: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[sinks,kafka,services,examples,notebooks,video-concepts,video-text]"
	$(BIN)/python -m pytest -m services

laws: setup
	ANABRANCH_PROFILE=laws $(PYTEST) -m "(hypothesis or worlds) and not slow and not services"

# What came out of these is in docs/reliability.md.
fuzz: setup
	$(BIN)/python -m scripts.reliability.fuzz --cases $(or $(CASES),100000) --spark $(or $(SPARK_CASES),200) $(if $(REPORT),--report $(REPORT))

soak: setup
	$(BIN)/python -m scripts.reliability.soak --hours $(or $(HOURS),1) $(if $(SHORT),--short) $(if $(REPORT),--report $(REPORT))

chaos: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[kafka]"
	$(BIN)/python -m scripts.reliability.chaos $(if $(SCENE),--scene $(SCENE)) $(if $(WITHOUT),--without $(WITHOUT)) --kills $(or $(KILLS),100) --plans $(or $(PLANS),1000) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(REPORT),--report $(REPORT))

worlds: setup
	$(BIN)/python -m scripts.reliability.worlds --seeds $(or $(SEEDS),0:20000) --processes $(JOBS) $(if $(REPORT),--report $(REPORT))

kills: setup
	$(BIN)/python -m scripts.reliability.kills --kills $(or $(KILLS),100) $(if $(REPORT),--report $(REPORT))

compat: setup
	$(BIN)/python -m scripts.compat $(SPARK)

wheel: setup
	$(BIN)/python -m pytest tests/test_wheel.py

# In an environment of its own: nothing of it is needed to run, test or install Anabranch.
docs: .docs/.ready
	.docs/bin/python scripts/site.py

.docs/.ready: pyproject.toml
	@$(PYTHON) -m venv .docs
	@.docs/bin/pip install --quiet --disable-pip-version-check $(shell $(PYTHON) -c 'import tomllib; print(*["\"%s\"" % p for p in tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"]])')
	@touch $@

scale: setup
	$(BIN)/python -m benchmarks.scale

bench: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[bench]"
	$(BIN)/python -m benchmarks.correlate
	$(BIN)/python -m benchmarks.place
	$(BIN)/python -m benchmarks.place_deciding
	$(BIN)/python -m benchmarks.nearest
	$(BIN)/python -m benchmarks.text
	$(BIN)/python -m benchmarks.asks
	$(BIN)/python -m papers.vico.on_spark
	$(BIN)/python -m benchmarks.dashboard
	$(BIN)/python -m benchmarks.emd
	$(BIN)/python -m benchmarks.video
	$(BIN)/python -m benchmarks.video_recall
	$(BIN)/python -m benchmarks.news
	$(BIN)/python -m papers.dssis.queues
	$(BIN)/python -m papers.dssis.windows
	$(BIN)/python -m benchmarks.assemble --seconds 4
	$(BIN)/python -m benchmarks.assemble --seconds 12
	$(BIN)/python -m benchmarks.traces
	$(BIN)/python -m benchmarks.rivals $(if $(wildcard .flink/.ready),--flink .flink/bin/python) $(if $(wildcard .pathway/.ready),--pathway .pathway/bin/python)
	$(BIN)/python -m benchmarks.state
	$(BIN)/python -m benchmarks.sinks
	$(BIN)/python -m benchmarks.relay

# In an environment of its own: Flink pins other versions of what Anabranch uses too. It needs Python
# 3.9 to 3.12 (FLINK_PYTHON=python3.12) and the JDK of make setup.
FLINK_PYTHON ?= $(PYTHON)
flink: setup .flink/.ready

.flink/.ready:
	@$(FLINK_PYTHON) -c 'import sys; sys.exit(not (3, 9) <= sys.version_info < (3, 13))' || \
		{ echo "apache-flink needs Python 3.9 to 3.12. Try: make flink FLINK_PYTHON=python3.12"; exit 1; }
	@$(FLINK_PYTHON) -m venv .flink
	@.flink/bin/pip install --quiet --disable-pip-version-check apache-flink==2.3.0
	@touch $@

pathway: .pathway/.ready

.pathway/.ready:
	@$(PYTHON) -m venv .pathway
	@.pathway/bin/pip install --quiet --disable-pip-version-check pathway==0.33.0
	@touch $@

pictures: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[pictures]"
	$(BIN)/python scripts/pictures.py
	$(BIN)/python -m papers.pictures
	$(BIN)/python -m scripts.board_picture

# ACCESS_LOG names a log; without it that of Debian's logstalgia is used, if it is installed.
notebooks: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[examples,notebooks]"
	$(BIN)/python scripts/notebooks.py
	$(BIN)/python scripts/gallery.py

# All of them; the moving one runs the demo.
images: pictures cast

cast: setup
	$(BIN)/python scripts/cast.py

words: setup
	$(BIN)/python scripts/sentences.py

clean:
	rm -rf $(VENV) .compat .docs .flink .pathway .services site build *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
