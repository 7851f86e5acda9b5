"""Settings of networks, for every algorithm.

No torch here, so that help and errors appear at once.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tenfold.config.schema import Config, Count, Limits, Option, importable
from tenfold.core.errors import ConfigError
from tenfold.core.registry import OWN


@dataclass(frozen=True)
class Net(Config):
    """The network between an observation and what is said of it."""

    encoder: Literal["auto", "mlp", "nature", "small", "graph"] = "auto"
    """how an observation is read: mlp, nature (three convolutions, for images from 36 x 36), small
    (one, for tiny images), graph (attention along edges, a layer for each of `hidden`); auto picks
    by the observation space"""
    hidden: tuple[Annotated[int, Limits(1, 2**14)], ...] = (64, 64)
    """widths of the fully connected layers, after the convolutions if there are any"""
    activation: Literal["relu", "tanh", "elu"] = "relu"
    """the function between layers"""
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


Width = Annotated[int, Limits(1, 2**14)]


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

    activation: Literal["relu", "tanh", "elu"] = "tanh"
    """the function between layers"""
    attention: Count = 4
    """heads of a graph encoder's attention, each with its share of the width"""
    memory: Memory = None
    """what the policy and its value remember of an episode, each for itself, behind the layers of
    `hidden`: none, gru(size) or lstm(size)"""

    def check(self) -> None:
        super().check()
        if self.memory and self.module:
            raise ConfigError(
                "memory",
                f"= {self.memory} does not go with a network of one's own (module): leave one of "
                "them out.",
            )
