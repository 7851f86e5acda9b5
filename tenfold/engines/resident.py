"""What engines with the environments on the GPU share: for whom they are, and how products are
rounded. No Triton here."""

from importlib.util import find_spec
from typing import Any

from tenfold.envs.control_dynamics import KINDS
from tenfold.envs.functions import runs_on_gpu

WIDEST, DEEPEST = 128, 3  # hidden layers that fit into the registers of a multiprocessor
# Triton's names; bf16x6 is as accurate as float32, and faster than its own form of it
PRECISIONS = {"fp32": "bf16x6", "bf16x3": "bf16x3", "tf32": "tf32", "ieee": "ieee"}


def why_not_resident(agent: Any, run: Any, outputs: int) -> str:
    """What keeps such an engine from an agent with fully connected layers."""
    hidden = agent.config.net.hidden
    if not runs_on_gpu(run.world):
        names = ", ".join(KINDS)
        return f"{run.world} does not run on the GPU ({names} and registered tasks do)"
    if agent.layout.frames > 1:
        return "the network sees several frames"
    if run.shapes_rewards:
        return "rewards are normalised or clipped"
    if agent.layout.size > WIDEST:
        return f"it is for observations of up to {WIDEST} numbers"
    if len(hidden) not in range(1, DEEPEST + 1) or max(hidden) > WIDEST or outputs > WIDEST:
        return f"it is for 1 to {DEEPEST} hidden layers of up to {WIDEST}, and as many outputs"
    if agent.config.net.activation not in ("relu", "tanh"):
        return f"the activation is {agent.config.net.activation}"
    if run.actors > 1 or run.where in ("processes", "ray"):
        return "actors act elsewhere"
    if run.verify:
        return "updates that are verified are made one by one"
    return "" if find_spec("triton") else "Triton is not installed"
