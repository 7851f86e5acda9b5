"""Callbacks: Stable-Baselines3's, functions, and any object with their methods; and at which of
their calls something happens, so that the engine need not stop at the others."""

import dis
from collections.abc import Callable, Iterator
from typing import Any

from tenfold.integrations.sb3.vec_env import sb3

NEVER = 1 << 60
HOME = "stable_baselines3.common.callbacks"
PROGRESS_EVERY = 1_000  # steps between updates of a progress bar
# classes of theirs whose calls mean something now and then
SCHEDULED = ("EvalCallback", "CheckpointCallback", "EveryNTimesteps", "LogEveryNTimesteps")
SCHEDULED += ("ProgressBarCallback",)
PLUMBING = {"RESUME", "NOP", "CACHE", "PRECALL", "COPY_FREE_VARS"}


class DuckCallback:
    """An object with some of a callback's methods; the others do nothing."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def call(self, name: str, *arguments: Any) -> Any:
        method = getattr(self.inner, name, None)
        return True if method is None else method(*arguments)

    def init_callback(self, model: Any) -> None:
        self.call("init_callback", model)

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        self.locals, self.globals = locals_, globals_
        self.call("on_training_start", locals_, globals_)

    def update_locals(self, locals_: dict[str, Any]) -> None:
        self.call("update_locals", locals_)

    def on_rollout_start(self) -> None:
        self.call("on_rollout_start")

    def on_step(self) -> Any:
        return self.call("on_step")

    def on_rollout_end(self) -> None:
        self.call("on_rollout_end")

    def on_training_end(self) -> None:
        self.call("on_training_end")


class FunctionCallback(DuckCallback):
    """A function of locals and globals, called after every step."""

    def on_step(self) -> Any:
        return self.inner(self.locals, self.globals)


class CallbackGroup(DuckCallback):
    """Callbacks one after another."""

    def __init__(self, callbacks: list[Any]) -> None:
        super().__init__(None)
        self.callbacks = callbacks

    def call(self, name: str, *arguments: Any) -> Any:
        # all of them are called, also behind one that ends the training
        results = [getattr(callback, name)(*arguments) for callback in self.callbacks]
        return all(results)


def as_callback(callback: Any) -> Any:
    """What `learn` was given as one callback; None where nobody is to be called."""
    base = sb3("common.callbacks", "BaseCallback")
    if isinstance(callback, list | tuple):
        children = [one for one in map(as_callback, callback) if one is not None]
        if base and all(isinstance(one, base) for one in children):
            return sb3("common.callbacks", "CallbackList")(children)
        return CallbackGroup(children)
    if callback is None or (base and isinstance(callback, base)):
        return callback
    if isinstance(callback, DuckCallback):
        return callback
    if hasattr(callback, "on_step"):
        return DuckCallback(callback)
    convert = sb3("common.callbacks", "ConvertCallback")
    return convert(callback) if convert else FunctionCallback(callback)


def nodes(callback: Any) -> Iterator[Any]:
    """A callback, and those in it where it is a list."""
    if callback is not None:
        yield callback
    for one in getattr(callback, "callbacks", ()) if is_list(callback) else ():
        yield from nodes(one)


def is_list(callback: Any) -> bool:
    return isinstance(callback, CallbackGroup) or kind_of(callback) == "CallbackList"


def kind_of(callback: Any) -> str:
    """The name of one of Stable-Baselines3's own classes; "" for any other."""
    kind = type(callback)
    return kind.__name__ if kind.__module__ == HOME else ""


def constant_result(function: Callable[..., Any]) -> Any:
    """What a function returns that does nothing else than to return a constant; else `...`."""
    if not hasattr(function, "__code__"):
        return ...
    steps = [step for step in dis.get_instructions(function) if step.opname not in PLUMBING]
    names = [step.opname for step in steps]
    if names in (["RETURN_CONST"], ["LOAD_CONST", "RETURN_VALUE"]):
        return steps[0].argval
    return ...


def to_multiple(every: int, calls: int) -> int:
    return every - calls % every if every > 0 else NEVER


def calls_until(callback: Any, steps: int, num_envs: int) -> int:
    """How many calls of a callback come until one at which something happens: 1 is the next one.
    `steps`: of the model so far."""
    match kind_of(callback):
        case "EvalCallback":
            return to_multiple(callback.eval_freq, callback.n_calls)
        case "CheckpointCallback":
            return to_multiple(callback.save_freq, callback.n_calls)
        case "EveryNTimesteps" | "LogEveryNTimesteps":
            left = callback.n_steps - (steps - callback.last_time_trigger)
            return max(-(-left // num_envs), 1)
        case "ProgressBarCallback":
            return to_multiple(max(PROGRESS_EVERY // num_envs, 1), callback.n_calls)
        case "ConvertCallback" if callback.callback is None:
            return NEVER
    base = sb3("common.callbacks", "BaseCallback")
    if base and isinstance(callback, base):
        kind = type(callback)
        if kind.on_step is base.on_step and constant_result(kind._on_step) is True:
            return NEVER
    return 1


def watches_rollouts(callback: Any) -> bool:
    """Whether the beginning or end of a rollout means something to a callback."""
    if isinstance(callback, DuckCallback):
        names = ("on_rollout_start", "on_rollout_end")
        return any(hasattr(callback.inner, name) for name in names)
    kind = type(callback)
    return any(
        constant_result(getattr(kind, name)) is not None
        for name in ("_on_rollout_start", "_on_rollout_end")
    )


class Schedule:
    """At which calls of all callbacks together something happens."""

    def __init__(self, callback: Any, num_envs: int) -> None:
        self.nodes, self.num_envs = list(nodes(callback)), num_envs
        leaves = [one for one in self.nodes if not is_list(one)]
        # those that only need the ends of episodes are called at these
        self.ends = [one for one in leaves if kind_of(one) == "StopTrainingOnMaxEpisodes"]
        self.timed = [one for one in leaves if one not in self.ends]
        self.rollouts = any(map(watches_rollouts, leaves))
        self.every_step = any(
            kind_of(one) not in SCHEDULED and calls_until(one, 0, num_envs) == 1
            for one in self.timed
        )

    @property
    def attached(self) -> bool:
        """Whether every step is looked at, if only for an episode's end."""
        return self.every_step or bool(self.ends)

    def calls(self, steps: int) -> int:
        """Calls until one that means something; 1 is the next one."""
        if self.every_step:
            return 1
        return min((calls_until(one, steps, self.num_envs) for one in self.timed), default=NEVER)

    def skip(self, calls: int, steps: int) -> None:
        """Counts calls that mean nothing to anybody; `steps` of the model after them."""
        for one in self.nodes if calls else ():
            if hasattr(one, "n_calls"):
                one.n_calls += calls
                one.num_timesteps = steps
            if kind_of(one) == "ProgressBarCallback":
                one.pbar.update(calls * self.num_envs)
