"""An exported file is tried before it is kept: on what the run's environment shows, its actions
must be the agent's."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.random import Purpose
from tenfold.core.spaces import PolicyActions
from tenfold.evaluation.player import LANES, Allowance, play, random_policy
from tenfold.shipping.policy import ExportedPolicy, arrays_of

SHOWN = 1000  # observations
SEED = 0
CLOSE = 1e-5  # real numbers, which two libraries round differently
# share of discrete actions that may be others: of two options whose values are equal but for
# rounding either is right
TIES = 0.005

Runner = Callable[[list[np.ndarray]], list[np.ndarray]]


def seen_by(run: Run, agent: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """What an agent that acts at random is shown in the run's environment: encoded rows [B, …] and
    masks, those of a team agent by agent."""
    rows: list[np.ndarray] = []
    masks: list[np.ndarray] = []
    wander = random_policy(agent, SEED)

    def act(seen: np.ndarray, mask: Any, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
        rows.append(seen.reshape(agent.members, -1, *seen.shape[1:]).copy())
        if mask is not None:
            masks.append(mask.reshape(agent.members, -1, mask.shape[-1]).copy())
        return wander(seen, mask, episode, step)

    some = Allowance(2 * SHOWN, SHOWN // LANES)
    play(run.world, agent, act, SHOWN, SEED, Purpose.SELECT, limit=SHOWN, allowance=some)
    seen, mask = (np.concatenate(part, 1)[:, :SHOWN] if part else None for part in (rows, masks))
    assert seen is not None
    flat = seen.reshape(-1, *seen.shape[2:])
    return flat, None if mask is None else mask.reshape(-1, mask.shape[-1])


def draws_for(policy: ExportedPolicy, agent: Any, count: int) -> dict[str, np.ndarray]:
    """The numbers by which the agent draws, where the file is given them."""
    if not {"uniform", "normal"} & set(policy.more):
        return {}
    uniform, normal = agent.draws(count, 0)
    return {"uniform": uniform.astype(np.float32), "normal": normal}


def inputs_of(
    policy: ExportedPolicy, agent: Any, rows: np.ndarray, mask: np.ndarray | None
) -> list[np.ndarray]:
    """What the file is given for encoded rows."""
    lead = (agent.members, -1) if agent.members > 1 else (-1,)
    options = policy.decoder.actions.options
    allowed = np.ones((len(rows), options), np.bool_) if mask is None else mask
    more = {"mask": allowed} | draws_for(policy, agent, len(rows))
    if "state" in policy.more:
        more["state"] = remembered(agent, rows, mask)
    shown = arrays_of(policy.encoder, rows.reshape(*lead, *rows.shape[1:]))
    return shown + [more[name].reshape(*lead, more[name].shape[-1]) for name in policy.more]


def remembered(agent: Any, rows: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """What a policy may remember: what it does behind the row before."""
    _, after = agent.infer(rows, mask)
    return np.roll(after, 1, 0)


def expected_of(
    policy: ExportedPolicy, agent: Any, rows: np.ndarray, mask: np.ndarray | None
) -> list[Any]:
    """The agent's own actions, and what it remembers then where that is something."""
    drawn = bool({"uniform", "normal"} & set(policy.more))
    if "state" in policy.more:
        draws = agent.draws(len(rows), 0) if drawn else None
        return list(agent.infer(rows, mask, draws, remembered(agent, rows, mask)))
    if drawn:
        return [agent.sampled(rows, mask, 0)]
    count = np.arange(len(rows))
    return [agent.policy("greedy")(rows, mask, count, count)]


def parts_of(actions: PolicyActions, expected: Any, path: tuple[str | int, ...]) -> np.ndarray:
    """Of the agent's actions the part at a path."""
    if not path:
        return np.asarray(expected)
    each = [actions.decode(row) for row in expected]
    for key in path:
        each = [one[key] for one in each]
    return np.stack(each)


def verdict(
    policy: ExportedPolicy, agent: Any, run: Run, runner: Runner, how: str
) -> tuple[str, int]:
    """One sentence about the actions of a file beside the agent's, and how many discrete ones are
    others; refused where they are not the same."""
    rows, mask = seen_by(run, agent)
    expected, *after = expected_of(policy, agent, rows, mask)
    found = runner(inputs_of(policy, agent, rows, mask))
    different, furthest = np.zeros(len(rows), np.bool_), 0.0
    for port, own in zip(policy.outputs, found, strict=True):
        told = after[0] if port.kind == "state" else expected
        wanted = parts_of(policy.decoder.actions, told, port.path).reshape(len(rows), -1)
        own = own.reshape(len(rows), -1)
        if wanted.dtype.kind == "f":
            furthest = max(furthest, float(np.abs(own - wanted).max(initial=0)))
            different |= ~np.isclose(own, wanted, CLOSE, CLOSE).all(-1)
        else:
            different |= (own != wanted).any(-1)
    others = int(different.sum())
    if others > TIES * len(rows):
        raise UserError(
            f"The exported policy is not the agent's: {others:,} of {len(rows):,} actions by {how} "
            "are others, so that no file was written."
        )
    numbers = f", real numbers within {furthest:.1g}" if furthest else ""
    return (
        f"{len(rows) - others:,} of {len(rows):,} actions by {how} are the agent's{numbers}",
        others,
    )
