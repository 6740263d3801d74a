# Nearcast: `make demo` shows what it does, `make test` proves that it does it.
# Both first create the environment in .venv from the pinned versions in requirements.lock, and reuse it afterwards. uv
# installs them, which links what it has had before; where it cannot reach an index that pip is set up for, pip does.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help env demo test long test-spark lint wheel lock clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

env: $(READY) ## Create the environment in .venv

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Nearcast needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	       "Install one (Debian: apt-get install python3 python3-venv) and name it: make env PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "Python cannot create a virtual environment; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing the pinned packages into $(VENV) (about 700 MB to download, once) ..."
	@awk '/^[a-z]/ {uv = /^uv==/} uv' requirements.lock > $(VENV)/uv.txt
	@$(PIP) --require-hashes -r $(VENV)/uv.txt
	@$(BIN)/uv pip install --quiet --require-hashes --python $(BIN)/python -r requirements.lock 2> $(VENV)/said || \
	  $(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY) ## Match sample messages against sample subscriptions on local Spark, and draw the map
	@$(BIN)/nearcast demo

test: $(READY) ## Run the tests, except the few that take long
	@$(BIN)/python -m pytest -n 3 --durations=20

long: $(READY) ## Run all tests, also those that take long: kills, figures, rivals at full size
	@$(BIN)/python -m pytest --long -m alone
	@$(BIN)/python -m pytest -n 3 --durations=20 --long

# Another version of Spark has an environment of its own: the packages of the lock, and that PySpark. uv links files from
# its cache; if that has all of them (offline), it takes seconds. Otherwise 430 MB are downloaded, once.
VERSION    ?= 4.1
TESTS      ?= -m versions tests/spark
SPARK_VENV := .venv-spark-$(VERSION)

$(SPARK_VENV)/.ready: requirements.lock pyproject.toml | $(READY)
	@echo "Installing PySpark $(VERSION) into $(SPARK_VENV) ..."
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SPARK_VENV)
	@awk '/^[a-z]/ {other = !/^pyspark==/} other' requirements.lock > $(SPARK_VENV)/requirements.txt
	@for how in --offline --no-offline; do \
	  $(BIN)/uv pip install --quiet $$how --python $(SPARK_VENV) -r $(SPARK_VENV)/requirements.txt \
	    'pyspark[connect]==$(VERSION).*' 2> $(SPARK_VENV)/said && exit; done; cat $(SPARK_VENV)/said >&2; exit 1
	@$(BIN)/uv pip install --quiet --python $(SPARK_VENV) --no-deps --no-build-isolation --editable .
	@touch $@

test-spark: $(SPARK_VENV)/.ready ## Run tests of Spark on another version: VERSION=4.1 TESTS=tests/spark
	@$(SPARK_VENV)/bin/python -m pytest -n 0 --durations=5 $(TESTS)

lint: $(READY) ## Check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

wheel: $(READY) ## Build a wheel with compiled kernels, into dist
	@$(BIN)/python tools/build_wheel.py

lock: $(READY) ## Pin the newest versions that fit pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-emit-index-url --no-header \
	  --group dev --extra spark --extra cloud --extra hdfs --extra bench pyproject.toml --output-file requirements.lock

clean: ## Remove the environment and everything that the commands created
	@rm -rf $(VENV) .venv-spark-* nearcast-demo .mypy_cache .ruff_cache .hypothesis
