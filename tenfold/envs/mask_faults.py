"""Masks that leave an agent without an action, those that an agent cannot use, and masked actions,
as errors that say where."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.kernels import kernel
from tenfold.core.masks import MaskForm
from tenfold.envs.adapter import Environments

NOTHING_ALLOWED = (
    "the action mask allows no action; only an observation in which an episode terminates may have "
    "such a mask."
)


def refuse_choiceless(form: MaskForm, mask: np.ndarray, locate: Callable[[int], str]) -> None:
    """Before a policy acts: masks [B, options] that leave no option of a choice. `place` says where
    a row is from."""
    if no_choice := form.empty(mask):
        row, choice = no_choice
        raise no_option(locate(row), form, choice)


def no_option(location: str, form: MaskForm, choice: int) -> EnvironmentFault:
    return EnvironmentFault(
        f"{location}: the action mask allows no {form.option_of(choice)}; mend the mask, or set "
        "agent.on_empty to absent."
    )


def require_final_masks(envs: Environments) -> None:
    """Refuses environments of one's own that give masks, but none of the last observations."""
    if envs.mask is not None and envs.final_mask is None:
        raise EnvironmentFault(
            f"{envs.name} has masks, but none of the observations that episodes are cut at, which "
            "dqn learns from: make both by `make_masks`, and fill `note_final_mask`."
        )


def refuse_stuck(envs: Environments, lane: int | None = None) -> None:
    """Before acting: an observation in which nothing is allowed; `lane`, where it is known which
    (-1: none)."""
    if lane is None:
        if envs.mask is None or (allowed := envs.mask.any(1)).all():
            return
        lane = int(allowed.argmin())
    if lane >= 0:
        raise EnvironmentFault(f"{envs.location(lane)}: {NOTHING_ALLOWED}")


def refuse_dead_end(envs: Environments) -> None:
    """After a step: an episode that was cut, not terminated, where nothing is allowed."""
    if envs.dead_end:
        raise EnvironmentFault(
            f"{envs.dead_end}: the episode was cut at an observation whose action mask allows no "
            "action or is missing, and what follows it counts: give a mask there, or terminate."
        )


@kernel
def find_masked_head(action, mask):
    """The first head that has an option and whose action is masked, or −1."""
    options = len(mask) // len(action)
    for head in range(len(action)):
        legal = mask[head * options : (head + 1) * options]
        if legal.any() and not (0 <= action[head] < options and legal[action[head]]):
            return head
    return -1


@kernel
def find_masked_action(action, mask):
    """−1 − (i · heads + head) of the first masked action, of lane i; 0 where there is none."""
    for i in range(len(action)):
        head = find_masked_head(action[i], mask[i])
        if head >= 0:
            return -1 - (i * action.shape[1] + head)
    return 0


class CompiledHeads(Environments):
    """Lanes with one choice for each of several heads, stepped by one kernel call. The mask
    [B, heads · options] belongs to the present `obs`."""

    heads = ""  # what the heads belong to, in the plural
    step_kernel: Any  # takes `step_arrays`; returns the number of episodes that ended, or
    # what `find_masked_action` found, and nothing has moved then
    step_arrays: tuple[Any, ...]  # these arrays are written to, never replaced

    def __init__(
        self, name: str, num_envs: int, seed: int, spaces: tuple[Any, Any], first: int
    ) -> None:
        super().__init__(name, num_envs, seed, *spaces, first)
        heads, options = len(self.action_space), int(self.action_space.nvec[0])
        self.mask = self.options = np.zeros((num_envs, heads * options), np.bool_)
        self.action = np.zeros((num_envs, heads), np.int64)
        self.length, self.episode = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        # the first rows of `last` are the episodes that ended: lane, return, length
        self.ret, self.last = np.zeros(num_envs), np.zeros((num_envs, 3))
        self.state_arrays = {"length": self.length, "episode": self.episode, "ret": self.ret}

    def masked_action(self, head: int, action: int, options: np.ndarray) -> str:
        """Says why the action is refused, and which are legal."""
        raise NotImplementedError

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B, heads]."""
        self.begin_rounds()
        if actions.shape != self.action.shape:
            raise EnvironmentFault(
                f"{self.name}: {actions.shape} actions do not fit lanes and {self.heads} "
                f"{self.action.shape}."
            )
        self.action[:] = actions
        ended = self.step_kernel(*self.step_arrays)
        if ended > 0:
            self.note_ended(self.last[:ended])
        elif ended < 0:
            i, head = divmod(-1 - ended, len(self.action_space))
            options = self.options[i].reshape(len(self.action_space), -1)[head]
            why = self.masked_action(head, int(self.action[i, head]), options)
            raise EnvironmentFault(f"{self.location(i, later=1)}: {why}")
