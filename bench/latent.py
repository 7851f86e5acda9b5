"""The latent model: its evidence bound, its tables, its ensemble and its encoder, each against the
loop that it replaces.

All sides share the networks and the tables unless these are what is measured. The bound: forward
and backward, batch 8, 20 observed numbers, the default model (5 samples, 5 horizons). Equality of
bound and gradient is checked on the inputs timed.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from measure import interleave, repeated, row, timed_row
from usual_bounds import loops_reference, rerolled_reference

from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import Dynamics
from tenfold.domains.dynamics.elbo import (
    draws_shape,
    elbo,
    windows,
    windows_of,
)
from tenfold.domains.dynamics.latent import LatentNetwork

BATCH, OBSERVED, ACTIONS, DT = 8, 20, 2, 0.1
LENGTHS = (20, 200)
Bound = Callable[..., torch.Tensor]


def network(**model: Any) -> LatentNetwork:
    return LatentNetwork(OBSERVED, ACTIONS, LatentModel(**model), DT).initialise([0])


def differ(found: list[torch.Tensor], expected: list[torch.Tensor]) -> tuple[bool, float]:
    """Equal to 1e-3 of the largest number (gradients sum thousands of terms in float32), and the
    largest difference."""
    worst = max(float((f - e).abs().max()) for f, e in zip(found, expected, strict=True))
    return worst <= 1e-3 * max(float(e.abs().max()) for e in expected), worst


def bounds() -> list[dict[str, Any]]:
    rows = []
    for length in LENGTHS:
        for setting in (
            {"dynamics": "rbf"},
            {"dynamics": "rbf", "ensemble": 5},
            {"dynamics": "mlp"},
        ):
            net = network(**setting)
            generator = torch.Generator().manual_seed(0)
            y, a, normal = (
                torch.randn(1, *shape, generator=generator)
                for shape in (
                    (BATCH, length, OBSERVED),
                    (BATCH, length, ACTIONS),
                    draws_shape(net, BATCH, length),
                )
            )

            def step(
                bound: Bound, net: LatentNetwork = net, inputs: Any = (y, a, normal)
            ) -> list[torch.Tensor]:
                net.flat_grad.zero_()
                value = bound(net, *inputs)
                value.sum().backward()
                return [value.detach(), net.flat_grad]

            kind = setting["dynamics"] + (
                f" x {setting['ensemble']}" if "ensemble" in setting else ""
            )
            known = {
                "work": f"T {length}, K {net.config.steps}, S {net.config.samples}, {kind}",
                "batch": BATCH,
            }
            for label, reference, rounds in (
                ("every horizon rolled anew", rerolled_reference, 15),
                ("loops over s, t, k", loops_reference, 9 if length == LENGTHS[0] else 3),
            ):
                if (
                    reference is loops_reference
                    and length > LENGTHS[0]
                    and net.config != LatentModel()
                ):
                    # many seconds a call: at full length the loops are timed with the default model
                    # only
                    continue
                expected = [part.clone() for part in step(reference)]
                equal, worst = differ(step(elbo), expected)
                times = interleave(
                    {
                        "loop": repeated(lambda step=step, reference=reference: step(reference)),
                        "ours": repeated(lambda step=step: step(elbo)),
                    },
                    rounds,
                )
                rows.append(
                    timed_row(
                        "latent-bound", known, (label, times["loop"]), ("tenfold", times["ours"])
                    )
                    | {"equal": equal, "max_diff": worst}
                )
    return rows


def tables() -> list[dict[str, Any]]:
    """The weights and window tables of the KL terms: looked up, against computed at each call."""
    rows, model = [], LatentModel()
    for length in LENGTHS:
        settings = (length, model.steps, model.decay, torch.device("cpu"), torch.float32)
        first, second, anew = windows(*settings), windows(*settings), windows_of(*settings)
        equal = all(
            torch.equal(torch.as_tensor(f), torch.as_tensor(s))
            and torch.equal(torch.as_tensor(s), torch.as_tensor(n))
            for f, s, n in zip(first, second, anew, strict=True)
        )
        rows.append(
            row(
                "latent-tables",
                {"work": f"T {length}, K {model.steps}"},
                ("at each call", lambda s=settings: windows_of(*s)),
                ("once", lambda s=settings: windows(*s)),
                equal,
                0.0 if equal else None,
            )
        )
    return rows


def models_of(together: Dynamics, config: LatentModel) -> list[Dynamics]:
    """The models of an ensemble as modules of their own."""
    alone = [Dynamics(config, ACTIONS, DT, 1) for _ in range(together.models)]
    with torch.no_grad():
        for n, model in enumerate(alone):
            for own, stacked in zip(model.parameters(), together.parameters(), strict=True):
                own.copy_(stacked[:, n : n + 1])
    return alone


def ensembles(models: int = 5, batch: int = 32) -> list[dict[str, Any]]:
    """Next states by all models of an ensemble: stacked, against one module after another."""
    rows = []
    for kind in ("rbf", "mlp", "linear"):
        together = network(dynamics=kind, ensemble=models).dynamics
        alone = models_of(together, LatentModel(dynamics=kind))
        z, a = torch.randn(1, models, batch, 2), torch.randn(1, models, batch, ACTIONS)
        z_each, a_each = (list(x.split(1, 1)) for x in (z, a))

        def loop(
            alone: list[Dynamics] = alone, z_each: Any = z_each, a_each: Any = a_each
        ) -> torch.Tensor:
            return torch.cat(
                [model(z_n, a_n)[0] for model, z_n, a_n in zip(alone, z_each, a_each, strict=True)],
                1,
            )

        def stacked(
            together: Dynamics = together, z: torch.Tensor = z, a: torch.Tensor = a
        ) -> torch.Tensor:
            return together(z, a)[0]

        for work in ("forward", "forward and backward"):

            def run(step: Callable[[], torch.Tensor], work: str = work) -> torch.Tensor:
                with torch.set_grad_enabled(work != "forward"):
                    mean = step()
                    if work != "forward":
                        mean.sum().backward()
                return mean.detach()

            equal, worst = differ([run(stacked)], [run(loop)])
            rows.append(
                row(
                    "latent-ensemble",
                    {"work": f"{kind}, {work}", "batch": batch},
                    ("a loop over models", lambda run=run, loop=loop: run(loop)),
                    ("stacked", lambda run=run, stacked=stacked: run(stacked)),
                    equal,
                    worst,
                )
            )
    return rows


def encoders() -> list[dict[str, Any]]:
    """A new observation, gru: the state carried from the one before, against the whole window read
    again."""
    rows = []
    for length in (20, 100):
        net = network(encoder="gru")
        y = torch.randn(1, 1, length, OBSERVED)
        with torch.no_grad():
            state = net.posterior(y[:, :, :-1].transpose(1, 2))[2]

        @torch.no_grad()
        def carried(
            net: LatentNetwork = net, new: torch.Tensor = y[:, :, -1], state: Any = state
        ) -> torch.Tensor:
            return net.encode(new, state)[0]

        @torch.no_grad()
        def again(net: LatentNetwork = net, y: torch.Tensor = y) -> torch.Tensor:
            return net.posterior(y.transpose(1, 2))[0][:, -1]

        equal, worst = differ([carried()], [again()])
        calls: list[int] = []
        counted = copy.deepcopy(net)
        counted.encoder.register_forward_hook(
            lambda _, inputs, __, calls=calls: calls.append(inputs[0].shape[1])
        )
        carried(counted)
        rows.append(
            row(
                "latent-encoder",
                {"work": f"window of {length}", "hidden": list(net.config.hidden)},
                ("the window read again", again),
                ("state carried", carried),
                equal,
                worst,
                encoder_calls=len(calls),
                observations_read=sum(calls),
            )
        )
    return rows


NAMES = {
    "latent-bound": bounds,
    "latent-tables": tables,
    "latent-ensemble": ensembles,
    "latent-encoder": encoders,
}
