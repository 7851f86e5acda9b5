# Every target sets up .venv by itself when it is missing.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
PEERS := .venv-peers
TRACK := .venv-track
# where nothing compiled may be kept, each of a hundred processes would compile the package again
unexport PYTHONDONTWRITEBYTECODE
EXTRAS := video,box2d,mujoco,multiagent,atari,ray,rllib,sweep,schedule,nwb,onnx,triton,docs,dev

.PHONY: install demo test kernels pytest test-slow test-docs test-kills test-cuda test-track lint tidy types docs package bench bench-peers clean
install: $(VENV)/.installed

# what is imported is compiled then, which is a small part of what is installed
PIP := $(RUN)/python -m pip install --quiet --disable-pip-version-check --no-compile

$(VENV)/.core: pyproject.toml constraints.txt
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -c constraints.txt "torch==2.13.0" -e .
	touch $@

$(VENV)/.installed: $(VENV)/.core
	$(PIP) -c constraints.txt "tenfold[$(EXTRAS)]"
	touch $@

demo: install
	$(RUN)/python examples/demo.py

# kernels are compiled beside the installation of the extras, of which they need none, and types are checked beside the
# tests: while those are imported, and where they wait for one another, a core has nothing to do
test:
	@$(MAKE) --no-print-directory -j 3 kernels types pytest

kernels: $(VENV)/.core
	$(RUN)/python tests/kernels.py

# three processes for two cores, since many tests wait for others; kernels that one compiles the others find on disk
pytest: tidy
	$(RUN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-slow: install
	$(RUN)/python -m pytest -n 2 -m "slow and not cuda and not track"

# what people copy: every command and block of the docs, the notebooks, the examples, the site
test-docs: install
	$(RUN)/python -m pytest -n 2 -m "slow or not slow" tests/docs

# 300 kills of runs, by chance, with load beside them: three quarters of an hour on two idle cores, and no new one after an hour
test-kills: install
	$(RUN)/python tests/kills/run.py $(KILLS)

test-cuda: install
	$(RUN)/python -m pytest -m cuda

# clients of trackers beside the environment, not in it: they bring fifty packages
test-track: install $(TRACK)/.installed
	PYTHONPATH=$(TRACK) $(RUN)/python -m pytest -m track

$(TRACK)/.installed: pyproject.toml
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target $(TRACK) -c constraints.txt "wandb>=0.19" "trackio>=0.20" "mlflow-skinny>=3"
	touch $@

lint: tidy types

tidy: install
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/python bench/readme.py --check

types: install
	$(RUN)/pyright

# site/: opens from its files and is searched there, without a server
docs: install
	NO_MKDOCS_2_WARNING=1 $(RUN)/python -m mkdocs build --strict --quiet

# dist/: wheel and source archive, installed in a clean environment and run from another folder
package: install
	rm -rf dist
	$(RUN)/python -m build --no-isolation --outdir dist
	DIST=dist $(RUN)/python -m pytest -m "slow or not slow" tests/test_wheel.py

bench: install
	$(RUN)/python bench/all.py --write

# opponents live in an environment of their own, about 2 GB
bench-peers: install $(PEERS)/.installed
	$(RUN)/python bench/all.py --write --peers

# their requirements are all of their pins: what RLlib demands in constraints.txt, Tianshou does not bear
$(PEERS)/.installed: bench/peers/requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r bench/peers/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) $(TRACK) build dist site *.egg-info
