"""An agent that identifies a hidden dynamical system: it plans the experiment that tells most about the dynamics, acts, corrects
its belief by what it sees, and trains its model.

M members (seeds of one experiment) live side by side; each gets what its seed gets alone.
"""

from typing import Any

import numpy as np
import torch

from tenfold.errors import UserError
from tenfold.explorer_settings import Explorer
from tenfold.memory.staging import Staging
from tenfold.memory.window import Window
from tenfold.nets.belief import Belief
from tenfold.nets.fitting import Training, fit, update
from tenfold.nets.latent import LatentNetwork
from tenfold.nets.planning import Planning
from tenfold.nets.refit import refit
from tenfold.ops.random import Purpose, key, uniform

STATISTICS = ("bound", "likelihood", "divergence")


def array_of(value: Any) -> np.ndarray:
    """A copy of an array, or of a tensor as one."""
    return value.detach().cpu().numpy().copy() if isinstance(value, torch.Tensor) else np.array(value)


class ExplorerAgent:
    """Model, belief, planner and window of M members. `low` and `high` bound the actions; `dt` is the time of a step."""

    def __init__(self, config: Explorer, observations: int, low: np.ndarray, high: np.ndarray, dt: float,
                 seeds: tuple[int, ...] = (0,), device: str = "cpu") -> None:
        self.config, self.seeds, self.members, self.dt = config, tuple(seeds), len(seeds), dt
        self.low, self.high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        self.online = LatentNetwork(observations, len(low), config.model, dt, self.members).initialise(seeds)
        self.online.to(device)
        self.device = self.online.flat.device
        self.training = Training(self.online, seeds)
        self.belief = Belief(self.online)
        self.planning = Planning(config.planner, self.online.dynamics, list(seeds), self.low, self.high)
        self.window = Window(list(seeds), config.window, config.length, observations, len(low))
        self.staging = Staging(self.device)
        shape = (self.members, config.batch_size, config.length)
        self.batch = {"y": np.zeros((*shape, observations), np.float32), "a": np.zeros((*shape, len(low)), np.float32)}
        self.rows = {name: torch.from_numpy(rows) for name, rows in self.batch.items()}
        self.streams = [key(seed, Purpose.ACTION) for seed in seeds]
        self.seen = np.zeros((self.members, observations), np.float32)  # the last observation
        self.begins = np.ones(self.members, np.bool_)  # whether it was the first one of an episode
        self.sums = torch.zeros(len(STATISTICS) + 1, device=self.device)
        # learned coordinates z to others x = A z + b, for questions in those; the evaluation finds them where the truth is known
        size = config.model.latent
        self.matrix, self.offset = np.tile(np.eye(size), (self.members, 1, 1)), np.zeros((self.members, size))

    @property
    def updates(self) -> int:
        return self.training.updates

    # acting ---------------------------------------------------------------------------------------------------------------

    def observe(self, y: np.ndarray, begins: np.ndarray) -> None:
        """Corrects the belief by observations [M, Y]: one call of the encoder. `begins` [M]: the first one of an episode."""
        self.seen[:], self.begins = y, np.array(begins, np.bool_)
        self.belief.correct(torch.from_numpy(self.seen).to(self.device), torch.from_numpy(self.begins).to(self.device))

    def act(self, step: int) -> np.ndarray:
        """Actions [M, A] for the last observation, by the planner; at random before there was anything to learn from."""
        policy = self.config.planner.policy
        if policy == "zero" and step >= self.config.learning_starts:
            action = np.clip(np.zeros((self.members, len(self.low)), np.float32), self.low, self.high)
        elif policy == "random" or step < self.config.learning_starts:
            action = self.random_action(step)
        else:
            believed = self.belief.mean.cpu().numpy()
            if not np.isfinite(believed).all():
                raise UserError(f"The belief is no longer finite at step {step:,}: lower agent.lr, or keep the states of the "
                                "environment within bounds.")
            action = self.planning.plan(believed)
        self.remember(action)
        return action

    def random_action(self, step: int) -> np.ndarray:
        """Uniform within the bounds, by (seed, step)."""
        size = len(self.low)
        u = np.array([uniform(stream, step * size + np.arange(size)) for stream in self.streams])
        return (self.low + (self.high - self.low) * u).astype(np.float32)

    def remember(self, action: np.ndarray) -> None:
        """Puts the last observation and the action that follows it into the window, counts what they tell, and predicts."""
        self.window.append(self.seen, action, self.begins)
        self.planning.visit(self.belief.mean.cpu().numpy(), action)
        self.belief.predict(torch.from_numpy(action).to(self.device))

    # learning -------------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether there is a whole sequence to train on."""
        return self.window.ready

    def due(self, step: int) -> int:
        """How many gradient steps follow environment step `step`."""
        config = self.config
        if step < config.learning_starts or not self.ready:
            return 0
        first = config.first_updates if step == max(config.learning_starts, 1) else 0
        return first + (config.updates if step % config.every == 0 else 0)

    def train_step(self) -> None:
        """One gradient step on sequences of the window."""
        self.window.sample(self.batch["y"], self.batch["a"])
        rows = self.staging.send(self.rows)
        parts = update(self.online, self.training, rows["y"], rows["a"], self.config.lr, self.config.clip_norm)
        likelihood, divergence = (part.mean() / self.config.length for part in parts)
        self.sums += torch.stack((likelihood - divergence, likelihood, divergence, torch.ones_like(likelihood)))
        if self.planning.novelty:
            self.planning.train(self.belief.mean.cpu().numpy())

    def refit_due(self, step: int) -> bool:
        return bool(self.config.refit) and step >= self.config.learning_starts and step % self.config.refit == 0

    @torch.no_grad()
    def refit(self) -> None:
        """Fits the dynamics in closed form to the states that the encoder reads from the whole window."""
        window = self.window
        written = int(window.counters[0, 0])
        rows = np.arange(max(written - window.capacity, 0), written) % window.capacity
        y = torch.from_numpy(window.obs[:, rows]).to(self.device)
        z = self.online.posterior(y.unsqueeze(2))[0][:, :, 0].cpu().double().numpy()
        for m, seed in enumerate(self.seeds):
            refit(self.online.dynamics, m, z[m], window.action[m, rows[:-1]], ~window.first[m, rows[1:]], seed)

    def fit(self, y: np.ndarray, a: np.ndarray, updates: int) -> np.ndarray:
        """`updates` gradient steps on given sequences y [E, L, Y], a [E, L, A]; the bound for each step of time before every one,
        [updates, M]. The optimiser goes on from where it was."""
        config = self.config
        bounds = fit(self.online, self.training, torch.from_numpy(np.asarray(y, np.float32)),
                     torch.from_numpy(np.asarray(a, np.float32)), updates, config.batch_size, config.length, config.lr,
                     config.clip_norm)
        return bounds.cpu().numpy()

    def statistics(self) -> dict[str, float]:
        """Means since the last call, over members, for each step of time."""
        *sums, count = self.sums.tolist()
        self.sums.zero_()
        return {name: total / count for name, total in zip(STATISTICS, sums, strict=True)} if count else {}

    def exploring(self, step: int) -> dict[str, float]:
        """For the log: how unsure the belief is."""
        return {"belief_std": float(self.belief.variance.mean().sqrt())}

    # questions ------------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def field(self, z: np.ndarray, true: bool = False) -> np.ndarray:
        """The learned dz/dt without action at states [n, D]: [n, D], or [M, n, D] of several members. `true`: the states are in
        the environment's own coordinates, and so is the answer."""
        z = np.asarray(z, np.float64)
        if z.ndim != 2 or z.shape[1] != self.config.model.latent:
            raise ValueError(f"States {z.shape} do not fit: give [n, {self.config.model.latent}].")
        inner = np.stack([(z - b) @ np.linalg.pinv(m).T if true else z for m, b in zip(self.matrix, self.offset, strict=True)])
        states = torch.from_numpy(inner).to(self.online.flat)[:, None]
        found = self.online.dynamics.drift(states.expand(-1, self.online.dynamics.models, -1, -1).contiguous()).mean(1)
        answer = found.cpu().double().numpy()
        if true:
            answer = answer @ self.matrix.transpose(0, 2, 1)
        return answer[0] if self.members == 1 else answer

    # state ----------------------------------------------------------------------------------------------------------------

    def policy_state(self) -> dict[str, Any]:
        """What questions need."""
        return {"online": self.online.flat, "matrix": self.matrix, "offset": self.offset}

    def state(self) -> dict[str, Any]:
        """Everything that decides what comes next."""
        parts = {"training": self.training, "belief": self.belief, "planning": self.planning, "window": self.window}
        nested = {f"{part}.{name}": value for part, owner in parts.items() for name, value in owner.state().items()}
        return self.policy_state() | nested | {"seen": self.seen, "begins": self.begins, "sums": self.sums}

    def load_state(self, state: dict[str, Any]) -> None:
        """All of `state`, or only what `policy_state` gives."""
        with torch.no_grad():
            self.online.flat.copy_(torch.as_tensor(state["online"]))
        self.matrix, self.offset = (array_of(state[name]) for name in ("matrix", "offset"))
        if "seen" not in state:
            return

        def part(name: str) -> dict[str, Any]:
            return {k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(f"{name}.")}

        self.training.load_state(part("training"))
        self.belief.load_state(part("belief"))
        for name in ("planning", "window"):
            getattr(self, name).load_state({k: array_of(v) for k, v in part(name).items()})
        self.seen[:], self.begins = array_of(state["seen"]), array_of(state["begins"]).astype(np.bool_)
        self.sums.copy_(torch.as_tensor(state["sums"]))
