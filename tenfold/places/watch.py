"""Children that end with their parent, whatever happens to it."""

import ctypes
import os
import signal
import sys

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


def die_with_parent(parent: int) -> None:
    """In a child: the kernel kills it when `parent`, which started it, is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)
