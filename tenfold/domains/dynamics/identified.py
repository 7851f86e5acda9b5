"""Queries of a model of hidden dynamics: field, input matrix, loadings, fixed points, encoding and
forecasts, in the user's units. The agent that learns it is in `agent`."""

from typing import Any

import numpy as np
import torch

from tenfold.core.errors import CheckpointError, OtherWords, UserError
from tenfold.domains.dynamics.belief import forecasts
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.coordinates import STEP, Alignment, Units, identity
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.learned import fixed_points, input_matrix, loadings
from tenfold.domains.dynamics.missing import Factors, all_missing, embed_channels
from tenfold.envs.arguments import as_whole, shorten

# to true coordinates as it is saved; what aligned is without one
MAP, UNKNOWN = ("matrix", "offset", "back", "aligned"), -1.0


def array_of(value: Any) -> np.ndarray:
    """A copy of an array, or of a tensor as one."""
    return (
        value.detach().cpu().numpy().copy() if isinstance(value, torch.Tensor) else np.array(value)
    )


def maps_of(state: dict[str, np.ndarray]) -> list[Alignment]:
    """Maps to true coordinates as they were saved; none where they were not known."""
    if (state["aligned"] == UNKNOWN).any():
        return []
    columns = zip(*(state[name] for name in MAP), strict=True)
    return [Alignment(m, b, float(r), c if c.size else None) for m, b, c, r in columns]


def part_of(state: dict[str, Any], name: str) -> dict[str, Any]:
    """Those of `state` that begin with the name and a dot, without it, as arrays."""
    start = f"{name}."
    return {k.removeprefix(start): array_of(v) for k, v in state.items() if k.startswith(start)}


class IdentifiedSystem(OtherWords):
    """The model of M members: arguments and results are in the units outside, [M, …], without M in
    front where there is one member."""

    other_words = {
        "predict": "act(obs) gives the next action, forecast(observations, actions, steps) what "
        "will be seen"
    }

    def __init__(
        self,
        config: Explorer,
        observations: int,
        actions: int,
        dt: float,
        seeds: tuple[int, ...],
        device: str,
        sessions: tuple[int, ...] = (),
    ) -> None:
        self.sessions = sessions  # channels of each, where there are several
        self.config, self.seeds, self.members, self.dt = config, tuple(seeds), len(seeds), dt
        self.units = Units(self.members, observations, config.model, dt)
        self.online = LatentNetwork(
            observations, actions, config.model, STEP, self.members, sessions
        ).initialise(seeds)
        self.online.to(device)
        self.device = self.online.flat.device
        # of each member from learned to true coordinates, none where they are not known; the
        # evaluation finds them
        self.maps = self.output_maps if config.model.decoder == "identity" else []

    # units

    @property
    def output_maps(self) -> list[Alignment]:
        """For each member the map from coordinates inside to those of arguments and results: the
        model's own, or where the hidden state is what is observed (decoder identity) those of
        observations."""
        if self.config.model.decoder != "identity":
            return [identity(self.config.model.latent)] * self.members
        return [
            Alignment(np.diag(scale), mean, 1.0)
            for mean, scale, _ in zip(*self.units.channels, strict=True)
        ]

    def inner(self, y: np.ndarray) -> torch.Tensor:
        """Observations [M, …, Y] for the network."""
        return torch.from_numpy(self.units.observations_in(y)).to(self.online.flat)

    def inner_actions(self, a: np.ndarray) -> torch.Tensor:
        """Actions [..., A] for the network."""
        return torch.from_numpy(self.units.actions_in(a)).to(self.online.flat)

    # questions

    @torch.no_grad()
    def field(self, z: np.ndarray, true: bool = False, instantaneous: bool = False) -> np.ndarray:
        """The learned dz/dt without action at states [n, D]: [n, D], or [M, n, D] of several
        members, for the unit of time that `dt` is in. `true`: the states are in the environment's
        own coordinates, and so is the answer. It is the mean along a step, what a step adds divided
        by dt; `instantaneous`: the field of continuous time whose flow makes these steps."""
        z, maps = np.asarray(z, np.float64), self.maps_to(true)
        size = maps[0].matrix.shape[0]
        if z.ndim != 2 or z.shape[1] != size:
            raise ValueError(f"States {z.shape} do not fit: give [n, {size}].")
        dynamics = self.online.dynamics
        inside = torch.from_numpy(np.stack([to.to_learned(z) for to in maps])).to(self.online.flat)[
            :, None
        ]
        nothing = self.inner_actions(np.zeros(self.online.actions)).expand(
            self.members, dynamics.models, 1, -1
        )
        start = inside.expand(-1, dynamics.models, -1, -1).contiguous()
        velocity = dynamics.drift(start) + dynamics.push(nothing)
        if instantaneous:
            velocity = dynamics.continuous_field(start, nothing)
        turned = velocity.mean(1).cpu().double().numpy() @ np.stack([to.matrix.T for to in maps])
        answer = turned * self.units.pace
        return answer[0] if self.members == 1 else answer

    # what was learned, with its uncertainty: one answer, or of several members a list of them

    def input_matrix(self, true: bool = False) -> Any:
        """What a unit of each action adds to dz/dt, [D, A], as `Estimate`: mean, deviation between
        the models of the ensemble, and each model's own."""
        scales = self.units.reach, self.units.pace
        return self.per_member(
            [input_matrix(self.online, m, to, *scales) for m, to in enumerate(self.maps_to(true))]
        )

    def loadings(self, observations: np.ndarray | None = None) -> Any:
        """How each channel follows each number of the state, [Y, D], as `Estimate`, in units of the
        channel; below the link where the decoder is loglinear or the noise that of counts. The
        deviation is by rows [T, Y] of observations, and not known without them."""
        rows = (
            None
            if observations is None
            else self.inner(self.recordings(observations, self.online.observations)[0]).flatten(
                1, 2
            )
        )
        return self.per_member(
            [
                loadings(
                    self.online,
                    m,
                    seed,
                    self.units.channels.scale[m],
                    np.linalg.inv(self.output_maps[m].matrix),
                    None if rows is None else rows[m],
                )
                for m, seed in enumerate(self.seeds)
            ]
        )

    def fixed_points(self, true: bool = False) -> Any:
        """Where the learned field is 0 without action, a list of `FixedPoint`: the point, the
        derivative there and its eigenvalues, of steps and in continuous time, each an
        `Estimate`."""
        rest = self.units.actions_in(np.zeros(self.online.actions))
        return self.per_member(
            [
                fixed_points(self.online, m, to, rest, self.units.pace)
                for m, to in enumerate(self.maps_to(true))
            ]
        )

    def per_member(self, answers: list[Any]) -> Any:
        return answers[0] if self.members == 1 else answers

    def maps_to(self, true: bool) -> list[Alignment]:
        """For each member the map to the coordinates of results: the model's, or the environment's
        own."""
        if true and not self.maps:
            raise UserError(
                "The map from the model's coordinates to the environment's own is not known: "
                "there is one only where the hidden state is known and the run was evaluated; "
                "leave true=True out for the model's own."
            )
        return self.maps if true else self.output_maps

    @torch.no_grad()
    def features(self, z: np.ndarray) -> np.ndarray:
        """Of the first member's dynamics of kind linear or rbf at states [n, D] inside: [n, P]."""
        dynamics = self.online.dynamics
        states = torch.from_numpy(z).to(self.online.flat)
        return dynamics.features(states.expand(1, 1, *z.shape))[0, 0].cpu().double().numpy()

    def encode(self, observations: np.ndarray) -> np.ndarray:
        """Means of the hidden states of recordings [T, Y] or [E, T, Y], each an episode: [T, D] or
        [E, T, D], in the model's own coordinates (of observations where the decoder is identity);
        NaN of a row in which nothing was observed. Of several members M stands in front."""
        y, one = self.recordings(observations, self.online.observations)
        with torch.no_grad():
            states = (
                self.online.posterior(self.inner(y).transpose(1, 2))[0]
                .transpose(1, 2)
                .cpu()
                .double()
                .numpy()
            )
        if self.config.model.missing:
            states[all_missing(y)] = np.nan
        return self.answer(
            np.stack([to.to_true(z) for to, z in zip(self.output_maps, states, strict=True)]), one
        )

    def forecast(
        self, observations: np.ndarray, actions: np.ndarray | None, steps: int
    ) -> np.ndarray:
        """Means of the observations 1 … steps after each moment, [S, steps, Y] or [E, S, steps, Y]:
        [t, k − 1] predicts observation t + k from those until t. Actions [T', A] or [E, T', A]: a_t
        follows y_t, and may go on beyond the last observation. S are the moments that have `steps`
        actions. Of several members M stands in front. A model of recordings without actions takes
        None for them: all predicted moments are then among the observations, S = T − steps."""
        y, one = self.recordings(observations, self.online.observations)
        ahead = as_whole(steps)
        if ahead is None:
            raise ValueError(f"{shorten(steps)} steps ahead are no whole number: give 1 or more.")
        steps = ahead
        if actions is None:
            if not 1 <= steps < y.shape[2]:
                raise ValueError(
                    f"{steps} steps ahead do not lie within {y.shape[2]} observations: give fewer "
                    "(1 at least), or for what comes after them actions np.zeros((T, 0))."
                )
            actions = np.zeros((*np.shape(observations)[:-2], y.shape[2] - 1, 0))
        a, same = self.recordings(actions, self.online.actions)
        if np.isnan(a).any():
            raise ValueError("Actions have NaN, and what was done must be known: give all of them.")
        if one != same or y.shape[1] != a.shape[1]:
            raise ValueError(
                f"Observations {np.shape(observations)} and actions {np.shape(actions)} are of "
                "other episodes."
            )
        if steps < 1:
            raise ValueError(f"{steps} steps ahead are none: give 1 or more.")
        if steps > a.shape[2]:
            raise ValueError(
                f"{steps} steps ahead need as many actions, and there are {a.shape[2]}."
            )
        with torch.no_grad():
            predicted = forecasts(self.online, self.inner(y), self.inner_actions(a), steps)
        return self.answer(self.units.observations_out(predicted.cpu().double().numpy()), one)

    def rates(self, observations: np.ndarray) -> np.ndarray:
        """Means of observations [T, Y] or [E, T, Y] given the states that are read from them: of
        counts the expected counts in a bin, smoothed, and of held-out neurons too. Of several
        members M stands in front."""
        y, one = self.recordings(observations, self.online.observations)
        with torch.no_grad():
            z = self.online.posterior(self.inner(y).transpose(1, 2))[0].transpose(1, 2)
            rates = self.online.decode(z.flatten(1, 2)).view(*y.shape)
        return self.answer(self.units.observations_out(rates.cpu().double().numpy()), one)

    def of_session(self, observations: np.ndarray, session: int) -> np.ndarray:
        """Observations [..., Y] of one session among the channels of all, as `encode`, `rates` and
        `forecast` of a model of several sessions take them; what they answer has its channels at
        the same places."""
        if not 0 <= session < len(self.sessions):
            raise ValueError(
                f"There is no session {session}: the model has {len(self.sessions) or 'only one'}"
                f"{', counted from 0' if self.sessions else ''}."
            )
        y = np.asarray(observations, np.float64)
        if y.shape[-1:] != (self.sessions[session],):
            raise ValueError(
                f"Observations {y.shape} are not of session {session}, which has "
                f"{self.sessions[session]} channels."
            )
        return embed_channels(y, sum(self.sessions[:session]), sum(self.sessions))

    def recordings(self, rows: np.ndarray, size: int) -> tuple[np.ndarray, bool]:
        """[T, size] or [E, T, size] as [M, E, T, size], and whether it is one episode."""
        array = np.asarray(rows, np.float64)
        if array.ndim not in (2, 3) or array.shape[-1] != size or 0 in array.shape[:-1]:
            raise ValueError(f"Rows {array.shape} do not fit: give [T, {size}] or [E, T, {size}].")
        if not self.config.model.missing and np.isnan(array).any():
            raise ValueError(
                "Rows with NaN, values that were not observed, are for models made for them: train "
                "with agent.model.missing=true."
            )
        whole = array if array.ndim == 3 else array[None]
        return np.broadcast_to(whole, (self.members, *whole.shape)), array.ndim == 2

    def answer(self, values: np.ndarray, one: bool) -> np.ndarray:
        values = values[:, 0] if one else values
        return values[0] if self.members == 1 else values

    # state

    def policy_state(self) -> dict[str, Any]:
        """What questions need."""
        size = self.config.model.latent
        maps = self.maps or [Alignment(np.eye(size), np.zeros(size), UNKNOWN)] * self.members
        columns = zip(
            *(
                (m.matrix, m.offset, np.zeros((size, 0)) if m.back is None else m.back, m.r2)
                for m in maps
            ),
            strict=True,
        )
        units = {f"units.{name}": value for name, value in self.units.state().items()}
        if self.config.model.missing:
            units |= {f"factors.{k}": v for k, v in self.online.fill.factors._asdict().items()}
        if self.sessions:
            units |= {f"together.{k}": v for k, v in self.online.session_map.state().items()}
        return (
            {"online": self.online.flat, "share": self.online.dynamics.share}
            | units
            | dict(zip(MAP, map(np.stack, columns), strict=True))
        )

    def load_model(self, state: dict[str, Any]) -> None:
        """What `policy_state` gives, of a checkpoint that may hold more."""
        units = part_of(state, "units")
        if not units:
            raise CheckpointError(
                "The checkpoint does not say the units of what was observed: it is of an earlier "
                "version of tenfold, and its model cannot be read in this one. Train it anew."
            )
        with torch.no_grad():
            self.online.flat.copy_(torch.as_tensor(state["online"]))
            # earlier versions believed every reading
            share = state.get("share", np.zeros(self.online.dynamics.share.shape, np.float32))
            self.online.dynamics.share.copy_(torch.as_tensor(share))
        self.units.load_state(units)
        if self.config.model.missing:
            self.online.fill.learn(Factors(**part_of(state, "factors")))
        if self.sessions:
            self.online.session_map.load_state(part_of(state, "together"))
        self.maps = maps_of({name: array_of(state[name]) for name in MAP})
