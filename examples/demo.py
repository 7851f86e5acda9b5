"""CartPole solved in seconds, with the plain and the fused engine's rates at the end.

make demo, or: python examples/demo.py
"""

import tenfold as ten
from tenfold.training.profiling import steps_per_second

STEPS = 30_000
RUN = ten.Run(
    env="CartPole-v1",
    steps=STEPS,
    eval_every=6_000,
    log_every=500,
    agent=ten.DQN(
        batch_size=64,
        updates=2,
        double=True,
        n_step=3,
        loss="huber",
        clip_norm=10,
        capacity=STEPS,
        lr=ten.Linear(1e-3, 0, STEPS),
        explore=ten.Epsilon(ten.Linear(1.0, 0.04, 5_000)),
    ),
)
# environment steps that are timed: a second or two of each
STRETCH = {"plain": 1_000, "fused": 10_000}


def main(run: ten.Run = RUN, out: str = "runs/demo", stretch: dict[str, int] = STRETCH) -> None:
    # a live panel on a terminal, a line now and then elsewhere
    result = ten.train(run, out, overwrite=True)
    score = ten.evaluate(result, episodes=100, checkpoint="best")
    print(
        f"{run.env}: mean return {score.mean_return:.1f} of 100 episodes by the best policy, "
        f"trained in {result.seconds:.1f} s (500 is the most there is, 475 counts as solved)"
    )
    plain, fused = (steps_per_second(run, engine, steps) for engine, steps in stretch.items())
    agent = run.agent
    print(
        f"the same training, {agent.updates} updates of {agent.batch_size} a step: plain engine "
        f"{plain:,.0f} steps/s, fused engine {fused:,.0f} steps/s, {fused / plain:.1f} times as "
        "fast"
    )
    print(f"report: {result.path / 'report.html'}")


if __name__ == "__main__":
    main()
