"""One call of `learn`: rounds of a learner of tenfold's, from one moment that somebody looks at to
the next. A step that a callback sees is seen between the environment's step and its storing, as
Stable-Baselines3 does it: the function that steps the environments is wrapped for that long."""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tenfold.config.options import Episodes
from tenfold.integrations.sb3.callbacks import Schedule
from tenfold.integrations.sb3.step_locals import StepLocals


class TrainingStopped(Exception):
    """A callback's result ends the training."""


class Driver:
    """A model's learner, until `end` steps or until a callback ends it."""

    def __init__(self, model: Any, callback: Any, log_interval: int | None, names: Any) -> None:
        """`names`: further locals for callbacks."""
        self.model, self.callback, self.log_interval = model, callback, log_interval
        self.learner, self.envs = model.learner, model.learner.envs
        self.engine, self.num_envs = self.learner.engine, self.envs.num_envs
        self.schedule = Schedule(callback, self.num_envs)
        self.locals = StepLocals(model, names)
        self.start = self.known = model.num_timesteps  # `known`: steps that were accounted for
        self.unit = model.steps_between_updates
        rounds = -((self.start - model._total_timesteps) // self.unit)
        self.end = self.start + rounds * self.unit
        self.on_policy, self.iteration = model.on_policy, 0
        self.episodes = model._episode_num  # before this training
        model._last_obs = self.locals.current_obs()
        self.next_obs: Any = None  # what the last watched step led to
        self.restore: list[Callable[[], None]] = []

    def run(self) -> None:
        model, callback = self.model, self.callback
        if callback is not None:
            callback.on_training_start(self.locals, vars(sys.modules[type(model).__module__]))
        self.wrap_learning()
        self.wrap_logger()
        if self.schedule.attached:
            self.watch_steps()
        try:
            while model.num_timesteps < self.end or self.within_episodes:
                self.advance()
        except TrainingStopped:
            self.abandon()
            self.learner.note_first()  # what the last step led to was seen, though not stored
        except BaseException:
            self.abandon()
            raise
        finally:
            self.unwatch_steps()
            for undo in self.restore:
                undo()
        self.record_learning()
        model.sync()
        model._last_obs = self.locals.current_obs()
        if callback is not None:
            callback.on_training_end()

    def advance(self) -> None:
        """Rounds to the next moment that somebody looks at."""
        learner, model = self.learner, self.model
        watched = self.on_policy or self.schedule.rollouts
        if self.callback is not None and watched and self.at_rollout:
            self.callback.on_rollout_start()
        left, calls = max(self.end - learner.step, 1), self.schedule.calls(model.num_timesteps)
        if watched:
            left = min(left, self.unit - (learner.step - self.start) % self.unit)
        if self.schedule.attached:
            self.play(left)
        elif calls > 1:
            self.play(min(left, (calls - 1) * self.num_envs))
        else:
            self.watch_steps()
            self.play(self.num_envs)
            self.unwatch_steps()

    @property
    def within_episodes(self) -> bool:
        """Whether episodes that updates wait for are not over yet: `learn` ends behind those."""
        every = getattr(self.model.agent.config, "every", None)
        if not isinstance(every, Episodes):
            return False
        over = bool((self.envs.terminated | self.envs.truncated)[0])
        return not over or (self.model._episode_num - self.episodes) % every.n != 0

    @property
    def at_rollout(self) -> bool:
        """Whether a rollout begins."""
        return (self.learner.step - self.start) % self.unit == 0

    def play(self, steps: int) -> None:
        """Rounds of these steps."""
        learner = self.learner
        until = learner.step + steps
        while learner.step < until:
            self.account(learner.round(until))
            if self.on_policy and self.at_rollout:
                return

    def account(self, finished: Any) -> None:
        """Of the steps up to now that nobody saw: counters, and episodes that ended."""
        steps, model = self.learner.step, self.model
        if steps > self.known:
            calls, self.known = (steps - self.known) // self.num_envs, steps
            model.num_timesteps = steps
            self.schedule.skip(calls, steps)
            self.take_episodes(finished)

    # single steps

    def watch_steps(self) -> None:
        """From now on callbacks are called between a step and its storing. Environments that are
        compiled into the engine's loop are stepped from here meanwhile."""
        envs, engine = self.envs, self.engine
        self.next_obs, self.step_envs = None, envs.step
        envs.step = self.watched_step
        self.compiled = getattr(engine, "compiled_envs", None)
        if self.compiled is not None:
            engine.compiled_envs = None

    def unwatch_steps(self) -> None:
        if "step" in vars(self.envs):
            del self.envs.step
            if self.compiled is not None:
                self.engine.compiled_envs = self.compiled

    def watched_step(self, actions: np.ndarray) -> None:
        """A step of the environments, and the callbacks behind it."""
        model, schedule = self.model, self.schedule
        model._last_obs = self.locals.current_obs() if self.next_obs is None else self.next_obs
        self.next_obs = None
        self.step_envs(actions)
        model.num_timesteps += self.num_envs
        self.known = model.num_timesteps
        if schedule.calls(model.num_timesteps - self.num_envs) == 1 or (
            schedule.ends and self.envs.finished
        ):
            self.locals.fill(actions)
            self.next_obs = self.locals["new_obs"]
            self.callback.update_locals(self.locals)
            if not self.callback.on_step():
                raise TrainingStopped
        else:
            schedule.skip(1, model.num_timesteps)
        self.take_episodes(self.envs.finished)

    def abandon(self) -> None:
        """After a step that is neither stored nor learned from: the counters, and what was under
        way, as the next call of `learn` needs them."""
        learner, steps = self.learner, self.model.num_timesteps
        learner.rounds += max(steps - learner.step, 0) // self.num_envs
        learner.step = steps
        if hasattr(self.engine, "has_actions"):
            self.engine.has_actions = False
        learner.forget()

    # learning

    def wrap_learning(self) -> None:
        """Callbacks and tables come between a whole rollout and learning from it."""
        learner, learn = self.learner, self.learner.learn
        if not self.on_policy and not self.schedule.rollouts:
            return

        def learn_from_rollout() -> Any:
            self.account(self.envs.finished)
            if self.at_rollout:
                if self.callback is not None:
                    self.callback.on_rollout_end()
                if self.on_policy:
                    self.end_rollout()
            result = learn()
            if self.on_policy:
                self.record_learning()
            return result

        learner.learn = learn_from_rollout
        driven_by = learner.rounds_by
        if not self.on_policy:
            learner.time_every_round()

        def undo() -> None:
            del learner.learn
            learner.rounds_by = driven_by

        self.restore.append(undo)

    def wrap_logger(self) -> None:
        """Whoever writes a table writes what updates were like until then as well."""
        logger, dump = self.model.logger, self.model.logger.dump

        def dump_all(step: int = 0) -> None:
            self.record_learning()
            dump(step)

        logger.dump = dump_all
        self.restore.append(lambda: vars(logger).pop("dump", None))

    def end_rollout(self) -> None:
        self.iteration += 1
        self.update_progress()
        if self.log_interval is not None and self.iteration % self.log_interval == 0:
            self.model.dump_logs(self.iteration)

    def update_progress(self) -> None:
        model = self.model
        model._current_progress_remaining = 1.0 - model.num_timesteps / max(
            model._total_timesteps, 1
        )

    def record_learning(self) -> None:
        self.update_progress()
        self.model.record_training(self.learner.statistics())

    def take_episodes(self, finished: Any) -> None:
        """Episodes that ended, into the buffers of the model and, off-policy, into its tables."""
        model = self.model
        for episode in finished:
            info = self.envs.info[episode.env] if self.envs.info else compiled_info(model, episode)
            if "episode" in info:
                model.ep_info_buffer.append(info["episode"])
            if info.get("is_success") is not None:
                model.ep_success_buffer.append(info["is_success"])
            if self.on_policy:
                continue
            model._episode_num += 1
            if self.log_interval and model._episode_num % self.log_interval == 0:
                model.dump_logs()


def compiled_info(model: Any, episode: Any) -> dict[str, Any]:
    """What a monitor says of an episode, of an environment without one."""
    seconds = round(time.time() - model.start_time / 1e9, 6)
    return {"episode": {"r": round(episode.ret, 6), "l": int(episode.length), "t": seconds}}
