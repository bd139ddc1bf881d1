# `make help` lists the targets. Each sets up what it needs: a virtual environment in .venv, packages, data.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
OLDEST_PYTHON ?= python3.11
OLDEST := .venv-oldest/bin/python
# what touches each dependency: numbers, files, charts, Lightning, Hydra, loggers, one study from end to end
OLDEST_TESTS := tests/test_api.py tests/test_oldest_versions.py tests/records tests/analysis tests/plan \
	tests/golden tests/shift tests/training/test_stacked.py tests/training/test_port.py tests/networks/test_networks.py \
	tests/networks/test_published_formats.py tests/networks/test_zero_shot.py tests/callbacks \
	tests/data/test_features.py tests/data/test_from_parquet.py tests/data/test_decoding.py tests/reports/test_tables.py \
	tests/reports/test_saving.py tests/reports/test_renderers.py tests/reports/test_frames.py tests/sweeps/test_sweeper.py \
	tests/end_to_end/test_study.py
# $(call INSTALL,PYTHON,CONSTRAINTS,EXTRAS): by uv, many times as fast; by pip where uv does not find the index that pip knows
define INSTALL
$(1) -m pip install --quiet --disable-pip-version-check --constraint $(2) uv
$(1) -m uv pip install --quiet --python $(1) --constraint $(2) --editable '.[$(3)]' 2> /dev/null || \
	    $(1) -m pip install --quiet --disable-pip-version-check --no-compile --constraint $(2) --editable '.[$(3)]'
@$(1) -m compileall -qq -j 0 $(dir $(1))../lib || true  # on all cores; where Python may write none, starts would take twice as long
endef
EXTRAS := dev,slurm
OLDEST_EXTRAS := $(EXTRAS),wandb
# markers of what neither `make test` nor `make test-oldest` runs
LONG := slow or wheel or browser or cluster or chaos

.PHONY: help install demo test test-all launcher-test chaos-test lint types bench bench-algorithms bench-cached bench-execution bench-gpu bench-images bench-plan bench-report bench-stacked bench-statistics bench-sweeps costs docs cheap-outputs outputs notebook gallery site site-links lock lock-oldest test-oldest release rehearse clean
.DEFAULT_GOAL := help

FIRST := install demo test test-all site clean

help:  ## list the targets
	@echo "For a start:"
	@for target in $(FIRST); do grep -hE "^$$target:.*## " $(MAKEFILE_LIST); done | sed -E 's/:.*## /\t/;s/^/  /' | expand -t 20
	@echo "For those who work on dgbench:"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | grep -vE "^($$(echo $(FIRST) | tr ' ' '|')):" | sed -E 's/:.*## /\t/;s/^/  /' | expand -t 20

install: $(READY)  ## make .venv and install dgbench with exact versions

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dgbench needs Python 3.11 or newer; set PYTHON=/path/to/it"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(call INSTALL,$(RUN),constraints.txt,$(EXTRAS))
	@touch $(READY)

demo: $(READY)  ## the main job offline on real digits, ending with a report and an HTML page (2 CPU minutes)
	$(RUN) train.py -m experiment=demo hydra/launcher=local algorithm=erm,irm,vrex,group_dro grid.seed=[0,1,2]
	$(RUN) report.py runs=[multirun/demo] output=reports/demo

test: $(READY)  ## the tests, in two processes (8 minutes on two free cores); CI runs this
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile $(ARGS)

# tests of clusters mostly wait for the queue: they begin first, in two of three processes; exec: they end with make
test-all: $(READY)  ## what `make test` leaves out: every case, whole sweeps, clusters, kills, browser, wheel, documentation (half an hour on two free cores); CI runs this too
	CHAOS_KILLS=$${CHAOS_KILLS:-4} CHAOS_DAMAGES=$${CHAOS_DAMAGES:-20} OMP_NUM_THREADS=1 \
	    exec $(RUN) -m pytest -n 3 --dist loadfile --no-loadscope-reorder \
	    -m 'thorough or $(LONG)' $(ARGS)

test-oldest: .venv-oldest/.ready  ## a quick part of the tests with the oldest versions that pyproject.toml allows, in .venv-oldest
	OMP_NUM_THREADS=1 $(OLDEST) -m pytest -W ignore::DeprecationWarning \
	    -m 'not ($(LONG))' $(OLDEST_TESTS) $(ARGS)

.venv-oldest/.ready: pyproject.toml constraints-oldest.txt
	$(OLDEST_PYTHON) -m venv .venv-oldest
	$(call INSTALL,$(OLDEST),constraints-oldest.txt,$(OLDEST_EXTRAS))
	@touch $@

launcher-test: $(READY)  ## sweeps of every launcher, their workers killed: on a Slurm cluster of one node, which it installs (as root), and a Ray cluster of two
	$(call INSTALL,$(RUN),constraints.txt,ray)
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m 'slow or cluster' tests/launchers $(ARGS)

chaos-test: $(READY)  ## kill processes of sweeps 50 times and damage 200 files (CHAOS_KILLS=N, CHAOS_DAMAGES=N: less often): the same rows
	OMP_NUM_THREADS=1 $(RUN) -m pytest -m chaos tests/chaos $(ARGS)

lint: $(READY)  ## ruff: rules and format; must pass before a commit
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(READY)  ## mypy, strict; must pass before a commit
	$(RUN) -m mypy

# tensors on large pages, as train.py has them
bench bench-algorithms bench-cached bench-images bench-plan bench-stacked: export THP_MEM_ALLOC_ENABLE := 1

bench: $(READY)  ## what the framework costs against a bare PyTorch loop
	$(RUN) benchmarks/framework_cost.py

bench-algorithms: $(READY)  ## time per step of every algorithm over ERM's
	$(RUN) benchmarks/algorithm_costs.py

bench-stacked: $(READY)  ## runs trained together against one by one
	$(RUN) benchmarks/stacked.py

bench-execution: $(READY)  ## execution=auto, single and stacked beside 0, 2 and 4 busy processes (needs a machine of its own)
	$(RUN) benchmarks/execution_modes.py

bench-gpu: $(READY)  ## what the GPU of this machine makes of it: speeds, memory, equality with the CPU, as gpu.json (8 minutes)
	$(RUN) benchmarks/gpu.py

bench-plan: $(READY)  ## operations that plans count against seconds on the clock
	$(RUN) benchmarks/plan_costs.py

bench-images: $(READY)  ## training from image files against resident tensors and against PIL and a DataLoader
	$(RUN) benchmarks/images.py

bench-cached: $(READY)  ## a linear probe on cached features against fine-tuning
	$(RUN) benchmarks/cached_features.py

bench-sweeps: $(READY)  ## what launching costs: two workers, 100,000 jobs planned, a finished sweep again
	$(RUN) benchmarks/sweeps.py

bench-report: $(READY)  ## a report over 1,800,000 synthetic rows, the same again, and one of 100 runs: seconds and peak memory; and how they grow
	OMP_NUM_THREADS=1 $(RUN) benchmarks/report_speed.py
	OMP_NUM_THREADS=1 $(RUN) benchmarks/growth.py

bench-statistics: $(READY)  ## how often intervals hold the truth, tests find what is not there, and sentences say more than they know, simulated (11 minutes)
	OMP_NUM_THREADS=1 $(RUN) benchmarks/interval_coverage.py
	OMP_NUM_THREADS=1 $(RUN) benchmarks/seeds_needed.py
	OMP_NUM_THREADS=1 $(RUN) benchmarks/statements.py
	OMP_NUM_THREADS=1 $(RUN) benchmarks/statements_evidence.py
	OMP_NUM_THREADS=1 $(RUN) benchmarks/paired_claims.py

costs: $(READY)  ## count what models of usual studies take, for plans without torch; what is counted for this code stays (15 CPU minutes at most)
	OMP_NUM_THREADS=1 $(RUN) tools/costs.py

docs: $(READY)  ## write the generated pages of docs/
	$(RUN) docs/reference_pages.py

cheap-outputs: $(READY)  ## run the cheap commands whose output README and docs/ show, and show what they print now (2 minutes); test-all compares them
	$(RUN) docs/outputs.py

outputs: $(READY)  ## the same with the dear commands, which train or take long (15 minutes)
	$(RUN) docs/outputs.py --dear

notebook: $(READY)  ## run the notebook of docs/ and save what it shows
	$(RUN) docs/notebook_outputs.py

gallery: $(READY)  ## make the reports of docs/gallery again; needs PACS in DGBENCH_DATA_DIR
	$(RUN) docs/make_gallery.py

site: $(READY)  ## build the documentation as a site without network, in build/site; warnings are errors
	$(RUN) -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/site
	@echo build/site/index.html

site-links: $(READY)  ## ask for every address that the documentation links to (needs network)
	$(RUN) -m sphinx -q --keep-going -b linkcheck -d build/doctrees docs build/links

lock: $(READY)  ## write constraints.txt from what is installed
	$(RUN) -m pip freeze --exclude-editable > constraints.txt

lock-oldest: $(READY)  ## write constraints-oldest.txt: the oldest versions of what pyproject.toml names, the newest of what those need
	$(RUN) -m uv pip compile --quiet --resolution lowest-direct --python-version 3.11 --extra dev --extra slurm --extra wandb \
	    --no-annotate --custom-compile-command 'make lock-oldest' --output-file constraints-oldest.txt pyproject.toml

release: $(READY)  ## check what would be published, build it in dist/, use it, and say what to do next
	$(call INSTALL,$(RUN),constraints.txt,release)
	$(RUN) tools/release.py

rehearse: $(READY)  ## build the last commit and install it from a local index, by pip and by uv, into fresh environments
	$(RUN) tools/release.py --rehearse

clean:  ## remove the virtual environments and caches; outputs stay
	rm -rf $(VENV) .venv-oldest .pytest_cache .mypy_cache .ruff_cache
