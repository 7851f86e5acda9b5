"""One or many environments behind one adapter, SAME_STEP by construction.

After `step` the arrays hold, for each environment: `obs` to act on next (the first one of a new
episode where one ended), `reward`, `terminated`, `truncated` of the step taken, and, where the
episode ended, its TRUE last observation in `final_obs`. The arrays are allocated once and
overwritten by the next step.

Episode e of environment i is seeded by f(seed, i, e). An environment is therefore restored by
seeding its current episode again and repeating the actions taken in it, without pickling anything.
"""

import contextlib
import math
import multiprocessing
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import OrderEnforcing

import tenfold.envs  # noqa: F401  (registers ours)
from tenfold.config.notation import parse_call, parse_number
from tenfold.core.errors import CheckpointError, EnvironmentFault, ObservationError, UserError
from tenfold.core.given import OWN, is_object, refuse_twice, take
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.protocols import EnvSpec
from tenfold.core.random import Purpose, draw_bits, key
from tenfold.core.spaces import PolicyActions, observation_layout, policy_actions
from tenfold.ops.observations import FlattenPlan

MASK = "action_mask"
SHOP = "tenfold/JobShop-v0"
COLONY = "tenfold/Durotaxis-v0"
CALLERS = {__file__}  # files whose code takes what an environment returns
SEED_BITS = 31  # Gymnasium hands seeds to libraries that take 32-bit signed numbers


@dataclass(frozen=True)
class Episode:
    """A finished episode."""

    env: int
    ret: float  # with several agents the mean of theirs
    length: int
    each: tuple[float, ...] = ()  # with several agents every one's own return
    success: bool | None = None  # whether the goal was reached, where there is one


def make_env(name: str, **more: Any) -> gym.Env[Any, Any]:
    """`gym.make` for an id with arguments in call notation; an unknown id is an error that names
    the nearest ones."""
    ident, arguments = split_name(name)
    with make_errors(name, ident):
        if name.startswith(OWN):
            env = own_env(name, **more)
        else:
            env = without_order_check(
                gym.make(ident, disable_env_checker=True, **arguments, **more)
            )
        for space in ("observation_space", "action_space"):
            if not isinstance(getattr(env, space, None), gym.Space):
                raise EnvironmentFault(
                    f"{name} has no {space}: set it to one of gymnasium.spaces when it is made."
                )
        return env


def without_order_check(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Without Gymnasium's wrapper that asks at every step whether there was a reset, which we
    always begin with."""
    if isinstance(env, OrderEnforcing):
        return env.env
    outer = env
    while isinstance(outer, gym.Wrapper):
        if isinstance(outer.env, OrderEnforcing):
            outer.env = outer.env.env
        outer = outer.env
    return env


class Lent(gym.Wrapper[Any, Any, Any, Any]):
    """An object of the user's, which is not ours to close."""

    def close(self) -> None:
        pass


def own_env(name: str, **more: Any) -> gym.Env[Any, Any]:
    """One that was handed over as an object or by a function."""
    env = take(name, **more)
    if not isinstance(env, gym.Env):
        raise EnvironmentFault(
            f"{name} is a {type(env).__module__}.{type(env).__name__} and no gymnasium.Env: derive "
            "it from that class, or wrap it (an environment of the old gym in shimmy's "
            "GymV21CompatibilityV0)."
        )
    if is_object(name):
        return Lent(env)
    refuse_twice(name, env)
    return env


def make_native(name: str, num_envs: int) -> VectorEnv[Any, Any, Any]:
    ident, arguments = split_name(name)
    with make_errors(name, ident):
        spec = gym.spec(ident)
        if spec.vector_entry_point is None:
            raise EnvironmentFault(
                f"{ident} has no vector class of its own: leave vectorize at scalar."
            )
        return gym.make_vec(ident, num_envs, vectorization_mode="vector_entry_point", **arguments)


def split_name(name: str) -> tuple[str, dict[str, Any]]:
    ident, positional, arguments = parse_call(name, "env")
    if positional:
        raise EnvironmentFault(
            f"env = {name} cannot be read: name each argument, for example {ident}(size=8)."
        )
    return ident, {k: literal(v) for k, v in arguments.items()}


def literal(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    number = parse_number(text)
    return (
        words[text.lower()]
        if text.lower() in words
        else text.strip("'\"")
        if number is None
        else number
    )


@contextlib.contextmanager
def make_errors(name: str, ident: str) -> Iterator[None]:
    """Gymnasium's and the environment's own complaints as one sentence."""
    try:
        yield
    except gym.error.UnregisteredEnv as error:
        found = get_close_matches(ident, known_environments(), 3, 0.5)
        near = (
            f"the nearest are {', '.join(found)}"
            if found
            else "`tenfold list` shows what is installed"
        )
        if isinstance(error, gym.error.VersionNotFound | gym.error.DeprecatedEnv):
            near = f"{str(error).strip('. ')}; {near}"
        if multiprocessing.parent_process() is not None:  # where it was made the first time
            near += (
                "; this is a process of its own, which does not know what a notebook or a script "
                "registered: do so in a "
                f'module that it can import, and write env="my_module:{ident}"'
            )
        raise EnvironmentFault(f"There is no environment {ident}: {near}.") from None
    except ModuleNotFoundError as error:
        module = error.name or ident.split(":")[0]
        own = (
            ": run this in its folder, or put that folder on PYTHONPATH"
            if module == ident.split(":")[0]
            else ""
        )
        raise EnvironmentFault(
            f"{ident} needs the module {module}, which is not installed{own}."
        ) from None
    except UserError:
        raise
    except Exception as error:  # an environment's constructor may complain in any way it likes
        raise EnvironmentFault(
            f"{name} cannot be made: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from None


def known_environments() -> list[str]:
    """Ids of the environments whose package is installed, without Gymnasium's copies in JAX and its
    compatibility shims."""
    from tenfold.domains.treasure.rules import RULES  # it imports this module

    needs = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.box2d": "Box2D"}
    missing = tuple(home for home, module in needs.items() if find_spec(module) is None)
    single = [
        i
        for i, spec in gym.registry.items()
        if not i.startswith(("phys2d/", "tabular/", "GymV"))
        and not str(spec.entry_point).startswith(missing)
        # ids that Gymnasium only remembers
        and not getattr(spec.entry_point, "__name__", "").startswith("_raise")
    ]
    return sorted([*single, *RULES])


def finite_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for size in (0, 1, 4, 33):
        row = (rng.normal(size=size) * 1e38).astype(dtype)
        yield (row,)
        for bad in (np.nan, np.inf, -np.inf) if size else ():
            spoiled = row.copy()
            spoiled[rng.integers(size)] = bad
            yield (spoiled,)


def all_finite_reference(row):
    return bool(np.isfinite(row).all())


@pair(all_finite_reference, finite_examples, dtypes=("float32", "float64"))
@kernel
def all_finite(row):
    """Half a microsecond for a small row, where np.isfinite(row).all() takes two."""
    total = 0.0
    for i in range(row.size):
        total += row[i] * 0.0  # 0 for every finite number, NaN otherwise
    return total == 0.0


def fault_of(place: str, what: str, error: Exception) -> EnvironmentFault:
    """What an environment's own code raised, and where; or what cannot be done with what it
    returned."""
    if is_old_style(what, error):
        return old_style(place)
    last = traceback.extract_tb(error.__traceback__)[-1]
    try:
        words = f"{type(error).__name__} ({' '.join(str(error).split())})"
    except Exception:  # its own words are a mistake as well
        words = type(error).__name__
    if last.filename in CALLERS:
        return EnvironmentFault(f"{place}: what {what} returned cannot be used: {words}.")
    return EnvironmentFault(
        f"{place}: {what} raised {words} in {Path(last.filename).name}, line {last.lineno}."
    )


def is_old_style(what: str, error: Exception) -> bool:
    """Whether reset or step went wrong as the older interface does, here or in one of Gymnasium's
    wrappers."""
    if what == "step":
        return isinstance(error, ValueError) and "expected 5, got 4" in str(error)
    return isinstance(error, TypeError) and "unexpected keyword argument 'seed'" in str(error)


def old_style(place: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{place}: this is an environment in the style of Gym before 0.26 (reset returns the "
        "observation alone, or step four values): let reset(seed=…) return (obs, info) and step "
        "(obs, reward, terminated, truncated, info), or wrap it in shimmy's GymV21CompatibilityV0."
    )


def put_away(env: Any) -> None:
    """Closes an environment. One that cannot even do that has done all that was asked of it:
    nothing is lost."""
    with contextlib.suppress(Exception):
        env.close()


def taken_since(actions: np.ndarray, lengths: list[int]) -> np.ndarray:
    """The actions [N, T, …] of the episodes under way, each `lengths` long; what earlier ones left
    behind is no part of them."""
    taken = actions[:, : max(lengths)].copy()
    for own, length in zip(taken, lengths, strict=True):
        own[length:] = 0
    return taken


def require_possible(actions: np.ndarray, space: Any, place: str) -> None:
    """Refuses stored actions [T, …] that the space does not have, before an environment is given
    them."""
    possible = np.isfinite(actions)
    if isinstance(space, gym.spaces.Discrete):
        possible &= (actions >= space.start) & (actions < space.start + space.n)
    elif isinstance(space, gym.spaces.MultiDiscrete):
        possible &= (actions >= 0) & (actions < space.nvec)
    if not possible.all():
        raise CheckpointError(
            f"{place}: the checkpoint holds action {actions[~possible][0]}, which {space} does not "
            "have."
        )


class Environments:
    """The adapter. Subclasses differ only in where a step comes from; the learner sees no
    difference.

    Worlds with several agents are lanes as well, agent by agent: lane = agent · worlds + world,
    `num_envs` = agents · worlds. Episodes, their seeds and lengths are the worlds'. `first` is the
    index of the first of these worlds among all of a run, so that several processes can each hold a
    part.
    """

    exact_resume = True
    unread_mask = False  # whether an action mask is offered that nobody asked for
    component_names: tuple[str, ...] = ()
    # of the action's numbers, where somebody wants to see them over training
    action_names: tuple[str, ...] = ()
    component_weights: np.ndarray | None = None  # with these the components add up to the reward

    def __init__(
        self,
        name: str,
        worlds: int,
        seed: int,
        observation_space: Any,
        action_space: Any,
        first: int = 0,
        agents: int = 1,
    ) -> None:
        self.name, self.action_space, self.first = name, action_space, first
        self.worlds, self.agents, self.num_envs = worlds, agents, worlds * agents
        self.layout, num_envs = observation_layout(observation_space, name), self.num_envs
        if not self.layout.size:
            raise EnvironmentFault(
                f"{name} has observations without a number in them: {observation_space}."
            )
        self.keys = [key(seed, Purpose.EPISODE, first + i) for i in range(worlds)]
        self.obs = np.zeros((num_envs, *self.layout.shape), self.layout.dtype)
        self.final_obs = np.zeros_like(self.obs)
        self.reward = np.zeros(num_envs)
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.zeros(num_envs, np.bool_)
        # rows that are no transition (the reset step of NEXT_STEP classes)
        self.skipped = np.zeros(num_envs, np.bool_)
        # of the current episodes; lists, since Python reads and writes their items in a third of an
        # array's time
        self.episode, self.length, self.ret = [0] * worlds, [0] * worlds, [0.0] * num_envs
        self.finished: list[Episode] = []
        # [B, K] of the rewards, where they come in named components
        self.components: np.ndarray | None = None
        # [B, options], True where allowed, of the observations acted on next
        self.mask: np.ndarray | None = None
        self.fallible = self.layout.dtype.kind == "f"  # whole numbers are always finite

    @property
    def spec(self) -> EnvSpec:
        """What these environments are like."""
        return EnvSpec(
            self.name,
            self.layout,
            self.action_space,
            self.agents,
            self.mask is not None,
            self.unread_mask,
            self.component_names,
            exact_resume=self.exact_resume,
        )

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B], in the environment's own numbers."""
        raise NotImplementedError

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs."""
        raise NotImplementedError

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """False where the resume is not exact."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held open, unless a subclass says so."""

    # for tasks whose steps are compiled

    def begin_rounds(self) -> None:
        if self.finished:
            self.finished = []

    def note_ended(self, rows: np.ndarray) -> None:
        """Episodes that ended in the last step: rows of lane, return, length."""
        self.finished = [Episode(int(i), ret, int(length)) for i, ret, length in rows.tolist()]

    def episode_seed(self, i: int) -> int:
        return int(draw_bits(self.keys[i], self.episode[i])) >> (64 - SEED_BITS)

    def not_finite(self, i: int) -> EnvironmentFault:
        what = "reward" if not math.isfinite(self.reward[i]) else "observation"
        key = (
            self.layout.key_at(int(np.argmin(np.isfinite(self.obs[i].ravel()))))
            if what == "observation"
            else ""
        )
        what = f"{what}'s {key}" if key else what
        return EnvironmentFault(
            f"{self.place(i)}: the {what} is not finite; mend the environment, or clip what it "
            "returns."
        )

    def raised(self, i: int, what: str, error: Exception) -> EnvironmentFault:
        return fault_of(self.place(i), what, error)

    def check_shape(self, i: int, obs: Any, shape: tuple[int, ...]) -> None:
        """Refuses an observation of another shape than its space's: NumPy would fill a row with it
        all the same."""
        if np.shape(obs) != shape:
            raise EnvironmentFault(
                f"{self.place(i)}: the observation has shape {np.shape(obs)}, and its space says "
                f"{shape}."
            )

    def place(self, i: int, later: int = 0) -> str:
        """Where lane i is, for errors; `later` steps from now."""
        w = i % self.worlds
        which = (
            f"world {self.first + w}, agent {i // self.worlds}"
            if self.agents > 1
            else f"environment {self.first + w}"
        )
        return f"{self.name}, {which}, episode {self.episode[w]}, step {self.length[w] + later}"


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
    `action_mask` of a Dict observation, which is then no part of what the network sees."""

    def __init__(self, observation_space: Any, actions: PolicyActions) -> None:
        self.actions, self.observation_space, self.in_obs = actions, observation_space, False
        if isinstance(observation_space, gym.spaces.Dict) and MASK in observation_space.spaces:
            self.in_obs = True
            self.observation_space = gym.spaces.Dict(
                {k: space for k, space in observation_space.items() if k != MASK}
            )

    def read(self, obs: Any, info: dict[str, Any], name: str) -> np.ndarray | None:
        """The mask as booleans [options], None where there is none; one of the wrong size or kind
        is refused."""
        given = obs.get(MASK) if self.in_obs else info.get(MASK)
        if given is None:
            return None
        parts = (
            [np.ravel(part) for part in given]
            if isinstance(given, list | tuple) and len(given)
            else [np.ravel(given)]
        )
        flat = np.concatenate(parts)
        if flat.size != self.actions.options:
            raise EnvironmentFault(
                f"{name} gives an action mask of {flat.size} numbers, and its actions have "
                f"{self.actions.options} options."
            )
        if flat.dtype != np.bool_ and not np.isin(flat, (0, 1)).all():
            raise EnvironmentFault(
                f"{name} gives an action mask with {flat[~np.isin(flat, (0, 1))][0]} at place "
                f"{int(np.argmin(np.isin(flat, (0, 1))))}: it must be 0 or 1 everywhere."
            )
        return flat.astype(np.bool_)


class ScalarEnvironments(Environments):
    """Our loop over ordinary Gymnasium environments: no allocation of its own, under 2 µs a step
    over the environment."""

    def __init__(
        self, name: str, num_envs: int, seed: int, policy: bool = False, first: int = 0
    ) -> None:
        """`policy`: actions may be of any kind, and masks are read."""
        self.envs = [make_env(name) for _ in range(num_envs)]
        one = self.envs[0]
        masks = (
            MaskReader(one.observation_space, policy_actions(one.action_space, name))
            if policy
            else None
        )
        super().__init__(
            name,
            num_envs,
            seed,
            masks.observation_space if masks else one.observation_space,
            one.action_space,
            first,
        )
        self.masks, self.masked, self.unread_mask = (
            masks,
            None,
            not policy and offers_mask(one.observation_space),
        )
        self.exact_resume = not (one.spec is not None and one.spec.nondeterministic)
        shape, dtype = one.action_space.shape or (), one.action_space.dtype or np.dtype(np.int64)
        self.decode = masks.actions.decode if masks and masks.actions.parts else None
        if masks and masks.actions.parts:
            shape, dtype = (masks.actions.numbers,), np.dtype(np.float64)
        self.room = 1024  # for actions of the current episodes; grows by doubling
        self.actions = np.zeros((num_envs, self.room, *shape), dtype)
        self.discrete = isinstance(one.action_space, gym.spaces.Discrete)
        self.direct = self.layout.direct
        # whole numbers are looked at before they are cut to their type
        self.copied = self.direct and self.fallible
        seen = masks.observation_space if masks else one.observation_space
        self.shape = seen.shape or ()
        self.plan = FlattenPlan(seen, name) if self.layout.parts and not self.layout.graph else None
        self.rows = list(self.obs)  # views, made once
        self.flat, self.flat_rows = self.obs.reshape(-1), [row.reshape(-1) for row in self.rows]
        for i in range(num_envs):
            self.begin(i)

    def begin(self, i: int) -> None:
        """Resets environment i to the start of its current episode."""
        try:
            returned = self.envs[i].reset(seed=self.episode_seed(i))
            if isinstance(returned, tuple) and len(returned) == 2 and returned[1] is None:
                raise EnvironmentFault(
                    f"{self.place(i)}: the info that reset returned is None, and must be a dict."
                )
            if (
                not isinstance(returned, tuple)
                or len(returned) != 2
                or not isinstance(returned[1], dict)
            ):
                raise old_style(self.place(i))
            obs, info = returned
            self.write(obs, i)
        except UserError:
            raise
        except Exception as error:
            raise self.raised(i, "reset", error) from error
        if self.masks:
            self.read_mask(i, obs, info)
        elif MASK in info:
            self.unread_mask = True
        self.length[i] = 0
        self.ret[i] = 0.0
        if self.fallible and not all_finite(self.flat_rows[i]):
            raise self.not_finite(i)

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B], in the environment's own numbers."""
        if self.finished:
            self.finished = []
            self.terminated[:] = self.truncated[:] = False
        envs, rows, lengths, rewards, returns, i = (
            self.envs,
            self.rows,
            self.length,
            self.reward,
            self.ret,
            0,
        )
        shape, decode, copied = self.shape, self.decode, self.copied
        try:
            # copies, since an environment may write into what it is given
            for i, action in enumerate(actions.tolist() if self.discrete else actions.copy()):
                taken = lengths[i]
                if taken == self.room:
                    self.longer_episodes()
                self.actions[i, taken] = action
                obs, reward, terminated, truncated, info = envs[i].step(
                    decode(action) if decode else action
                )
                if copied and getattr(obs, "shape", None) == shape:
                    rows[i][...] = obs
                else:
                    self.write(obs, i, terminated or truncated)
                rewards[i] = reward
                lengths[i] = taken + 1
                if not math.isfinite(reward):
                    raise self.not_finite(i)
                returns[i] += float(reward)
                if terminated or truncated:
                    self.end(i, terminated, truncated)
                elif self.masks and (self.masked or MASK in info):
                    self.read_mask(i, obs, info)
        except UserError:
            raise
        except Exception as error:
            raise self.raised(i, "step", error) from error
        # all at once: a call for each would take a tenth of the adapter's time
        if self.fallible and not all_finite(self.flat):
            raise self.not_finite(
                next(i for i, row in enumerate(self.flat_rows) if not all_finite(row))
            )

    def end(self, i: int, terminated: bool, truncated: bool) -> None:
        """Notes the episode of environment i that ended, and begins its next one."""
        if self.fallible and not all_finite(self.flat_rows[i]):
            raise self.not_finite(i)
        self.terminated[i], self.truncated[i] = terminated, truncated
        self.final_obs[i] = self.rows[i]
        self.finished.append(Episode(i, self.ret[i], self.length[i]))
        self.episode[i] += 1
        self.begin(i)

    def write(self, obs: Any, i: int, last: bool = False) -> None:
        """Encodes an observation into row i: Dict and Tuple in one pass."""
        if self.direct:
            self.check_shape(i, obs, self.shape)
        try:
            if self.plan is None:
                self.layout.write(obs, self.rows[i])
            else:
                self.plan.flatten([obs], self.rows[i][None])
        except ObservationError as error:
            raise EnvironmentFault(f"{self.place(i)}: {error}") from None
        if self.layout.graph and not last and not self.rows[i][0]:
            raise EnvironmentFault(
                f"{self.place(i)}: the observation is a graph without nodes, and only an episode's "
                "last one may be: end the episode, or give at least one node."
            )

    def read_mask(self, i: int, obs: Any, info: dict[str, Any]) -> None:
        assert self.masks
        found = self.masks.read(obs, info, self.name)
        if self.masked is None:  # the very first observation decides
            self.masked = found is not None
            self.mask = (
                np.ones((self.num_envs, self.masks.actions.options), np.bool_)
                if self.masked
                else None
            )
        if self.masked != (found is not None):
            raise EnvironmentFault(
                f"{self.name} gives an action mask with some observations and none with others: "
                "give it in the info of every reset and every step, or in the observation."
            )
        if self.mask is not None:
            self.mask[i] = found

    def longer_episodes(self) -> None:
        """Room for twice as many actions."""
        self.actions = np.concatenate([self.actions, np.zeros_like(self.actions)], axis=1)
        self.room *= 2

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs: which episode each environment is in, and the actions taken in
        it."""
        return {
            "episode": np.array(self.episode),
            "length": np.array(self.length),
            "actions": taken_since(self.actions, self.length),
            "obs": self.obs.copy(),
        }

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """Replays the current episodes. False where that did not lead to the same observations: not
        an exact resume."""
        self.episode = state["episode"].tolist()
        while self.room < state["actions"].shape[1]:
            self.longer_episodes()
        for i in range(self.num_envs):
            self.begin(i)
            taken = state["actions"][i, : state["length"][i]]
            require_possible(taken, self.action_space, self.place(i))
            try:
                self.repeat(i, taken)
            except UserError:
                raise
            except Exception as error:
                raise self.raised(i, "step", error) from error
        return self.exact_resume and bool(np.array_equal(self.obs, state["obs"]))

    def repeat(self, i: int, actions: np.ndarray) -> None:
        """Takes actions of an earlier time in environment i again; stops where its episode ends,
        which it did not do then."""
        for action in actions:
            self.actions[i, self.length[i]] = action
            action = action.item() if self.discrete else action.copy()
            obs, reward, terminated, truncated, info = self.envs[i].step(
                self.decode(action) if self.decode else action
            )
            if terminated or truncated:
                self.begin(i)
                break
            self.write(obs, i)
            if self.masks:
                self.read_mask(i, obs, info)
            self.length[i] += 1
            self.ret[i] += float(reward)

    def close(self) -> None:
        for env in self.envs:
            put_away(env)


class NativeEnvironments(Environments):
    """The environment's own vector class, in either autoreset mode. Its episodes cannot be seeded
    one by one, so a resumed run begins new episodes, and says so."""

    exact_resume = False

    def __init__(self, name: str, num_envs: int, seed: int, first: int = 0) -> None:
        self.env = make_native(name, num_envs)
        super().__init__(
            name,
            num_envs,
            seed,
            self.env.single_observation_space,
            self.env.single_action_space,
            first,
        )
        self.mode = self.env.metadata.get("autoreset_mode")
        if self.mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise EnvironmentFault(
                f"{name}'s vector class does not reset by itself ({self.mode}): leave vectorize at "
                "scalar."
            )
        self.begin()

    def begin(self) -> None:
        obs, self.info = self.env.reset(seed=self.episode_seed(0))
        self.write_all(obs, self.obs)
        self.length, self.ret = [0] * self.num_envs, [0.0] * self.num_envs
        self.terminated[:] = self.truncated[:] = self.skipped[:] = False

    def write_all(self, obs: Any, rows: np.ndarray) -> None:
        if self.layout.direct:
            rows[...] = self.layout.whole(np.asarray(obs))
        else:
            for i, one in enumerate(gym.vector.utils.iterate(self.env.observation_space, obs)):
                try:
                    self.layout.write(one, rows[i])
                except ObservationError as error:
                    raise EnvironmentFault(f"{self.place(i)}: {error}") from None

    def step(self, actions: np.ndarray) -> None:
        self.finished = []
        # an environment that ended in the last step ignores this action
        if self.mode is AutoresetMode.NEXT_STEP:
            np.logical_or(self.terminated, self.truncated, out=self.skipped)
        obs, self.reward[:], self.terminated[:], self.truncated[:], info = self.env.step(actions)
        self.write_all(obs, self.obs)
        for i in np.flatnonzero(~self.skipped).tolist():
            self.length[i] += 1
            self.ret[i] += float(self.reward[i])
        finite = np.isfinite(self.reward)
        if self.fallible:
            finite &= np.isfinite(self.obs.reshape(self.num_envs, -1)).all(-1)
        if not finite.all():
            raise self.not_finite(int(np.argmin(finite)))
        for i in np.flatnonzero(self.terminated | self.truncated).tolist():
            if self.mode is AutoresetMode.SAME_STEP:
                self.layout.write(info["final_obs"][i], self.final_obs[i])
            else:
                self.final_obs[i] = self.obs[i]
            self.finished.append(Episode(i, self.ret[i], self.length[i]))
            self.episode[i] += 1
            self.length[i] = 0
            self.ret[i] = 0.0

    def state(self) -> dict[str, np.ndarray]:
        return {"episode": np.array(self.episode)}

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        self.episode = (state["episode"] + 1).tolist()
        self.begin()
        return False

    def close(self) -> None:
        put_away(self.env)


def anchored(name: str) -> str:
    """The name as it means the same from any folder: a file of one's own in it by its absolute
    path."""
    if name.startswith(COLONY):
        from tenfold.domains.durotaxis.setting import with_absolute_path as with_absolute_substrate

        return with_absolute_substrate(name)
    if not name.startswith(SHOP):
        return name
    from tenfold.domains.jobshop.shops import with_absolute_path

    return with_absolute_path(name)


def time_limit(name: str) -> int | None:
    """Steps after which an environment's episodes end by themselves, where its registration or its
    name says so."""
    ident, arguments = split_name(name)
    spec = gym.registry.get(ident.split(":")[-1])
    return arguments.get("max_episode_steps", spec and spec.max_episode_steps)


def is_multiagent(name: str) -> bool:
    """Whether a world with several agents goes by this name: a gridworld of ours, or a PettingZoo
    environment."""
    from tenfold.domains.treasure.rules import is_gridworld  # it imports this module

    return name.startswith("pettingzoo/") or is_gridworld(name)


def make_environments(
    name: str, num_envs: int, seed: int, vectorize: str, policy: bool = False, first: int = 0
) -> Environments:
    """Our compiled tasks step together whatever `vectorize` says; with arguments they are
    environments like any other. Of worlds with several agents there are `num_envs`, and more lanes.
    `first` is the index of the first one in its run."""
    # they import this module, and a run needs one of them at most
    from tenfold.envs.control_tasks import KINDS

    if name in KINDS:
        from tenfold.envs.control import ControlEnvironments

        return ControlEnvironments(name, num_envs, seed, first)
    if name.startswith("tenfold/"):
        from tenfold.domains.dynamics.fields import FieldEnvironments, is_field

        if is_field(name):
            return FieldEnvironments(name, num_envs, seed, first)
    if is_multiagent(name):
        from tenfold.envs.worlds import make_worlds

        return make_worlds(name, num_envs, seed, policy, first)
    if policy and name == "tenfold/Assign-v0":
        from tenfold.envs.assign import AssignEnvironments

        return AssignEnvironments(name, num_envs, seed, first)
    if policy and split_name(name)[0] == SHOP:
        from tenfold.domains.jobshop.shops import JobShopEnvironments

        return JobShopEnvironments(name, num_envs, seed, first=first)
    if policy and split_name(name)[0] == COLONY:
        from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments

        return DurotaxisEnvironments(name, num_envs, seed, first)
    if vectorize == "scalar":
        return ScalarEnvironments(name, num_envs, seed, policy, first)
    native = NativeEnvironments(name, num_envs, seed, first)
    native.unread_mask = not policy and (
        offers_mask(native.env.single_observation_space) or offers_mask(native.info)
    )
    if policy:
        masked = MaskReader(
            native.env.single_observation_space, policy_actions(native.action_space, name)
        ).in_obs
        if masked or MASK in native.info or policy_actions(native.action_space, name).parts:
            raise EnvironmentFault(
                f"{name} has masked or mixed actions, which its own vector class cannot be given: "
                "leave vectorize at scalar."
            )
    return native
