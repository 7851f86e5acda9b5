"""Checks an exported file before it is kept: on observations of the run's environment, its actions
must equal the agent's."""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.random import Purpose
from tenfold.core.spaces import PolicyActions
from tenfold.evaluation.player import LANES, StepBudget, play, random_policy
from tenfold.shipping.exported_policy import ExportedPolicy, arrays_of

OBSERVATIONS = 1000  # that a file is tried on
SEED = 0
CLOSE = 1e-5  # real numbers, which two libraries round differently
# share of discrete actions that may be others: of two options whose values are equal but for
# rounding either is right
TIES = 0.005

Runner = Callable[[list[np.ndarray]], list[np.ndarray]]  # arrays in the order of the ports


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences torch's warnings about itself."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def onnx_runner(content: bytes) -> Runner | None:
    """A runner with ONNX Runtime; None if that is not installed."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    run: Any = lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))  # noqa: E731
    return run


def torch_runner(content: bytes) -> Runner:
    with quiet():
        module = torch.export.load(io.BytesIO(content)).module()

    def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad(), quiet():
            return [tensor.numpy() for tensor in module(*map(torch.from_numpy, arrays))]

    return run


def observations(run: Run, agent: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Observations of the run's environment under random actions: encoded rows [B, …] and masks,
    those of a team agent by agent."""
    rows: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    wander = random_policy(agent, SEED)

    def act(obs: np.ndarray, mask: Any, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
        rows.append(obs.reshape(agent.members, -1, *obs.shape[1:]).copy())
        if mask is not None:
            masks.append(mask.reshape(agent.members, -1, mask.shape[-1]).copy())
        return wander(obs, mask, episode, step)

    budget = StepBudget(2 * OBSERVATIONS, OBSERVATIONS // LANES)
    limit = OBSERVATIONS
    play(run.world, agent, act, limit, SEED, Purpose.SELECT, limit=limit, budget=budget)
    obs = np.concatenate(rows, 1)[:, :OBSERVATIONS]
    flat = obs.reshape(-1, *obs.shape[2:])
    if not masks:
        return flat, None
    return flat, np.concatenate(masks, 1)[:, :OBSERVATIONS].reshape(-1, masks[0].shape[-1])


def inputs_and_actions(
    policy: ExportedPolicy, agent: Any, rows: np.ndarray, mask: np.ndarray | None
) -> tuple[list[np.ndarray], list[Any]]:
    """The inputs of the file for encoded rows, and the agent's actions, with its next state if it
    has one."""
    options, count = policy.decoder.actions.options, len(rows)
    more = {"mask": np.ones((count, options), np.bool_) if mask is None else mask}
    draws, numbers = None, np.arange(count)
    if {"uniform", "normal"} & set(policy.more):
        draws = agent.draws(count, 0)
        more |= {"uniform": draws[0].astype(np.float32), "normal": draws[1]}
    if "state" in policy.more:
        more["state"] = np.roll(agent.infer(rows, mask)[1], 1, 0)  # of the row before
        expected = list(agent.infer(rows, mask, draws, more["state"]))
    elif draws is not None:
        expected = [agent.sampled(rows, mask, 0)]
    else:
        expected = [agent.policy("greedy")(rows, mask, numbers, numbers)]
    lead = (agent.members, -1) if agent.members > 1 else (-1,)
    arrays = arrays_of(policy.encoder, rows.reshape(*lead, *rows.shape[1:]))
    arrays += [more[name].reshape(*lead, more[name].shape[-1]) for name in policy.more]
    return arrays, expected


def component(actions: PolicyActions, encoded: Any, path: tuple[str | int, ...]) -> np.ndarray:
    """The component of the actions at a path."""
    if not path:
        return np.asarray(encoded)
    decoded = [actions.decode(row) for row in encoded]
    for key in path:
        decoded = [action[key] for action in decoded]
    return np.stack(decoded)


def verdict(policy: ExportedPolicy, agent: Any, run: Run, runner: Runner, runtime: str) -> str:
    """A sentence that compares the file's actions with the agent's; UserError if they differ."""
    rows, mask = observations(run, agent)
    arrays, (actions, *state) = inputs_and_actions(policy, agent, rows, mask)
    count, furthest = len(rows), 0.0
    different = np.zeros(count, np.bool_)
    for port, output in zip(policy.outputs, runner(arrays), strict=True):
        encoded = state[0] if port.kind == "state" else actions
        expected = component(policy.decoder.actions, encoded, port.path).reshape(count, -1)
        output = output.reshape(count, -1)
        if expected.dtype.kind == "f":
            furthest = max(furthest, float(np.abs(output - expected).max(initial=0)))
            different |= ~np.isclose(output, expected, CLOSE, CLOSE).all(-1)
        else:
            different |= (output != expected).any(-1)
    others = int(different.sum())
    if others > TIES * count:
        raise UserError(
            f"The exported policy is not the agent's: {others:,} of {count:,} actions by {runtime} "
            "are others, so that no file was written."
        )
    numbers = f", real numbers within {furthest:.1g}" if furthest else ""
    return f"{count - others:,} of {count:,} actions by {runtime} are the agent's{numbers}"
