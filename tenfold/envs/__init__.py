"""Environments: the adapter, and our own, registered with Gymnasium under `tenfold/`."""

import gymnasium

if "tenfold/Catch-v0" not in gymnasium.registry:
    gymnasium.register("tenfold/Catch-v0", "tenfold.envs.classic:Catch")
    for task, limit in (
        ("CartPole-v1", 500),
        ("Acrobot-v1", 500),
        ("MountainCar-v0", 200),
        ("Pendulum-v1", 200),
    ):
        gymnasium.register(
            f"tenfold/{task}",
            "tenfold.envs.control:ControlEnv",
            max_episode_steps=limit,
            kwargs={"kind": f"tenfold/{task}"},
        )
    gymnasium.register(
        "tenfold/JobShop-v0",
        "tenfold.domains.jobshop.shops:JobShopEnv",
        kwargs={"instance": "ft06"},
    )
    gymnasium.register("tenfold/Assign-v0", "tenfold.envs.assign:AssignEnv")
    gymnasium.register(
        "tenfold/Durotaxis-v0",
        "tenfold.domains.durotaxis.api:DurotaxisEnv",
        vector_entry_point="tenfold.domains.durotaxis.api:DurotaxisVectorEnv",
    )
    for system in (
        "LimitCycle",
        "DoubleLimitCycle",
        "VanDerPol",
        "Duffing",
        "Snowman",
        "MultiAttractor",
        "RingCartPole",
    ):
        kebab = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in system)[
            1:
        ]
        gymnasium.register(
            f"tenfold/{system}-v0",
            "tenfold.domains.dynamics.fields:FieldEnv",
            kwargs={"field": kebab},
        )
    gymnasium.register("tenfold/Field-v0", "tenfold.domains.dynamics.fields:FieldEnv")
