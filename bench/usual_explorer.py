"""The explorer as it is usually written in PyTorch, for comparison: loops over models, steps and
horizons, a window that is rolled and cloned, and an encoder that reads the last observations again
at every step. Same model, same planner."""

from typing import Any

import numpy as np
import torch
from usual_bounds import rerolled_reference

from tenfold.core.random import fill_normal
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.belief import fuse
from tenfold.domains.dynamics.dynamics import grid_centres
from tenfold.domains.dynamics.icem import WIDTH, colouring
from tenfold.domains.dynamics.training import beta_at


class UsualExplorer(ExplorerAgent):
    """One member; policies active, random and zero; diagonal D-optimality."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        size, (observations, actions) = self.config.window, (self.last_obs.shape[1], len(self.low))
        self.recent = {
            "y": torch.zeros(size, observations),
            "a": torch.zeros(size, actions),
            "begins": torch.zeros(size, dtype=torch.bool),
        }
        self.stored = self.drawn = self.plans = 0
        self.optimiser = torch.optim.Adam(self.online.parameters(), self.config.lr)
        dynamics, planner = self.online.dynamics, self.config.planner
        self.known = [
            1.0 + torch.zeros(dynamics.weight[0, n].numel()) for n in range(dynamics.models)
        ]
        self.path_mean, self.kept = (
            torch.zeros(planner.horizon, actions),
            torch.zeros(0, planner.horizon, actions),
        )

    @property
    def ready(self) -> bool:
        return self.stored >= self.config.length

    @torch.no_grad()
    def observe(self, y: np.ndarray, begins: np.ndarray) -> None:
        """Encodes the last `length` observations anew, and takes the last one."""
        self.last_obs[:], self.begins = y, np.array(begins, np.bool_)
        now = torch.from_numpy(self.last_obs).float()
        before = self.recent["y"][
            max(self.config.window - self.config.length + 1, self.config.window - self.stored) :
        ].clone()
        sequence = torch.cat((before, now))
        mean, variance, _ = self.online.posterior(sequence[None, :, None])
        mean, variance = mean[:, -1, 0].clone(), variance[:, -1, 0].clone()
        if not begins[0]:
            mean, variance = fuse(
                self.belief.mean.clone(), self.belief.variance.clone(), mean, variance
            )
        self.belief.mean, self.belief.variance = mean, variance

    @torch.no_grad()
    def record_step(self, action: np.ndarray) -> None:
        now = {
            "y": torch.from_numpy(self.last_obs[0]).float(),
            "a": torch.from_numpy(action[0]),
            "begins": torch.tensor(bool(self.begins[0])),
        }
        for name, row in now.items():
            moved = torch.roll(self.recent[name], -1, 0).clone()
            moved[-1] = row.clone()
            self.recent[name] = moved
        self.stored = min(self.stored + 1, self.config.window)
        dynamics = self.online.dynamics
        phi = dynamics.features(self.belief.mean[:, None, None])[0, 0, 0]
        for n in range(dynamics.models):
            gained = torch.cat(
                [(dynamics.dt * phi).square() / v for v in dynamics.variance()[0, n, 0]]
            )
            self.known[n] = 1.0 + self.config.planner.forget * (self.known[n] - 1.0) + gained
        self.belief.predict(torch.from_numpy(action))

    def choose(self, step: int) -> np.ndarray:
        if self.config.planner.policy != "active" or step < self.config.learning_starts:
            return super().choose(step)
        action = self.search()
        self.record_step(action)
        return action

    @torch.no_grad()
    def search(self) -> np.ndarray:
        """iCEM with a batch over samples and loops over the rest."""
        planner, size = self.config.planner, len(self.low)
        low, high = torch.from_numpy(self.low), torch.from_numpy(self.high)
        mean, deviation = (
            self.path_mean.clone(),
            ((high - low) * WIDTH).expand(planner.horizon, size).clone(),
        )
        noise = torch.from_numpy(colouring(planner.horizon, planner.colour)).float()
        elites, scores = self.kept, torch.full((len(self.kept),), -torch.inf)
        for i in range(planner.iterations):
            white = np.empty(planner.samples * size * planner.horizon)
            round_ = self.plans * planner.iterations + i
            fill_normal(self.planning.search.streams[0], round_ * white.size, white)
            coloured = (
                torch.from_numpy(white).float().view(planner.samples, size, planner.horizon)
                @ noise.T
            )
            tried = torch.minimum(
                torch.maximum(mean + deviation * coloured.transpose(1, 2), low), high
            )
            if i == 0 and self.plans:
                tried[: len(self.kept)] = self.kept
            if i == planner.iterations - 1:
                tried[-1] = mean
            worth = self.worth(tried)
            kept = self.planning.search.kept if i else 0
            pool, judged = torch.cat((elites[:kept], tried)), torch.cat((scores[:kept], worth))
            best = torch.argsort(-judged, stable=True)[: planner.elites]
            elites, scores = pool[best].clone(), judged[best].clone()
            mean = planner.momentum * mean + (1 - planner.momentum) * elites.mean(0)
            deviation = planner.momentum * deviation + (1 - planner.momentum) * elites.std(
                0, correction=0
            )
        self.plans += 1
        kept = elites[: self.planning.search.kept]
        self.kept = torch.cat((kept[:, 1:], kept[:, -1:]), 1)
        self.path_mean = torch.cat((mean[1:], mean[-1:]))
        return elites[0, :1].numpy().copy()

    def worth(self, tried: torch.Tensor) -> torch.Tensor:
        """log det of the diagonal information after each sequence [B, H, A]: one model and one step
        after another."""
        dynamics, (samples, horizon, _) = self.online.dynamics, tried.shape
        size, total = self.config.model.latent, torch.zeros(samples)
        for n in range(dynamics.models):
            weight, push, variance = (
                dynamics.weight[0, n],
                dynamics.action_weight[0, n],
                dynamics.variance()[0, n, 0],
            )
            z = self.belief.mean.expand(samples, -1).clone()
            count = weight.shape[1]
            sensitivity, added = (
                torch.zeros(samples, size, size * count),
                torch.zeros(samples, size * count),
            )
            for t in range(horizon):
                distance = z[:, None] - grid_centres(dynamics.axis, size)
                phi = torch.exp(-distance.square().sum(-1) / (2 * dynamics.width**2))
                slope = torch.eye(size) + dynamics.dt * torch.einsum(
                    "dp,bp,bpk->bdk", weight, phi, -distance / dynamics.width**2
                )
                direct = torch.zeros(samples, size, size, count)
                for d in range(size):
                    direct[:, d, d] = dynamics.dt * phi
                sensitivity = slope @ sensitivity + direct.flatten(2)
                added = added + (sensitivity.square() / variance[:, None]).sum(1)
                z = z + dynamics.dt * (phi @ weight.T + tried[:, t] @ push.T)
            total = total + torch.log1p(added / self.known[n]).sum(-1) / dynamics.models
        return total

    def train_step(self) -> None:
        """Sequences cut one after another, horizons rolled anew, torch.optim."""
        config = self.config
        rng, starts = np.random.default_rng(self.updates), []
        while len(starts) < config.batch_size:
            s = int(rng.integers(config.window - self.stored, config.window - config.length + 1))
            if not bool(self.recent["begins"][s + 1 : s + config.length].any()):
                starts.append(s)
        y, a = (
            torch.stack([self.recent[name][s : s + config.length].clone() for s in starts])[None]
            for name in ("y", "a")
        )
        self.training.updates += 1
        self.optimiser.zero_grad(set_to_none=False)
        normal, seen = self.training.draw(self.online, config.batch_size, config.length)
        loss = (
            -rerolled_reference(
                self.online, y, a, normal, seen, beta_at(config.model, self.updates)
            ).sum()
            / config.length
        )
        loss.backward()
        if config.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.online.parameters(), config.clip_norm)
        self.optimiser.step()

    def refit(self) -> None:
        """Left out: it is the same in both."""
