"""Networks of two hidden layers that are too wide for one program's registers, in tiles: products
of numbers in parts, two layers forward, deltas on their way back, Adam on a tile of weights.

An update is a chain of launches, each spread over rows and units, so that no program reads a whole
layer. The matrix unit takes numbers of 16 bits fastest. So weights lie beside the float32
parameters in FORMS as well, in the order in which products read them: `write_forms` makes them anew
at the start of every graph, and whoever changes a parameter afterwards writes its forms too.

How numbers enter a product (`S.form`): `fp16` has the ten bits of TensorFloat32's mantissa;
`fp16x3` takes a number as two halves and makes three products, which is float32's accuracy; `ieee`
takes float32 as it is. Sums, parameters and moments are float32. Halves hold numbers up to 65,504.

With `PDL` a launch starts while the one before it still runs, loads what that one does not write,
then waits (`wait`). It lets its own follower start only after it has waited: what a launch reads
before it waits may be anything that was written two or more launches earlier.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from tenfold.ops.device.language import gpu_kernel, padded
from tenfold.ops.device.network import adam_rates, adam_step

THIN = tl.constexpr(64)  # columns of the thinnest product: 16-bit tiles may not be narrower
SECOND = tl.constexpr(2048.0)  # what a number's second half is multiplied by
# of a number in a form: its type, and of how many parts it is
FORMS = {"fp16": (torch.float16, 1), "fp16x3": (torch.float16, 2), "ieee": (torch.float32, 1)}


class WideShape(NamedTuple):
    """What the kernels are compiled for. An actor says `heads` numbers for each of `act` actions;
    two critics read observation and action side by side. The rest are places: of parameters in a
    network (weights [out, in], as torch's), and of its forms."""

    obs: int
    act: int
    h: int  # units of both hidden layers
    b: int  # items of a batch
    heads: int
    scale: float  # of observations
    form: str
    pl: int  # parts of a number
    od: int  # observation and action, padded
    ad: int  # actions, padded
    xm: int  # rows that a batch's inputs are kept in
    # parameters: W1, b1, W2, b2, W3, b3 of the actor, and how many they are; the same of a critic
    actor: tuple[int, ...]
    critic: tuple[int, ...]
    # forms: W1 (in, out); W2 (out, in); W2 (in, out); the actor's W3 (unit, out), or of a critic
    # the actions' rows of W1 (unit, action); the actor's W3 (out, unit); how many they are
    forms: tuple[int, ...]

    @classmethod
    def of(
        cls, obs: int, act: int, h: int, b: int, heads: int, scale: float, form: str
    ) -> "WideShape":
        od, ad = padded(obs + act), padded(act)
        return cls(
            *(obs, act, h, b, heads, scale, form, FORMS[form][1], od, ad, max(THIN.value, od)),
            places(h * obs, h, h * h, h, heads * act * h, heads * act),
            places(h * (obs + act), h, h * h, h, h, 1),
            places((od + ad) * h, h * h, h * h, h * THIN.value, heads * ad * h),
        )


def places(*sizes: int) -> tuple[int, ...]:
    """Where each begins, one after another, and where the last ends."""
    return tuple(sum(sizes[:i]) for i in range(len(sizes) + 1))


@gpu_kernel
def wait(PDL: tl.constexpr):
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


# numbers in parts


@gpu_kernel
def parts_of(x, S: tl.constexpr):
    """A number as products take it: (first half, second half)."""
    if S.form == "fp16":
        y = x.to(tl.float16)
        return y, y
    elif S.form == "fp16x3":
        y = x.to(tl.float16)
        return y, ((x - y.to(tl.float32)) * SECOND).to(tl.float16)
    else:
        return x, x


@gpu_kernel
def settle(S: tl.constexpr):
    """Shared memory as the threads wrote it, before the matrix unit reads it. Triton puts this
    fence itself, but behind the barrier where another one lies between store and product: then
    warps race."""
    if S.form != "ieee":
        tl.inline_asm_elementwise(
            "fence.proxy.async.shared::cta; // $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
        tl.debug_barrier()


@gpu_kernel
def multiply(a, b, total, S: tl.constexpr):
    """total + a·b, both in parts."""
    settle(S)
    if S.form == "fp16x3":
        total = tl.dot(a[0], b[0], total)
        return total + tl.dot(a[1], b[0], tl.dot(a[0], b[1])) * (1.0 / SECOND)
    elif S.form == "ieee":
        return tl.dot(a[0], b[0], total, input_precision="ieee")
    else:
        return tl.dot(a[0], b[0], total)


@gpu_kernel
def load_parts(at, stride, S: tl.constexpr):
    """A tile of forms."""
    x = tl.load(at)
    y = x
    if S.pl > 1:
        y = tl.load(at + stride)
    return x, y


@gpu_kernel
def store_parts(at, stride, x, valid, S: tl.constexpr):
    y = parts_of(x, S)
    tl.store(at, y[0], mask=valid)
    if S.pl > 1:
        tl.store(at + stride, y[1], mask=valid)


# networks: the actor, two critics, their targets, and where it has one the actor's target
ACTOR, CRITICS, TARGETS, TARGET_ACTOR = (tl.constexpr(i) for i in (0, 1, 3, 5))


@gpu_kernel
def critic_at(c, S: tl.constexpr):
    """Where critic c begins among the online parameters."""
    return S.actor[6] + c * S.critic[6]


@gpu_kernel
def target_at(c, T: tl.constexpr, S: tl.constexpr):
    """Where the target of critic c begins; T: whether the actor's target stands before it."""
    return T * S.actor[6] + c * S.critic[6]


@gpu_kernel
def forms_at(forms, net, S: tl.constexpr):
    return forms + net * S.pl * S.forms[5]


@gpu_kernel
def forms_kernel(online, target, forms, T: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    """The forms of one network; T: whether the actor has a target."""
    net, i = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    H: tl.constexpr = S.h
    is_actor, is_target = (net == ACTOR) | (net == TARGET_ACTOR), net >= TARGETS
    inputs = tl.where(is_actor, S.obs, S.obs + S.act)
    w2, w3 = tl.where(is_actor, S.actor[2], S.critic[2]), S.actor[4]
    # W1; W2; W2 transposed
    source, valid = (i % H) * inputs + i // H, i // H < inputs
    inside = (i >= S.forms[1]) & (i < S.forms[2])
    source, valid = tl.where(inside, w2 + i - S.forms[1], source), tl.where(inside, True, valid)
    j = i - S.forms[2]
    inside = (j >= 0) & (i < S.forms[3])
    source, valid = (
        tl.where(inside, w2 + (j % H) * H + j // H, source),
        tl.where(inside, True, valid),
    )
    # thin columns: outputs of the actor, or the critic's inputs that are actions
    j = i - S.forms[3]
    column, inside = j % THIN, (j >= 0) & (i < S.forms[4])
    out = (column // S.ad) * S.act + column % S.ad
    exists = tl.where(is_actor, (column < S.heads * S.ad) & (column % S.ad < S.act), column < S.act)
    of_actor, of_critic = w3 + out * H + j // THIN, (j // THIN) * inputs + S.obs + column
    source = tl.where(inside, tl.where(is_actor, of_actor, of_critic), source)
    valid = tl.where(inside, exists, valid)
    j = i - S.forms[4]
    row, inside = j // H, j >= 0
    out = (row // S.ad) * S.act + row % S.ad
    source = tl.where(inside, w3 + out * H + j % H, source)
    valid = tl.where(inside, is_actor & (row % S.ad < S.act), valid) & (i < S.forms[5])
    first = tl.where(is_actor, 0, critic_at(net - CRITICS, S))
    x = tl.load(online + first + source, mask=valid & (net < TARGETS), other=0.0)
    first = tl.where(is_actor, 0, target_at(net - TARGETS, T, S))
    x += tl.load(target + first + source, mask=valid & is_target, other=0.0)
    store_parts(forms_at(forms, net, S) + i, S.forms[5], x, i < S.forms[5], S)


# layers


@gpu_kernel
def relu(x):
    return tl.maximum(x, 0.0)


@gpu_kernel
def sum_slices(base, stride, SLICES: tl.constexpr):
    """What programs stored as partial sums, added in their order."""
    x = tl.load(base)
    for i in tl.static_range(1, SLICES):
        x += tl.load(base + i * stride)
    return x


@gpu_kernel
def load_slice(forms, bias, k, columns, S: tl.constexpr):
    """Weights and biases of the first layer's units k, and the second's block (k, columns)."""
    w2 = load_parts(forms + S.forms[1] + columns[None, :] * S.h + k[:, None], S.forms[5], S)
    row = tl.arange(0, S.od)[:, None]
    w1 = load_parts(forms + row * S.h + k[None, :], S.forms[5], S)
    return w1, tl.load(bias + k), w2


@gpu_kernel
def first_layer(x, w1, b1, S: tl.constexpr, R: tl.constexpr, N: tl.constexpr):
    return multiply(x, w1, tl.zeros((R, N), tl.float32) + b1[None, :], S)


@gpu_kernel
def two_layers(
    x, forms, bias, w1, b1, w2, b2, columns,
    S: tl.constexpr, R: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """relu(relu(x·W1 + b1)·W2 + b2), (row, unit) of the second layer's `columns`. The first layer
    stays in registers, K units of it at a time; the first K of its weights were loaded before."""
    total = tl.zeros((R, N), tl.float32)
    H: tl.constexpr = S.h
    for k in tl.static_range(0, H, K):
        if k + K < H:
            next1, next_b1, next2 = load_slice(forms, bias, k + K + tl.arange(0, K), columns, S)
        hidden = relu(first_layer(x, w1, b1, S, R, K))
        total = multiply(parts_of(hidden, S), w2, total, S)
        if k + K < H:
            w1, b1, w2 = next1, next_b1, next2
    return relu(total + b2[None, :])


@gpu_kernel
def first_deltas(
    second, forms, t2, columns, rows,
    S: tl.constexpr, R: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """second·W2ᵀ: derivatives by the first layer's units `columns`, from those by the second
    layer's, whose parts lie at `second` [B, H]."""
    total = tl.zeros((R, N), tl.float32)
    H: tl.constexpr = S.h
    B: tl.constexpr = S.b
    at = second + rows[:, None] * H + tl.arange(0, K)[None, :]
    delta = load_parts(at, B * H, S)
    for k in tl.static_range(0, H, K):
        if k + K < H:
            unit = k + K + tl.arange(0, K)
            next_delta = load_parts(second + rows[:, None] * H + unit[None, :], B * H, S)
            at = forms + S.forms[2] + columns[None, :] * H + unit[:, None]
            next_t2 = load_parts(at, S.forms[5], S)
        total = multiply(delta, t2, total, S)
        if k + K < H:
            t2, delta = next_t2, next_delta
    return total


# Adam on tiles of weights


@gpu_kernel
def rates_after(before, lr):
    """Adam's rates of the step after `before` others."""
    return adam_rates(tl.load(lr).to(tl.float64), tl.load(before).to(tl.float64) + 1)


@gpu_kernel
def from_place(a, first):
    """Parameters, gradient and moments from `first` on."""
    return a.online + first, a.grad + first, a.mean + first, a.square + first


@gpu_kernel
def load_old(buffers, at, valid):
    """Parameters and moments, before anything is stored: a load behind a store waits for memory."""
    flat, _, mean, square = buffers
    return (
        tl.load(flat + at, mask=valid, other=0.0),
        tl.load(mean + at, mask=valid, other=0.0),
        tl.load(square + at, mask=valid, other=0.0),
    )


@gpu_kernel
def step_tile(buffers, old, at, valid, g, rates, eps):
    """A step of Adam for the gradient g, which is kept; the new parameters."""
    flat, grad, mean, square = buffers
    w, m, v = adam_step(old[0], old[1], old[2], g, rates[0], rates[1], eps)
    tl.store(flat + at, w, mask=valid)
    tl.store(grad + at, g, mask=valid)
    tl.store(mean + at, m, mask=valid)
    tl.store(square + at, v, mask=valid)
    return w


@gpu_kernel
def power_below(x):
    """The greatest power of two that is not above the largest number of x, and no less than 2⁻⁶⁰:
    numbers divided by it are within ±2, without rounding."""
    most = tl.maximum(tl.max(tl.abs(x), 0), 2.0**-60)
    return (most.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)


def write_forms(
    online: torch.Tensor, target: torch.Tensor, forms: torch.Tensor, S: WideShape
) -> None:
    """Forms [networks, parts, …] of an agent's networks, as `forms_kernel` counts them."""
    block, networks = 1024, len(forms)
    grid = triton.cdiv(S.forms[5], block), networks
    forms_kernel[grid](online, target, forms, T=int(networks > 5), S=S, BLOCK=block)
