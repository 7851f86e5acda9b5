"""Masks of an action's options: one array of all of them side by side, or the natural form, nested
as the action space is.

    {"arm": (np.array([1, 0, 1], np.int8), None), "gripper": np.array([1, 1], np.int8)}

That is what `action_space.sample(mask=…)` of Gymnasium takes: a dict for Dict, a tuple for Tuple
and for MultiDiscrete, None for a part without restriction. Whoever is given a mask reads it by a
`MaskForm`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.core.protocols import EnvSpec
from tenfold.core.spaces import DiscreteActions, PolicyActions

MASK = "action_mask"  # the key of an info, or of a Dict observation
SHOWN = 8  # sizes, where a sentence lists them
EITHER = 2  # in Gymnasium's masks of MultiBinary: 0 and 1 are what a number must be


class FromObservation:
    """Stands for a mask that nobody gave to `act`: the one inside the observation counts, and an
    agent that learned with masks must have one. None, in its place, is said on purpose."""

    def __repr__(self) -> str:
        return "the observation's own"


FROM_OBSERVATION = FromObservation()


class MaskError(UserError):
    """A mask that does not fit: "the action mask …", behind the words for where that was."""


class MaskPart:
    """A part of an action that masks are given for: its path, how many options it has, and what
    its masks may look like."""

    def __init__(self, actions: PolicyActions, path: str = "") -> None:
        self.space, self.path, self.options = actions.space, path, actions.options
        self.sizes, self.sized = actions.sizes, tuple(actions.space.shape or ())
        self.keys: tuple[Any, ...] = ()
        self.children: tuple[MaskPart, ...] = ()
        if actions.children:
            space = actions.space
            named = isinstance(space, spaces.Dict)
            self.keys = tuple(space.keys()) if named else tuple(range(len(actions.children)))
            self.children = tuple(
                MaskPart(part, f"{path}.{key}" if path else str(key))
                for key, part in zip(self.keys, actions.children, strict=True)
            )
        elif isinstance(actions.space, spaces.MultiDiscrete):  # a part for each choice
            self.children = tuple(
                MaskPart(PolicyActions(spaces.Discrete(n), (n,), (0,)), name)
                for n, name in zip(self.sizes, self.names(), strict=True)
            )
        self.shapes: set[tuple[int, ...]] = {(self.options,)}
        if not actions.children and len(set(self.sizes)) == 1:
            self.shapes.add((*self.sized, self.sizes[0]))
        self.binary = isinstance(actions.space, spaces.MultiBinary)
        self.fits = {without_ones(shape) for shape in self.shapes}  # one mask alone

    @property
    def expected(self) -> str:
        """In words."""
        if not self.options:
            return "None, since its actions are real numbers"
        shapes = sorted(self.shapes, key=len)
        array = f"an array of shape {' or '.join(map(str, shapes))}"
        if isinstance(self.space, spaces.Dict):
            keys = ", ".join(map(str, self.keys))
            return f"a dict of masks with the keys {keys}, or {array}"
        if isinstance(self.space, spaces.Tuple):
            return f"a tuple of {len(self.children)} masks, or {array}"
        if isinstance(self.space, spaces.MultiDiscrete):
            options = ", ".join(
                [*map(str, self.sizes[:SHOWN]), *["…"] * (self.sizes[SHOWN:] != ())]
            )
            return f"a tuple of {len(self.sizes)} masks, of {options} options, or {array}"
        if self.binary:
            return f"{array}, or {self.sized} of the whole numbers 0, 1 and 2 (either)"
        return array

    def names(self) -> Iterator[str]:
        """The path of each choice, in order."""
        if self.keys:
            for part in self.children:
                yield from part.names()
        elif isinstance(self.space, spaces.Discrete):
            yield self.path
        else:
            for index in np.ndindex(*self.sized) if self.sizes else ():
                label = ", ".join(map(str, index))
                yield f"{self.path}[{label}]" if self.path else label

    def fill(self, mask: Any, out: np.ndarray) -> None:
        """Writes a mask that was given into `out` [*lead, options]; every array in it has the same
        leading dimensions."""
        if mask is None:
            out[...] = True
        elif type(mask) is np.ndarray and mask.shape == out.shape:  # as most are
            self.fill_options(mask, out)
        elif isinstance(mask, Mapping):
            self.fill_named(mask, out)
        elif out.ndim > 1 and getattr(mask, "dtype", None) == np.object_:
            self.fill_rows(mask, out)
        elif self.children and nested(mask):
            self.fill_each(mask, out)
        else:
            self.fill_array(mask, out)

    def fill_rows(self, mask: np.ndarray, out: np.ndarray) -> None:
        """A mask of each row, as Gymnasium's vector environments collect what is no array."""
        if mask.shape != out.shape[:1]:
            raise self.refused(f"is an array of {mask.shape} masks", out.shape[:1])
        for row_mask, row in zip(mask, out, strict=True):
            self.fill(row_mask, row)

    def fill_named(self, mask: Mapping[Any, Any], out: np.ndarray) -> None:
        if not isinstance(self.space, spaces.Dict):
            raise self.refused(f"is a dict with the keys {', '.join(map(str, mask))}")
        keys = set(mask)
        if out.ndim > 1:  # Gymnasium's vector environments note beside a key who gave it
            keys -= {f"_{key}" for key in self.keys}
        unknown = sorted(map(str, keys - set(self.keys)))
        if unknown:
            raise self.refused(f"has a key {unknown[0]}")
        at = 0
        for key, part in zip(self.keys, self.children, strict=True):
            if key not in mask and part.options:
                raise self.refused(f"has no key {key} (None: without restriction)")
            part.fill(mask.get(key), out[..., at : at + part.options])
            at += part.options

    def fill_each(self, mask: Any, out: np.ndarray) -> None:
        masks = list(mask)
        for _ in self.sized[1:]:  # choices of a MultiDiscrete may be nested
            masks = [one for inner in masks for one in (inner if nested(inner) else [inner])]
        if isinstance(self.space, spaces.Dict) or len(masks) != len(self.children):
            raise self.refused(f"is a {type(mask).__name__} of {len(mask)}")
        at = 0
        for part, part_mask in zip(self.children, masks, strict=True):
            part.fill(part_mask, out[..., at : at + part.options])
            at += part.options

    def fill_array(self, mask: Any, out: np.ndarray) -> None:
        try:
            array = np.asarray(mask)
        except ValueError:  # lists of different lengths
            array = np.empty(0, np.object_)
        if array.dtype.kind not in "biuf":
            raise self.refused(f"is of type {type(mask).__name__}, with {mask!r:.40}")
        lead, shape = out.shape[:-1], array.shape
        part_shape = shape[len(lead) :] if shape[: len(lead)] == lead else None
        part_shape = part_shape if lead else without_ones(shape)
        if self.options and part_shape in (self.shapes if lead else self.fits):
            self.fill_options(array.reshape(out.shape), out)
        elif (
            self.binary
            and part_shape == (self.sized if lead else without_ones(self.sized))
            and array.dtype.kind in "iu"
        ):
            self.fill_binary(array.reshape(*lead, -1), out)
        else:
            kind = "booleans of shape" if self.binary and array.dtype.kind == "b" else "shape"
            raise self.refused(f"has {kind} {shape}", lead)

    def fill_options(self, array: np.ndarray, out: np.ndarray) -> None:
        """Numbers of all options, side by side."""
        out[...] = array
        if array.dtype != np.bool_ and (wrong := array != out).any():
            position = int(np.argwhere(wrong)[0][-1])
            raise self.refused(f"holds {array[wrong][0]} at place {position}, and not 0 or 1")

    def fill_binary(self, array: np.ndarray, out: np.ndarray) -> None:
        """What Gymnasium says of a MultiBinary: 0 and 1 must be, 2 may be either."""
        if (wrong := (array < 0) | (array > EITHER)).any():
            raise self.refused(f"holds {array[wrong][0]}, and not 0, 1 or 2 (either)")
        out[...] = np.stack([array != 1, array != 0], -1).reshape(out.shape)

    def refused(self, what: str, lead: tuple[int, ...] = ()) -> MaskError:
        """One sentence: which part, what was given, what was expected."""
        of = f" of {self.path}" if self.path else ""
        batch = f", behind the batch's {lead}" if lead else ""
        return MaskError(f"the action mask{of} {what}; expected is {self.expected}{batch}.")


def nested(mask: Any) -> bool:
    """Whether these are several masks and not the numbers of one."""
    if isinstance(mask, np.ndarray):
        return mask.dtype == np.object_
    if not isinstance(mask, list | tuple):
        return False
    several = list | tuple | Mapping | None
    return any(isinstance(one, several) or getattr(one, "ndim", 0) for one in mask)


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without the ones before its first other dimension."""
    first = next((k for k, n in enumerate(shape[:-1]) if n != 1), max(len(shape) - 1, 0))
    return shape[first:]


class MaskForm:
    """How masks of some actions are read."""

    def __init__(self, actions: Any) -> None:
        if isinstance(actions, DiscreteActions):
            actions = PolicyActions(spaces.Discrete(actions.n), (actions.n,), (actions.start,))
        elif not isinstance(actions, PolicyActions):  # real numbers
            actions = PolicyActions(actions.space)
        self.whole = MaskPart(actions)
        self.options, self.sizes = actions.options, actions.sizes
        self.offsets = np.cumsum([0, *self.sizes[:-1]]) if self.sizes else np.zeros(0, np.int64)

    def read(self, mask: Any) -> np.ndarray:
        """The mask of one observation as booleans [options]; MaskError where it does not fit."""
        if type(mask) is np.ndarray and mask.shape == (self.options,):
            allowed = mask.astype(np.bool_)  # as nearly all are: the rest takes ten times as long
            if mask.dtype == np.bool_ or (mask == allowed).all():
                return allowed
        allowed = np.empty(self.options, np.bool_)
        self.whole.fill(mask, allowed)
        return allowed

    def read_rows(self, mask: Any, rows: int) -> np.ndarray:
        """Those of several observations, [rows, options]: a list of masks, or one whose arrays have
        the batch in front."""
        if isinstance(mask, list):
            if len(mask) != rows:
                raise MaskError(f"the action mask is a list of {len(mask)}; expected are {rows}.")
            return np.stack([self.read(one) for one in mask])
        allowed = np.empty((rows, self.options), np.bool_)
        self.whole.fill(mask, allowed)
        return allowed

    def option_of(self, choice: int) -> str:
        """What an option of a choice is called in a sentence."""
        name = list(self.whole.names())[choice]
        return f"option of the action's component {name}" if name else "action"

    def empty(self, mask: np.ndarray) -> tuple[int, int] | None:
        """(row, choice) of the first choice that a mask [B, options] leaves no option of; None
        where there is none."""
        if not self.sizes or mask.all():
            return None
        has_option = np.logical_or.reduceat(mask, self.offsets, axis=1)
        if has_option.all():
            return None
        row, choice = np.argwhere(~has_option)[0].tolist()
        return row, choice


def offers_mask(offered: Any) -> bool:
    """Whether an observation space, an observation or an info has a mask."""
    return MASK in (
        offered.spaces
        if isinstance(offered, gym.spaces.Dict)
        else offered
        if isinstance(offered, dict)
        else ()
    )


class MaskReader:
    """Where an environment's action mask comes from: `info["action_mask"]`, or the key
    `action_mask` of a Dict observation, which is then no part of what the network sees. Its form
    is said in `core.masks`."""

    def __init__(self, observation_space: Any, actions: PolicyActions) -> None:
        self.actions, self.observation_space, self.in_obs = actions, observation_space, False
        self.form = MaskForm(actions)
        if isinstance(observation_space, gym.spaces.Dict) and MASK in observation_space.spaces:
            self.in_obs = True
            self.observation_space = gym.spaces.Dict(
                {k: space for k, space in observation_space.items() if k != MASK}
            )

    def read(self, obs: Any, info: dict[str, Any]) -> np.ndarray | None:
        """The mask as booleans [options], None where there is none; MaskError where it does not
        fit the actions."""
        mask = obs.get(MASK) if self.in_obs else info.get(MASK)
        if mask is None:
            return None
        allowed = self.form.read(mask)
        return allowed if self.form.options else None


def refuse_undeclared(obs: Any, space: Any, where: str) -> None:
    """An observation with a mask that its space does not tell of, so that nobody would see it."""
    if offers_mask(obs) and not offers_mask(space):
        raise EnvironmentFault(
            f"{where}: the observation has a key {MASK}, and its space has none: add it to the "
            'space, or give the mask as info["action_mask"].'
        )


def refuse_unread(spec: EnvSpec, who: str, reads_masks: bool) -> None:
    """Environments that offer masks, to an agent that does not read them."""
    if not reads_masks and (spec.unread_mask or spec.masked):
        raise unusable(spec.name, who, spec.action_space)


def unusable(env: str, who: str, space: Any) -> EnvironmentFault:
    """An environment with masks, to an agent that cannot use any."""
    return EnvironmentFault(
        f"{env} offers an action mask, which {who} cannot use: {instead(space)}."
    )


def instead(space: Any) -> str:
    """What to do about a mask of these actions."""
    if isinstance(space, gym.spaces.Discrete):
        return "train dqn or ppo"
    if isinstance(space, gym.spaces.Box):
        return "leave the mask out, since real numbers have no options to forbid"
    return "train ppo"
