"""`learn` of a model: its learner for this training, logger and callbacks, then the driver."""

import time
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tenfold.core.errors import ConfigError
from tenfold.integrations.sb3.callbacks import Schedule, as_callback
from tenfold.integrations.sb3.driver import Driver
from tenfold.integrations.sb3.learners import begin_anew, moved_state, open_model_learner
from tenfold.integrations.sb3.logger import logger_for
from tenfold.integrations.sb3.persistence import require_read
from tenfold.integrations.sb3.vec_env import sb3


def train(
    model: Any,
    total_timesteps: int,
    callback: Any,
    log_interval: int | None,
    tb_log_name: str,
    reset_num_timesteps: bool,
    progress_bar: bool,
) -> None:
    """`learn` with all its arguments."""
    if model.env is None:
        raise ConfigError("env", "is missing: call set_env(env), or load(path, env=env).")
    if model.agent is None:
        model._setup_model()
    require_read(model)
    if model.normalization:
        model.normalization.require_training()
    callback = with_progress(as_callback(callback), progress_bar)
    model.start_time = time.time_ns()
    if reset_num_timesteps or model.ep_info_buffer is None:
        model.ep_info_buffer = deque(maxlen=getattr(model, "stats_window_size", 100))
        model.ep_success_buffer = deque(maxlen=model.ep_info_buffer.maxlen)
    if reset_num_timesteps:
        model.num_timesteps = model._episode_num = 0
    model._num_timesteps_at_start = model.num_timesteps
    model._total_timesteps = model.num_timesteps + int(total_timesteps)
    model.open_learner(Schedule(callback, model.n_envs), reset_num_timesteps)
    if not model._custom_logger:
        model._logger = logger_for(
            model.verbose, model.tensorboard_log, tb_log_name, reset_num_timesteps
        )
    if callback is not None:
        callback.init_callback(model)
    names = {"total_timesteps": model._total_timesteps, "callback": callback}
    names |= {"log_interval": log_interval, "tb_log_name": tb_log_name}
    names |= {"reset_num_timesteps": reset_num_timesteps, "progress_bar": progress_bar}
    Driver(model, callback, log_interval, names).run()


def open_learner(model: Any, schedule: Schedule, restart: bool) -> None:
    """The learner for this training: the one that is there, unless settings or environments are
    others now; then one with its state."""
    assert model.source is not None
    before, name, on_cpu = model.learner, model.source.name, model.device.type == "cpu"
    if before is not None and before.run.env == model.source.compiled:
        name = before.run.env
    elif before is None and model.source.compiled and not schedule.attached and on_cpu:
        name = model.source.compiled
    run = model.make_run(name, max(model._total_timesteps, 1))
    if model.linked:
        model.linked.sync()
    compiled = before is not None and before.run.env == model.source.compiled
    begun = compiled or model.source.adapter is not None
    if before is None or replace(before.run, steps=run.steps) != run:
        state = moved_state(before or model.agent)
        model.resources.close()
        model.resources = ExitStack()
        model.learner = model.resources.enter_context(open_model_learner(run, state))
        model.use_agent(model.learner.agent)
        if model.normalization:
            model.normalization.discount(model.learner)
            if not begun:
                model.normalization.give(model.learner)
    if begun and (restart or model._last_obs is None):
        begin_anew(model.learner)
    model.learner.step = model.num_timesteps


def with_progress(callback: Any, progress_bar: bool) -> Any:
    """The callback with a progress bar beside it, where one is asked for."""
    if not progress_bar:
        return callback
    bar = sb3("common.callbacks", "ProgressBarCallback")
    if bar is None:
        raise ConfigError(
            "progress_bar",
            "= True is Stable-Baselines3's callback, which is not installed: leave it out.",
        )
    return as_callback([one for one in (callback, bar()) if one is not None])
