"""An agent that identifies a hidden dynamical system: it plans the experiment that tells most about the dynamics, acts, corrects
its belief by what it sees, and trains its model.

M members (seeds of one experiment) live side by side; each gets what its seed gets alone.
"""

from typing import Any

import numpy as np
import torch

from tenfold.errors import ConfigError, UserError
from tenfold.explorer_settings import Explorer
from tenfold.memory.replay import require_memory
from tenfold.memory.staging import Staging
from tenfold.memory.window import Window
from tenfold.nets.belief import Belief
from tenfold.nets.dynamics import Dynamics
from tenfold.nets.fitting import Training, fit, update
from tenfold.nets.forecast import forecasts
from tenfold.nets.latent import LatentNetwork
from tenfold.nets.planning import NOTHING, Planning
from tenfold.nets.refit import refit
from tenfold.nets.standard import move, standard
from tenfold.ops.alignment import Alignment, identity
from tenfold.ops.networks import parameter_count
from tenfold.ops.random import Purpose, key, uniform

STATISTICS = ("bound", "likelihood", "divergence")
MAP, UNKNOWN = ("matrix", "offset", "back", "aligned"), -1.0  # to true coordinates as it is saved; what aligned is without one
COPIES = 4  # of the whole matrix of information while it is updated


def array_of(value: Any) -> np.ndarray:
    """A copy of an array, or of a tensor as one."""
    return value.detach().cpu().numpy().copy() if isinstance(value, torch.Tensor) else np.array(value)


def require_matrix(config: Explorer, dynamics: Dynamics) -> None:
    """Refuses whole matrices of information that memory cannot hold, with what an update needs besides."""
    planner, (members, models) = config.planner, dynamics.raw_variance.shape[:2]
    if planner.matrix == "diagonal" or planner.policy in NOTHING:
        return
    shared = dynamics.kind != "mlp"  # by the models of an ensemble
    count, parameters = members * (1 if shared else models), dynamics.weight.shape[-1] if shared else parameter_count(dynamics)
    try:
        require_memory(count * parameters**2 * 8 * COPIES)
    except UserError:
        raise ConfigError("agent.planner.matrix", f"= full keeps {count} matrices of {parameters:,} x {parameters:,} numbers, "
                          "more than memory holds: set it to diagonal, or make the dynamics smaller.") from None


def maps_of(state: dict[str, np.ndarray], plain: bool) -> list[Alignment]:
    """Maps to true coordinates as they were saved; none where they were not known. Checkpoints once did not say that, and what
    they have for none is the identity, which else only a `plain` model has."""
    matrix, offset = state["matrix"], state["offset"]
    untouched = not plain and all(np.array_equal(m, np.eye(*m.shape)) for m in matrix) and not offset.any()
    r2 = state.get("aligned", np.full(len(matrix), UNKNOWN if untouched else 1.0))
    back = state.get("back", np.zeros((len(matrix), matrix.shape[-1], 0)))
    if (r2 == UNKNOWN).any():
        return []
    return [Alignment(m, b, float(r), c if c.size else None) for m, b, r, c in zip(matrix, offset, r2, back, strict=True)]


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
        require_matrix(config, self.online.dynamics)
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
        self.acted, self.fresh = 0, True  # calls of `act`, and whether the next one begins an episode
        # of each member from learned to true coordinates, none where they are not known; the evaluation finds them
        self.maps = [identity(config.model.latent)] * self.members if config.model.decoder == "identity" else []

    @property
    def updates(self) -> int:
        return self.training.updates

    # acting ---------------------------------------------------------------------------------------------------------------

    def observe(self, y: np.ndarray, begins: np.ndarray) -> None:
        """Corrects the belief by observations [M, Y]: one call of the encoder. `begins` [M]: the first one of an episode."""
        self.require_counts(y)
        self.seen[:], self.begins = y, np.array(begins, np.bool_)
        self.belief.correct(torch.from_numpy(self.seen).to(self.device), torch.from_numpy(self.begins).to(self.device))

    def require_counts(self, y: np.ndarray) -> None:
        if self.config.model.noise == "poisson" and np.min(y) < 0:
            raise UserError(f"agent.model.noise = poisson is for counts, and an observation has {np.min(y):.6g}, which is below "
                            "0: use gaussian.")

    def choose(self, step: int) -> np.ndarray:
        """Actions [M, A] for the last observation, by the planner; at random before there was anything to learn from."""
        policy, early = self.config.planner.policy, step < self.config.learning_starts
        if policy == "zero" and not early:
            action = self.no_action()
        elif policy == "random" or early or not (self.ready or self.updates):
            action = self.random_action(step)
        else:
            action = self.planned(f" at step {step:,}")
        self.remember(action)
        return action

    def planned(self, when: str = "") -> np.ndarray:
        """Actions [M, A] by the planner, from what is believed now."""
        believed = self.belief.mean.cpu().numpy()
        if not np.isfinite(believed).all():
            raise UserError(f"The belief is no longer finite{when}: lower agent.lr, or keep the states of the environment within "
                            "bounds.")
        return self.planning.plan(believed)

    def no_action(self) -> np.ndarray:
        return np.clip(np.zeros((self.members, len(self.low)), np.float32), self.low, self.high)

    def begin(self) -> None:
        """The observation that `act` sees next is the first one of an episode: nothing is believed before it."""
        self.fresh = True

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The next experiment after one more observation [Y] -> [A], or of every member [M, Y] -> [M, A]. The belief is corrected
        and goes on from call to call; `begin` starts an episode. Nothing is trained."""
        y = np.asarray(obs, np.float32)
        if y.shape not in (self.seen.shape, *[self.seen.shape[1:]] * (self.members == 1)):
            raise ValueError(f"An observation {y.shape} does not fit: give [{self.seen.shape[1]}]"
                             f"{f' of each of {self.members} members' if self.members > 1 else ''}.")
        if not np.isfinite(y).all():
            raise ValueError("The observation has a number that is not finite.")
        self.observe(y.reshape(self.seen.shape), np.full(self.members, self.fresh))
        policy = self.config.planner.policy
        action = (self.no_action() if policy == "zero" else self.random_action(self.acted) if policy == "random" else
                  self.planned())
        self.expect(action)
        self.fresh, self.acted = False, self.acted + 1
        return action[0] if y.ndim == 1 else action

    def random_action(self, step: int) -> np.ndarray:
        """Uniform within the bounds, by (seed, step)."""
        size = len(self.low)
        u = np.array([uniform(stream, step * size + np.arange(size)) for stream in self.streams])
        return (self.low + (self.high - self.low) * u).astype(np.float32)

    def remember(self, action: np.ndarray) -> None:
        """Puts the last observation and the action that follows it into the window."""
        self.window.append(self.seen, action, self.begins)
        self.expect(action)

    def expect(self, action: np.ndarray) -> None:
        """Counts what a step with this action tells, and predicts."""
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
        first = 0 if self.updates else config.first_updates  # as soon as there is a sequence to train on
        return first + (config.updates if step % config.every == 0 else 0)

    def train_step(self) -> None:
        """One gradient step on sequences of the window."""
        self.window.sample(self.batch["y"], self.batch["a"])
        self.require_counts(self.batch["y"])
        rows = self.staging.send(self.rows)
        parts = update(self.online, self.training, rows["y"], rows["a"], self.config.lr, self.config.clip_norm)
        likelihood, divergence = (part.mean() / self.config.length for part in parts)
        self.sums += torch.stack((likelihood - divergence, likelihood, divergence, torch.ones_like(likelihood)))
        if self.planning.novelty:
            self.planning.train(self.belief.mean.cpu().numpy())

    def refit_due(self, step: int) -> bool:
        config = self.config
        if not config.refit or config.model.dynamics == "mlp":  # which has no fixed features: it learns by gradients alone
            return False
        return step >= config.learning_starts and step % config.refit == 0

    @torch.no_grad()
    def refit(self) -> None:
        """Fits the dynamics in closed form to the states that the encoder reads from the whole window, in coordinates that are
        standard for them; where the grid is now, what was visited is counted anew."""
        rows, z, variance = self.window_states()
        for m, seed in enumerate(self.seeds):
            if self.online.decoder.layers:
                to = standard(z[m], variance[m])
                move(self.online, self.belief, m, to, variance[m])
                z[m], variance[m] = to.states(z[m]), to.variances(variance[m])
                self.maps[m:m + 1] = [to.alignment(old) for old in self.maps[m:m + 1]]
            actions, whole = self.window.action[m, rows[:-1]], ~self.window.first[m, rows[1:]]
            refit(self.online.dynamics, m, z[m], variance[m], actions, whole, seed)
        self.planning.recount(z)

    @torch.no_grad()
    def window_states(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The window's rows in the order of time [n], and means and variances of the states [M, n, D] that the encoder reads from
        them; what a gru carries ends with an episode."""
        window = self.window
        written = int(window.counters[0, 0])
        rows = np.arange(max(written - window.capacity, 0), written) % window.capacity
        y, first = (torch.from_numpy(part[:, rows]).to(self.device).unsqueeze(2) for part in (window.obs, window.first))
        mean, variance = (part[:, :, 0].cpu().double().numpy() for part in self.online.posterior(y, begins=first)[:2])
        return rows, mean, variance

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
        if true and not self.maps:
            raise UserError("The map from the model's coordinates to the environment's own is not known: there is one only where "
                            "the hidden state is known and the run was evaluated; leave true=True out for the model's own.")
        z, size = np.asarray(z, np.float64), self.maps[0].matrix.shape[0] if true else self.config.model.latent
        if z.ndim != 2 or z.shape[1] != size:
            raise ValueError(f"States {z.shape} do not fit: give [n, {size}].")
        inner = np.stack([place.to_learned(z) for place in self.maps]) if true else np.tile(z, (self.members, 1, 1))
        states = torch.from_numpy(inner).to(self.online.flat)[:, None]
        found = self.online.dynamics.drift(states.expand(-1, self.online.dynamics.models, -1, -1).contiguous()).mean(1)
        answer = found.cpu().double().numpy()
        if true:
            answer = answer @ np.stack([place.matrix for place in self.maps]).transpose(0, 2, 1)
        return answer[0] if self.members == 1 else answer

    def encode(self, observations: np.ndarray) -> np.ndarray:
        """Means of the hidden states of recordings [T, Y] or [E, T, Y], each an episode: [T, D] or [E, T, D], in the model's own
        coordinates. Of several members M stands in front."""
        y, one = self.recordings(observations, self.online.observations)
        with torch.no_grad():
            return self.answer(self.online.posterior(y.transpose(1, 2))[0].transpose(1, 2), one)

    def forecast(self, observations: np.ndarray, actions: np.ndarray | None, steps: int) -> np.ndarray:
        """Means of the observations 1 … steps after each moment, [S, steps, Y] or [E, S, steps, Y]: [t, k − 1] foretells
        observation t + k from those until t. Actions [T', A] or [E, T', A]: a_t follows y_t, and may go on beyond the last
        observation. S are the moments that have `steps` actions. Of several members M stands in front. A model of recordings
        without actions takes None for them."""
        if actions is None:
            actions = np.zeros((*np.shape(observations)[:-1], 0))
        y, one = self.recordings(observations, self.online.observations)
        a, same = self.recordings(actions, self.online.actions)
        if one != same or y.shape[1] != a.shape[1]:
            raise ValueError(f"Observations {np.shape(observations)} and actions {np.shape(actions)} are of other episodes.")
        if not 1 <= steps <= a.shape[2]:
            raise ValueError(f"{steps} steps ahead need as many actions, and there are {a.shape[2]}.")
        with torch.no_grad():
            return self.answer(forecasts(self.online, y, a, steps), one)

    def recordings(self, rows: np.ndarray, size: int) -> tuple[torch.Tensor, bool]:
        """[T, size] or [E, T, size] as [M, E, T, size], and whether it is one episode."""
        given = np.asarray(rows, np.float32)
        if given.ndim not in (2, 3) or given.shape[-1] != size or 0 in given.shape[:-1]:
            raise ValueError(f"Rows {given.shape} do not fit: give [T, {size}] or [E, T, {size}].")
        whole = torch.from_numpy(given if given.ndim == 3 else given[None]).to(self.online.flat)
        return whole.expand(self.members, *whole.shape), given.ndim == 2

    def answer(self, found: torch.Tensor, one: bool) -> np.ndarray:
        array = found.cpu().double().numpy()
        array = array[:, 0] if one else array
        return array[0] if self.members == 1 else array

    # state ----------------------------------------------------------------------------------------------------------------

    def policy_state(self) -> dict[str, Any]:
        """What questions need."""
        size = self.config.model.latent
        maps = self.maps or [Alignment(np.eye(size), np.zeros(size), UNKNOWN)] * self.members
        parts = zip(*((m.matrix, m.offset, np.zeros((size, 0)) if m.back is None else m.back, m.r2) for m in maps), strict=True)
        return {"online": self.online.flat} | dict(zip(MAP, map(np.stack, parts), strict=True))

    def state(self) -> dict[str, Any]:
        """Everything that decides what comes next."""
        parts = {"training": self.training, "belief": self.belief, "planning": self.planning, "window": self.window}
        nested = {f"{part}.{name}": value for part, owner in parts.items() for name, value in owner.state().items()}
        return self.policy_state() | nested | {"seen": self.seen, "begins": self.begins, "sums": self.sums}

    def load_state(self, state: dict[str, Any]) -> None:
        """All of `state`, or only what `policy_state` gives."""
        with torch.no_grad():
            self.online.flat.copy_(torch.as_tensor(state["online"]))
        plain = self.config.model.decoder == "identity"
        self.maps = maps_of({name: array_of(state[name]) for name in MAP if name in state}, plain)
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
