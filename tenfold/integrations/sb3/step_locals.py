"""What callbacks find in their `locals` after a step."""

from typing import Any

import numpy as np

from tenfold.integrations.sb3.vec_env import side_by_side


class StepLocals(dict[str, Any]):
    """One dict for a whole training, filled anew at every step that somebody looks at. What takes
    long is made when it is asked for."""

    def __init__(self, model: Any, names: dict[str, Any]) -> None:
        learner = model.learner
        self.model, self.envs, self.learner = model, learner.envs, learner
        self.normalization, inner = model.normalization, model.env.unwrapped
        self.inner = inner if hasattr(inner, "buf_rews") else None
        self.lazy = {"actions": self.actions}
        if model.on_policy:
            self.lazy |= {
                "values": lambda: self.rollout_row("value"),
                "log_probs": lambda: self.rollout_row("log_p"),
                "obs_tensor": lambda: model.policy.obs_to_tensor(model._last_obs)[0],
                "rollout_buffer": lambda: model.rollout_buffer,
                "n_steps": lambda: self.collected() - 1,  # theirs counts behind the callbacks
            }
        else:
            self.lazy |= {
                "buffer_actions": self.buffer_actions,
                "replay_buffer": lambda: model.replay_buffer,
                "num_collected_steps": self.collected,
            }
        super().__init__(self=model, env=model.env, **names)

    def __missing__(self, name: str) -> Any:
        if name not in self.lazy:
            raise KeyError(name)
        return self.lazy[name]()

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.lazy

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401  which this is

    def current_obs(self) -> Any:
        """The observations that the next actions are for, as the vector environment shows them."""
        obs = observations_of(self.envs)
        return self.normalization.shown(obs) if self.normalization else obs

    def fill(self, actions: np.ndarray) -> None:
        """Of the step that was just made."""
        envs = self.envs
        ended = envs.terminated | envs.truncated
        infos = self.infos(ended)
        self["infos"], self["dones"], self["clipped_actions"] = infos, ended, actions
        self["rewards"] = envs.reward.astype(np.float32)
        if self.normalization:
            self.normalization.show(self.learner, observations_of(envs))
            self["rewards"] = self.normalization.rewards()
        self["new_obs"] = self.current_obs()
        if self.inner is not None:
            self.inner.buf_infos[:] = infos
            self.inner.buf_rews[:] = getattr(envs, "inner", envs).reward

    def infos(self, ended: np.ndarray) -> list[dict[str, Any]]:
        """As a vector environment gives them."""
        envs = self.envs
        infos = list(envs.info) if envs.info else [{} for _ in range(envs.num_envs)]
        for i, info in enumerate(infos):
            if "TimeLimit.truncated" not in info:
                info["TimeLimit.truncated"] = bool(envs.truncated[i] and not envs.terminated[i])
            if ended[i] and "terminal_observation" not in info:
                info["terminal_observation"] = envs.final_obs[i].copy()
        return infos

    def actions(self) -> Any:
        """The policy's actions; PPO's before they were clipped to the bounds."""
        rollout = getattr(self.learner, "rollout", None)
        if rollout is None:
            return self["clipped_actions"].reshape(-1, *self.model.action_space.shape)
        if rollout.real.shape[-1]:
            return self.rollout_row("real")
        shape = self.model.action_space.shape
        return self.rollout_row("chosen").reshape(-1, *shape)

    def buffer_actions(self) -> Any:
        """Actions as the replay memory has them: real ones in [-1, 1]."""
        if not self.model.stores_scaled:
            return self.actions()
        holder = self.learner.engine if hasattr(self.learner.engine, "action") else self.learner
        return holder.action.copy()

    def rollout_row(self, name: str) -> Any:
        """A column of the row that is being filled, as a tensor where their loop has one."""
        import torch  # here: few ask for it

        rollout = self.learner.rollout
        row = getattr(rollout, name)[int(rollout.count[0])].copy()
        if name in ("real", "chosen"):
            return row
        return torch.from_numpy(row.reshape(len(row), -1) if name == "value" else row)

    def collected(self) -> int:
        """Calls of `step` since the rollout began."""
        steps = self.model.num_timesteps - self.model._num_timesteps_at_start
        between = self.model.steps_between_updates
        return ((steps - 1) % between + 1) // self.envs.num_envs


def observations_of(envs: Any) -> Any:
    """The environments' current observations, as their space has them."""
    if envs.layout.direct:
        return envs.obs.copy()
    raw_obs = getattr(envs, "raw_obs", None)
    if isinstance(raw_obs, list):
        return side_by_side(envs.observation_space, raw_obs)
    return raw_obs
