"""Ray RLlib with ten masked heads of eight options: our module against RLlib's own action-masking
example and a loop over heads.

    rllib-act    forward pass, mask, sample and log-probability of one batch
    rllib-loss   what PPO's loss asks of the policy, forward and backward
    rllib-ppo    whole PPO iterations of 2,048 steps, in turns: with our module, with our runner
                 too, with our learner too; and the returns of both ends over seeds

Same weights, same inputs, one thread; 64-64 tanh, policy and value on one trunk in every module.
Needs ray[rllib].
"""

import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import row, timed_row

from tenfold.core.system import set_threads

HEADS, OPTIONS, HIDDEN = 10, 8, [64, 64]
WIDTH = HEADS * OPTIONS
BATCHES = (1, 32, 512)
ITERATIONS, SEEDS, LONG = 15, 5, 15
THEIRS, LOOP, OURS = "RLlib's masking example", "loop over heads", "tenfold"
# of whole iterations `OURS` is all three parts; fewer of them are measured too
MODULE, RUNNER = "tenfold's module", "tenfold's module and runner"
TOLERANCE = 1e-5


def examples() -> tuple[Any, Any]:
    """The scripts that users copy hold the environment and the module with a loop over heads."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    import rllib_compare
    import rllib_masked_heads

    sys.path.pop(0)
    return rllib_masked_heads, rllib_compare


def spec(who: str) -> Any:
    from ray.rllib.core.rl_module.rl_module import RLModuleSpec
    from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

    from tenfold.integrations.rllib import MultiHeadActionMaskRLModule

    theirs = {"fcnet_hiddens": HIDDEN, "fcnet_activation": "tanh", "vf_share_layers": True}
    module, config = {
        THEIRS: (ActionMaskingTorchRLModule, theirs),
        LOOP: (examples()[1].PerHead, {"hidden": HIDDEN}),
    }.get(who, (MultiHeadActionMaskRLModule, {"hidden": HIDDEN}))
    return RLModuleSpec(module_class=module, model_config=config)


def modules() -> dict[str, Any]:
    """All three, with the weights of the first."""
    quietly()
    masked, compare = examples()
    env = masked.Orders({"machines": HEADS, "orders": OPTIONS})
    built = {}
    torch.manual_seed(0)
    for who in (LOOP, THEIRS, OURS):
        made = spec(who)
        made.observation_space, made.action_space = env.observation_space, env.action_space
        built[who] = made.build()
    compare.copy_weights(built[LOOP], built[OURS])
    ours, theirs = built[OURS], built[THEIRS]
    linear = [layer for layer in theirs.modules() if isinstance(layer, torch.nn.Linear)]
    for into, source in zip(linear, [*ours.net.trunk, ours.net.policy, ours.value], strict=True):
        into.load_state_dict(source.state_dict())
    return built


def inputs(rows: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    arrays = examples()[1].random_batch(np.random.default_rng(rows), rows, WIDTH, [OPTIONS] * HEADS)
    observation = {key: torch.from_numpy(arrays[key]) for key in ("observations", "action_mask")}
    return observation, torch.from_numpy(arrays["actions"])


def acting(
    module: Any, observation: dict[str, torch.Tensor]
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """As RLlib does in every step: forward_exploration, then what its GetActions adds. The batch is
    a new dict each time, since RLlib's example takes it apart."""
    from ray.rllib.connectors.module_to_env.get_actions import GetActions

    connector = GetActions()

    def once() -> tuple[torch.Tensor, ...]:
        out = module.forward_exploration({"obs": dict(observation)})
        connector._get_actions(out, module, True)
        return out["action_dist_inputs"], out["actions"], out["action_logp"]

    return once


def judged(
    reference: Any,
    logits: torch.Tensor,
    observation: dict[str, torch.Tensor],
    found: tuple[torch.Tensor, ...],
) -> float:
    """Largest difference of logits and of the log-probability of what was drawn, by RLlib's own
    distribution; infinite if a forbidden option was drawn."""
    allowed = observation["action_mask"].bool()
    own, actions, logp = found
    expected = reference.get_exploration_action_dist_cls().from_logits(logits).logp(actions)
    places = actions + torch.arange(HEADS) * OPTIONS
    if not allowed.gather(1, places).all():
        return float("inf")
    return max(float((own - logits)[allowed].abs().max()), float((logp - expected).abs().max()))


def act() -> list[dict[str, Any]]:
    built = modules()
    found = []
    for rows in BATCHES:
        observation, _ = inputs(rows)
        works = {who: acting(module, observation) for who, module in built.items()}
        logits = works[THEIRS]()[0]
        apart = max(judged(built[THEIRS], logits, observation, works[OURS]()) for _ in range(50))
        setting = {"batch": rows, "heads": HEADS, "options": OPTIONS, "hidden": HIDDEN}
        found += [
            row(
                "rllib-act",
                setting,
                (who, works[who]),
                (OURS, works[OURS]),
                apart < TOLERANCE,
                apart,
            )
            for who in (THEIRS, LOOP)
        ]
    return found


def loss(
    module: Any, observation: dict[str, torch.Tensor], actions: torch.Tensor, old: torch.Tensor
) -> torch.Tensor:
    """PPO's, at unit advantages: ratio, KL(old‖new), entropy, value."""
    out = module.forward_train({"obs": observation})
    kind = module.get_train_action_dist_cls()
    new, before = kind.from_logits(out["action_dist_inputs"]), kind.from_logits(old)
    ratio = torch.exp(new.logp(actions) - before.logp(actions))
    value = module.compute_values({"obs": observation}, out["embeddings"])
    return (-ratio + 0.2 * before.kl(new) - 0.01 * new.entropy() + (value - 1) ** 2).mean()


def losses() -> list[dict[str, Any]]:
    """RLlib's example keeps its masks outside the observation while it trains, so the loop over
    heads stands for both here."""
    built = modules()
    compare = examples()[1]
    found = []
    for rows in (256,):
        observation, actions = inputs(rows)
        allowed = observation["action_mask"].bool()
        noise = 0.3 * torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1))
        old = (
            built[LOOP].forward_train({"obs": observation})["action_dist_inputs"] + noise
        ).detach()
        old = old.masked_fill(~allowed, torch.finfo(old.dtype).min)

        def update(
            module: Any, observation: Any = observation, actions: Any = actions, old: Any = old
        ) -> dict[str, Any]:
            module.zero_grad(set_to_none=True)
            loss(module, observation, actions, old).backward()
            return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}

        expected = compare.as_new(update(built[LOOP]), built[OURS])
        apart = max(
            float((e - f).abs().max())
            for e, f in zip(expected, update(built[OURS]).values(), strict=True)
        )
        found.append(
            row(
                "rllib-loss",
                {"batch": rows, "heads": HEADS, "options": OPTIONS, "hidden": HIDDEN},
                (LOOP, lambda: update(built[LOOP])),
                (OURS, lambda: update(built[OURS])),
                apart < TOLERANCE,
                apart,
            )
        )
    return found


def quietly() -> None:
    """One thread, and no warnings about RLlib's own use of deprecated names."""
    import ray  # which sets the level of its logger by itself

    set_threads(1)
    logging.getLogger(ray.__name__).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*already in registry")


@contextmanager
def local_ray() -> Any:
    import ray

    quietly()
    ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR")
    try:
        yield
    finally:
        ray.shutdown()


def algorithm(who: str, seed: int) -> Any:
    from tenfold.integrations.rllib import BulkEnvRunner, FusedPPOTorchLearner

    config = examples()[0].configuration(seed=seed).rl_module(rl_module_spec=spec(who))
    if who in (RUNNER, OURS):
        config.env_runners(env_runner_cls=BulkEnvRunner)
    if who == OURS:
        config.training(learner_class=FusedPPOTorchLearner)
    return config.build_algo()


def environment_alone() -> float:
    """Seconds that the steps and resets of an iteration take by themselves."""
    env = examples()[0].Orders({"machines": HEADS, "orders": OPTIONS})
    env.reset(seed=0)
    start = time.perf_counter()
    for step in range(2048):
        env.step(env.allowed.argmax(1))
        if (step + 1) % env.steps == 0:
            env.reset()
    return time.perf_counter() - start


def iterations() -> list[dict[str, Any]]:
    """Median seconds of an iteration, in turns, after one that is not counted; then the returns of
    every seed."""
    whom = (THEIRS, LOOP, MODULE, RUNNER, OURS)
    with local_ray():
        running = {who: algorithm(who, 0) for who in whom}
        times: dict[str, list[float]] = {who: [] for who in whom}
        stages: dict[str, dict[str, list[float]]] = {
            who: {"sampling": [], "learner": []} for who in whom
        }
        alone = []
        for turn in range(ITERATIONS + 1):
            alone.append(environment_alone())
            for who, trained in running.items():
                start = time.perf_counter()
                with staged(trained, stages[who]):
                    trained.train()
                if turn:
                    times[who].append(time.perf_counter() - start)
        for trained in running.values():
            trained.stop()
        returns = {
            who: [final_return(who, seed) for seed in range(SEEDS)] for who in (THEIRS, OURS)
        }
    median = {who: statistics.median(found) for who, found in times.items()}
    setting = {
        "steps": 2048,
        "minibatch": 256,
        "epochs": 4,
        "heads": HEADS,
        "options": OPTIONS,
        "hidden": HIDDEN,
    }
    seconds = {
        who: {stage: round(statistics.median(found[1:]), 3) for stage, found in parts.items()}
        for who, parts in stages.items()
    }
    pairs = [(who, OURS) for who in (THEIRS, LOOP)] + [(THEIRS, who) for who in (RUNNER, MODULE)]
    return [
        timed_row(
            "rllib-ppo",
            setting,
            (who, median[who] * 1e6),
            (against, median[against] * 1e6),
            iterations=LONG,
            environment_alone=round(statistics.median(alone), 3),
            candidate_returns=returns.get(against),
            candidate_stages=seconds[against],
            baseline_returns=returns.get(who),
            baseline_stages=seconds[who],
        )
        for who, against in pairs
    ]


@contextmanager
def staged(trained: Any, into: dict[str, list[float]]) -> Any:
    """Seconds in the environment runner's `sample` and the learner group's `update` of one
    iteration."""
    spent = {"sampling": 0.0, "learner": 0.0}

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **more)
            finally:
                spent[name] += time.perf_counter() - start

        return call

    runner, learners = trained.env_runner, trained.learner_group
    runner.sample, learners.update = (
        timed("sampling", runner.sample),
        timed("learner", learners.update),
    )
    try:
        yield
    finally:
        del runner.sample, learners.update
        for name, seconds in spent.items():
            into[name].append(seconds)


def final_return(who: str, seed: int) -> float:
    """Mean return of the last of LONG iterations."""
    trained = algorithm(who, seed)
    result: dict[str, Any] = {}
    for _ in range(LONG):
        result = trained.train()
    trained.stop()
    return round(float(result["env_runners"]["episode_return_mean"]), 3)


NAMES = {}
PEERS = {"rllib-act": act, "rllib-loss": losses, "rllib-ppo": iterations}
