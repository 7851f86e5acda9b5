"""Settings of networks.

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar, Literal, Self

from tenfold.config.notation import show
from tenfold.config.schema import Config, Count, Limits, Option, importable
from tenfold.core.errors import ConfigError
from tenfold.core.registry import OWN

Width = Annotated[int, Limits(1, 2**14)]
Widths = tuple[Width, ...]
OF_LAYERS = ("init", "value_hidden", "shared_body", "memory", "after")
Activation = Literal["relu", "tanh", "elu", "gelu", "silu", "selu", "leaky_relu"]


@dataclass(frozen=True)
class Net(Config):
    """The network between an observation and its outputs."""

    encoder: Literal["auto", "mlp", "nature", "small", "graph"] = "auto"
    """how an observation is read: mlp, nature (three convolutions, for images from 36 x 36), small
    (one, for tiny images), graph (attention along edges, a layer for each of `hidden`); auto picks
    by the observation space"""
    hidden: Widths = (64, 64)
    """widths of the fully connected layers, after the convolutions if there are any"""
    activation: Activation = "relu"
    """the function between layers"""
    init: Literal["default", "torch"] = "default"
    """weights at the start: torch is uniform within 1/sqrt(inputs), biases too; default is the same
    for dqn, sac and td3, and for ppo orthogonal with zero biases"""
    module: str = ""
    """a network of one's own, module:Class (in Python also the class), in place of the layers above
    (engines plain and compiled)"""

    def __post_init__(self) -> None:
        if callable(self.module):
            object.__setattr__(self, "module", importable(self.module, "module"))
        super().__post_init__()

    def check(self) -> None:
        if self.module and not OWN.fullmatch(self.module):
            raise ConfigError(
                "module", f"= {self.module} is not written as module:Class, such as my_nets:MyNet."
            )
        for f in fields(self):
            value = getattr(self, f.name)
            if self.module and f.name in OF_LAYERS and value != f.default:
                raise ConfigError(
                    f.name,
                    f"= {show(value)} does not go with a network of one's own (module): leave one "
                    "of them out.",
                )

    @property
    def of_value(self) -> Self:
        """The network of the value, or of each critic."""
        hidden = getattr(self, "value_hidden", None)
        return self if hidden is None else replace(self, hidden=hidden, value_hidden=None)


@dataclass(frozen=True)
class ActorCriticNet(Net):
    """The network of a policy, and that of each critic, which also takes the action."""

    hidden: Widths = (256, 256)
    """widths of the fully connected layers, after the convolutions if there are any"""
    value_hidden: Widths | None = None
    """the same of the critics, [] for no such layer; none: as `hidden`"""


@dataclass(frozen=True)
class GRU(Option):
    """Gated recurrent units (Cho et al., 2014), as torch.nn.GRU has them."""

    size: Width = 64
    """how many numbers a memory holds"""
    kinds: ClassVar[int] = 1  # of numbers


@dataclass(frozen=True)
class LSTM(Option):
    """Long short-term memory (Hochreiter & Schmidhuber, 1997), as torch.nn.LSTM has it."""

    size: Width = 64
    """how many numbers of each kind a memory holds"""
    kinds: ClassVar[int] = 2  # cells, and what they let out


Memory = GRU | LSTM | None


@dataclass(frozen=True)
class PolicyNet(Net):
    """The network of a policy, and that of its value (one body with two heads where observations
    are graphs)."""

    activation: Activation = "tanh"
    """the function between layers"""
    value_hidden: Widths | None = None
    """widths of the value's layers, [] for none; none: as `hidden`"""
    shared_body: bool = False
    """images: policy and value share the convolutions and the first of the layers in `hidden`"""
    attention: Count = 4
    """heads of a graph encoder's attention, each with its share of the width"""
    memory: Memory = None
    """what the policy and its value remember of an episode, each for itself, behind the layers of
    `hidden`: none, gru(size) or lstm(size)"""
    after: Widths = ()
    """widths of the layers behind the memory, of policy and value"""

    @property
    def body(self) -> Net:
        """What a shared body is made by, an activation behind its output of `hidden[0]`."""
        return Net(encoder=self.encoder, hidden=(), activation=self.activation)

    @property
    def behind_body(self) -> Self:
        """The networks that read a shared body's output."""
        of_value = None if self.value_hidden is None else self.value_hidden[1:]
        return replace(self, hidden=self.hidden[1:], value_hidden=of_value, shared_body=False)

    @property
    def behind_memory(self) -> Net:
        return Net(hidden=self.after, activation=self.activation)

    def check(self) -> None:
        super().check()
        if self.after and not self.memory:
            raise ConfigError(
                "after",
                f"= {show(self.after)} are layers behind a memory, and there is none: set "
                "net.memory, or add them to net.hidden.",
            )
        body, of_value = (
            self.hidden[:1],
            (self.hidden if self.value_hidden is None else self.value_hidden)[:1],
        )
        if self.shared_body and (not body or body != of_value):
            raise ConfigError(
                "shared_body",
                "= true shares the first of the layers in net.hidden: give at least one, and begin "
                "net.value_hidden with the same.",
            )
