"""tenfold's own SAC, measured as the others are: the whole `train`, its metrics included,
evaluations and checkpoints off.

--env tenfold/Pendulum-v1 takes the compiled environment; the others all step Gymnasium's.
"""

import own
import peer


def main() -> None:
    options = peer.arguments(__doc__, steps=20_000, env=peer.SAC["env"], engine="auto")
    agent = {
        "name": "sac",
        "lr": peer.SAC["lr"],
        "tau": peer.SAC["tau"],
        "gamma": peer.GAMMA,
        "batch_size": options.batch,
        "every": options.every,
        "updates": options.updates,
        "capacity": peer.CAPACITY,
        "learning_starts": peer.LEARNING_STARTS,
        "net": {"hidden": peer.HIDDEN},
    }
    chosen = peer.sac_setting(options, env=options.env, engine=options.engine)
    own.measure(options, agent, peer.WARM_UP, chosen)


if __name__ == "__main__":
    main()
