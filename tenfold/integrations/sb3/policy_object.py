"""`model.policy`: Stable-Baselines3's own policy, whose parameters are views of our flat buffers,
so that its code works on the weights that are trained here."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import torch

from tenfold.core.errors import UserError
from tenfold.integrations.sb3.parameters import NamedParameters

HOMES = {"policy.optimizer": "", "actor.optimizer": "actor", "critic.optimizer": "critic"}


def policy_class(class_name: str, policy: Any) -> type:
    """The class of Stable-Baselines3 that `policy` names, such as MlpPolicy."""
    if isinstance(policy, type):
        return policy
    return algorithm_class(class_name).policy_aliases[policy]


def algorithm_class(class_name: str) -> Any:
    """Stable-Baselines3's class of this name; a UserError where it is not installed."""
    contributed = class_name in ("QRDQN", "MaskablePPO", "RecurrentPPO")
    try:
        if contributed:
            import sb3_contrib as library  # pyright: ignore[reportMissingImports]
        else:
            import stable_baselines3 as library  # pyright: ignore[reportMissingImports]
    except ImportError:
        package = "sb3-contrib" if contributed else "stable-baselines3"
        raise UserError(
            f"model.policy is an object of {package}, which is not installed: pip install "
            f"{package}; get_parameters() and predict() need no policy object."
        ) from None
    return getattr(library, class_name)


def make_policy(
    class_name: str,
    policy: Any,
    spaces: tuple[gym.Space[Any], gym.Space[Any]],
    lr: float,
    policy_kwargs: Mapping[str, Any] | None,
) -> Any:
    """A policy as Stable-Baselines3 makes it; torch's random numbers stay where they were."""
    kwargs: dict[str, Any] = (
        {"use_sde": False} if class_name in ("PPO", "RecurrentPPO", "SAC") else {}
    )
    if class_name == "DDPG":
        kwargs["n_critics"] = 1
    with torch.random.fork_rng(devices=[]):
        return policy_class(class_name, policy)(
            *spaces, lambda _: lr, **{**kwargs, **(policy_kwargs or {})}
        )


class LinkedPolicy:
    """A policy of Stable-Baselines3 and the agent of ours whose weights it has.

    Parameters are views; those that ours are not a view of are copied before every use. Whoever
    replaced a parameter (`.to()`, `load_state_dict(assign=True)`) is heard by `sync`, which brings
    the numbers back and makes it a view again.
    """

    def __init__(self, agent: Any, policy: Any) -> None:
        self.named, self.policy = NamedParameters(agent), policy
        self.compiled: Any = None  # the same by torch.compile, where somebody set it
        self.copies: dict[str, torch.Tensor] = {}  # as they were handed out last
        self.require_fit()
        self.bind()
        policy.register_forward_pre_hook(lambda *_: self.sync())
        policy.register_state_dict_pre_hook(lambda *_: self.sync())
        policy.register_load_state_dict_post_hook(lambda *_: self.sync())
        for name, home in HOMES.items():
            if name in self.named.optimizers:
                self.link_optimizer(name, getattr(policy, home) if home else policy)
        self.link_submodules()

    def use(self, agent: Any) -> None:
        """Another agent, which has the numbers of the one before it."""
        self.named = NamedParameters(agent)
        self.require_fit()
        self.bind()

    def link_submodules(self) -> None:
        """Networks whose parameters are copies hear of their use as the policy does."""
        if all(entry.is_view for _, entry in self.named.named()):
            return
        for module in self.policy.children():
            module.register_forward_pre_hook(lambda *_: self.sync())

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        return dict(self.policy.named_parameters())

    def require_fit(self) -> None:
        theirs = {name: tuple(p.shape) for name, p in self.policy.state_dict().items()}
        ours = {name: tuple(value.shape) for name, value in self.named.policy().items()}
        if theirs != ours:
            odd = next(iter(sorted({*theirs.items()} ^ {*ours.items()})))
            raise UserError(
                f"The policy does not fit the agent: {odd[0]} of shape {odd[1]} is on one side "
                "only."
            )

    @torch.no_grad()
    def bind(self) -> None:
        """The policy takes the agent's numbers."""
        parameters = self.parameters
        for network, entry in self.named.named():
            theirs, ours = parameters[entry.name], entry.read(self.named.flat(network))
            theirs.data = ours
            if not entry.is_view:
                self.copies[entry.name] = ours.clone()

    @torch.no_grad()
    def sync(self) -> None:
        """What was changed on the policy's side goes into the agent, then the policy has what the
        agent has."""
        parameters = self.parameters
        for network, entry in self.named.named():
            theirs, flat = parameters[entry.name], self.named.flat(network)
            if entry.is_view:
                ours = entry.read(flat)
                if theirs.data_ptr() != ours.data_ptr() or theirs.dtype != ours.dtype:
                    ours.copy_(theirs.data)
                    theirs.data = ours
                continue
            before = self.copies[entry.name]
            if not torch.equal(theirs.data.to(before), before):
                entry.write(flat, theirs.data)
            self.copies[entry.name] = entry.read(flat).clone()
            if theirs.dtype == flat.dtype and theirs.device == flat.device:
                theirs.data.copy_(self.copies[entry.name])
            else:
                theirs.data = self.copies[entry.name].clone()

    def link_optimizer(self, name: str, home: Any) -> None:
        """An optimiser whose state is made of our moments when anybody looks."""
        optimizer = home.optimizer
        own_parameters = optimizer.param_groups[0]["params"]

        def fill(*_: Any) -> None:
            state = self.named.optimizer(name, optimizer.param_groups[0]["lr"])["state"]
            for index, parameter in enumerate(own_parameters):
                if index in state:
                    optimizer.state[parameter] = state[index]
                else:
                    optimizer.state.pop(parameter, None)

        @torch.no_grad()
        def take(*_: Any) -> None:
            state = {
                index: dict(optimizer.state[parameter])
                for index, parameter in enumerate(own_parameters)
                if parameter in optimizer.state
            }
            self.sync()
            self.named.write_moments(self.named.optimizers[name], state)
            self.named.set_steps({name: state})

        optimizer.register_state_dict_pre_hook(fill)
        optimizer.register_load_state_dict_post_hook(take)
        optimizer.register_step_pre_hook(fill)
        optimizer.register_step_post_hook(take)
