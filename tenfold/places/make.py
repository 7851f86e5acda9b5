"""The place that fits a run's agent."""

from typing import TYPE_CHECKING, Union

from tenfold.explorer_settings import Explorer
from tenfold.places.onpolicy import OnPolicy
from tenfold.places.serial import Serial
from tenfold.settings import PPO, Run

if TYPE_CHECKING:  # other agents need none of its parts
    from tenfold.places.exploring import Exploring
    from tenfold.places.offline import Offline

Place = Union[Serial, OnPolicy, "Exploring", "Offline"]


def make_place(run: Run) -> Place:
    if isinstance(run.agent, Explorer):
        from tenfold.envs.recording import is_recording
        if is_recording(run.env):
            from tenfold.places.offline import Offline
            return Offline(run)
        from tenfold.places.exploring import Exploring
        return Exploring(run)
    return OnPolicy(run) if isinstance(run.agent, PPO) else Serial(run)
