"""What the agents of all algorithms share: parameters and Adam's moments in flat buffers, the count
of updates, and what of it is published, saved and loaded."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch

from tenfold.core.errors import CheckpointError, ConfigError, OtherWords, UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.masks import FROM_OBSERVATION, MASK, MaskError, MaskForm
from tenfold.core.random import Purpose, key
from tenfold.ops.exploration_noise import ActionNoise
from tenfold.ops.moments import RunningNorm

Tensors = dict[str, torch.Tensor]
Fill = Callable[[Any, int, np.ndarray], np.ndarray]  # stream, address of the first, numbers

ACT = (
    "agent.act(obs) gives the greedy action itself, for one observation or a batch of them, with "
    "mask=mask where the environment offers masks"
)
TRAIN = "a run learns, ten.train(settings, out=FOLDER) or ten.resume(FOLDER), and an agent acts"
SAVED = "a run's folder holds it, and ten.export or ten.pack make one file of that"
OTHERS = {
    **dict.fromkeys(("predict", "get_action", "compute_single_action", "compute_actions"), ACT),
    **dict.fromkeys(("learn", "fit", "train"), TRAIN),
    **dict.fromkeys(("save", "save_model", "save_to_path", "get_parameters"), SAVED),
}


class FlatAgent:
    """A subclass makes the network `online`, says how it acts and what its loss is."""

    other_words = OTHERS
    if not TYPE_CHECKING:  # a checker would find every name
        __getattr__ = OtherWords.__getattr__
    reads_masks, member, members = False, 0, 1
    masked = False  # whether the environment that it learns in offers masks
    sampled_rows = 0  # that `act` has drawn actions for, which address its draws
    actor_bits: ClassVar[int] = 0  # before an actor's number in the address of its draws
    norm: RunningNorm | None = None  # running statistics of observations, where they are normalised
    obs_moments: torch.Tensor  # theirs, the very numbers
    layout: ObsLayout
    config: Any
    actions: Any
    online: Any
    exp_avg: torch.Tensor  # Adam's moments, saved as `mean` and `square`
    exp_avg_sq: torch.Tensor
    count: np.ndarray  # gradient updates, and what else an algorithm counts
    seed: int
    keys: dict[Purpose, Any]

    @property
    def frames(self) -> int:
        """Observations that the network sees together."""
        return self.layout.frames

    @cached_property
    def mask_form(self) -> MaskForm:
        """How masks of its actions are given."""
        return MaskForm(self.actions)

    @property
    def updates(self) -> int:
        return int(self.count[0])

    @updates.setter
    def updates(self, count: int) -> None:
        self.count[: self.members] = count  # all agents of a world learn at once

    def set_lr(self, lr: Any) -> None:
        self.config = replace(self.config, lr=lr)

    def exploring(self, step: int) -> dict[str, float]:
        """What sets the exploration at this step, for the metrics."""
        return {}

    def for_actor(self, actor: int) -> Self:
        """The same networks, exploring by the draws of one of several actors."""
        agent, address = copy.copy(self), self.member + (actor << self.actor_bits)
        drawn = (Purpose.COIN, Purpose.ACTION, Purpose.NOISE_ACT, Purpose.ACTION_NOISE)
        agent.keys = self.keys | {purpose: key(self.seed, purpose, address) for purpose in drawn}
        return agent

    def make_noise(self, envs: Any) -> ActionNoise | None:
        """What is added to actions while it explores these environments; None: nothing."""
        return None

    def stepped(self, rounds: int, worlds: int) -> None:
        """After step number `rounds` of all environments, before the updates of that round."""

    # acting

    @property
    def input_layout(self) -> ObsLayout:
        """How what the network sees lies in arrays."""
        return self.layout

    def act_by(
        self, choose: Callable[[np.ndarray, np.ndarray | None], np.ndarray], obs: Any, mask: Any
    ) -> Any:
        """What `choose` gives for encoded rows and their masks, for one observation or a batch of
        them: NumPy in, NumPy out; torch in, torch out."""
        if isinstance(obs, torch.Tensor):
            actions = self.act_by(choose, numpy_of(obs), numpy_of(mask))
            return torch.as_tensor(actions).to(obs.device)
        rows, single = self.input_layout.rows_of(obs)
        batch = () if single else (len(rows),)
        allowed = mask_rows(self.mask_form, self.layout, obs, mask, batch, self.masked)
        refuse_empty(self.mask_form, allowed)
        actions = choose(rows, allowed)
        if not single:
            return actions
        return actions[0] if self.actions.reals else int(actions[0])

    # learning

    def update_draws(self, items: int) -> dict[str, tuple[Purpose, Fill, tuple[int, ...]]]:
        """What an update draws besides its batch of `items`, by name: for which purpose, how, and
        in which shape."""
        return {}

    def draw_for(self, items: int) -> Tensors:
        """The draws of the next update."""
        drawn = {}
        for name, (purpose, fill, shape) in self.update_draws(items).items():
            numbers = np.empty(shape, np.float32)
            fill(self.keys[purpose], self.updates * numbers.size, numbers.reshape(-1))
            drawn[name] = torch.from_numpy(numbers)
        return drawn

    # running statistics of observations

    def normalise(self, layout: ObsLayout, encoder: str = "mlp") -> None:
        """Observations are normalised from now on, by statistics that learners keep up to date."""
        if encoder != "mlp":
            raise ConfigError(
                "normalize_obs",
                "= true is for vector observations; images are scaled already, and graphs have no "
                "fixed size: leave it out.",
            )
        self.norm = RunningNorm(layout.size)
        self.obs_moments = torch.from_numpy(self.norm.moments)

    def normalised_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [..., *shape] by the statistics as they are now, for networks that are given rows as
        environments show them: of a replay memory, too, since old rows are normalised by what is
        known today."""
        if self.norm is None:
            return rows
        mean, _, inverse = self.obs_moments.to(rows.device)
        away = (rows.reshape(-1, self.norm.size).double() - mean) * inverse
        return away.clamp(-self.norm.clip, self.norm.clip).float().reshape(rows.shape)

    # what is published, saved and loaded

    @property
    def acted_by(self) -> torch.Tensor:
        """The parameters that acting needs: all of them."""
        return self.online.flat

    def published(self) -> np.ndarray:
        """What actors elsewhere act by, as one float32 vector: on the CPU the parameters
        themselves, or a copy of them with the observations' statistics behind, bit for bit."""
        flat = self.acted_by.detach().cpu().numpy()
        if self.norm is None:
            return flat
        return np.concatenate([flat, self.norm.moments.ravel().view(np.float32)])

    def adopt(self, published: np.ndarray) -> None:
        """Acts by what another process published, which was read into this agent's own
        `published()`."""
        if self.norm:
            parameters, moments = self.acted_by.numpy(), self.norm.moments
            parameters[:] = published[: len(parameters)]
            moments[...] = published[len(parameters) :].view(np.float64).reshape(moments.shape)

    def policy_state(self) -> Tensors:
        """What acting needs."""
        norm = self.norm.state() if self.norm else {}
        kept = {f"norm_{name}": torch.from_numpy(value) for name, value in norm.items()}
        return {"online": self.online.flat} | kept

    def state(self) -> Tensors:
        """Everything."""
        moments = {
            "mean": self.exp_avg,
            "square": self.exp_avg_sq,
            "updates": torch.tensor(self.updates),
        }
        return self.policy_state() | moments

    def load_policy(self, state: Tensors) -> None:
        """What acting needs, of a checkpoint that may hold more."""
        names = {name for name in self.policy_state() if name.startswith("norm_")}
        if {name for name in state if name.startswith("norm_")} != names:
            raise CheckpointError(
                "and its settings disagree about normalize_obs: config.yaml was changed after "
                "training."
            )
        self.load(self.policy_state(), state)

    def begin_with(self, state: Tensors) -> None:
        """Begins with the weights of an agent whose networks are alike, and with its statistics of
        observations; all else stays a new agent's."""
        self.load_policy(state)

    def load_state(self, state: Tensors) -> None:
        self.load(self.state(), state)
        self.updates = int(state["updates"])

    def load(self, tensors: Tensors, state: Tensors) -> None:
        """The tensors of a state into one's own."""
        for name, value in tensors.items():
            shape = tuple(state[name].shape) if name in state else None
            if shape != tuple(value.shape):
                raise UserError(
                    f"The saved {name} has shape {shape}, and this agent's {tuple(value.shape)}."
                )
            value.copy_(state[name])
        if self.norm:
            names = ("count", "mean", "m2")
            self.norm.load_state({name: state[f"norm_{name}"].numpy() for name in names})


def numpy_of(value: Any) -> Any:
    """Tensors as arrays, in dicts and tuples too; all else as it is."""
    if isinstance(value, dict):
        return {key: numpy_of(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([numpy_of(part) for part in value])
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def mask_rows(
    form: MaskForm,
    layout: ObsLayout,
    obs: Any,
    mask: Any,
    batch: tuple[int, ...],
    required: bool = False,
) -> np.ndarray | None:
    """The mask [B, options] that was given, or else that of a Dict observation. `batch` is (B,), or
    () for one observation alone. Without one everything is allowed: where masks are `required`
    only if the person says so, by None."""
    forgotten, mask = mask is FROM_OBSERVATION, None if mask is FROM_OBSERVATION else mask
    if mask is None and MASK not in layout.keys:
        mask = mask_inside(obs)
    if mask is None:
        if required and forgotten:
            raise UserError(
                "This agent learned with action masks, and act was given none: call act(obs, "
                "mask=mask) with what the environment offers, or with mask=None where every option "
                "is to be allowed."
            )
        return None
    try:
        return form.read_rows(mask, batch[0]) if batch else form.read(mask)[None]
    except MaskError as error:
        sentence = str(error)
        raise UserError(sentence[0].upper() + sentence[1:]) from None


def mask_inside(obs: Any) -> Any:
    """The mask of a Dict observation, or of a batch of them; None where there is none."""
    if isinstance(obs, dict):
        return obs.get(MASK)
    if not isinstance(obs, list):
        return None
    having = [isinstance(one, dict) and MASK in one for one in obs]
    if not any(having):
        return None
    if not all(having):
        raise UserError(
            f"Observation {having.index(False)} of the batch has no key {MASK}, and others have "
            "it: give every observation its mask, or all of them by mask=…."
        )
    return [one[MASK] for one in obs]


def refuse_empty(form: MaskForm, mask: np.ndarray | None) -> None:
    """Masks [B, options] that leave no option of a choice."""
    if mask is not None and (empty := form.empty(mask)):
        row, choice = empty
        raise UserError(f"The action mask allows no {form.option_of(choice)} in row {row}.")


def refuse_state(state: Any) -> None:
    """For agents that remember nothing, which take the state None as those that do."""
    if state is not None:
        raise UserError("This agent remembers nothing: call act without a state.")
