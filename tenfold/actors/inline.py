"""The actors of a run, as the learner sees them: in this process one after another, the reference
of `places.processes`."""

from collections.abc import Iterator

import numpy as np

from tenfold.actors.actor import ACT, ENV, WAIT, Actor, Agent, Gathered, Part, part_of
from tenfold.config.run import Run


class Crew:
    """Actors that act when the learner asks, all of them once a round."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.words: list[str] = []  # about actors that were lost and replaced
        self.actors = [Actor(run, index) for index in range(run.actors)]
        self.envs = Gathered(self.actors[0].envs, run.actors)
        self.rows = [
            {name: np.zeros(shape, dtype) for name, (shape, dtype) in actor.schema().items()}
            for actor in self.actors
        ]
        self.spent = np.zeros((run.actors, 3))  # seconds of each actor, by ACT, ENV and WAIT
        # of the rows since the last report, in versions and seconds
        self.ages: list[tuple[int, float]] = []

    def follow(self, agent: Agent) -> None:
        """Begins, with this agent's networks."""
        for actor in self.actors:
            actor.follow(agent)
        self.see_first()

    def see_first(self) -> None:
        for actor in self.actors:
            self.see(actor.first, actor.envs.obs, actor.envs.mask)

    def see(self, first: int, obs: np.ndarray, mask: np.ndarray | None) -> None:
        """What will be acted on next."""
        self.envs.put(first, "obs", obs)
        if mask is not None:
            self.envs.put(first, "mask", mask)

    def collect(self, step: int, left: int) -> Iterator[Part]:
        """A row of every actor. `left`: rounds that may be played until the learner publishes
        again, or the run ends."""
        for actor, row in zip(self.actors, self.rows, strict=True):
            actor.advance(step, row)
            self.spent[actor.index] = actor.seconds
            self.see(actor.first, row["obs"], row.get("mask"))
            yield Part(actor.index, actor.first, row)

    def rounds_until(self, step: int, end: int) -> int:
        """Rounds that all actors play from one step to another, at least one."""
        return max(-((step - end) // self.envs.worlds), 1)

    def hold(self) -> int:
        """Brings actors to rest where they are, and says how many rounds the furthest is ahead."""
        return 0

    def settle(self) -> Iterator[Part]:
        """Brings actors to rest; what they were ahead by comes out."""
        return iter(())

    def publish(self, agent: Agent, step: int) -> None:
        """Actors act by what the agent has learned now."""

    def report(self) -> dict[str, float]:
        """For the metrics: where actors' time goes, and how old the policies were that acted since
        the last report."""
        total = float(self.spent.sum()) or 1.0
        shares = {
            f"actors_{name}": float(self.spent[:, place].sum()) / total
            for place, name in ((ACT, "act"), (ENV, "env"), (WAIT, "wait"))
        }
        if not self.ages:
            return shares
        versions, seconds = np.array(self.ages).T
        self.ages.clear()
        return shares | {
            "policy_age": float(versions.mean()),
            "policy_age_most": float(versions.max()),
            "policy_age_seconds": float(seconds.mean()),
        }

    def state(self) -> dict[str, np.ndarray]:
        return {
            f"{actor.index}.{name}": value
            for actor in self.actors
            for name, value in actor.state().items()
        }

    def restore(self, state: dict[str, np.ndarray], agent: Agent, step: int) -> bool:
        """Goes on with what the agent has learned by `step`. False where environments could not be
        restored exactly."""
        exact = [actor.restore(part_of(state, f"{actor.index}.")) for actor in self.actors]
        self.see_first()
        return all(exact)

    def close(self) -> None:
        for actor in self.actors:
            actor.envs.close()
