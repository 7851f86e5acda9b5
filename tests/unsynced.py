"""What the tests write need not outlive the machine: waiting for the disk is a fifth of the time of
short runs, which write thousands of files. `tests/runs/test_storage.py` holds the package to it."""

import os

os.fsync = lambda descriptor: None
