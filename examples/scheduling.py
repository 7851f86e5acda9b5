"""A job shop of one's own: PPO with one masked head for each machine, and the schedule it makes.

    python examples/scheduling.py

Three jobs on three machines, a line for each job: machine and duration of its operations in turn.
The head of a machine chooses among the jobs that wait at it; whatever else is masked.
"""

from pathlib import Path

import tenfold as ten

SHOP = """3 3
0 4  1 3  2 2
1 2  0 5  2 4
2 3  1 4  0 2
"""


def main(steps: int = 20_000) -> None:
    folder = Path("runs/shop")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "shop.txt").write_text(SHOP)
    env = f"tenfold/JobShop-v0(instance={folder / 'shop.txt'})"
    # the settings of a preset, another instance; fewer environments, since it is a short run
    run = ten.named("jobshop-ft06", {"env": env, "steps": steps, "num_envs": 16, "eval_every": 0})
    result = ten.train(run, folder / "run", overwrite=True, quiet=True)
    best = ten.evaluate(result, episodes=1).infos[0]
    print(f"makespan {best['makespan']}")
    for machine in range(3):
        done = sorted((s.start, s.end, s.job) for s in best["schedule"] if s.machine == machine)
        operations = "  ".join(f"job {job}: {start} to {end}" for start, end, job in done)
        print(f"machine {machine}:  {operations}")


if __name__ == "__main__":
    main()
