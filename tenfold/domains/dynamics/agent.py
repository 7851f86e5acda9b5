"""An agent that identifies a hidden dynamical system: it plans the most informative experiment,
acts, corrects its belief by observations, and trains its model.

M members (seeds of one experiment) live side by side; each gets what its seed gets alone.
Observations, actions and time are in the user's units at the interface; model, belief and planner
work in those of `coordinates`.
"""

from typing import Any

import numpy as np
import torch

from tenfold.core.errors import UserError
from tenfold.core.random import Purpose, key, uniform
from tenfold.domains.dynamics.belief import Belief
from tenfold.domains.dynamics.closed_form import refit
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.coordinates import (
    channel_transform,
    rescale_channels,
    transform_network,
)
from tenfold.domains.dynamics.identified import IdentifiedSystem, array_of, part_of
from tenfold.domains.dynamics.missing import (
    all_missing,
    forward_fill,
    member_factors,
    observed_mean,
    reliable_rows,
    single_observation_states,
)
from tenfold.domains.dynamics.planning import Planning
from tenfold.domains.dynamics.sessions import align_sessions, coordinates_for
from tenfold.domains.dynamics.training import Training, Window, update
from tenfold.memory.staging import Staging

STATISTICS = ("bound", "likelihood", "divergence")


class ExplorerAgent(IdentifiedSystem):
    """Model, belief, planner and window of M members. `low` and `high` bound the actions; `dt` is
    the time of a step."""

    def __init__(
        self,
        config: Explorer,
        observations: int,
        low: np.ndarray,
        high: np.ndarray,
        dt: float,
        seeds: tuple[int, ...] = (0,),
        device: str = "cpu",
        sessions: tuple[int, ...] = (),
    ) -> None:
        super().__init__(config, observations, len(low), dt, seeds, device, sessions)
        self.training = Training(self.online, seeds)
        self.belief = Belief(self.online)
        self.bound(low, high)
        self.window = Window(list(seeds), config.window, config.length, observations, len(low))
        self.staging = Staging(self.device)
        shape = (self.members, config.batch_size, config.length)
        self.batch = {"y": np.zeros((*shape, observations)), "a": np.zeros((*shape, len(low)))}
        self.rows = {
            name: torch.from_numpy(rows.astype(np.float32)) for name, rows in self.batch.items()
        }
        self.streams = [key(seed, Purpose.ACTION) for seed in seeds]
        self.last_obs = np.zeros((self.members, observations))  # the last observation
        self.begins = np.ones(self.members, np.bool_)  # whether it was the first one of an episode
        self.sums = torch.zeros(len(STATISTICS) + 1, device=self.device)
        self.observed = False  # whether there was one
        # calls of `act`, and whether the next one begins an episode
        self.acted, self.fresh = 0, True

    @property
    def updates(self) -> int:
        return self.training.updates

    def bound(self, low: np.ndarray, high: np.ndarray) -> None:
        """Sets the bounds of actions [A], and starts the planner anew."""
        self.low, self.high = np.asarray(low, np.float32), np.asarray(high, np.float32)
        self.units.bound(low, high)
        ends = self.units.low, self.units.high
        inside = (self.units.actions_in(end).astype(np.float32) for end in ends)
        self.planning = Planning(
            self.config.planner, self.online.dynamics, list(self.seeds), *inside
        )

    def learn_units(self, step: int) -> None:
        """Fits the units to the window as soon as training can start, and again whenever the window
        has grown by a quarter."""
        rows = self.window.written
        if step >= self.config.learning_starts and self.ready and self.units.due_again(rows):
            self.fit_units(rows)

    @torch.no_grad()
    def fit_units(self, rows: int) -> None:
        """Fits the units to the window. Weights are converted to the new units; a belief from
        before any training is discarded."""
        if not self.units.free:
            if self.config.model.missing:
                self.fit_factors()
            self.online.decoder.init_rates(observed_mean(self.window.obs[:, self.window.rows()]))
            return
        known = self.units.known
        variance = self.window_states()[2] if known and not self.online.decoder.layers else None
        rows_obs = self.window.obs[:, self.window.rows()]
        old = self.units.take(rows_obs, rows)
        if self.config.model.missing and np.isnan(rows_obs).any():
            self.fit_factors()
        for m in range(self.members) if known else ():
            to = channel_transform(m, old, self.units.channels)
            rescale_channels(self.online, m, to, self.units.channels.varied[m] & ~old.varied[m])
            if variance is not None:
                transform_network(self.online, self.belief, m, to, variance[m])
        if self.config.model.decoder == "identity":
            self.maps = self.output_maps
            self.planning.set_goals(self.output_maps)
        if not known:
            self.belief.correct(
                self.inner(self.last_obs),
                torch.ones(self.members, dtype=torch.bool, device=self.device),
            )
        elif variance is not None and self.config.model.dynamics != "mlp":
            self.refit()  # its features are elsewhere now

    def fit_factors(self) -> None:
        """Fits the factors that estimate missing values in a row to the window."""
        y = self.inner(self.window.obs[:, self.window.rows()])
        y = torch.log1p(y) if self.config.model.noise == "poisson" else y
        self.online.fill.learn(member_factors(y.cpu().double().numpy(), bool(self.sessions)))

    # acting

    def observe(self, y: np.ndarray, begins: np.ndarray) -> None:
        """Corrects the belief by observations [M, Y]: one call of the encoder. `begins` [M]: the
        first one of an episode."""
        self.units.require_counts(y)
        self.last_obs[:], self.begins, self.observed = y, np.array(begins, np.bool_), True
        self.belief.correct(
            self.inner(self.last_obs), torch.from_numpy(self.begins).to(self.device)
        )

    def choose(self, step: int) -> np.ndarray:
        """Actions [M, A] for the last observation, by the planner; at random before there was
        anything to learn from."""
        policy, early = self.config.planner.policy, step < self.config.learning_starts
        unready = policy != "zero" and not (self.ready or self.updates)
        action = self.pick_action(step, early or unready, f" at step {step:,}")
        self.record_step(action)
        return action

    def pick_action(self, step: int, blind: bool = False, when: str = "") -> np.ndarray:
        """Actions [M, A] by the policy of the settings, or at random where it has no model yet."""
        policy = self.config.planner.policy
        if blind or policy == "random":
            return self.random_action(step)
        return self.no_action() if policy == "zero" else self.plan_action(when)

    def plan_action(self, when: str = "") -> np.ndarray:
        """Actions [M, A] by the planner, from the current belief."""
        believed = self.belief.mean.cpu().numpy()
        if not np.isfinite(believed).all():
            raise UserError(
                f"The belief is no longer finite{when}: lower agent.lr, or keep the states of the "
                "environment within bounds."
            )
        action = self.units.actions_out(self.planning.plan(believed))
        return np.clip(action, self.low, self.high).astype(np.float32)

    def no_action(self) -> np.ndarray:
        return np.clip(np.zeros((self.members, len(self.low)), np.float32), self.low, self.high)

    def begin(self) -> None:
        """Starts an episode with the next observation: the belief is reset to the prior."""
        self.fresh = True

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The next experiment after one more observation [Y] -> [A], or of every member [M, Y] ->
        [M, A]. The belief is corrected and goes on from call to call; `begin` starts an episode.
        Nothing is trained."""
        y = np.asarray(obs, np.float64)
        if y.shape not in (self.last_obs.shape, *[self.last_obs.shape[1:]] * (self.members == 1)):
            raise ValueError(
                f"An observation {y.shape} does not fit: give [{self.last_obs.shape[1]}]"
                f"{f' of each of {self.members} members' if self.members > 1 else ''}."
            )
        if np.isinf(y).any() or (np.isnan(y).any() and not self.config.model.missing):
            raise ValueError("The observation has a number that is not finite.")
        self.observe(y.reshape(self.last_obs.shape), np.full(self.members, self.fresh))
        action = self.pick_action(self.acted)
        self.predict_belief(action)
        self.fresh, self.acted = False, self.acted + 1
        return action[0] if y.ndim == 1 else action

    def random_action(self, step: int) -> np.ndarray:
        """Uniform within the bounds, by (seed, step)."""
        size = len(self.low)
        u = np.array([uniform(stream, step * size + np.arange(size)) for stream in self.streams])
        return (self.low + (self.high - self.low) * u).astype(np.float32)

    def record_step(self, action: np.ndarray) -> None:
        """Appends the last observation and the action that follows it to the window."""
        self.window.append(self.last_obs, action, self.begins)
        self.predict_belief(action)

    def predict_belief(self, action: np.ndarray) -> None:
        """Adds the information of a step with this action, and predicts the belief."""
        inside = self.inner_actions(action)
        if self.units.known:
            self.planning.visit(self.belief.mean.cpu().numpy(), inside.cpu().numpy())
        self.belief.predict(inside)

    # learning

    @property
    def ready(self) -> bool:
        """Whether there is a whole sequence to train on."""
        return self.window.ready

    def due(self, step: int) -> int:
        """The number of gradient steps after environment step `step`."""
        config = self.config
        if step < config.learning_starts or not self.ready:
            return 0
        # as soon as there is a sequence to train on
        first = 0 if self.updates else config.first_updates
        return first + (config.updates if step % config.every == 0 else 0)

    def train_step(self) -> None:
        """One gradient step on sequences of the window."""
        self.window.sample(self.batch["y"], self.batch["a"])
        self.units.require_counts(self.batch["y"])
        self.rows["y"].copy_(torch.from_numpy(self.units.observations_in(self.batch["y"])))
        self.rows["a"].copy_(torch.from_numpy(self.units.actions_in(self.batch["a"])))
        rows = self.staging.send(self.rows)
        terms = update(
            self.online, self.training, rows["y"], rows["a"], self.config.lr, self.config.clip_norm
        )
        likelihood, divergence = (term.mean() / self.config.length for term in terms)
        likelihood = likelihood + float(self.units.log_density_of(self.batch["y"]).mean())
        self.sums += torch.stack(
            (likelihood - divergence, likelihood, divergence, torch.ones_like(likelihood))
        )
        if self.planning.novelty:
            self.planning.train(self.belief.mean.cpu().numpy())

    def refit_due(self, step: int) -> bool:
        config = self.config
        # an mlp has no fixed features: it learns by gradients alone
        if not config.refit or (config.model.dynamics == "mlp" and not self.sessions):
            return False
        return step >= config.learning_starts and step % config.refit == 0

    @torch.no_grad()
    def refit(self) -> None:
        """Fits the dynamics in closed form to the states that the encoder reads from the whole
        window, in coordinates that are standard for them; where the grid is now, what was visited
        is counted anew."""
        if self.sessions:
            align_sessions(self)
            if self.config.model.dynamics == "mlp":
                return
        rows, z, variance = self.window_states()
        read = self.reliable(rows, variance)
        for m, seed in enumerate(self.seeds):
            if self.online.decoder.layers:
                to = coordinates_for(self, m, rows, z[m], variance[m], read[m])
                transform_network(self.online, self.belief, m, to, variance[m][read[m]])
                z[m], variance[m] = to.states(z[m]), to.variances(variance[m])
                self.maps[m : m + 1] = [to.alignment(old) for old in self.maps[m : m + 1]]
            actions = self.units.actions_in(self.window.action[m, rows[:-1]])
            whole = ~self.window.first[m, rows[1:]] & read[m, :-1] & read[m, 1:]
            alone = single_observation_states(self, m, rows, z[m])
            refit(self.online.dynamics, m, z[m], variance[m], actions, whole, seed, alone)
        self.planning.recount(z)

    @torch.no_grad()
    def window_states(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The window's rows in the order of time [n], and means and variances of the states [M, n,
        D] that the encoder reads from them; what a gru carries ends with an episode."""
        rows = self.window.rows()
        y, first = (
            self.inner(self.window.obs[:, rows]),
            torch.from_numpy(self.window.first[:, rows]).to(self.device),
        )
        posterior = self.online.posterior(y.unsqueeze(2), is_reset=first.unsqueeze(2))[:2]
        mean, variance = (part[:, :, 0].cpu().double().numpy() for part in posterior)
        if self.config.model.missing:  # nothing new is known where nothing was seen
            gone = all_missing(self.window.obs[:, rows])
            for part in (mean, variance):
                part[:] = [forward_fill(*pair) for pair in zip(part, gone, strict=True)]
        return rows, mean, variance

    def reliable(self, rows: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Which of the window's rows [n] have states [M, n, D] that dynamics may be fitted to:
        all, where nothing is missing."""
        if not self.config.model.missing:
            return np.ones(variance.shape[:2], np.bool_)
        pairs = zip(self.window.obs[:, rows], variance, strict=True)
        return np.stack([reliable_rows(y, unsure) for y, unsure in pairs])

    def statistics(self) -> dict[str, float]:
        """Means since the last call, over members, for each step of time."""
        *sums, count = self.sums.tolist()
        self.sums.zero_()
        means = zip(STATISTICS, sums, strict=True)
        return {name: total / count for name, total in means if count}

    def exploring(self, step: int) -> dict[str, float]:
        """For the log: how unsure the belief is, where there is one."""
        return {"belief_std": float(self.belief.variance.mean().sqrt())} if self.observed else {}

    # state

    def state(self) -> dict[str, Any]:
        """Everything that decides what comes next."""
        nested = {
            f"{part}.{name}": value
            for part, owner in self.components.items()
            for name, value in owner.state().items()
        }
        latest = {"seen": self.last_obs, "begins": self.begins, "sums": self.sums}
        return self.policy_state() | nested | latest

    @property
    def components(self) -> dict[str, Any]:
        """The objects with a state to save, by name."""
        planning = {f"planning.{name}": part for name, part in self.planning.components.items()}
        components = {"training": self.training, "belief": self.belief, "window": self.window}
        return components | planning

    def load_policy(self, state: dict[str, Any]) -> None:
        """Loads the part of a checkpoint that is needed to answer questions."""
        self.load_state(state)

    def load_state(self, state: dict[str, Any]) -> None:
        """All of `state`, or only what `policy_state` gives."""
        self.load_model(state)
        self.bound(self.units.low, self.units.high)
        self.planning.set_goals(self.output_maps)
        if "seen" not in state:
            return
        for name, part in self.components.items():
            part.load_state(part_of(state, name))
        self.last_obs[:] = array_of(state["seen"])
        self.begins = array_of(state["begins"]).astype(np.bool_)
        self.sums.copy_(torch.as_tensor(state["sums"]))
