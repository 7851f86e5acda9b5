"""The reference engine of agents with a policy and critics: two losses after one another, each with
its own step of Adam; and how every other engine is held to it."""

import copy
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad_and_value

from tenfold.config.options import value_at
from tenfold.core.system import Clock
from tenfold.engines.compiled import Compiled, adam_numbers, pure_adam, views_of
from tenfold.engines.replay import ReplayEngine, ReplayLockstep, Tensors
from tenfold.ops.adam import adam, polyak


class ActorCriticEngine(ReplayEngine):
    """Eager autograd. First the critics learn, then, every `agent.delay` updates, the policy by
    what they say now, and the target networks follow."""

    def __init__(self, agent: Any, *parts: Any) -> None:
        self.names = ("critic_loss", "q", "td_error", "grad_norm", "actor_loss", *agent.tells)
        super().__init__(agent, *parts)

    def draw_beside(self) -> Tensors:
        return self.agent.draw_beside(self.batch_items)

    def launch(self, step: int, clock: Clock) -> torch.Tensor:
        agent = self.agent
        self.sample(step, clock)
        lr, batch = value_at(agent.config.lr, step), self.staging.send(self.rows)
        agent.updates += 1
        late = agent.updates % agent.delay == 0  # whether the policy learns now
        errors, told, policy = self.learn_from(batch, lr, late)
        told += [agent.online.flat_grad.norm()]
        # means are over all updates, and these come rarer
        told += [agent.delay * value for value in policy]
        self.sums[: len(told)] += torch.stack(told)
        self.sums[-1] += 1
        return errors

    def learn_from(
        self, batch: Tensors, lr: float, late: bool
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """One update, whose number is counted already: TD errors, what the critics' loss said, and
        the policy's."""
        agent = self.agent
        agent.online.flat_grad.zero_()
        loss, errors, q = agent.critic_loss(batch)
        self.descend_parts(loss, ("critics",), agent.updates, lr)
        policy: list[torch.Tensor] = []
        if late:
            policy = list(agent.actor_loss(batch))
            self.descend_parts(policy[0], agent.actor_parts, agent.updates // agent.delay, lr)
            polyak(agent.target.flat, agent.online.flat[agent.followed], agent.config.tau)
        return errors, [loss.detach(), q, errors.mean()], [value.detach() for value in policy]

    def descend_parts(
        self, loss: torch.Tensor, parts: tuple[str, ...], number: int, lr: float
    ) -> None:
        """Step `number` of Adam for these parts of the networks, all others as they are."""
        agent, eps = self.agent, self.agent.config.adam_eps
        for flat, grad, mean, square in gradients(loss, agent, agent.online, parts):
            adam(flat, grad, mean, square, number, lr, eps)


@torch.no_grad()
def gradients(
    loss: torch.Tensor, agent: Any, network: Any, parts: tuple[str, ...]
) -> list[list[torch.Tensor]]:
    """The loss's gradient by these parts of a network, which lies on the agent's buffers, into its
    place; and what Adam takes for each part: parameters, gradient and moments."""
    online, own = agent.online, {name: getattr(network, name) for name in parts}
    found = iter(torch.autograd.grad(loss, [p for part in own.values() for p in part.parameters()]))
    buffers, steps = (online.flat, online.flat_grad, agent.mean, agent.square), []
    for name, part in own.items():
        lead = getattr(part, "members", None) or 1  # networks one after another
        rows = [next(found).reshape(lead, -1) for _ in part.parameters()]
        steps.append([buffer[online.places[name]] for buffer in buffers])
        steps[-1][1].copy_(torch.cat(rows, -1).flatten())
    return steps


class CompiledActorCritic(ActorCriticEngine):
    """As the plain engine, but an update is one pure function through torch.compile; where the
    policy learns rarer, there are two of them."""

    words = Compiled.words

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        changing = "observations are normalised by statistics that change between updates"
        return Compiled.why_not(agent, run) or (changing if agent.norm else "")

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        kinds = {True, self.agent.delay == 1}
        self.steps = {
            late: torch.compile(pure_update(self.agent, late), fullgraph=True, dynamic=False)
            for late in kinds
        }

    def warm_up(self) -> None:
        """What the first calls return is thrown away."""
        for late in self.steps:
            self.call(self.rows, 1e-3, late)

    def call(self, batch: Tensors, lr: float, late: bool) -> Any:
        agent = self.agent
        buffers = (agent.online.flat, agent.target.flat, agent.mean, agent.square)
        counts = agent.updates, agent.updates // agent.delay
        numbers = torch.stack([adam_numbers(lr, max(count, 1)) for count in counts])
        return self.steps[late](*buffers, numbers, batch)

    def learn_from(
        self, batch: Tensors, lr: float, late: bool
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        new, (errors, *told), policy = self.call(batch, lr, late)
        agent = self.agent
        buffers = (agent.online.flat, agent.target.flat, agent.mean, agent.square)
        for own, value in zip((*buffers, agent.online.flat_grad), new, strict=True):
            own.copy_(value)
        return errors, told, policy


class Losses(nn.Module):
    """An agent's losses as a module, so that the parameters of its networks can be given."""

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self.online, self.target, self.agent = agent.online, agent.target, agent

    def forward(self, policys: bool, batch: Tensors) -> tuple[torch.Tensor, list[torch.Tensor]]:
        loss, *more = (self.agent.actor_loss if policys else self.agent.critic_loss)(batch)
        return loss, more


def pure_update(agent: Any, late: bool) -> Any:
    """(parameters, target's, moments, numbers, batch) -> ((parameters, target's, moments,
    gradient), what the critics' loss said, what the policy's did)."""
    module, eps, places = Losses(agent), agent.config.adam_eps, agent.online.places
    views, target_views = views_of(agent.online, "online"), views_of(agent.target, "target")

    def descend(
        buffers: list[torch.Tensor],
        target: torch.Tensor,
        names: tuple[str, ...],
        numbers: torch.Tensor,
        batch: Tensors,
    ) -> list[torch.Tensor]:
        """A step of Adam of these parts in (parameters, moments, gradient), which are changed; what
        the loss said."""

        def loss(whole: torch.Tensor) -> Any:
            given = views(whole) | target_views(target)
            return functional_call(module, given, (names[0] == "actor", batch))

        gradient, (value, more) = grad_and_value(loss, has_aux=True)(buffers[0])
        for name in names:
            place = places[name]
            flat, mean, square = (buffer[place] for buffer in buffers[:3])
            stepped = pure_adam(flat, mean, square, gradient[place], numbers, eps)
            for k, new in enumerate((*stepped, gradient[place])):
                buffer = buffers[k]
                buffers[k] = torch.cat([buffer[: place.start], new, buffer[place.stop :]])
        return [value, *more]

    def update(
        flat: torch.Tensor,
        target: torch.Tensor,
        mean: torch.Tensor,
        square: torch.Tensor,
        numbers: torch.Tensor,
        batch: Tensors,
    ) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor], list[torch.Tensor]]:
        buffers, policy = [flat, mean, square, torch.zeros_like(flat)], []
        loss, errors, q = descend(buffers, target, ("critics",), numbers[0], batch)
        if late:
            policy = descend(buffers, target, agent.actor_parts, numbers[1], batch)
            target = torch.lerp(target, buffers[0][agent.followed], agent.config.tau)
        flat, mean, square, gradient = buffers
        told = [errors, loss, q, errors.mean()]
        return (flat, target, mean, square, gradient), told, policy

    return update


class ActorCriticLockstep(ReplayLockstep):
    """Gradients are compared part by part: those of critics are far longer than the policy's."""

    def __init__(self, engine: ActorCriticEngine, every: int) -> None:
        agent = engine.agent
        twin = type(agent)(agent.config, agent.layout, agent.actions, 0, str(agent.device))
        super().__init__(engine, twin, ActorCriticEngine, every)

    def checks(self, lr: float) -> dict[str, float]:
        found = super().checks(lr)
        fast, plain = self.engine.agent.online, self.plain.agent.online
        for name, place in plain.places.items():
            wanted = plain.flat_grad[place]
            apart = (fast.flat_grad[place] - wanted).norm() / (3e-4 * wanted.norm() + 1e-6)
            found[f"gradients of the {name}"] = float(apart)
        return found

    def next_values(self) -> torch.Tensor:
        """By the target's critics, of the actions that were stored."""
        agent, rows = self.plain.agent, self.rows()
        target, many = copy.deepcopy(agent.target), agent.online.flat.numel()
        target.flat.copy_(self.before[many : many + target.flat.numel()])
        action = rows["action"] if agent.actions.reals else None
        with torch.no_grad():
            return target(agent.to_net(rows["next_obs"]), action)

    def rows(self) -> Tensors:
        """The batch, where the networks are."""
        return {name: value.to(self.plain.agent.device) for name, value in self.plain.rows.items()}

    def tied(self) -> bool:
        """Whether the critics' values of some action of the policy's were closer than rounding: the
        smaller one alone moves the policy."""
        agent, heard = copy.copy(self.plain.agent), []
        network = copy.deepcopy(agent.online)
        actor = network.places["actor"]  # which learned from what the critics say after the update
        network.flat[actor] = self.before[: network.flat.numel()][actor]
        network.register_forward_hook(lambda module, given, values: heard.append(values))
        agent.online = network
        with torch.no_grad():
            agent.actor_loss(self.rows())
        if not heard or len(heard[0]) < 2:
            return False
        first, second = heard[0]
        return bool(((first - second).abs() < 1e-5 * (1 + first.abs())).any())
