"""tenfold's own training, measured as the others are: the whole `train`, its metrics included,
evaluations and checkpoints off.

--env tenfold/CartPole-v1 takes the compiled environment; the others all step Gymnasium's.
"""

import own
import peer


def main() -> None:
    options = peer.arguments(__doc__, steps=40_000, env=peer.ENV, engine="auto")
    same = {"loss": "mse", "adam_eps": 1e-8, "clip_norm": None, "double": False}
    agent = {
        **same,
        "lr": peer.LR,
        "gamma": peer.GAMMA,
        "batch_size": options.batch,
        "every": options.every,
        "updates": options.updates,
        "capacity": peer.CAPACITY,
        "learning_starts": peer.LEARNING_STARTS,
        "target": f"hard({peer.TARGET_EVERY})",
        "explore": f"epsilon({peer.EPSILON})",
        "net": {"hidden": peer.HIDDEN},
    }
    own.measure(
        options,
        agent,
        peer.WARM_UP,
        peer.setting(options, env=options.env, engine=options.engine, **same),
    )


if __name__ == "__main__":
    main()
