# `make` measures this machine and writes results/report.html; `make test` runs the tests; the rest is below.
SHELL := bash
VENV := .venv
PYTHON ?= python3
# Snakemake and Matplotlib want a cache, and the user's home may be read-only.
CACHE := $(shell test -w "$$HOME" && echo "$$HOME/.cache" || echo "$(CURDIR)/.snakemake/cache")
# Quoted, because paths may have spaces.
RUN := PATH="$(CURDIR)/$(VENV)/bin:$$PATH" XDG_CACHE_HOME="$${XDG_CACHE_HOME:-$(CACHE)}" \
  MPLCONFIGDIR="$${MPLCONFIGDIR:-$(CACHE)/matplotlib}" PYTHONNOUSERSITE=1
# With WHEELS=FOLDER everything is installed from that folder, which `make wheels` fills on a machine with a network.
PIP := $(VENV)/bin/python -m pip install --quiet $(if $(WHEELS),--no-index --find-links "$(WHEELS)")
# With OWN_TORCH=1, PyTorch and its CUDA libraries are those that $(PYTHON) has, and only the rest of the lock is installed.
# Its folder comes after the environment's own packages.
LOCKED := $(if $(OWN_TORCH),awk -f docker/without_torch.awk,cat) docker/requirements.lock
FOLDER_OF_TORCH := import importlib.util, pathlib, sys; found = importlib.util.find_spec("torch"); \
  sys.exit(f"OWN_TORCH: {sys.executable} has no PyTorch") if found is None else print(pathlib.Path(found.origin).parents[1])
PACKAGES := import sysconfig; print(sysconfig.get_paths()["purelib"])

# The tests that need a whole workflow, a cluster, an engine, a browser or a compiler.
SLOW := workflow or cluster or container or browser or pretended
# Side by side, since none of them measures this machine.
SIDE_BY_SIDE := --numprocesses auto --maxprocesses 4

.PHONY: all wheels zoo test test-fast test-containers test-clusters test-pretended test-workflows test-browser test-ranks pretended mutants fuzz faults check slurm generic kubernetes bench pictures sample schema lock clean
all: $(VENV)/package
	$(RUN) snakemake --cores all $(ARGS)

# Each stamp holds a copy of the file it was made from: a touched one installs nothing, a changed one does.
.PHONY: force
$(VENV)/runtime: $(VENV)/bin/python force
	@cmp -s <($(LOCKED)) $@ || { \
	  $(if $(OWN_TORCH),torch=$$($(PYTHON) -c '$(FOLDER_OF_TORCH)') &&) \
	  echo "installing the locked dependencies into $(VENV) (a few minutes; several GB, if PyTorch is among them)" && \
	  $(LOCKED) >$(VENV)/wanted && \
	  $(PIP) --require-hashes --requirement $(VENV)/wanted && \
	  $(if $(OWN_TORCH),echo "$$torch" >"$$($< -c '$(PACKAGES)')/own-torch.pth" &&) \
	  mv $(VENV)/wanted $@; }

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)

# What `make` installs, for a machine with the same Python and no network; `wheel` builds those that come as sources.
wheels: $(VENV)/bin/python
	$(LOCKED) >$(VENV)/wanted
	$(VENV)/bin/python -m pip download --quiet --require-hashes --requirement $(VENV)/wanted --dest "$(or $(WHEELS),wheels)"
	$(VENV)/bin/python -m pip download --quiet wheel --dest "$(or $(WHEELS),wheels)"

$(VENV)/package: $(VENV)/runtime force
	@cmp -s pyproject.toml $@ || { $(PIP) --no-deps --no-build-isolation --editable . && cp pyproject.toml $@; }

$(VENV)/testing: $(VENV)/package force
	@cmp -s tests/requirements.lock $@ || { \
	  $(PIP) --require-hashes --requirement tests/requirements.lock && \
	  cp tests/requirements.lock $@; }

$(VENV)/mutating: $(VENV)/testing force
	@cmp -s tests/mutants/requirements.lock $@ || { \
	  $(PIP) --require-hashes --requirement tests/mutants/requirements.lock && \
	  cp tests/mutants/requirements.lock $@; }

# The other groups run side by side, four at a time: each has runs that its tests share, and much of it is waiting.
test: test-fast
	@$(MAKE) --no-print-directory --keep-going --jobs=4 --output-sync=target \
	  test-workflows test-pretended test-clusters test-containers test-browser test-ranks

test-containers: $(VENV)/testing
	$(RUN) pytest -m "container"

test-clusters: $(VENV)/testing
	$(RUN) pytest -m "cluster and not container"

test-pretended: $(VENV)/testing
	$(RUN) pytest -m "pretended"

test-workflows: $(VENV)/testing
	$(RUN) pytest -m "workflow and not (cluster or container)"

test-browser: $(VENV)/testing
	$(RUN) pytest -m "browser and not (workflow or cluster or container)"

test-ranks: $(VENV)/testing
	$(RUN) pytest $(SIDE_BY_SIDE) -m "ranks and not ($(SLOW))"

# The tests that need no ranks, whole workflow, container engine, cluster, browser or compiler: for every edit.
test-fast: $(VENV)/testing
	$(RUN) pytest $(SIDE_BY_SIDE) -m "not (ranks or $(SLOW))"

# Whether wrong answers are caught, planted ones and those that a tool makes; hours. ARGS=--tenth takes three minutes.
mutants: $(VENV)/mutating
	$(RUN) python tests/mutants/run.py $(ARGS)

# Odd configurations and results by the thousand: accepted with cause, or clearly refused? ARGS="--seed 7 --count 500".
fuzz: $(VENV)/testing
	$(RUN) python tests/fuzz/run.py $(ARGS)

# What kills, full disks and lost ranks lose or leave; hours. ARGS="--kill 15 --terminate 4 --interrupt 4" takes minutes.
faults: $(VENV)/testing
	$(RUN) python tests/faults/run.py $(ARGS)

# The smoke card on GPUs that libraries below PyTorch pretend (tests/pretended_gpus); needs gcc 12 or newer.
# ARGS="--devices 4 --races --only ddp pipeline", ARGS="--card t4"; ARGS=--help lists the rest.
pretended: $(VENV)/testing
	$(RUN) PYTHONPATH="$(CURDIR)/tests" python tests/pretended_gpus/run.py $(ARGS)

# Models of many kinds, by every strategy on two CPU ranks; five minutes. ARGS="teacher detection": some of them.
zoo: $(VENV)/testing
	$(RUN) PYTHONPATH="$(CURDIR)/tests" python tests/zoo/run.py $(ARGS)

check: $(VENV)/testing
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(RUN) lint-imports
	$(RUN) snakefmt --check Snakefile workflow/Snakefile workflow/rules
	$(RUN) snakemake --lint
	$(RUN) hadolint docker/Dockerfile docker/packages.Dockerfile profiles/kubernetes/Dockerfile

# What `snakemake --workflow-profile PROFILE` also needs: the environment with the profile's plugin.
slurm generic kubernetes: $(VENV)/package
	$(PIP) --require-hashes --requirement profiles/$@/requirements.lock

# Ratios measured side by side in one run, against what the project promises.
bench: $(VENV)/testing
	$(RUN) PYTHONPATH="$(CURDIR)/tests" python tests/benchmarks/bench.py

# The README's picture, from the report of this machine's own results. Needs Chromium.
pictures: $(VENV)/testing
	$(RUN) python docs/pictures.py $(ARGS)

# After a change of what figures show: the data of those of the sample, which lie beside its results.
SAMPLE := results/h200x1-torch211-card
sample: $(VENV)/package
	for file in $(SAMPLE)/*.json; do name=$$(basename "$$file" .json); \
	  $(RUN) python -m scalecard plot "$$name" --results "$$file" --output "$(SAMPLE)/figures/$$name.csv" || exit; done

# After a change of a result's types.
schema: $(VENV)/package
	$(RUN) python -c 'import json; from scalecard.records.files import schema; print(json.dumps(schema(), indent=1))' \
	  >workflow/schemas/result.schema.json

# Needs uv. Recomputes every version and hash from the requirements.in files; the later ones follow docker's, the first.
lock:
	for folder in docker profiles/slurm profiles/generic profiles/kubernetes tests tests/mutants; do \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url $$folder/requirements.in --output-file $$folder/requirements.lock || exit; done

# Keeps the measured results: no quick command can make them again.
clean:
	rm -rf $(VENV) .snakemake results/exports results/figures results/logs results/report.html results/report.zip
