# `make` measures this machine and writes results/report.html; `make test` tests; the rest is below.
SHELL := bash
VENV := .venv
PYTHON ?= python3
RUN := PATH=$(CURDIR)/$(VENV)/bin:$$PATH PYTHONPATH=workflow/src PYTHONNOUSERSITE=1

.PHONY: all test check slurm generic kubernetes bench lock clean
all: $(VENV)/runtime
	$(RUN) snakemake --cores all

# Each stamp holds a copy of the lock it was made from: a touched lock installs nothing, a changed one does.
.PHONY: force
$(VENV)/runtime: force
	@cmp -s docker/requirements.lock $@ || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")' && \
	  { test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV); } && \
	  echo "installing the locked dependencies into $(VENV) (several GB, some minutes)" && \
	  $(VENV)/bin/python -m pip install --quiet --require-hashes --requirement docker/requirements.lock && \
	  cp docker/requirements.lock $@; }

$(VENV)/testing: $(VENV)/runtime force
	@cmp -s tests/requirements.lock $@ || { \
	  $(VENV)/bin/python -m pip install --quiet --require-hashes --requirement tests/requirements.lock && \
	  cp tests/requirements.lock $@; }

test: $(VENV)/testing
	$(RUN) pytest

check: $(VENV)/testing
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) snakefmt --check Snakefile workflow/Snakefile workflow/rules
	$(RUN) snakemake --lint
	$(RUN) hadolint docker/Dockerfile profiles/kubernetes/Dockerfile

# What `snakemake --workflow-profile PROFILE` needs besides: the environment with the profile's plugin.
slurm generic kubernetes: $(VENV)/runtime
	$(VENV)/bin/python -m pip install --quiet --require-hashes --requirement profiles/$@/requirements.lock

# Ratios measured side by side in one run, against what the project promises.
bench: $(VENV)/testing
	$(RUN) python tests/benchmarks/bench.py

# Needs uv. Every version and hash anew from the requirements.in; docker's comes first, the others keep to it.
lock:
	for folder in docker profiles/slurm profiles/generic profiles/kubernetes tests; do \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url $$folder/requirements.in --output-file $$folder/requirements.lock || exit; done

# Measured results stay: they are not made again by a command that is quick to type.
clean:
	rm -rf $(VENV) .snakemake results/figures results/logs results/report.html
