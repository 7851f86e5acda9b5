"""How an actor of an agent with a replay memory acts, and that agent's rounds: take what the actors
bring, store it, run the updates that are due."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from tenfold.actors.actor import (
    MASK_FIELDS,
    STEP_FIELDS,
    TransitionBatch,
    check_first_rows,
    episodes,
)
from tenfold.algorithms.learner import MANY, ActorLearner
from tenfold.config.options import Episodes
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import State
from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.faults import refuse_dead_end, refuse_stuck, require_final_masks
from tenfold.memory.frames import FrameStack
from tenfold.memory.replay import replay_bytes
from tenfold.ops.exploration_noise import OwnNoise

# rows, step, rounds, masks where there are any -> the agent's actions
Explore = Callable[..., np.ndarray]


class OffPolicyActing:
    """Explores by the agent's networks; `explore` does what the agent's method of this name does,
    where there is a faster way."""

    def __init__(self, agent: Any, envs: Environments, explore: Explore | None = None) -> None:
        require_final_masks(envs)
        self.agent, self.envs = agent, envs
        self.frame_stack = FrameStack(agent.frames // envs.layout.frames, envs)
        self.noise = agent.make_noise(envs)
        self.explore = explore or agent.explore

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        """Actions for the environments; those of the agent go into the row."""
        refuse_stuck(self.envs)
        masks = () if self.envs.mask is None else (self.envs.mask,)
        action = self.explore(self.frame_stack.rows, step, rounds, *masks)
        row["action"][:] = self.noise.add(action, rounds, self.ended) if self.noise else action
        return self.agent.actions.for_env(row["action"])

    def stepped(self) -> None:
        """After a step of the environments."""
        refuse_dead_end(self.envs)
        self.frame_stack.step()

    @property
    def ended(self) -> np.ndarray:
        """Whose episode ended in the last step."""
        return self.envs.terminated | self.envs.truncated

    def state(self) -> dict[str, np.ndarray]:
        noise = self.noise.state(self.ended) if self.noise else {}
        return self.frame_stack.state() | noise

    def restore(self, state: dict[str, np.ndarray], exact: bool) -> None:
        self.frame_stack.restore(state, exact)
        if self.noise:
            self.noise.load_state(state if exact else {})


class OffPolicyLearner(ActorLearner):
    """Actors, agent, replay memory and engine of one run."""

    own_noise: OwnNoise | None = None  # on actions, by a Python object

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.settings: Any = run.agent
        require_final_masks(self.envs)
        if self.by_episodes and self.envs.num_envs > 1:
            raise ConfigError(
                "agent.every",
                f"= {self.settings.every} is for one environment with one agent, and {run.env} has "
                f"{self.envs.num_envs}: count steps.",
            )
        self.rows = self.replay = self.agent.make_replay(self.envs)
        if self.rewards and self.rewards.drawn:
            self.replay.reward_by(self.rewards)
        self.engine, self.engine_choice = self.agent.make_engine(run, self.replay, self.envs)
        alone = self.envs.agents == 1 and self.pool.direct
        if alone and not (run.verify or run.overlap):
            self.rounds_by = self.engine.rounds_by
        if run.overlap:
            gains = self.agent.device.type == "cuda"
            about = "run while environments step" if gains else "gain nothing by overlap on a CPU"
            self.engine_choice += f"; updates {about}"
        if run.verify:
            from tenfold.engines.lockstep import lockstep_of  # here: few ask for it

            self.lockstep = lockstep_of(self.engine, run.verify)
        stacked_obs = self.pool.bind_agent(self.agent, self.explore)
        if stacked_obs is not None:
            self.engine.look(stacked_obs)
        self.replay.begin(*self.current_obs())
        self.round_obs: list[np.ndarray] = []  # observations of a round, where they are normalised
        self.due_from = 0  # the step up to which updates were run, where actors may be ahead
        self.note_first()

    @property
    def memory_text(self) -> str:
        settings, members = self.settings, self.agent.members
        lanes, reals = self.envs.num_envs // members, self.agent.actions.reals
        options = 0 if self.envs.mask is None else self.envs.mask.shape[1]
        bytes_each = replay_bytes(settings, self.envs.layout, lanes, reals, options)
        whose = " for each agent" * (members > 1)
        size = f"{members * bytes_each / 2**20:,.1f}"
        rows = lanes * settings.lane_rows(lanes)
        return f"replay of {rows:,} rows{whose} takes {size} MiB"

    @property
    def by_episodes(self) -> bool:
        """Whether updates are due by episodes."""
        return isinstance(self.settings.every, Episodes)

    @property
    def exact_resume(self) -> bool:
        return super().exact_resume and not self.own_noise

    def use_noise(self, noise: Any) -> None:
        """Adds what a Python object gives to every action from now on; see `OwnNoise`. Whole rounds
        are no longer one compiled call."""
        actions = self.agent.actions
        if not self.pool.direct or not actions.reals:
            raise UserError(
                "Noise by a Python object is for continuous actions, and for one actor in the "
                "learner's process: leave where and actors as they are."
            )
        if self.rounds_by == "device":
            raise UserError("Noise by a Python object is not for the resident engine.")
        self.own_noise = OwnNoise(noise, self.envs.num_envs, actions.reals)
        self.rounds_by = "learner"
        self.engine_choice += "; a round is several calls: noise on actions is a Python object"

    def set_lr(self, lr: Any) -> None:
        super().set_lr(lr)
        self.settings = replace(self.settings, lr=lr)

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments, where the learner's own engine acts."""
        refuse_stuck(self.envs)
        self.action = self.engine.explore(step, rounds)
        if self.own_noise:
            ended = self.envs.terminated | self.envs.truncated
            self.action = self.own_noise.add(self.action, rounds, ended)
        if self.run.overlap:
            self.learn()
        return self.agent.actions.for_env(self.action)

    def round(self, until: int | None = None) -> list[Episode]:
        """Act, step, store, and run the updates that are due; with `overlap` they run between
        acting and the step, of what is stored by then. Returns the episodes that ended.

        The fused engine goes on to the next end of an episode, not beyond step `until`.
        """
        if self.rounds_by != "learner":
            return self.engine.run_rounds(self, MANY, until)
        if self.pool.direct and not self.run.overlap:
            self.due_from = self.step
        finished: list[Episode] = []
        self.clock.start()
        left = self.pool.rounds_until(self.step, self.run.steps) if self.run.steps_ahead else 1
        batches = self.pool.collect(self.step, self.rounds, left, self.clock)
        for part in self.rewarded(batches):
            finished += self.take(part)
            self.clock.lap("store")
        self.rounds += 1
        self.agent.stepped(self.rounds, self.envs.worlds)
        self.note_taken()
        learned = not self.run.overlap and self.learn()
        if learned or self.agent.norm:
            self.pool.publish(self.agent, self.step, self.clock)
        return finished

    def take(self, part: TransitionBatch) -> Iterable[Episode]:
        """Stores what an actor brought. Returns the episodes that ended."""
        row, envs = part.row, self.envs
        if self.agent.norm:
            self.round_obs.append((row or {"obs": envs.obs})["obs"].copy())
        if part.is_reset:
            self.replay.cut(*row.values(), first=part.first)
            return ()
        names = STEP_FIELDS if envs.mask is None else STEP_FIELDS + MASK_FIELDS
        if not row:  # it is where the environments and the engine left it
            refuse_dead_end(envs)
            self.replay.add(self.action, *(getattr(envs, name) for name in names))
            self.note_step(envs.skipped, envs.worlds, envs.terminated, envs.truncated)
            return part.finished
        self.replay.add(row["action"], *(row[name] for name in names), first=part.first)
        self.note_step(row["skipped"], len(row["length"]), row["terminated"], row["truncated"])
        return episodes(part, envs.agents)

    def note_step(self, skipped: np.ndarray, worlds: int, *ends: np.ndarray) -> None:
        """Counts the steps of a row, and the end of an episode where updates are due by them."""
        steps = self.steps_of(skipped, worlds)
        self.step += steps
        if self.by_episodes:
            self.engine.since += steps, any(flags.any() for flags in ends)

    def note_taken(self) -> None:
        """Statistics learn from a round as a whole: all actors of a round act by the same ones."""
        if self.round_obs:
            self.note_seen(np.concatenate(self.round_obs))
            self.round_obs.clear()

    def learn(self) -> bool:
        """Runs the updates that are due since step `due_from`; whether there were any."""
        settings, step = self.settings, self.step
        due = settings.updates_due(self.due_from, step, self.engine.since)
        self.due_from = step
        if not due or step <= settings.learning_starts or not self.replay.rows:
            return False
        if not self.pool.direct and not self.agent.updates:
            self.notices.append(check_first_rows(self.replay.memories))
        (self.lockstep or self.engine).update(due, step, self.clock)
        if self.engine.notices:
            self.notices += self.engine.notices
            self.engine.notices.clear()
        return True

    def settle(self) -> list[Episode]:
        """Before the state is saved: takes what actors are ahead by. Updates that are due for it
        come with the next round."""
        self.engine.settle()
        batches = self.rewarded(self.pool.drain())
        finished = [episode for part in batches for episode in self.take(part)]
        self.note_taken()
        return finished

    def counters(self) -> dict[str, np.ndarray]:
        # where the learner's own engine acts nothing is ahead of it, unless updates overlap
        behind = self.run.overlap or not self.pool.direct
        due_from = self.due_from if behind else self.step
        since = {"since": self.engine.since} if self.by_episodes else {}
        return super().counters() | {"due_from": np.array(due_from)} | since

    def memory_state(self) -> State:
        return {"replay": self.replay.state()}

    def forget(self) -> None:
        self.replay.cut(*self.current_obs())
        if getattr(self.engine, "noise", None):
            self.engine.noise.begin()

    def current_obs(self) -> tuple[np.ndarray, ...]:
        """The observations acted on next, and their masks where there are any."""
        envs = self.envs
        return (envs.obs,) if envs.mask is None else (envs.obs, envs.mask)

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        """Replay rows of a checkpoint."""
        self.agent.actions.check_stored(rows["action"])
        self.replay.load_rows(rows)

    def load_memory(self, state: State, with_rows: bool) -> None:
        """Without its rows the memory stays empty and begins with the next step."""
        # earlier checkpoints do not say it
        self.due_from = int(state["serial"].get("due_from", np.array(self.step)))
        if self.by_episodes:
            self.engine.since[:] = state["serial"].get("since", 0)
        if with_rows:
            self.replay.load_state(state["replay"])
        else:
            self.replay.begin(*self.current_obs())
