"""Episodes of environments of tensors: returns and lengths by masks on the device, and what is
wrong with their numbers. They are read once in many steps."""

import numpy as np
import torch

from tenfold.core.errors import EnvironmentFault
from tenfold.envs.adapter import Episode
from tenfold.envs.tensors import TensorStep


class TensorEpisodes:
    """Of all worlds, over at most `rows` steps from one reading to the next."""

    def __init__(self, name: str, num_envs: int, rows: int, device: torch.device) -> None:
        self.name, self.count, self.length_now = name, 0, torch.zeros(num_envs, device=device)
        self.ret = torch.zeros(num_envs, dtype=torch.float64, device=device)
        self.returns = torch.zeros(rows, num_envs, dtype=torch.float64, device=device)
        # of the episodes that ended, 0 where none did
        self.lengths = torch.zeros(rows, num_envs, device=device)
        # the row since which observations and rewards are not finite; `rows` where they are
        self.bad_since = torch.full((2, num_envs), rows, device=device)
        # episodes that were cut without their last observation
        self.incomplete = torch.zeros((), dtype=torch.int64, device=device)

    def begin(self) -> None:
        """All worlds were reset."""
        self.ret.zero_()
        self.length_now.zero_()

    @torch.no_grad()
    def add(self, step: TensorStep) -> None:
        ended, k = step.terminated | step.truncated, self.count
        self.ret += step.reward
        self.length_now += 1
        self.returns[k] = self.ret
        torch.mul(self.length_now, ended, out=self.lengths[k])
        self.ret.masked_fill_(ended, 0)
        self.length_now.masked_fill_(ended, 0)
        bad_obs = ~step.obs.isfinite().all(1)
        if step.final_obs is None:
            self.incomplete += step.truncated.sum()
        else:
            bad_obs |= ended & ~step.final_obs.isfinite().all(1)
        bad = torch.stack([bad_obs, ~step.reward.isfinite()])
        self.bad_since.clamp_(max=torch.where(bad, k, len(self.returns)))
        self.count += 1

    def read(self, step: int) -> tuple[list[Episode], int]:
        """(the episodes that ended since the last reading, how many were cut without their last
        observation); `step` is the run's before the first of these rows. Numbers that are not
        finite are refused."""
        bad_since = self.bad_since.cpu().numpy()
        worlds = bad_since.shape[1]
        if (bad_since < len(self.returns)).any():
            raise self.fault(bad_since, step, worlds)
        lengths = self.lengths[: self.count].cpu().numpy()
        returns = self.returns[: self.count].cpu().numpy()
        episodes = [
            Episode(i, float(returns[t, i]), int(lengths[t, i]), step=step + (t + 1) * worlds)
            for t, i in np.argwhere(lengths).tolist()
        ]
        incomplete, self.count = int(self.incomplete), 0
        self.incomplete.zero_()
        return episodes, incomplete

    def fault(self, bad_since: np.ndarray, step: int, worlds: int) -> EnvironmentFault:
        """About what was not finite first. A policy that diverged spoils all worlds at once."""
        first = int(bad_since.min())
        what, world = np.argwhere(bad_since == first)[0].tolist()
        fault = EnvironmentFault(
            f"{self.name}, world {world}: the {('observation', 'reward')[what]} is not finite "
            f"(between steps {step + first * worlds:,} and {step + (first + 1) * worlds:,} of the "
            "run); mend the environment, or clip what it returns."
        )
        fault.certain = not (bad_since == first).any(0).all()
        return fault
