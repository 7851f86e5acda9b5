"""Durotaxis in torch: thousands of colonies that step on a GPU, where policies of torch see them
without a copy.

`TorchColonies` plays the very episodes of `DurotaxisEnvironments`: the same seeds, draws, trees,
rewards and endings, with a step that never waits for the device. Whole numbers are equal; places
differ in their last bits, since libraries differ in those of log, cos, sin and exp. Such a bit can
flip a comparison: a child that lies within 1e-13 of the border of a column is looked up beside it,
which no test has met; and among nodes spawned on one straight line (the same angle, step after
step, other than 0) which of them count as corners of the hull hangs on rounding in either form:
under a steering policy 1 row in 500 differs there.
"""

from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from tenfold.core.capture import capturing
from tenfold.core.errors import EnvironmentFault
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, bits_torch, key
from tenfold.domains.durotaxis.colonies import (
    CHOICES,
    action_space,
    flat_limits,
    observation_space,
)
from tenfold.domains.durotaxis.features import graph_size
from tenfold.domains.durotaxis.reference import legal, play_compiled, random_actions
from tenfold.domains.durotaxis.setting import (
    ACTIONS,
    COMPONENTS,
    DELETE,
    REST,
    SPAWN,
    Ending,
    Setting,
    read_setting,
)
from tenfold.domains.durotaxis.torch_features import cut, observe
from tenfold.domains.durotaxis.torch_ground import make_world
from tenfold.domains.durotaxis.torch_rules import IDENT, UP, State, advance, begin, begin_where
from tenfold.envs.adapter import SEED_BITS, Episode
from tenfold.envs.arguments import split_name

# what goes on from step to step
KEPT = ("state", "episode", "ret", "refused", "final_return", "final_length")
# what a step makes
SHOWN = ("reached", "obs", "mask", "reward", "components", "terminated", "truncated", "ending")


class TorchColonies:
    """E colonies on a device, SAME_STEP.

    After `step` there are, as tensors on the device: `obs` [E, size] to act on next (rows that
    `memory.graphs.pack` takes), `reward` and its `components` [E, K], `terminated`, `truncated`,
    `ending`, `final_return` and `final_length` of the episodes that ended, and in mode nodes the
    `mask` [E, 3·max_nodes]. `final_obs`, the true last one where an episode ended, is worked out
    when it is asked for. No later step writes to them, but with `graph`: on CUDA a step is then
    recorded once and launched as a whole, for a fraction of what launching its operations one by
    one costs, into the same tensors each time. Actions are those of `DurotaxisEnvironments`, best
    on the device already. A masked choice is taken as rest and what is no number as its least
    value, since refusing them would wait for the device; `check` says whether that has happened.
    """

    component_names, action_names = COMPONENTS, ACTIONS

    def __init__(
        self,
        world: str | Setting,
        num_envs: int,
        seed: int,
        device: str | torch.device = "cpu",
        first: int = 0,
        graph: bool = False,
    ) -> None:
        self.setting = world if isinstance(world, Setting) else read_setting(**split_name(world)[1])
        self.num_envs, self.device, self.first = num_envs, torch.device(device), first
        if graph and self.device.type != "cuda":
            raise EnvironmentFault(
                f"Colonies in torch: a graph is recorded on CUDA, and this is {self.device}: leave "
                "graph out."
            )
        self.wants_graph = graph
        self.rules, self.size = self.setting.rules, graph_size(self.setting.max_nodes)
        self.observation_space, self.action_space = (
            observation_space(self.setting),
            action_space(self.setting),
        )
        self.world = make_world(self.rules, self.device)
        self.component_weights = self.on_device(self.setting.component_weights)
        self.choices, low, high = flat_limits(self.setting)
        self.numbers, self.low, self.high = len(low), self.on_device(low), self.on_device(high)
        fixed = np.zeros(0) if self.choices else self.setting.fixed[self.numbers :]
        self.fixed = self.on_device(fixed)
        self.begin(seed)

    def on_device(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.float64)).to(self.device)

    def begin(self, seed: int) -> None:
        """Every lane at the first of its episodes of this seed."""
        self.graph: torch.cuda.CUDAGraph | None = None
        keys = np.array(
            [key(seed, Purpose.EPISODE, self.first + i) for i in range(self.num_envs)], np.uint64
        )
        self.keys = torch.from_numpy(keys.view(np.int64)).to(self.device)
        self.episode = torch.zeros_like(self.keys)
        fresh = begin(self.world, self.episode_seeds())
        room = 2 * self.setting.max_nodes - self.rules.init_nodes
        self.state = self.reached = fresh._replace(
            numbers=pad(fresh.numbers, (0, room)), whole=pad(fresh.whole, (0, room))
        )
        self.obs, self.mask = observe(self.rules, self.state), self.options()
        self.reward = torch.zeros(self.num_envs, dtype=torch.float64, device=self.device)
        self.ret, self.final_return, self.final_length = (
            self.reward,
            self.reward,
            torch.zeros_like(self.episode),
        )
        self.components = torch.zeros(self.num_envs, len(COMPONENTS), device=self.device)
        self.ending = torch.zeros_like(self.episode)
        self.terminated = self.truncated = self.refused = torch.zeros_like(
            self.episode, dtype=torch.bool
        )

    def episode_seeds(self) -> torch.Tensor:
        return (bits_torch(self.keys, self.episode) >> (64 - SEED_BITS)) & ((1 << SEED_BITS) - 1)

    def step(self, actions: torch.Tensor) -> None:
        """One step of every colony; where an episode ended the next one has begun."""
        shape = (self.num_envs, self.choices + self.numbers)
        if tuple(actions.shape) != shape:
            raise EnvironmentFault(
                f"Colonies in torch: actions of the shape {tuple(actions.shape)} do not fit "
                f"{shape}."
            )
        if self.wants_graph and self.graph is None:
            self.graph = self.record()
        if self.graph is None:
            self.play(torch.as_tensor(actions, dtype=torch.float64, device=self.device))
        else:
            self.told.copy_(actions)
            self.graph.replay()

    def play(self, actions: torch.Tensor) -> None:
        self.reached, components, ending = advance(self.world, self.state, self.take(actions))
        over = ending > 0
        self.ending, self.truncated, self.terminated = (
            ending,
            ending == Ending.TIME,
            over & (ending != Ending.TIME),
        )
        self.components = components.float()
        self.reward = (self.component_weights * self.components).sum(1)
        ret = self.ret + self.reward
        self.final_return = torch.where(over, ret, self.final_return)
        self.final_length = torch.where(over, self.reached.step, self.final_length)
        self.ret, self.episode = ret.masked_fill(over, 0.0), self.episode + over
        self.state = begin_where(over, begin(self.world, self.episode_seeds()), self.reached)
        self.obs, self.mask = observe(self.rules, self.state), self.options()

    def record(self) -> torch.cuda.CUDAGraph:
        """A step as a CUDA graph: from `told` and what is kept into the same tensors. Recording
        changes nothing."""
        self.told = torch.zeros(
            self.num_envs, self.choices + self.numbers, dtype=torch.float64, device=self.device
        )
        before = {name: getattr(self, name) for name in (*KEPT, *SHOWN)}
        side, graph = torch.cuda.Stream(self.device), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream(self.device))
        # libraries set themselves up in the first steps, which cannot be recorded
        with torch.cuda.stream(side):
            for _ in range(2):
                self.play(self.told)
        torch.cuda.current_stream(self.device).wait_stream(side)
        for name in KEPT:  # each one's own: some begin as one and the same tensor
            held = before[name]
            setattr(
                self,
                name,
                State(*(t.clone() for t in held)) if isinstance(held, State) else held.clone(),
            )
        with capturing(graph):
            self.play_in_place()
        for name in (*SHOWN, *KEPT):
            copy_into(getattr(self, name), before[name])
        return graph

    def play_in_place(self) -> None:
        """A step by `told`, after which what is kept lies in the tensors that it lay in before."""
        kept = {name: getattr(self, name) for name in KEPT}
        self.play(self.told)
        # what a step leaves as it was, such as the sizes of substrates, would be the next episode's
        shared = {id(tensor) for tensor in kept["state"]}
        self.reached = State(*(t.clone() if id(t) in shared else t for t in self.reached))
        for name, held in kept.items():
            copy_into(held, getattr(self, name))
            setattr(self, name, held)

    def take(self, actions: torch.Tensor) -> torch.Tensor:
        """The actions as a step can have them: within their ranges, and in mode nodes only choices
        that the masks allow."""
        numbers, choices = actions[:, self.choices :], actions[:, : self.choices]
        numbers = torch.where(numbers.isnan(), self.low, numbers.clamp(self.low, self.high))
        refused = actions.isnan().any(1)
        if self.mask is not None:
            n = self.state.nodes[:, None]
            spawns, deletes = (choices == SPAWN) & (n < self.choices), (choices == DELETE) & (n > 1)
            legal = spawns | deletes | (choices == REST)
            there = torch.arange(self.choices, device=self.device) < n
            refused = refused | (there & ~legal).any(1)
            choices = torch.where(legal, choices, REST)
        self.refused = self.refused | refused
        return torch.cat((choices, numbers, self.fixed.expand(self.num_envs, -1)), 1)

    def options(self) -> torch.Tensor | None:
        """What each node may choose: not to spawn in a full colony, and the last one not to be
        deleted."""
        if not self.rules.by_node:
            return None
        n = self.state.nodes[:, None]
        options = torch.stack((n < self.choices, n >= 0, n > 1), -1)  # spawn, rest, delete
        there = torch.arange(self.choices, device=self.device) < n
        return (there[..., None] & options).view(self.num_envs, CHOICES * self.choices)

    def check(self) -> None:
        """Waits for the device, and refuses what `step` was told since the last check and could not
        do."""
        refused = self.refused.nonzero()[:, 0].tolist()
        self.refused.zero_()  # in place: a recorded step writes to this very tensor
        if refused:
            raise EnvironmentFault(
                f"Colonies in torch: {len(refused)} of {self.num_envs}, the first is colony "
                f"{refused[0]}, were told what is no number or what a node may not choose: take "
                "what `mask` allows."
            )

    @property
    def final_obs(self) -> torch.Tensor:
        """What the last step led to, before any new episode began."""
        return observe(self.rules, cut(self.rules, self.reached))

    @property
    def finished(self) -> list[Episode]:
        """The episodes that ended in the last step; waits for the device."""
        ended = (self.ending > 0).nonzero()[:, 0]
        told = torch.stack(
            (ended, self.final_return[ended], self.final_length[ended], self.ending[ended]), 1
        ).tolist()
        return [
            Episode(int(i), ret, int(length), success=ending == Ending.GOAL)
            for i, ret, length, ending in told
        ]

    @property
    def ids(self) -> torch.Tensor:
        """Of the nodes [E, 2·max_nodes]; the first `nodes` of each row have a meaning."""
        return self.state.whole[IDENT]

    @property
    def parents(self) -> torch.Tensor:
        """Ids of the nodes' parents, −1 at the root."""
        up = self.state.whole[UP]
        return self.ids.gather(1, up.clamp(min=0)).masked_fill(up < 0, -1)


def copy_into(held: Any, made: Any) -> None:
    for target, source in (
        zip(held, made, strict=True) if isinstance(held, State) else [(held, made)]
    ):
        if target is not None:
            target.copy_(source)


@pair(play_compiled, random_actions, rtol=1e-5, atol=1e-6, name="envs.durotaxis.TorchColonies")
def play_torch(
    name: str, seed: int, actions: np.ndarray, device: str = "cpu", graph: bool = False
) -> tuple[np.ndarray, ...]:
    """The same as `play_compiled` with `TorchColonies`."""
    colonies = TorchColonies(name, actions.shape[1], seed, device, graph=graph)
    slots = torch.arange(2 * colonies.setting.max_nodes, device=device)
    steps = []
    for action in actions:
        mask = None if colonies.mask is None else colonies.mask.cpu().numpy()
        colonies.step(torch.from_numpy(legal(mask, action)).to(device))
        there = slots < colonies.state.nodes[:, None]
        trees = torch.stack(
            [ids.masked_fill(~there, -2) for ids in (colonies.ids, colonies.parents)], 1
        )
        last = torch.where((colonies.ending > 0)[:, None], colonies.final_obs, 0)
        made = (colonies.obs, last, colonies.components, colonies.ending, trees)
        steps.append([value.cpu().numpy().copy() for value in made])
    colonies.check()
    return tuple(map(np.array, zip(*steps, strict=True)))
