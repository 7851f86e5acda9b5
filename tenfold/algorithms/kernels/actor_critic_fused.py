"""What the fused engines of sac and td3 share: settings, parameters and scratch as the kernels of
`kernels.actor_critic` read them."""

from typing import Any, ClassVar

import numpy as np

from tenfold.algorithms.actor_critic import ActorCriticAgent
from tenfold.algorithms.kernels.actor_critic import DRAWS, ITEMS
from tenfold.core.spaces import BoundedActions
from tenfold.engines.choose import why_not_fused
from tenfold.engines.fused import keys_of, norm_arrays, pack_params, zeros
from tenfold.engines.fused_engine import FusedActing, FusedRounds


def actor_critic_params(agent: ActorCriticAgent, **more: Any) -> dict[str, np.ndarray]:
    """The settings as kernels read them."""
    actions = agent.actions
    if isinstance(actions, BoundedActions):
        more["single"] = actions.space.dtype == np.float32
    else:
        more["first_option"] = actions.start
    return pack_params(agent, **more)


def acting_columns(agent: ActorCriticAgent, count: int) -> dict[str, np.ndarray]:
    """What choosing actions reads but for the settings, and scratch for `count` environments."""
    sizes, reals = np.array(agent.online.actor.sizes), agent.actions.reals
    return {
        "online": agent.online.flat.numpy(),
        "actor_sizes": sizes,
        "keys": keys_of(agent, *DRAWS),
        "e_inputs": zeros(sizes[0], count),
        "e_hidden": zeros(count * int(sizes[1:].sum())),
        "e_noise": zeros(reals, count),
        "e_drawn": zeros(reals, count),
        "e_log_p": zeros(count),
        **norm_arrays(agent),
    }


def batch_columns(agent: ActorCriticAgent, batch: int) -> dict[str, np.ndarray]:
    """Parameters, and scratch for batches of `batch` items."""
    online, reals = agent.online, agent.actions.reals
    actor, critic = np.array(online.actor.sizes), np.array(online.critics[0].sizes)
    critics, outputs = len(online.critics), int(critic[1:].sum())
    assert critic[0] == actor[0] + reals
    return {
        "updates_made": agent.count,
        "target": agent.target.flat.numpy(),
        "grad": online.flat_grad.numpy(),
        "mean": agent.mean.numpy(),
        "square": agent.square.numpy(),
        "critic_sizes": critic,
        "inputs": zeros(2, critic[0], batch),
        "actor_layers": zeros(3, batch * int(actor[1:].sum())),
        "critic_layers": zeros(critics, batch * outputs),  # of each critic
        "delta": zeros(batch * outputs),  # of one critic's layers
        "picked": zeros(batch * outputs),
        "noise": zeros(2, reals, batch),
        # actions of the current policy, or their values
        "drawn": zeros(reals or int(actor[-1]), batch),
        "by_action": zeros(reals, batch),
        "q": zeros(critics, batch),
        "items": np.ones((ITEMS, batch), np.float32),  # weights of uniform replay stay 1
        "scratch_t": zeros(batch * int(max(actor.max(), critic.max()))),
        "order": np.zeros(batch, np.int64),
        "bounds": np.zeros(critics + 1, np.int64),
        "options_taken": np.zeros(batch, np.int64),  # discrete actions
    }


def scaled_columns(agent: ActorCriticAgent, scaled: np.ndarray) -> dict[str, np.ndarray]:
    """Where the next actions go as the environments take them, one of three kinds of numbers, and
    their bounds."""
    kinds = {"e_whole": np.int64, "e_single": np.float32, "e_double": np.float64}
    rows = {name: np.zeros((0,) if name == "e_whole" else (0, 0), kinds[name]) for name in kinds}
    name = next(name for name, kind in kinds.items() if scaled.dtype == kind)
    rows[name] = scaled if name == "e_whole" else scaled.reshape(len(scaled), -1)
    actions: Any = agent.actions
    bounded = isinstance(actions, BoundedActions)
    bounds = (actions.low, actions.high) if bounded else (np.zeros(0), np.zeros(0))
    return rows | dict(zip(("action_low", "action_high"), bounds, strict=True))


class FusedActorCritic(FusedRounds):
    """What the fused engines of sac and td3 share."""

    choose: ClassVar[Any]  # compiled: the exploring policy's actions

    @classmethod
    def why_not(cls, agent: ActorCriticAgent, run: Any = None) -> str:
        if reason := why_not_fused(agent):
            return reason
        kind = agent.actions.space.dtype if isinstance(agent.actions, BoundedActions) else None
        known = kind is None or kind in (np.float32, np.float64)
        return "" if known else f"the environment takes actions of {kind}"

    @classmethod
    def params(cls, agent: Any) -> dict[str, np.ndarray]:
        """The settings as kernels read them."""
        raise NotImplementedError

    def env_actions(self) -> np.ndarray:
        actions, count = self.agent.actions, self.envs.num_envs
        if isinstance(actions, BoundedActions):
            return np.zeros((count, *actions.space.shape), actions.space.dtype)
        return super().env_actions()

    def columns(self) -> tuple[dict[str, np.ndarray], ...]:
        agent = self.agent
        return (
            acting_columns(agent, self.envs.num_envs),
            batch_columns(agent, len(self.replay.draw)),
            scaled_columns(agent, self.scaled),
            self.params(agent),
        )

    @classmethod
    def acting(cls, agent: ActorCriticAgent, lanes: int, options: int = 0) -> FusedActing:
        """`explore` of an agent as one compiled call."""
        reals = agent.actions.reals
        action = np.zeros((lanes, reals), np.float32) if reals else np.zeros(lanes, np.int64)
        columns = acting_columns(agent, lanes), cls.params(agent)
        return FusedActing(cls.choose, columns, action)
