"""The engine of any algorithm on a GPU whose updates are CUDA graphs: every kernel of an update is
recorded once and launched again by one call, so that Python and the launches cost nothing.

What is recorded reads and writes tensors that stay where they are (`memory.staging.StagingBuffer`),
and all that changes from update to update (rows, learning rate, the count that Adam corrects by,
how far the target moves) is in them: nothing is recorded twice. On the CPU the same work is done
anew each time, which is how it is tested.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch

from tenfold.core.errors import Obstacle
from tenfold.core.system import capturing
from tenfold.memory.staging import StagingBuffer
from tenfold.nets.layers import layers_for_gpu
from tenfold.ops.adam import adam_recorded, clip, decay_weights

TRIALS = 3  # of the work before it is recorded: libraries choose and allocate
MOST = 8  # updates of a graph

Work = Callable[[], None]


class CudaGraph:
    """Work on tensors that stay where they are, recorded once. `changed` are those it changes: they
    are what they were before it was tried out."""

    def __init__(self, work: Work, changed: Iterable[torch.Tensor], pool: Any = None) -> None:
        self.work, self.graph = work, None
        tensors = list(changed)
        kept = [tensor.clone() for tensor in tensors]
        if pool is None:
            work()
        else:
            side, here = torch.cuda.Stream(), torch.cuda.current_stream()
            side.wait_stream(here)
            with torch.cuda.stream(side):
                for _ in range(TRIALS):
                    work()
            here.wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with capturing(self.graph, pool):
                work()
        for tensor, value in zip(tensors, kept, strict=True):
            tensor.copy_(value)

    def launch(self) -> None:
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()


class CudaGraphCapture:
    """Mixin: list it before the plain engine. Methods `capture_…` record work, `…_work` are the
    work that is recorded. The class says what a run begins with (`capture`)."""

    description = "updates as CUDA graphs"
    agent: Any
    sums: torch.Tensor
    capture: Callable[[], None]  # makes the graphs that a run begins with
    # a minibatch -> (what is differentiated, the loss's derivatives by it or None, the results)
    differentiate: Callable[[Any], tuple[list[torch.Tensor], list[torch.Tensor] | None, Any]]
    sent: StagingBuffer  # what updates are given; a step of Adam counts itself there

    def __init__(self, agent: Any, memory: Any, envs: Any) -> None:
        super().__init__(agent, memory, envs)  # type: ignore[call-arg]
        self.graphs: dict[Any, CudaGraph] = {}
        self.learning = self.unchecked_agent()
        self.by_kernels, self.precision = has_kernels(self.agent.device), "fp32"
        self.side_streams: list[Any] = []  # streams of what runs side by side inside a graph
        self.pool: Any = None  # of the graphs' memory, one for all: they never run side by side

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        if agent.layout.graph:
            return "every batch of graphs has another number of nodes, and would be recorded anew"
        return ""

    def unchecked_agent(self) -> Any:
        """The agent whose loss is recorded: one that does not wait for the GPU to check numbers."""
        return self.agent

    def prepare(self, run: Any) -> None:
        """Records the first graphs, so that what cannot be recorded is known at once."""
        tf32 = run.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        self.precision = "tf32" if tf32 else "fp32"
        self.description = f"updates as CUDA graphs, products in {self.precision}"
        try:
            self.warm_up()
        except RuntimeError as error:
            raise Obstacle(f"an update cannot be recorded ({one_line(error)})") from error

    def warm_up(self) -> None:
        self.capture()

    def launch_graph(self, name: Any, staging: StagingBuffer, work: Work, count: int = 1) -> None:
        """What was written into the first `count` parts of a buffer goes to the GPU, and `work` is
        done there: one graph of this name, recorded when it is first needed."""
        self.graph(name, staging, staging.slot_index, work, count).launch()
        staging.gone()

    def capture_all(self, name: Any, staging: StagingBuffer, work: Work, count: int = 1) -> None:
        """The graphs of this name from each of the buffer's slots, recorded without a launch."""
        for slot in range(len(staging.slots)):
            self.graph(name, staging, slot, work, count)

    def graph(
        self, name: Any, staging: StagingBuffer, slot: int, work: Work, count: int
    ) -> CudaGraph:
        way = staging.ways[slot][count - 1]

        def whole() -> None:
            staging.upload(*way)
            work()

        return self.recorded((name, count, slot), whole)

    def launch_alone(self, name: Any, work: Work) -> None:
        """Work that nothing is sent for: one graph of this name, recorded when it is first
        needed."""
        self.recorded(name, work).launch()

    def recorded(self, key: Any, work: Work) -> CudaGraph:
        """The graph of this key."""

        def whole() -> None:
            with layers_for_gpu(self.precision):
                work()

        if key not in self.graphs:
            if self.agent.device.type == "cuda" and self.pool is None:
                self.pool = torch.cuda.graph_pool_handle()
            with repeatable():
                self.graphs[key] = CudaGraph(whole, self.changed(), self.pool)
        return self.graphs[key]

    @contextmanager
    def side_stream(self, number: int) -> Iterator[None]:
        """What is recorded inside does not wait for what follows, until `wait_side_streams`."""
        if self.agent.device.type != "cuda":
            yield
            return
        while len(self.side_streams) <= number:
            self.side_streams.append(torch.cuda.Stream(self.agent.device))
        self.side_streams[number].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side_streams[number]):
            yield

    def wait_side_streams(self) -> None:
        """What was recorded on side streams is waited for."""
        for side in self.side_streams:
            torch.cuda.current_stream().wait_stream(side)

    def changed(self) -> list[torch.Tensor]:
        """What an update changes."""
        networks = [self.agent.online, getattr(self.agent, "target", None)]
        buffers = [buffer for network in networks if network for buffer in network.buffers()]
        return [self.agent.block, self.sums, self.sent.buffer, *buffers]

    def wait(self) -> None:
        """Until what was launched has happened."""
        if self.agent.device.type == "cuda":
            torch.cuda.current_stream(self.agent.device).synchronize()

    def host(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Where the GPU writes what is read here."""
        return torch.zeros(shape, dtype=dtype, pin_memory=self.agent.device.type == "cuda")

    def gradient_of(self, minibatches: Iterable[Any]) -> list[Any]:
        """The gradient by `differentiate`, into the flat buffer by one copy of each minibatch,
        instead of an addition for each parameter; the minibatches' results."""
        online = self.agent.online
        parameters, results, grad = list(online.parameters()), [], online.flat_grad
        lead = () if online.members is None else (online.members,)
        for number, inputs in enumerate(minibatches):
            outputs, slopes, result = self.differentiate(inputs)
            by_parameter = torch.autograd.grad(outputs, parameters, slopes, allow_unused=True)
            rows = [
                (torch.zeros_like(p) if g is None else g).reshape(*lead, -1)
                for p, g in zip(parameters, by_parameter, strict=True)
            ]
            if number == 0 and grad.is_contiguous():
                torch.cat(rows, -1, out=grad)
            else:
                (grad.add_ if number else grad.copy_)(torch.cat(rows, -1))
            results.append(result)
        return results

    @torch.no_grad()
    def finish_update(
        self,
        sent: dict[str, torch.Tensor],
        metrics: torch.Tensor,
        shares: torch.Tensor,
        partial: torch.Tensor | None = None,
    ) -> None:
        """Clipping, Adam, the target network and the statistics, by the gradient in the flat buffer
        or the sum of `partial` [..., parts, P]. `sent` has what changes: `lr`, the updates
        `before`, and `tau`, where there is a target. Statistics are the columns of `metrics`,
        summed and times `shares`, then the gradient's norm."""
        agent, online = self.agent, self.agent.online
        target, tau = getattr(agent, "target", None), sent.get("tau")
        limit, eps = getattr(agent.config, "clip_norm", None), agent.config.adam_eps
        buffers = (online.flat, online.flat_grad, agent.exp_avg, agent.exp_avg_sq)
        decay_weights(online.flat, sent["lr"], agent.config.weight_decay)
        if self.by_kernels:
            from tenfold.ops.device.step import add_metrics, learn_step  # here: it needs Triton

            moved = target.flat if target else None
            before, lr = sent["before"], sent["lr"]
            norms = learn_step(buffers, before, lr, tau, eps, limit, moved, partial)
            add_metrics(self.sums, metrics, norms, shares)
            return
        norms = clip(buffers[1], limit)[1] if limit else buffers[1].norm(dim=-1, keepdim=True)
        adam_recorded(*buffers, sent["before"], sent["lr"], eps)
        if target:
            target.flat.lerp_(online.flat, tau)
        means = [metrics.sum(0) * shares, norms.view(-1).mean(0, keepdim=True), norms.new_ones(1)]
        self.sums.add_(torch.cat(means))


def has_kernels(device: torch.device) -> bool:
    """Whether losses are differentiated by Triton's kernels: on a GPU, where Triton is installed;
    else by autograd."""
    return device.type == "cuda" and find_spec("triton") is not None


@contextmanager
def repeatable() -> Iterator[None]:
    """Convolutions by algorithms that give the same bits each time."""
    cudnn = torch.backends.cudnn
    before, cudnn.deterministic = cudnn.deterministic, True
    try:
        yield
    finally:
        cudnn.deterministic = before


def at_once(count: int, most: int = MOST) -> int:
    """How many of `count` updates the next graph makes: a power of two, so that there are few
    graphs, and no more than `most`, which is one too."""
    return min(1 << (count.bit_length() - 1), most)


def one_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0].rstrip(".")
