"""tenfold's own PPO, measured as the others are: the whole `train`, its metrics included,
evaluations and checkpoints off."""

import own
import peer

LOG_EVERY = 8192


def main() -> None:
    options = peer.arguments(__doc__, steps=163_840, env=peer.ENV, engine="auto")
    ppo = peer.PPO
    minibatches = ppo["num_envs"] * ppo["horizon"] // ppo["batch"]
    names = ("lr", "horizon", "epochs", "lam", "clip", "entropy", "value_weight", "clip_norm")
    agent = {
        "name": "ppo",
        "gamma": peer.GAMMA,
        "minibatches": minibatches,
        "adam_eps": 1e-5,
        "net": {"hidden": peer.HIDDEN, "activation": "tanh"},
        **{name: ppo[name] for name in names},
    }
    own.measure(
        options,
        agent,
        LOG_EVERY,
        peer.ppo_setting(options, env=options.env, engine=options.engine),
        num_envs=ppo["num_envs"],
    )


if __name__ == "__main__":
    main()
