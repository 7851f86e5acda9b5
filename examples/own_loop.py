"""A training loop of one's own with pieces of tenfold: advantages, masked heads and their joint
probability. No engine, no run folder: NumPy, torch and `tenfold.ops`.

    python examples/own_loop.py

Three machines take one of four orders each, some of which are forbidden at any time; a machine is
paid the value of its order. A policy that looks at nothing gets about 0.
"""

import numpy as np
import torch

import tenfold as ten

MACHINES, ORDERS, STEPS, WORLDS = 3, 4, 16, 32


def orders(rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Values [B, 12] of all orders in all worlds, and which are allowed: at least one a machine."""
    values = rng.uniform(-1, 1, (WORLDS, MACHINES, ORDERS)).astype(np.float32)
    allowed = rng.random(values.shape) < 0.6
    allowed[..., 0] |= ~allowed.any(-1)
    return tuple(torch.from_numpy(x.reshape(WORLDS, -1)) for x in (values, allowed))


def main(rounds: int = 60) -> float:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    heads = ten.ops.MaskedHeads([ORDERS] * MACHINES)
    policy = ten.nets.mlp(MACHINES * ORDERS, (64,), MACHINES * ORDERS)
    value = ten.nets.mlp(MACHINES * ORDERS, (64,), 1)
    adam = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=3e-3)
    mean = 0.0
    for _ in range(rounds):
        observations, masks, actions, rewards = [], [], [], []
        obs, mask = orders(rng)
        for _ in range(STEPS):
            with torch.no_grad():
                action = heads.sample(policy(obs), mask)
            order_values = obs.view(WORLDS, MACHINES, ORDERS).gather(-1, action[..., None])[..., 0]
            for column, row in zip(
                (observations, masks, actions, rewards),
                (obs, mask, action, order_values.mean(-1)),
                strict=True,
            ):
                column.append(row)
            obs, mask = orders(rng)
        states, allowed, action, reward = map(torch.stack, (observations, masks, actions, rewards))
        with torch.no_grad():
            values = value(torch.cat([states, obs[None]]))[..., 0]
        none = torch.zeros_like(reward)  # no episode ends: the rollout's end cuts like a time limit
        gain = ten.ops.gae(reward, none + 0.9, values[:-1], values[1:], none, lam=0.9)
        logits = policy(states)
        log_prob = heads.joint(heads.log_prob(logits, action, allowed))
        entropy = heads.entropy(logits, allowed).sum(-1)
        better = (gain - gain.mean()) / (gain.std() + 1e-8)
        target = gain + values[:-1]
        loss = (
            -(better * log_prob).mean()
            - 0.01 * entropy.mean()
            + 0.5 * (value(states)[..., 0] - target).square().mean()
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
        mean = float(reward.mean())
    return mean


if __name__ == "__main__":
    print(f"mean reward: {main(2):.2f} after 2 rounds, {main():.2f} after 60")
