"""`get_parameters`, `set_parameters` and the optimisers' states of Stable-Baselines3, from and to
the flat buffers of an agent of ours."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from tenfold.config.schedules import value_at
from tenfold.core.errors import UserError
from tenfold.integrations.sb3.parameter_names import (
    ACTOR,
    ENTROPY,
    ParameterEntry,
    policy_entries,
    temperature_entry,
)
from tenfold.ops.adam import BETA1, BETA2

StateDict = dict[str, Any]
# as torch's Adam has it; an optimiser of its own would import its compiler, which takes seconds
ADAM_GROUP = {
    "lr": 0.0,
    "betas": (BETA1, BETA2),
    "eps": 0.0,
    "weight_decay": 0,
    "amsgrad": False,
    "maximize": False,
    "foreach": None,
    "capturable": False,
    "differentiable": False,
    "fused": None,
    "decoupled_weight_decay": False,
}
MOST_STEPS = 2**53  # of an optimiser; float64 counts no further
MOMENTS = {"exp_avg": "mean", "exp_avg_sq": "square"}


class ParameterMismatch(UserError, ValueError):
    """Names of objects that a model does not have, or that are missing."""


class TensorMismatch(UserError, RuntimeError):
    """Tensors that a model does not have, that are missing, or of another shape."""


class NamedParameters:
    """An agent's parameters and moments by their names in Stable-Baselines3."""

    def __init__(self, agent: Any) -> None:
        self.agent, self.entries = agent, policy_entries(agent)
        self.temperature = temperature_entry(agent)
        learned = self.temperature and "temperature" in agent.actor_parts
        optimised = [*self.entries["online"], *([self.temperature] if learned else [])]
        names = dict.fromkeys(entry.optimizer for entry in optimised)
        # in the order of the optimisers' parameters, which is that of the policy
        self.optimizers: dict[str, list[ParameterEntry]] = {
            name: [entry for entry in optimised if entry.optimizer == name]  # type: ignore[union-attr]
            for name in names
        }

    def flat(self, network: str) -> torch.Tensor:
        return getattr(self.agent, network).flat

    def named(self) -> Iterable[tuple[str, ParameterEntry]]:
        """(our network, entry) in the order of `policy.state_dict()`."""
        both = [(network, entry) for network, entries in self.entries.items() for entry in entries]
        if self.entries["target"]:  # a network, its target, critics, their targets
            both.sort(key=lambda pair: pair[1].name.split(".")[0])
        return both

    def policy(self) -> StateDict:
        """`policy.state_dict()`; views where the numbers are the same."""
        return {entry.name: entry.read(self.flat(network)) for network, entry in self.named()}

    def variables(self) -> StateDict:
        """What Stable-Baselines3 keeps beside networks: SAC's temperature."""
        if not self.temperature:
            return {}
        log = self.temperature.read(self.flat("online"))
        if ENTROPY in self.optimizers:
            return {"log_ent_coef": log.clone().requires_grad_(True)}
        return {"ent_coef_tensor": log.exp()[0].clone()}

    def steps(self, optimizer: str) -> int:
        """Steps that an optimiser has made."""
        late = optimizer in (ACTOR, ENTROPY)
        return self.agent.updates // (self.agent.delay if late else 1)

    def optimizer(self, name: str, lr: float | None = None) -> StateDict:
        """An optimiser's `state_dict()`, without tensors where it has made no step."""
        entries, steps, config = self.optimizers[name], self.steps(name), self.agent.config
        decay = getattr(config, "weight_decay", 0) or 0
        group = {
            **ADAM_GROUP,
            "lr": value_at(config.lr, 0) if lr is None else lr,
            "eps": config.adam_eps,
            "weight_decay": decay,
            "decoupled_weight_decay": bool(decay),
            "params": list(range(len(entries))),
        }
        state = {
            index: {"step": torch.tensor(float(steps))} | self.moments(entry)
            for index, entry in enumerate(entries if steps else ())
        }
        return {"state": state, "param_groups": [group]}

    def moments(self, entry: ParameterEntry) -> StateDict:
        return {
            theirs: entry.read(getattr(self.agent, theirs), buffer)
            for theirs, buffer in MOMENTS.items()
        }

    def all(self, lr: float | None = None) -> dict[str, StateDict]:
        """`get_parameters()`."""
        return {"policy": self.policy()} | {
            name: self.optimizer(name, lr) for name in self.optimizers
        }

    # from theirs

    @torch.no_grad()
    def load(self, parameters: Mapping[str, Any], exact_match: bool = True) -> None:
        """`set_parameters()`: everything is checked before anything is changed."""
        expected = {"policy", *self.optimizers}
        if unknown := [name for name in parameters if name not in expected]:
            raise ParameterMismatch(
                f"Key {unknown[0]} is an invalid object name: there are {', '.join(expected)}."
            )
        if exact_match and set(parameters) != expected:
            raise ParameterMismatch(
                "Names of parameters do not match agents' parameters: expected "
                f"{sorted(expected)}, got {sorted(parameters)}."
            )
        policy = parameters.get("policy")
        if policy is not None:
            self.check_policy(policy, exact_match)
        states = {
            name: self.checked_state(name, parameters[name])
            for name in self.optimizers
            if name in parameters
        }
        if policy is not None:
            for network, entry in self.named():
                if entry.name in policy:
                    entry.write(self.flat(network), policy[entry.name])
        for name, state in states.items():
            self.write_moments(self.optimizers[name], state)
        if states:
            self.set_steps(states)

    def check_policy(self, policy: Any, exact_match: bool) -> None:
        if not isinstance(policy, Mapping):
            raise TensorMismatch("policy is no state dict: give names and tensors.")
        entries = {entry.name: entry for _, entry in self.named()}
        missing = [name for name in entries if name not in policy]
        unexpected = [name for name in policy if name not in entries]
        if exact_match and (missing or unexpected):
            raise TensorMismatch(
                f"The policy's parameters do not fit: Missing key(s) in state_dict: {missing}; "
                f"Unexpected key(s) in state_dict: {unexpected}."
            )
        for name, entry in entries.items():
            if name in policy:
                network = "online" if entry.optimizer else "target"
                check_shape(name, policy[name], entry.read(self.flat(network)).shape)

    def checked_state(self, name: str, state: Any) -> dict[int, StateDict]:
        """An optimiser's state by number of the parameter; those beyond ours are dropped (files of
        early versions repeat target networks there)."""
        entries = self.optimizers[name]
        if not (isinstance(state, Mapping) and isinstance(state.get("state"), Mapping)):
            raise ParameterMismatch(f"{name} is no optimiser's state dict: it has no state.")
        by_index = {}
        for index, entry in enumerate(entries):
            moments = state["state"].get(index)
            if moments is None:
                continue
            if not (isinstance(moments, Mapping) and {"step", *MOMENTS} <= set(moments)):
                raise ParameterMismatch(
                    f"{name} holds other state than Adam's for {entry.name}: step, exp_avg, "
                    "exp_avg_sq."
                )
            shape = entry.read(self.flat("online")).shape
            for moment in MOMENTS:
                check_shape(f"{moment} of {entry.name}", moments[moment], shape)
            step = torch.as_tensor(moments["step"])
            check_shape(f"step of {entry.name}", step, torch.Size())
            if not 0 <= step <= MOST_STEPS:
                raise ParameterMismatch(f"step of {entry.name} is {step}, which counts nothing.")
            by_index[index] = moments
        return by_index

    def write_moments(self, entries: list[ParameterEntry], state: dict[int, StateDict]) -> None:
        for index, entry in enumerate(entries):
            for theirs, buffer in MOMENTS.items():
                flat = getattr(self.agent, theirs)
                moments = state.get(index)
                zeros = torch.zeros_like(entry.read(flat, buffer))
                entry.write(flat, moments[theirs] if moments else zeros, buffer)

    def set_steps(self, states: dict[str, dict[int, StateDict]]) -> None:
        """The count of updates: of the optimiser that makes most steps."""
        steps = [
            int(moments["step"])
            * (self.agent.delay if name in (ACTOR, ENTROPY) and len(states) == 1 else 1)
            for name, state in states.items()
            for moments in state.values()
        ]
        self.agent.updates = max(steps, default=0)

    @torch.no_grad()
    def load_variables(self, variables: Mapping[str, Any]) -> None:
        """SAC's temperature."""
        if not self.temperature:
            return
        flat = self.flat("online")
        log, fixed = (variables.get(name) for name in ("log_ent_coef", "ent_coef_tensor"))
        if log is not None:
            check_shape("log_ent_coef", log, torch.Size([1]))
            self.temperature.write(flat, log)
        elif fixed is not None and float(fixed) > 0:
            self.temperature.write(flat, torch.as_tensor(fixed).reshape(1).log())


def check_shape(name: str, value: Any, shape: torch.Size) -> None:
    if not isinstance(value, torch.Tensor) or value.shape != shape:
        theirs = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise TensorMismatch(
            f"size mismatch for {name}: the given one is {theirs}, and this model's is "
            f"{tuple(shape)}."
        )
