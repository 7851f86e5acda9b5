"""An environment runner for RLlib that samples what RLlib's own samples, without connectors,
episodes and nested maps in every step.

Seeds, order of random numbers, episodes, their cuts and the counts are those of
`SingleAgentEnvRunner`: from the same weights and the same state of torch's generator both give the
same episodes.
"""

import copy
import logging
import math
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.module_to_env.get_actions import GetActions
from ray.rllib.core import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.env.env_errors import StepFailedRecreateEnvError
from ray.rllib.env.env_runner import NUM_ENV_STEP_FAILURES_LIFETIME
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import (
    ENV_STEP_TIMER,
    EPISODE_DURATION_SEC_MEAN,
    EPISODE_LEN_MAX,
    EPISODE_LEN_MEAN,
    EPISODE_LEN_MIN,
    EPISODE_RETURN_MAX,
    EPISODE_RETURN_MEAN,
    EPISODE_RETURN_MIN,
    RLMODULE_INFERENCE_TIMER,
    WEIGHTS_SEQ_NO,
)
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action

from tenfold.integrations.rllib.samples import (
    ARRAY_SPACES,
    CompiledActing,
    OngoingEpisode,
    SampleArrays,
    runner_refusal,
)

logger = logging.getLogger("ray.rllib")
NARROWER = {
    np.dtype(np.float16): np.float32,
    np.dtype(np.float64): np.float32,
    np.dtype(np.int64): np.int32,
}
INSTEAD = "leave env_runner_cls out, and RLlib's own runner takes it"
GROWTH = 1.25  # rows a sample takes where episodes end at different times, as a first guess


def narrowed(array: np.ndarray) -> np.ndarray:
    """Of 32 bits, as RLlib's connectors make them."""
    return array.astype(NARROWER[array.dtype]) if array.dtype in NARROWER else array


class BulkEnvRunner(SingleAgentEnvRunner):
    """`config.env_runners(env_runner_cls=BulkEnvRunner)`: the rows of a sample lie in arrays made
    for it, and its episodes are slices of them.

    Any module without a recurrent state; Box, Discrete, MultiDiscrete and MultiBinary actions.
    Refused by name: several agents, connectors of one's own, other vectorize modes than sync,
    `on_episode_step` callbacks.
    """

    config: Any
    env: Any
    module: Any
    _ongoing_episodes: Any
    lanes: SampleArrays  # where there are environments: not in an algorithm that samples elsewhere

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        if reason := runner_refusal(config):
            raise ValueError(f"BulkEnvRunner {reason}; {INSTEAD}")
        super().__init__(config=config, **kwargs)
        if self.module is not None and self.module.is_stateful():
            raise ValueError(f"BulkEnvRunner keeps no state of a recurrent module; {INSTEAD}")
        self.choose, self.last_step = GetActions(), 0.0
        self.heard = {name: self.hears(name) for name in ("created", "start", "end")}

    def hears(self, moment: str) -> bool:
        """Whether somebody listens to `on_episode_…`."""
        name = f"on_episode_{moment}"
        default = getattr(RLlibCallback, name)
        return bool(getattr(self.config, f"callbacks_{name}")) or any(
            getattr(type(one), name) is not default for one in self._callbacks
        )

    def make_env(self) -> None:
        super().make_env()
        vector = self.env.unwrapped
        if (
            type(vector) is not SyncVectorEnv
            or vector.autoreset_mode is not AutoresetMode.NEXT_STEP
        ):
            raise ValueError(
                f"BulkEnvRunner steps environments itself, and {self.config.env} makes a "
                f"{type(vector).__name__} of its own; {INSTEAD}"
            )
        space = vector.single_action_space
        if not isinstance(space, ARRAY_SPACES):
            raise ValueError(f"BulkEnvRunner has no arrays for actions in {space}; {INSTEAD}")
        self.worlds, self.space = vector.envs, space
        self.lanes = SampleArrays(vector.single_observation_space, space, len(self.worlds))

    # episodes begin

    def _reset_envs(self, episodes: Any, shared_data: Any, explore: bool) -> None:
        """All environments anew, seeded if this is the first time; nothing of before is kept."""
        self.running: list[OngoingEpisode] = [self.expect(i, 0) for i in range(self.num_envs)]
        self._ongoing_episodes_for_metrics.clear()
        seed = self._seed if self._needs_initial_reset else None
        observations, infos = self._try_env_reset(seed=seed, options=None)
        self.lanes.clear(self.expected_rows)
        self.lanes.see(0, list(iterate(self.env.observation_space, observations)), infos)
        self.row, self.resets = 0, [False] * self.num_envs
        for i, one in enumerate(self.running):
            self.begin(i, one)

    def expect(self, i: int, row: int) -> OngoingEpisode:
        """An episode whose first observation will lie in a row."""
        episode = OngoingEpisode(row)
        if self.heard["created"]:
            self.tell("created", i, SingleAgentEpisode(episode.name), episode)
        return episode

    def begin(self, i: int, of: OngoingEpisode) -> None:
        of.began = perf_counter()
        if self.heard["start"]:
            first = SingleAgentEpisode(of.name)
            first.add_env_reset(self.lanes.first_of(i, of.start), self.lanes.infos[i][of.start])
            self.tell("start", i, first, of)

    def tell(self, moment: str, i: int, episode: Any, of: OngoingEpisode) -> None:
        episode._custom_data = of.custom
        self._ongoing_episodes[i] = episode
        self._make_on_episode_callback(f"on_episode_{moment}", i, self._ongoing_episodes)

    # sampling

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Any]:
        lanes = self.lanes
        self.expected_rows = 2 + int(GROWTH * (num_timesteps or 0) / self.num_envs)
        if force_reset or num_episodes is not None or self._needs_initial_reset:
            self._reset_envs_and_episodes(explore)
        else:
            self.go_on(lanes)
        self._needs_initial_reset = num_episodes is not None
        self.compiled = CompiledActing.of(self.module, lanes.tree)
        self.seq = np.full(self.num_envs, self._weights_seq_no)
        done: list[Any] = []
        steps = rounds = 0
        acting = stepping = 0.0
        while len(done) < (num_episodes or 0) if num_timesteps is None else steps < num_timesteps:
            start = perf_counter()
            actions = self.act(lanes, explore, random_actions, steps)
            acted_at = perf_counter()
            try:
                ended = self.step_worlds(lanes, actions)
            except Exception as error:
                self.recover(error)
                steps = 0
                self._reset_envs_and_episodes(explore)
                lanes = self.lanes
                continue
            now = perf_counter()
            acting, stepping, rounds = (
                acting + acted_at - start,
                stepping + now - acted_at,
                rounds + 1,
            )
            steps += self.num_envs - sum(self.resets)
            remaining = None if num_episodes is None else num_episodes - len(done)
            done += self.finish_round(lanes, ended, now, remaining)
        self.log_round_times(acting, stepping, rounds)
        self._done_episodes_for_metrics.extend(done)
        going = self.cut(lanes) if num_timesteps is not None else []
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=steps)
        self._increase_sampled_metrics(steps, len(done))
        return done + going

    def act(self, lanes: SampleArrays, explore: bool, random_actions: bool, steps: int) -> Any:
        """Actions for the environments; stores all outputs of the module."""
        if random_actions:
            outputs = {Columns.ACTIONS: np.asarray(self.env.action_space.sample())}
        elif self.compiled and explore:
            outputs = self.compiled.act()
        else:
            batch = {Columns.OBS: lanes.for_module(self._device)}
            if explore:
                runners = self.config.num_env_runners or 1
                t = (self.num_env_steps_sampled_lifetime // runners + steps) * runners
                outputs_ = self.module.forward_exploration(batch, t=t)
            else:
                outputs_ = self.module.forward_inference(batch)
            if Columns.ACTIONS not in outputs_:
                self.choose(
                    rl_module=self.module, batch=outputs_, episodes=[lanes.like], explore=explore
                )
            outputs = {name: narrowed(value.cpu().numpy()) for name, value in outputs_.items()}
        lanes.note(self.row, outputs)
        lanes.note(self.row, {WEIGHTS_SEQ_NO: self.seq})
        return self.for_env(outputs[Columns.ACTIONS])

    def for_env(self, actions: np.ndarray) -> Any:
        space = self.space
        if isinstance(space, gym.spaces.Box):
            if self.config.normalize_actions:
                return unsquash_action(actions, space)
            if self.config.clip_actions:
                return clip_action(actions, space)
        return actions

    def step_worlds(self, lanes: SampleArrays, actions: np.ndarray) -> dict[int, tuple[bool, bool]]:
        """A step of every environment, or its reset where an episode has ended; the lanes of the
        episodes that end now, with whether they are terminated and truncated."""
        observations, infos, ended = [], [], {}
        reward: list[Any] = [0.0] * self.num_envs
        for i, world in enumerate(self.worlds):
            if self.resets[i]:
                obs, info = world.reset()
            else:
                obs, reward[i], terminated, truncated, info = world.step(actions[i])
                if terminated or truncated:
                    ended[i] = bool(terminated), bool(truncated)
            observations.append(obs)
            infos.append(info)
        lanes.see(self.row + 1, observations, infos)
        lanes.reward[:, self.row] = reward
        return ended

    def recover(self, error: Exception) -> None:
        """New environments where the configuration wants that; else the error ends sampling."""
        self.metrics.log_value(NUM_ENV_STEP_FAILURES_LIFETIME, 1, reduce="lifetime_sum")
        if not self.config.restart_failed_sub_environments:
            raise RuntimeError(f"a step of {self.config.env} failed: {error!r}") from error
        if not isinstance(error, StepFailedRecreateEnvError):
            logger.exception("BulkEnvRunner: a step failed; environments are made anew.")
        self.make_env()
        self.compiled = CompiledActing.of(self.module, self.lanes.tree)

    def finish_round(
        self,
        lanes: SampleArrays,
        ended: dict[int, tuple[bool, bool]],
        now: float,
        remaining: int | None,
    ) -> list[Any]:
        """Episodes that ended in this round, at most as many as are wanted; others begin."""
        self.row, self.last_step = self.row + 1, now
        began, done = self.resets, []
        if not ended and not any(began):
            return done
        self.resets = [False] * self.num_envs
        for i, one in enumerate(self.running):
            if began[i]:
                self.begin(i, one)
            elif i in ended:
                episode = lanes.episode(i, one, self.row, now)
                episode.is_terminated, episode.is_truncated = ended[i]
                if self.heard["end"]:
                    self.tell("end", i, episode, one)
                done.append(episode)
                self.running[i], self.resets[i] = self.expect(i, self.row + 1), True
                if remaining is not None and len(done) >= remaining:
                    break
        return done

    def cut(self, lanes: SampleArrays) -> list[Any]:
        """The chunks so far of episodes that go on; those without a step are not worth one."""
        going = []
        for i, one in enumerate(self.running):
            length = self.row - one.start
            if self.resets[i] or one.t_started + length == 0:
                continue
            chunk = lanes.episode(i, one, self.row, self.last_step)
            self._ongoing_episodes_for_metrics[one.name].append(chunk)
            going.append(chunk)
            one.lookback = min(self.config.episode_lookback_horizon, one.lookback + length)
            one.start, one.t_started, one.began = self.row, one.t_started + length, None
            one.custom = copy.deepcopy(one.custom)
        return going

    def go_on(self, lanes: SampleArrays) -> None:
        """Samples into new arrays, which begin with what ongoing episodes look back to."""
        first = self.row - max(one.lookback for one in self.running)
        lanes.carry(first, self.row, self.expected_rows)
        self.row -= first
        for one in self.running:
            one.start -= first
            one.began = one.began or perf_counter()

    # metrics

    def log_round_times(self, acting: float, stepping: float, rounds: int) -> None:
        """Means of the sample, where RLlib's own runner logs every round."""
        if rounds:
            self.metrics.log_value(RLMODULE_INFERENCE_TIMER, acting / rounds)
            self.metrics.log_value(ENV_STEP_TIMER, stepping / rounds)
            self._log_env_steps(metric=self._metrics_num_try_env_step, num_steps=rounds)

    def get_metrics(self) -> Any:
        """As RLlib's own, which reduces a window of episodes to one number: it is logged at once,
        not each episode."""
        rows = []
        for episode in self._done_episodes_for_metrics:
            chunks = [episode, *self._ongoing_episodes_for_metrics.pop(episode.id_, ())]
            rows.append(
                (
                    sum(len(chunk) for chunk in chunks),
                    sum(sum(chunk.get_rewards().tolist()) for chunk in chunks),
                    sum(chunk.get_duration_s() for chunk in chunks),
                )
            )
        self._done_episodes_for_metrics.clear()
        smoothing = self.config.metrics_num_episodes_for_smoothing
        window = max(1, math.ceil(smoothing / (self.config.num_env_runners or 1)))
        if rows:
            lengths, returns, seconds = zip(*rows[-window:], strict=True)
            for key, values in (
                (EPISODE_LEN_MEAN, lengths),
                (EPISODE_RETURN_MEAN, returns),
                (EPISODE_DURATION_SEC_MEAN, seconds),
                (("agent_episode_return_mean", DEFAULT_AGENT_ID), returns),
                (("module_episode_return_mean", DEFAULT_MODULE_ID), returns),
            ):
                self.metrics.log_value(key, float(np.mean(values)), window=window)
            for low, high, values in (
                (EPISODE_LEN_MIN, EPISODE_LEN_MAX, lengths),
                (EPISODE_RETURN_MIN, EPISODE_RETURN_MAX, returns),
            ):
                self.metrics.log_value(low, min(values), reduce="min", window=window)
                self.metrics.log_value(high, max(values), reduce="max", window=window)
        return self.metrics.reduce()
