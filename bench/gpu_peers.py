"""Opponents written in JAX, in the very process and on the very device of what they are compared
to."""

import importlib
import os
import sys
from pathlib import Path
from typing import Any

PEERS = str(Path(__file__).parent / "peers")
PRECISIONS = {"fp32": "highest", "tf32": "tensorfloat32"}  # ours and JAX's names


def jax_peer(name: str, platform: str = "cuda") -> Any:
    """The module of bench/peers, with JAX on `platform`. `peer` sets up one thread of a CPU when it
    is imported, and takes its own folder off the path; both are undone before JAX starts."""
    for module in ("peer", name):
        if PEERS not in sys.path:
            sys.path.append(PEERS)
        if module == "peer":
            importlib.import_module(module)
            for variable in ("XLA_FLAGS", "NPROC"):
                os.environ.pop(variable, None)
            os.environ |= {"JAX_PLATFORMS": platform, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return importlib.import_module(name)
