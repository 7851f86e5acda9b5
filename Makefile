# Every target sets up .venv by itself when it is missing.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
# every extra the code uses so far; `peers` has an environment of its own
EXTRAS := video,box2d,dev

.PHONY: install demo test test-slow test-cuda lint bench clean
install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "torch==2.13.0"
	$(RUN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

demo: install
	$(RUN)/tenfold train cartpole --out runs/demo --overwrite
	$(RUN)/tenfold eval runs/demo --episodes 100
	@echo "The results are in runs/demo: open runs/demo/report.html"

test: install lint
	$(RUN)/python -m pytest

test-slow: install
	$(RUN)/python -m pytest -m slow

test-cuda: install
	$(RUN)/python -m pytest -m cuda

lint: install
	$(RUN)/ruff check .
	$(RUN)/pyright
	$(RUN)/python bench/readme.py --check

bench: install
	$(RUN)/python bench/adapter.py
	$(RUN)/python bench/timers.py
	$(RUN)/python bench/startup.py

clean:
	rm -rf $(VENV) build *.egg-info
