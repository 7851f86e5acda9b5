"""DQN the way the usual single-file script does it: eager PyTorch, a vector of one environment,
NumPy replay, s' stored twice.

The update is bench/eager_dqn.py. Runs in either environment: .venv/bin/python or
.venv-peers/bin/python. No episode statistics and no logging.
"""

import sys
from typing import Any

import peer

# isort: split
with peer.needs("torch or gymnasium"):
    import gymnasium as gym
    import numpy as np
    import torch

sys.path.append(str(peer.HERE.parent))
from eager_dqn import EagerDQN


class Replay:
    """A ring of transitions; every observation is stored as s and as s'."""

    def __init__(
        self, capacity: int, obs_size: int, gamma: float, rng: np.random.Generator
    ) -> None:
        self.obs, self.next_obs = (
            np.zeros((capacity, obs_size), np.float32),
            np.zeros((capacity, obs_size), np.float32),
        )
        self.action, self.reward = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, np.float32)
        self.capacity, self.gamma, self.rng = capacity, np.float32(gamma), rng
        self.place = self.length = 0

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, terminated: Any) -> None:
        i = self.place
        self.obs[i], self.next_obs[i], self.action[i] = obs, next_obs, action
        self.reward[i], self.terminated[i] = reward, terminated
        self.place = (i + 1) % self.capacity
        self.length = min(self.length + 1, self.capacity)

    def sample(self, size: int) -> dict[str, np.ndarray]:
        rows = self.rng.integers(0, self.length, size)
        return {
            "obs": self.obs[rows],
            "next_obs": self.next_obs[rows],
            "action": self.action[rows],
            "reward": self.reward[rows],
            "discount": self.gamma * (1 - self.terminated[rows]),
            "weight": np.ones(size, np.float32),
        }


def main() -> None:
    options = peer.arguments(__doc__)
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    device = torch.device("cpu")
    # SAME_STEP: the step that ends an episode resets it too, and the true last observation is in
    # the info
    envs = gym.vector.SyncVectorEnv(
        [lambda: gym.make(peer.ENV, disable_env_checker=True)],
        autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
    )
    envs.single_action_space.seed(options.seed)
    agent = EagerDQN(4, peer.HIDDEN, 2, peer.LR, peer.GAMMA)
    replay = Replay(peer.CAPACITY, 4, agent.gamma, rng)
    obs, _ = envs.reset(seed=options.seed)
    updates = 0

    def train(first: int, last: int) -> None:
        nonlocal obs, updates
        for step in range(first, last):
            if step < peer.LEARNING_STARTS or rng.random() < peer.EPSILON:
                actions = np.array(
                    [envs.single_action_space.sample() for _ in range(envs.num_envs)]
                )
            else:
                with torch.no_grad():
                    actions = (
                        torch.argmax(agent.online(torch.Tensor(obs).to(device)), dim=1)
                        .cpu()
                        .numpy()
                    )
            next_obs, reward, terminated, truncated, info = envs.step(actions)
            final = info["final_obs"][0] if terminated[0] or truncated[0] else next_obs[0]
            replay.add(obs[0], final, actions[0], reward[0], terminated[0])
            obs = next_obs
            if step >= peer.LEARNING_STARTS and (step + 1) % options.every == 0:
                for _ in range(options.updates):
                    agent.update(replay.sample(options.batch))
                    updates += 1
                    if updates % peer.TARGET_EVERY == 0:
                        agent.sync_target()

    # whole rounds
    start, end = (
        -(-steps // options.every) * options.every for steps in (peer.WARM_UP, options.steps)
    )
    train(0, start)
    with peer.Stopwatch() as watch:
        train(start, end)
    peer.report(
        "usual single-file script",
        "torch",
        end,
        end - start,
        watch,
        peer.setting(options, loss="mse", adam_eps=1e-8, clip_norm=None, double=False),
    )


if __name__ == "__main__":
    main()
