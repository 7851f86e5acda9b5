"""Lockstep: updates of a fast engine repeated by the plain one from a copy of the same state, and
compared while a run goes on (`--verify`)."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from tenfold.config.options import Prioritized, Uniform
from tenfold.config.schedules import value_at
from tenfold.core.errors import UserError
from tenfold.core.random import Purpose
from tenfold.core.system import Clock
from tenfold.engines.plain import OffPolicyEngine
from tenfold.ops.qlearning import among

# of the replay by an update; all else it only reads
CHANGED = ("count", "tree", "top", "draw")


class Mismatch(UserError):
    """A fast engine did not do what the plain one does."""


class Lockstep:
    """A plain engine beside a fast one, on a copy of everything an update changes."""

    def __init__(self, engine: Any, plain: Any, every: int) -> None:
        self.engine, self.plain, self.every = engine, plain, every
        self.folder = Path()  # where the batch of a violation goes
        self.compared = self.ties = 0
        self.largest = 0.0  # difference of parameters
        self.before = torch.empty_like(engine.agent.block)

    @property
    def due(self) -> bool:
        """Whether the next update is one of those that both engines make."""
        return (self.engine.agent.updates + 1) % self.every == 0

    def update_both(self, update: Callable[[Any, Clock], Any], lr: float, clock: Clock) -> Any:
        """One update by both engines from the same state; returns what the fast one's did."""
        fast, plain = self.engine.agent, self.plain.agent
        clock.start()
        self.before.copy_(fast.block)
        plain.block.copy_(fast.block)
        plain.count[:] = fast.count
        self.copy_memory()
        update(self.plain, Clock())
        clock.lap("verify")
        result = update(self.engine, clock)
        clock.start()
        self.compare(lr)
        clock.lap("verify")
        return result

    def copy_memory(self) -> None:
        """What else an update changes, into the plain engine's."""

    def batch(self) -> dict[str, np.ndarray]:
        """What was learned from, for the file of a violation."""
        raise NotImplementedError

    def tied(self) -> bool:
        """Whether rounding decided what was learned: then each engine may have its own result."""
        return False

    def checks(self, lr: float) -> dict[str, float]:
        """Differences in units of what is allowed. Gradients are compared by their length, of which
        float32's own error reaches 1e-4 where values are large and errors cancel; parameters by a
        hundredth of the learning rate, the size of Adam's step."""
        fast, plain = self.engine.agent.online, self.plain.agent.online
        gradient = plain.flat_grad
        difference = (fast.flat_grad - gradient).norm() / (3e-4 * gradient.norm() + 1e-6)
        return {
            "gradients": float(difference),
            "parameters": distance(fast.flat, plain.flat) / (1e-6 + 0.01 * lr),
        }

    def compare(self, lr: float) -> None:
        differences = {name: np.inf if np.isnan(x) else x for name, x in self.checks(lr).items()}
        where = max(differences, key=differences.__getitem__)
        if differences[where] <= 1:
            self.compared += 1
            difference = distance(self.engine.agent.online.flat, self.plain.agent.online.flat)
            self.largest = max(self.largest, difference)
        elif self.tied():
            self.ties += 1
        else:
            self.refuse(differences[where], where)

    def refuse(self, excess: float, where: str) -> None:
        """Ends the run, with the batch and both agents' results saved."""
        fast, plain = self.engine.agent, self.plain.agent
        path = self.folder / f"mismatch-{fast.updates}.safetensors"
        results = {"before": self.before, "fast": fast.block, "plain": plain.block}
        saved = {name: block.cpu().numpy() for name, block in results.items()}
        save_file(self.batch() | saved, path)
        raise Mismatch(
            f"Update {fast.updates} of the fast engine is not the plain one's: the {where} differ "
            f"{excess:.3g} times more than allowed. The batch and both results are in {path}; "
            "please report it, and go on with `tenfold resume RUN --engine plain`."
        )

    def sentence(self) -> str:
        if not self.compared + self.ties:
            return (
                "nothing was verified: no update was made whose number is a multiple of "
                f"verify = {self.every:,}"
            )
        ties = f"; {self.ties} more held a tie between actions closer than rounding"
        return (
            f"verified: {self.compared:,} updates repeated by the plain engine, largest difference "
            f"of a parameter {self.largest:.1e}{ties if self.ties else ''}"
        )


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


class OffPolicyLockstep(Lockstep):
    """The plain engine has a replay that shares its rows with the fast one's, and a twin of its
    agent."""

    def __init__(self, engine: Any, every: int) -> None:
        agent, replay = engine.agent, copy.copy(engine.replay)
        twin = type(agent)(agent.config, agent.layout, agent.actions, 0, str(agent.device))
        replay.use(copy.deepcopy(replay.batch))
        for name in CHANGED:
            setattr(replay, name, getattr(replay, name).copy())
        twin.keys, twin.norm = engine.agent.keys, engine.agent.norm
        if twin.norm:
            twin.obs_moments = engine.agent.obs_moments
        super().__init__(engine, OffPolicyEngine(twin, replay, engine.envs), every)

    def update(self, count: int, step: int, clock: Clock) -> None:
        """`count` updates by the fast engine, every N-th of the run by both."""
        lr = value_at(self.engine.agent.config.lr, step)
        for _ in range(count):
            if self.due:
                self.update_both(lambda engine, clock: engine.update(1, step, clock), lr, clock)
            else:
                self.engine.update(1, step, clock)

    def copy_memory(self) -> None:
        for name in CHANGED:
            getattr(self.plain.replay, name)[:] = getattr(self.engine.replay, name)

    def batch(self) -> dict[str, np.ndarray]:
        return {name: rows.numpy() for name, rows in self.plain.batch_tensors.items()}

    def next_values(self) -> torch.Tensor:
        """Values in the batch's next states, before the update: errors are differences of such
        numbers."""
        raise NotImplementedError

    def checks(self, lr: float) -> dict[str, float]:
        """Priorities are compared by the TD errors behind them."""
        fast, plain = self.engine, self.plain
        same = np.array_equal(fast.replay.batch.row, plain.replay.batch.row)
        difference = distance(fast.agent.target.flat, plain.agent.target.flat)
        return super().checks(lr) | {
            "rows of the batch": 0.0 if same else np.inf,
            "target network": difference / (1e-6 + 0.01 * lr),
            "priorities": errors_apart(
                fast.replay.tree, plain.replay.tree, fast.agent.config.replay, self.next_values()
            ),
            "sums of priorities": sums_off(fast.replay.tree),
        }


def errors_apart(
    tree: np.ndarray, expected: np.ndarray, how: Prioritized | Uniform, values: torch.Tensor
) -> float:
    """How far apart the TD errors are whose powers are the priorities, in units of what is allowed:
    the rounding of the values that they are differences of. The powers themselves would not do:
    |e|^0.6 is steep at 0, where two values nearly agree. (Against double precision, with values of
    about 50, both engines' errors are off by up to 2e-5.)"""
    if not isinstance(how, Prioritized):
        return 0.0
    errors, expected_errors = (
        leaves[leaves.size // 2 :] ** (1 / how.alpha) if how.alpha else leaves
        for leaves in (tree, expected)
    )
    allowed = 1e-4 * expected_errors + 2e-6 * (1 + float(values.abs().max()))
    return float(np.max(np.abs(errors - expected_errors) / allowed))


def sums_off(tree: np.ndarray) -> float:
    """How far a node is from the sum of its two children, in units of 1e-9 of the total."""
    off = tree[1 : tree.size // 2] - tree[2:].reshape(-1, 2).sum(1)
    return float(np.abs(off).max(initial=0.0) / (1e-9 * tree[1] + 1e-12))


class QLockstep(OffPolicyLockstep):
    """Where two next actions are as good as each other, rounding may choose either."""

    def next_values(self) -> torch.Tensor:
        """Of every action in the batch's next states, by the network that chose one of them before
        the update."""
        agent = self.plain.agent
        rows = {name: value.to(agent.device) for name, value in self.plain.batch_tensors.items()}
        network = copy.deepcopy(agent.online)
        online, target, *_ = self.before
        network.flat.copy_(online if agent.config.double else target)
        whose = Purpose.NOISE_ONLINE if agent.config.double else Purpose.NOISE_TARGET
        noise = agent.draw_noise(whose, agent.updates - 1)
        with torch.no_grad():
            next_obs, fractions = agent.to_net(rows["next_obs"]), rows.get("next_fractions")
            return agent.means(network(next_obs, noise, fractions))

    def tied(self) -> bool:
        """Whether two best next actions of some item were closer than rounding."""
        values = self.next_values()
        if values.shape[-1] < 2:
            return False
        values = among(values, self.plain.batch_tensors.get("next_mask"))
        first, second = values.topk(2, dim=-1).values.unbind(-1)
        return bool((first - second < 1e-5 * (1 + first.abs())).any())


class ActorCriticLockstep(OffPolicyLockstep):
    """Gradients are compared part by part: those of critics are far longer than the policy's."""

    def checks(self, lr: float) -> dict[str, float]:
        checks = super().checks(lr)
        fast, plain = self.engine.agent.online, self.plain.agent.online
        for name, columns in plain.places.items():
            expected = plain.flat_grad[columns]
            difference = (fast.flat_grad[columns] - expected).norm()
            checks[f"gradients of the {name}"] = float(difference / (3e-4 * expected.norm() + 1e-6))
        return checks

    def next_values(self) -> torch.Tensor:
        """By the target's critics, of the actions that were stored."""
        agent, rows = self.plain.agent, self.rows()
        target, many = copy.deepcopy(agent.target), agent.online.flat.numel()
        target.flat.copy_(self.before[many : many + target.flat.numel()])
        action = rows["action"] if agent.actions.reals else None
        with torch.no_grad():
            return target(agent.to_net(rows["next_obs"]), action)

    def rows(self) -> dict[str, torch.Tensor]:
        """The batch, where the networks are."""
        device, rows = self.plain.agent.device, self.plain.batch_tensors
        return {name: value.to(device) for name, value in rows.items()}

    def tied(self) -> bool:
        """Whether the critics' values of some action of the policy's were closer than rounding: the
        smaller one alone moves the policy."""
        agent, heard = copy.copy(self.plain.agent), []
        network = copy.deepcopy(agent.online)
        actor = network.places["actor"]  # which learned from what the critics say after the update
        network.flat[actor] = self.before[: network.flat.numel()][actor]
        network.register_forward_hook(lambda module, inputs, values: heard.append(values))
        agent.online = network
        with torch.no_grad():
            agent.actor_loss(self.rows())
        if not heard or len(heard[0]) < 2:
            return False
        first, second = heard[0]
        return bool(((first - second).abs() < 1e-5 * (1 + first.abs())).any())


def lockstep_of(engine: Any, every: int) -> OffPolicyLockstep:
    """What repeats every N-th update by the plain engine."""
    critics = hasattr(engine.agent.online, "critics")
    return (ActorCriticLockstep if critics else QLockstep)(engine, every)
