"""The place that fits a run's agent."""

from tenfold.places.onpolicy import OnPolicy
from tenfold.places.serial import Serial
from tenfold.settings import PPO, Run

Place = Serial | OnPolicy


def make_place(run: Run) -> Place:
    return OnPolicy(run) if isinstance(run.agent, PPO) else Serial(run)
