"""tenfold's own PPO with a memory, measured as the others are: the whole `train`, its metrics
included, evaluations and checkpoints off."""

import json

import without_velocities  # isort: skip
import own
import peer

IN_PYTHON = "WithoutVelocities-v0"


def main() -> None:
    own_flags = {"env": "tenfold/CartPoleNoVel-v1", "engine": "auto"}
    options = peer.arguments(__doc__, 40_960, work="", **own_flags)
    work = json.loads(options.work)
    if options.env == IN_PYTHON:
        import gymnasium as gym

        gym.register(IN_PYTHON, lambda **more: without_velocities.make())
    agent = {
        "name": "ppo",
        "lr": 1e-3,
        "gamma": 0.98,
        "lam": 0.9,
        "net": {"hidden": work["hidden"], "memory": f"lstm({work['lstm']})"},
        **{name: work[name] for name in ("horizon", "epochs", "minibatches")},
    }
    told = {"env": options.env, "seed": options.seed, **work}
    phase = work["num_envs"] * work["horizon"]
    own.measure(options, agent, phase, told, num_envs=work["num_envs"])


if __name__ == "__main__":
    main()
