"""Environments: the adapter, and our own and those of the domains, registered with Gymnasium."""

import gymnasium

from tenfold.core.registry import domains

CLASSIC = {"CartPole-v1": 500, "Acrobot-v1": 500, "MountainCar-v0": 200, "Pendulum-v1": 200}
OURS = {
    "tenfold/Catch-v0": {"entry_point": "tenfold.envs.classic:Catch"},
    "tenfold/Assign-v0": {"entry_point": "tenfold.envs.assign:AssignEnv"},
    **{
        f"tenfold/{task}": {
            "entry_point": "tenfold.envs.control:ControlEnv",
            "max_episode_steps": limit,
            "kwargs": {"kind": f"tenfold/{task}"},
        }
        for task, limit in CLASSIC.items()
    },
}


def register() -> None:
    """Makes Gymnasium know them, once."""
    for known in (OURS, *(domain.registered for domain in domains())):
        for ident, how in known.items():
            if ident not in gymnasium.registry:
                gymnasium.register(ident, **how)


register()
