"""The place that fits a run's agent."""

from typing import TYPE_CHECKING, Union

from tenfold.algorithms.dqn.learner import Serial
from tenfold.algorithms.ppo.config import PPO
from tenfold.algorithms.ppo.learner import OnPolicy
from tenfold.config.run import Run
from tenfold.domains.dynamics.config import Explorer

if TYPE_CHECKING:  # other agents need none of its parts
    from tenfold.domains.dynamics.learner import Exploring
    from tenfold.domains.dynamics.offline import Offline

Place = Union[Serial, OnPolicy, "Exploring", "Offline"]


def make_place(run: Run) -> Place:
    if isinstance(run.agent, Explorer):
        from tenfold.domains.dynamics.recording import is_recording

        if is_recording(run.env):
            from tenfold.domains.dynamics.offline import Offline

            return Offline(run)
        from tenfold.domains.dynamics.learner import Exploring

        return Exploring(run)
    return OnPolicy(run) if isinstance(run.agent, PPO) else Serial(run)
