"""Environments: the adapter, and our own and those of the domains, registered with Gymnasium."""

import gymnasium

from tenfold.core.registry import ADDED, Domain, domains

CLASSIC = {
    "CartPole-v1": 500,
    "CartPoleNoVel-v1": 500,
    "Acrobot-v1": 500,
    "MountainCar-v0": 200,
    "Pendulum-v1": 200,
}
OURS = {
    f"tenfold/{task}": {
        "entry_point": "tenfold.envs.control:ControlEnv",
        "max_episode_steps": limit,
        "kwargs": {"kind": f"tenfold/{task}"},
    }
    for task, limit in CLASSIC.items()
}


def register() -> None:
    """Makes Gymnasium know them, once."""
    for known in (OURS, *(domain.registered for domain in domains())):
        for ident, how in known.items():
            if ident not in gymnasium.registry:
                gymnasium.register(ident, **how)


def register_domain(domain: Domain) -> None:
    """A domain of one's own, and its environments; one of the same name is replaced."""
    ADDED[:] = [*(other for other in ADDED if other.name != domain.name), domain]
    register()


register()
