"""Replay memory of environments of tensors, on their device: a ring of L rows of all B worlds, each
with the observation acted on and the one that came of it.

`Replay` is its counterpart on the host. Where an episode was cut, the last observation is that of
the environment, or, where it does not give one, the observation acted on last.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.core.errors import ConfigError, UserError
from tenfold.core.random import Purpose, key, uniform_torch
from tenfold.core.system import require_memory

if TYPE_CHECKING:  # a type alone
    from tenfold.envs.tensors import TensorStep

Tensors = dict[str, torch.Tensor]
STORED = ("obs", "next_obs", "action", "reward", "discount", "boundary")


class TensorReplay:
    """Rows are drawn uniformly among those whose n steps are there."""

    def __init__(
        self, config: Any, size: int, num_envs: int, reals: int, seed: int, device: torch.device
    ) -> None:
        """`size` of an observation; `reals`: numbers of an action, 0 where it is one of some."""
        self.n_step, self.gamma, self.batch_size = config.n_step, config.gamma, config.batch_size
        self.lane_rows, self.num_envs = config.capacity // num_envs, num_envs
        lead = self.lane_rows, num_envs
        if self.lane_rows <= self.n_step:
            raise ConfigError(
                "agent.capacity",
                f"= {config.capacity:,} is {self.lane_rows} rows for each of {num_envs:,} worlds, "
                f"too few for agent.n_step = {self.n_step}: raise it.",
            )
        self.bytes = 4 * self.lane_rows * num_envs * (2 * size + 2 * max(reals, 1) + 3)
        require_room(self.bytes, device)
        self.obs, self.next_obs = torch.zeros(2, *lead, size, device=device).unbind()
        self.action = (
            torch.zeros(*lead, reals, device=device)
            if reals
            else torch.zeros(lead, dtype=torch.int64, device=device)
        )
        self.reward, self.discount, self.boundary = torch.zeros(3, *lead, device=device).unbind()
        self.weight = torch.ones(self.batch_size, device=device)
        self.items = torch.arange(self.batch_size, device=device)
        self.head = np.zeros(1, np.int64)  # rows ever used
        self.stream = key(seed, Purpose.REPLAY)

    @property
    def rows(self) -> int:
        """Steps from which returns can be drawn; a row of each world."""
        return max(min(int(self.head[0]), self.lane_rows) - self.n_step + 1, 0)

    @property
    def oldest(self) -> int:
        """Where the first of these rows lies."""
        return max(int(self.head[0]) - self.lane_rows, 0) % self.lane_rows

    def add(self, obs: torch.Tensor, action: torch.Tensor, step: "TensorStep") -> None:
        """A step of all worlds; `obs` is what they acted on."""
        t, ended = int(self.head[0]) % self.lane_rows, step.terminated | step.truncated
        last = obs if step.final_obs is None else step.final_obs
        self.obs[t], self.action[t], self.reward[t] = obs, action, step.reward
        torch.where(ended[:, None], last, step.obs, out=self.next_obs[t])
        self.discount[t] = self.gamma * (~step.terminated).float()
        self.boundary[t] = ended.float()
        self.head += 1

    def cut(self) -> None:
        """Ends the running episodes as a time limit would: worlds were reset."""
        if self.head[0]:
            self.boundary[(int(self.head[0]) - 1) % self.lane_rows] = 1

    def sample(self, draw: Any, oldest: Any, rows: Any) -> Tensors:
        """Batch number `draw` of `rows` steps from `oldest` on: numbers, or tensors [] where the
        draw is recorded."""
        u = uniform_torch(self.stream, draw * self.batch_size + self.items)
        choice = (u * (rows * self.num_envs)).long()
        lane, t = choice % self.num_envs, (oldest + choice // self.num_envs) % self.lane_rows
        reward, discount, last = self.reward[t, lane], self.discount[t, lane], t
        ended, row = self.boundary[t, lane] > 0, t
        for _ in range(self.n_step - 1):
            row = (row + 1) % self.lane_rows
            reward = torch.where(ended, reward, reward + discount * self.reward[row, lane])
            discount = torch.where(ended, discount, discount * self.discount[row, lane])
            last = torch.where(ended, last, row)
            ended = ended | (self.boundary[row, lane] > 0)
        return {
            "obs": self.obs[t, lane],
            "action": self.action[t, lane],
            "reward": reward,
            "discount": discount,
            "next_obs": self.next_obs[last, lane],
            "weight": self.weight,
        }

    # checkpoints

    def state(self) -> dict[str, np.ndarray]:
        """All but what `written` gives."""
        return {"head": self.head}

    def written(self, since: np.ndarray) -> dict[str, np.ndarray]:
        """The rows from `since` on, with the places they belong to. The one before them may have
        become an episode's end."""
        first = max(int(since[0]) - 1, int(self.head[0]) - self.lane_rows, 0)
        places = np.arange(first, int(self.head[0])) % self.lane_rows
        index = torch.from_numpy(places).to(self.obs.device)
        return {"place": places} | {
            name: getattr(self, name)[index].cpu().numpy() for name in STORED
        }

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        index = torch.from_numpy(rows["place"]).to(self.obs.device)
        for name in STORED:
            tensor = getattr(self, name)
            if rows[name].shape[1:] != tuple(tensor.shape[1:]):
                raise UserError(
                    f"The saved replay's {name} has shape {rows[name].shape[1:]} a step, and this "
                    f"one's has {tuple(tensor.shape[1:])}."
                )
            tensor[index] = torch.from_numpy(rows[name]).to(tensor.device)

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        self.head[:] = state["head"]


def require_room(required: int, device: torch.device) -> None:
    """Refuses what the device's memory cannot hold."""
    if device.type != "cuda":
        require_memory(required)
        return
    free = torch.cuda.mem_get_info(device)[0]
    if required > free:
        raise UserError(
            f"The replay memory needs {required:,} bytes and {free:,} are free on the GPU: lower "
            "agent.capacity."
        )
