"""Generalised advantages of a rollout of 2,048 steps of 64 environments, against what people write:
a loop over time.

In torch, as most single-file agents have it; in NumPy, with the equations of Stable-Baselines3's
rollout buffer (which has no value of a final observation: at a time limit its caller adds
γ·V(final) to the reward, done here before the timing). Equality is checked on the inputs timed.
"""

from typing import Any

import numpy as np
import torch
from measure import row

from tenfold.core.system import set_threads
from tenfold.ops.returns import (
    gae,
    lambda_returns,
    lambda_returns_scan,
    n_step_returns,
    n_step_returns_reference,
)

TIME, BATCH, GAMMA, LAMBDA, STEPS = 2048, 64, 0.99, 0.95, 5
SHORT = 128  # the definition of n-step returns is slow: a shorter rollout for it
TOLERANCE = 1e-4


def rollout(time: int = TIME, batch: int = BATCH) -> dict[str, np.ndarray]:
    """Episodes of about 200 steps that end both ways. Inside an episode the next value is the next
    row's."""
    rng = np.random.default_rng(0)
    terminated, truncated = rng.random((time, batch)) < 1 / 400, rng.random((time, batch)) < 1 / 400
    value = rng.normal(size=(time + 1, batch)).astype(np.float32)
    final = rng.normal(size=(time, batch)).astype(np.float32)
    ended = terminated | truncated
    return {
        "reward": rng.normal(size=(time, batch)).astype(np.float32),
        "discount": (GAMMA * ~terminated).astype(np.float32),
        "value": value[:-1].copy(),
        "next_value": np.where(ended, final, value[1:]),
        "boundary": ended.astype(np.float32),
    }


def torch_loop(
    reward: torch.Tensor,
    discount: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    boundary: torch.Tensor,
) -> torch.Tensor:
    advantage, running = torch.zeros_like(reward), torch.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        delta = reward[t] + discount[t] * next_value[t] - value[t]
        running = delta + LAMBDA * discount[t] * (1 - boundary[t]) * running
        advantage[t] = running
    return advantage


def buffer_loop(
    reward: np.ndarray,
    value: np.ndarray,
    start: np.ndarray,
    last_value: np.ndarray,
    done: np.ndarray,
) -> np.ndarray:
    """`start` marks the first steps of episodes; the last row bootstraps from `last_value`, unless
    it ended one."""
    advantage, running = np.zeros_like(reward), np.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        if t == len(reward) - 1:
            going, following = 1 - done, last_value
        else:
            going, following = 1 - start[t + 1], value[t + 1]
        delta = reward[t] + GAMMA * following * going - value[t]
        running = delta + GAMMA * LAMBDA * going * running
        advantage[t] = running
    return advantage


def advantages() -> list[dict[str, Any]]:
    set_threads(1)
    given = rollout()
    out = np.zeros((TIME, BATCH), np.float32)
    tensors = {name: torch.from_numpy(a) for name, a in given.items()}
    found = gae(**given, lam=LAMBDA)
    ended = given["boundary"]
    start = np.concatenate([np.zeros_like(ended[:1]), ended[:-1]])
    # the value of a final observation, as a reward
    paid = given["reward"] + ended * given["discount"] * given["next_value"]
    buffer = paid, given["value"], start, given["next_value"][-1], ended[-1]
    sides = [
        ("torch loop", lambda: torch_loop(**tensors)),
        ("NumPy loop, as a rollout buffer", lambda: buffer_loop(*buffer)),
    ]
    rows = []
    for name, loop in sides:
        difference = float(np.abs(np.asarray(loop()) - found).max())
        rows.append(
            row(
                "gae",
                {"time": TIME, "batch": BATCH},
                (name, loop),
                ("tenfold", lambda: gae(**given, lam=LAMBDA, out=out)),
                difference < TOLERANCE,
                difference,
                rounds=11,
            )
        )
    return rows


def others() -> list[dict[str, Any]]:
    """λ-returns against the scan in torch (log₂ T steps), n-step returns against their
    definition."""
    set_threads(1)
    given, few = rollout(), rollout(SHORT, 4)
    tensors = {name: torch.from_numpy(a) for name, a in given.items()}
    out, small = np.zeros((TIME, BATCH), np.float32), np.zeros((SHORT, 4), np.float32)
    by_scan = lambda_returns_scan(**tensors, lam=LAMBDA).numpy()
    far = float(np.abs(lambda_returns(**given, lam=LAMBDA) - by_scan).max())
    near = float(
        np.abs(
            n_step_returns(**few, n=STEPS) - n_step_returns_reference(*few.values(), STEPS)
        ).max()
    )
    return [
        row(
            "returns",
            {"kind": "lambda", "time": TIME, "batch": BATCH},
            ("torch scan", lambda: lambda_returns_scan(**tensors, lam=LAMBDA)),
            ("tenfold", lambda: lambda_returns(**given, lam=LAMBDA, out=out)),
            far < TOLERANCE,
            far,
            rounds=11,
        ),
        row(
            "returns",
            {"kind": f"{STEPS}-step", "time": SHORT, "batch": 4},
            ("definition", lambda: n_step_returns_reference(*few.values(), STEPS)),
            ("tenfold", lambda: n_step_returns(**few, n=STEPS, out=small)),
            near < TOLERANCE,
            near,
            rounds=11,
        ),
    ]


NAMES = {"gae": advantages, "returns": others}
