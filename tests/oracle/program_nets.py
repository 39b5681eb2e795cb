"""Small nets of odd structure, for program_oracle.py.

NETS has each net with its arguments, the sizes among them that may change, and the modes in which it is exported and
run. DEVIATIONS has the reasons why some do not equal Python.
"""
import collections
import dataclasses
import typing

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

DYNAMIC = torch.export.Dim.DYNAMIC
BATCH = {0: DYNAMIC}

NETS = {}


@dataclasses.dataclass
class Net:
    make: typing.Callable
    inputs: typing.Callable  # the arguments for a batch size
    shapes: object  # dynamic_shapes of torch.export
    exported: tuple = ("train", "eval")
    run: tuple = ("train", "eval")  # "" leaves the program in the mode in which it was exported
    strict: bool = False
    prepare: typing.Callable = lambda model: None  # called after train() or eval(), before the export


def net(inputs, shapes, **options):
    def add(make):
        NETS[make.__name__] = Net(make, inputs, shapes, **options)
        return make
    return add


# For nets whose modules do not depend on the mode.
ONCE = {"exported": ("eval",), "run": ("train",)}


def rows(*sizes):
    return lambda batch: (torch.randn(batch, *sizes),)


class Deviation(typing.NamedTuple):
    reason: str
    tolerance: float = float("inf")  # of the largest difference, divided by the largest magnitude


# What differs from Python: (net, mode at the export, mode of the run).
LOST_PROBABILITY = Deviation(
    "evaluation mode exports attention without its dropout probability (Program::fixed_modes)")
ZERO_MOMENTUM = Deviation("evaluation mode exports no momentum like a momentum of 0 (Program::fixed_modes)")
RECOMPUTED = Deviation("Python computes a checkpointed function twice, and batch normalization counts both")
REENTRANT = Deviation("torch.export records a reentrant checkpoint as a function without gradients")
CONSTANT_MODE = Deviation("the mode is a constant of Python's call, and the program lets it follow train() and eval()")
OTHER_CODE = Deviation("Python runs other operators in this mode, and the graph has those of the other one")
SECOND_BRANCH = Deviation("torch.cond computes the branch a second time for its gradient, with other random numbers")
OTHER_ORDER = Deviation("Python computes scan and map and their gradients with graphs of its own", 1e-5)
DEVIATIONS = {
    ("Attention", "eval", "train"): LOST_PROBABILITY,
    ("Transformer", "eval", "train"): LOST_PROBABILITY,
    ("CumulativeAverage", "eval", "train"): ZERO_MOMENTUM,
    ("CheckpointedNorm", "eval", "train"): RECOMPUTED,
    ("Reentrant", "eval", "train"): REENTRANT,
    ("AlwaysDropout", "train", "eval"): CONSTANT_MODE,
    ("AlwaysDropout", "eval", "eval"): CONSTANT_MODE,
    ("OverriddenTrain", "train", "train"): CONSTANT_MODE,
    ("OverriddenTrain", "eval", "train"): CONSTANT_MODE,
    ("SpectralNorm", "train", "eval"): OTHER_CODE,
    ("SpectralNorm", "eval", "train"): OTHER_CODE,
    ("RandomBranches", "eval", "train"): SECOND_BRANCH,
    ("Rows", "eval", "train"): OTHER_ORDER,
}


class Parts(nn.Module):
    """Modules that many nets use."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.4)
        self.norm = nn.BatchNorm1d(4)


@net(rows(3, 8, 8), (BATCH,))
class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.planes = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.BatchNorm2d(8, track_running_stats=False),
            nn.BatchNorm2d(8, affine=False, momentum=0.3), nn.InstanceNorm2d(8),
            nn.InstanceNorm2d(8, affine=True, track_running_stats=True), nn.GroupNorm(2, 8), nn.LayerNorm([6, 6]),
            nn.LocalResponseNorm(2), nn.RMSNorm(6))
        self.volume = nn.Sequential(
            nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4), nn.InstanceNorm3d(4, track_running_stats=True))
        self.line = nn.Sequential(
            nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.BatchNorm1d(6, track_running_stats=False))

    def forward(self, x):
        x = self.planes(x)
        return self.volume(x.unflatten(1, (2, 4))), self.line(x.mean((1, 2)))


@net(rows(4), (BATCH,), exported=("eval",))  # torch.export refuses it in training mode
class CumulativeAverage(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4, momentum=None)

    def forward(self, x):
        return self.norm(x)


@net(rows(3, 4, 4), (BATCH,))
class Dropouts(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.Dropout2d(0.4), nn.RReLU(), nn.AlphaDropout(0.2),
            nn.FeatureAlphaDropout(0.2), nn.ReLU(inplace=True), nn.Dropout(0.3))
        self.in_place = nn.Sequential(nn.Dropout(0.5, inplace=True), nn.RReLU(inplace=True))
        self.lines = nn.Dropout1d(0.3)
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        x = F.dropout(self.in_place(self.front(x) * 1.5 - 0.1), 0.25, self.training)
        return self.head(self.lines(x.flatten(2)).flatten(1))


@net(rows(4), (BATCH,))
class AlwaysDropout(Parts):
    def forward(self, x):
        return F.dropout(self.linear(x), 0.5)


@net(lambda batch: (torch.randn(batch, 3, 5), torch.randn(2, batch, 4)), (BATCH, {1: DYNAMIC}))
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 6, 2, dropout=0.3, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 4, 2, dropout=0.2, batch_first=True)
        self.rnn = nn.RNN(4, 3, 2, nonlinearity="relu", dropout=0.5, batch_first=True)
        self.cells = nn.ModuleList([nn.GRUCell(3, 3), nn.LSTMCell(3, 3), nn.RNNCell(3, 3)])

    def forward(self, x, start):
        x, (hidden, cell) = self.lstm(x)
        x, last = self.gru(x, start)
        x, end = self.rnn(x)
        step = self.cells[2](self.cells[1](self.cells[0](x[:, 0]))[0])
        return x, hidden, cell, last, end, step


@net(lambda batch: (torch.randn(batch, 5, 8), torch.tensor([[0, 0, 0, 1, 1]] * batch).bool()), (BATCH, BATCH))
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True)
        self.second = nn.MultiheadAttention(8, 2, dropout=0.2, kdim=6, vdim=6, add_bias_kv=True)
        self.inputs = nn.Linear(8, 24)

    def forward(self, x, padding):
        y, weights = self.first(x, x, x, key_padding_mask=padding)
        z, _ = self.first(x, y, x, need_weights=False)
        z = z.transpose(0, 1)
        z, more = self.second(z, z[..., :6], z[..., 2:], average_attn_weights=False)
        q, k, v = self.inputs(z.transpose(0, 1)).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind()
        probability = 0.3 if self.training else 0.0
        mask = torch.ones(x.shape[1], x.shape[1]).tril().bool()
        return (weights, more, F.scaled_dot_product_attention(q, k, v, dropout_p=probability, is_causal=True),
                F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=probability, scale=0.3),
                F.scaled_dot_product_attention(q, k, v))


@net(rows(6, 8), (BATCH,))
class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, 0.2, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(8, 2, 16, 0.1, "gelu", norm_first=True, batch_first=True)

    def forward(self, x):
        return self.decoder(x, self.encoder(x))


@net(lambda batch: (torch.randint(0, 10, (batch, 4)), torch.arange(0, batch * 4 + 1, 4), torch.randn(batch, 4)),
     (BATCH, BATCH, BATCH), **ONCE)
class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 4, padding_idx=0)
        self.short = nn.Embedding(10, 4, max_norm=1.0, scale_grad_by_freq=True)
        self.mean = nn.EmbeddingBag(10, 4, padding_idx=2)
        self.sum = nn.EmbeddingBag(10, 4, mode="sum", include_last_offset=True)
        self.max = nn.EmbeddingBag(10, 4, mode="max")

    def forward(self, ids, offsets, weights):
        bag = self.sum(ids.flatten(), offsets, weights.flatten())
        return self.words(ids), self.short(ids), self.mean(ids), bag, self.max(ids)


@net(lambda batch: (torch.randint(0, 9, (batch, 3)),), (BATCH,), **ONCE)
class Parameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 4)
        self.tied = nn.Linear(4, 9, bias=False)
        self.tied.weight = self.words.weight
        self.unused = nn.Parameter(torch.randn(3))
        self.half_frozen = nn.Linear(4, 4)
        self.half_frozen.weight.requires_grad_(False)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.list = nn.ParameterList([torch.randn(4), torch.randn(4)])
        self.dict = nn.ParameterDict({"a": nn.Parameter(torch.randn(4)), "b": nn.Parameter(torch.randn(4))})
        self.scalar = nn.Parameter(torch.tensor(0.5))
        self.transposed = nn.Parameter(torch.randn(4, 4).t())
        self.counts = nn.Parameter(torch.arange(3), requires_grad=False)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))

    def forward(self, ids):
        x = self.frozen(self.half_frozen(self.words(ids))) * self.list[0] + self.dict["b"] * self.scalar
        return self.tied(self.normed(x @ self.transposed)), self.list[0], ids


@net(rows(4), (BATCH,))
class SpectralNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5))

    def forward(self, x):
        return self.linear(x)


@net(rows(4), (BATCH,), run=("",), prepare=lambda model: model.norm.eval())
class FrozenNorm(Parts):
    def forward(self, x):
        return self.dropout(self.norm(self.linear(x)))


@net(rows(4), (BATCH,), run=("", "train", "eval"))
class OverriddenTrain(FrozenNorm):
    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


@net(rows(4), (BATCH,), **ONCE)
class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        for name in ("copied", "summed", "averaged"):
            self.register_buffer(name, torch.ones(4))
        self.register_buffer("table", torch.zeros(5, 4))
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("constant", torch.randn(4), persistent=False)
        self.register_buffer("doubled", torch.ones(4), persistent=False)

    def forward(self, x):
        y = self.linear(x)
        with torch.no_grad():
            self.copied.copy_(y.mean(0))
            self.summed.add_(y.sum(0))
            self.averaged.mul_(0.9).add_(y[0], alpha=0.1)
            self.table.index_put_((torch.tensor([1, 3]),), y[0])
            self.table[0] = 7
        self.steps = self.steps + 1
        self.doubled = self.doubled * 2
        return y + self.constant + self.summed * self.steps + self.doubled, self.table, self.copied


@net(rows(3, 8, 8), (BATCH,))
class Residual(nn.Module):
    """Most results of elementwise operators can be written over their operands."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList([nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(0.2),
            nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)) for _ in range(4)])
        self.norm = nn.BatchNorm2d(8)
        self.shortcut = nn.Conv2d(8, 8, 1)
        self.gate = nn.Conv2d(8, 8, 1)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.ReLU6(), nn.Linear(8, 3))

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.blocks[0](x) + x)
        x = F.leaky_relu(self.shortcut(x) + self.blocks[1](x), 0.1)
        x = x + 0.5 * self.blocks[2](x)
        x = torch.tanh(self.blocks[3](x)) * torch.sigmoid(self.gate(x)) + x
        x = F.silu(self.shortcut(x)) / 3 + F.hardswish(self.gate(x)) * self.gate(x).mean((2, 3), keepdim=True)
        return self.head(x.mean((2, 3)))


@net(rows(4), (BATCH,), **ONCE)
class LastUses(Parts):
    """Values that nobody uses any more, of which some are needed nevertheless."""

    def forward(self, x):
        z = self.linear(x)
        view = z.view(-1)
        y = torch.relu(z)
        rest, part = self.linear(y).split([1, 3], 1)
        part = torch.tanh(part)
        twice = self.other(y)
        saved = torch.relu(torch.sigmoid(self.linear(y)))
        wide = self.linear(y) + torch.linspace(0, 1, 4, dtype=torch.float64)
        column = self.other(y)[:, :1] + self.linear(y)
        row = torch.relu(self.linear(y) + self.other(y)[:1])
        turned = torch.relu(self.linear(y).t()) + 1
        grown = torch.relu(self.linear(y).mean(1, keepdim=True).expand(-1, 4))
        masked = F.dropout(self.linear(y), 0.3, self.training) * torch.tensor([0.0, 1.0, 2.0, 3.0])
        product = self.linear(y) * self.other(y) - self.linear(y)
        with torch.no_grad():
            # contiguous() returns the tensor with a gradient itself.
            quiet = torch.relu(self.linear(y).contiguous())
            constant = torch.relu(torch.arange(4.0) - 1)
        outside = self.other(y)
        with torch.no_grad():
            inside = torch.relu(outside.contiguous())
        loud = torch.relu(constant + self.linear(y) * quiet)
        return (view, rest, part, torch.relu(twice + twice), saved, wide, column, row, turned, grown, masked, product,
                quiet, inside, loud, torch.relu(y.detach()), F.hardtanh(self.other(x)))


@net(lambda batch: (torch.randn(batch, 4), torch.randn(batch, 4)), (BATCH, BATCH), **ONCE)
class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.constant = torch.randn(4)

    def forward(self, x, y):
        z = self.linear(x) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + self.constant
        z = z + torch.ones(4, dtype=torch.float64).sum()
        z[:, 1:3] = z[:, :2] * 2
        z[0] = 1.0
        z[1, 2] += 5
        z.masked_fill_(z > 3, -1.0)
        z[z < -3] = 0.25
        z.t()[0].mul_(2)
        view = y.view(-1)[::2]
        view.add_(1)  # changes the input
        y[:, 1].zero_()
        w = torch.zeros_like(z)
        w[torch.arange(x.shape[0]), torch.tensor(1)] = z[:, 0]
        w.scatter_add_(1, torch.ones(x.shape[0], 1, dtype=torch.long), z[:, :1])
        w.index_add_(0, torch.tensor([0, 1]), z[:2])
        return z, y * 2, view, w, torch.where(z > 0, z, 0.0), x


Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Result:
    loss: torch.Tensor
    extra: typing.Optional[torch.Tensor] = None
    parts: typing.Optional[list] = None


torch.export.register_dataclass(Result, serialized_type_name="program_oracle.Result")
pytree._register_namedtuple(Pair, serialized_type_name="program_oracle.Pair")


@net(lambda batch: ([torch.randn(batch, 4), (torch.randn(batch, 4),)], {"image": torch.randn(batch, 4), "none": None},
                    (1, torch.randn(4)), True, {"extra": {"k": [torch.randn(batch, 4)]}}),
     {"xs": [BATCH, (BATCH,)], "batch": {"image": BATCH, "none": None}, "pair": (None, None), "flag": None,
      "extra": {"k": [BATCH]}}, **ONCE)
class Structures(Parts):
    def forward(self, xs, batch, pair, flag, scale=2, *, extra, name="name"):
        x = self.linear(xs[0]) + xs[1][0] + batch["image"] * pair[1] + extra["k"][0]
        if flag:
            x = x * scale
        return {"list": [x, (x + 1, None)], "result": Result(x.sum(), parts=[x[0], 3]), "pair": Pair(x, x.shape[1]),
                "none": None, "numbers": (5, 2.5, True), "text": name, "empty": (), "size": x.shape[0],
                "ordered": collections.OrderedDict(z=x * 2, y=1),
                "default": collections.defaultdict(int, {"d": x * 3})}


@net(lambda batch: (torch.randn(batch, 4), torch.randn(batch, 4)), {"xs": (BATCH, BATCH)}, **ONCE)
class VariableArguments(Parts):
    def forward(self, *xs):
        return self.linear(xs[0]) + xs[1]


@net(rows(3, 8), (BATCH,), **ONCE)
class ComplexNumbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, 5, dtype=torch.cfloat))
        self.register_buffer("phase", torch.polar(torch.ones(5), torch.arange(5.0)))

    def forward(self, x):
        y = torch.einsum("bix,iox->box", torch.fft.rfft(x, dim=-1, norm="ortho"), self.weight) * self.phase
        z = torch.view_as_real(y)
        return (torch.fft.irfft(torch.view_as_complex(z.contiguous()), n=8), z, y.abs(), y.conj() * 2j,
                torch.complex(z[..., 0], z[..., 1]).angle(), torch.fft.fft2(x),
                torch.stft(x.flatten(1), 8, 4, window=torch.hann_window(8), return_complex=True))


@net(rows(4), (BATCH,), **ONCE)
class Branches(Parts):
    def forward(self, x):
        z = self.linear(x)

        def nested(a):
            return torch.cond(a.sum() > 1, lambda b: self.other(self.other(b)),
                              lambda b: b.neg() @ self.linear.weight, (a,))

        first, second = torch.cond(z.sum() > 0, lambda a: (self.other(a).sin(), a * 2),
                                   lambda a: (self.other(a).cos() * a, a + 1), (z,))
        return (first, second, torch.cond(x.shape[0] > 7, lambda a: a * 3, lambda a: a - 1, (first,)),
                torch.cond(x.sum() < 100, nested, lambda a: a.clone(), (self.norm(z),)), self.other(z))


@net(rows(4), (BATCH,), **ONCE)
class RandomBranches(Parts):
    def forward(self, x):
        return torch.cond(x.sum() < 100, lambda a: self.dropout(a * 2), lambda a: a.clone(), (self.linear(x),))


@net(rows(3, 4), (BATCH,), **ONCE)
class Loops(Parts):
    def forward(self, x):
        z = self.linear(x)
        repeated = while_loop(lambda i, a: (i < 3) & (a.sum() < 1e6), lambda i, a: (i + 1, self.other(a)),
                              (torch.tensor(0), z))
        backwards = scan(lambda c, a: (c + a, (c * a).sin()), torch.zeros_like(z[:, 0]), z, dim=1, reverse=True)
        return repeated, backwards, self.other(z)


@net(rows(3, 4), (BATCH,), **ONCE)
class Rows(Parts):
    def forward(self, x):
        z = self.linear(x)

        def step(carried, row):
            state = torch.tanh(self.other(row[0]) + carried[0])
            return [state, carried[1] + 1], (state * row[1], self.dropout(state * 2))

        return scan(step, [torch.zeros(3, 4), z[0]], (z, z * 2)), map_rows(lambda a, b: (a * b).sin(), z, z[0] + 1)


@net(rows(4), (BATCH,))
class Modes(Parts):
    def forward(self, x):
        z = self.linear(x)
        with torch.no_grad():
            y = self.dropout(self.other(z))
            with torch.enable_grad():
                w = self.norm(self.other(x) * 2)
            q = y * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            u = self.linear(self.dropout(self.other(self.linear(z))))
            with torch.autocast("cpu", enabled=False):
                v = self.other(u.float())
        with torch.autocast("cpu", dtype=torch.float16):
            return z * y + w, q, z.detach() * q, u, v, self.other(x), u.float() @ x.T


@net(rows(4), (BATCH,))
class NormRegions(Parts):
    """One norm in two regions; in training mode its counter passes from one to the other."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.norm(self.linear(x))
        x = self.other(x.float())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.norm(x)


@net(rows(4), (BATCH,), **ONCE)
class Checkpointed(Parts):
    def forward(self, x):
        return checkpoint(lambda a: self.dropout(self.other(a)).sin(), self.linear(x), use_reentrant=False)


@net(rows(4), (BATCH,), **ONCE)
class CheckpointedNorm(Parts):
    def forward(self, x):
        return checkpoint(self.norm, self.linear(x), use_reentrant=False)


@net(rows(4), (BATCH,), **ONCE)
class Reentrant(Parts):
    def forward(self, x):
        return checkpoint(self.other, self.linear(x), use_reentrant=True)


@net(lambda batch: (torch.randn(batch, 4), torch.randn(batch + 1, 4)), (BATCH, BATCH), **ONCE)
class Sizes(Parts):
    def forward(self, x, y):
        b = x.shape[0]
        half, rest = b // 2, torch.sym_max(b % 4, b // 3)
        z = self.linear(x)
        number = z.sum() / (b - 1) + b ** 2 + b ** 0.5
        return (z[:half], z.new_zeros(half + 1, 2 * b - 1), torch.arange(b) / b, z.view(b * 2, 2), F.pad(z, (0, rest)),
                z.unsqueeze(0).expand(half + 2, b, 4), number, half, torch.cat([z, y]).split([b, y.shape[0]]),
                z.repeat(half, 1), torch.full((b,), half), z * half, z * b / 3.0 - b, torch.full((), b), (b, -b),
                torch.clamp(z, min=0.0), z[half:], torch.maximum(z, torch.tensor(b)))


@net(lambda batch: (torch.randn(batch, 4), torch.randint(0, 8, (batch,)), torch.tensor(batch - 2)),
     (BATCH, BATCH, None), **ONCE)
class DependsOnData(Parts):
    def forward(self, x, i, n):
        z = self.linear(x)
        k = n.item()
        torch._check(k >= 1)
        torch._check(k <= x.shape[0])
        return (*torch.unique(i, return_inverse=True, return_counts=True), torch.nonzero(i > 2), z[i > 2],
                torch.masked_select(z, z > 0), z[:k], torch.ones(k) * 2, z * k, z * x[0, 0].item(),
                torch.repeat_interleave(z, i, dim=0), F.one_hot(i, 10), torch.bincount(i, minlength=10))


@net(lambda batch: (torch.randn(batch, 4).double(),), (BATCH,), **ONCE)
class Types(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(4, 4).double()
        self.brain = nn.Linear(4, 4).bfloat16()
        self.narrow = nn.Linear(4, 4).half()
        self.usual = nn.Linear(4, 4)

    def forward(self, x):
        y = self.wide(x)
        z = self.brain(y.bfloat16())
        h = self.narrow(z.to(torch.float16))
        f = self.usual(h.float())
        return (y, z, h, f, f + y, f.to(torch.int8), f.to(x.dtype), f.type_as(z), f > 0,
                torch.zeros(2, dtype=torch.float64))


@net(rows(4, 6, 6), (BATCH,), **ONCE)
class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(4, 8, 3, padding="same", groups=2, dilation=2),
            nn.ConvTranspose2d(8, 4, 3, stride=2, output_padding=1),
            nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), nn.PReLU(4), nn.MaxPool2d(2, ceil_mode=True))
        self.last = nn.Conv2d(4, 4, 1).to(memory_format=torch.channels_last)
        self.fractional = nn.FractionalMaxPool2d(2, output_ratio=0.5)
        self.line = nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        x = self.front(x)
        y, indices = F.max_pool2d(x, 2, return_indices=True)
        w = F.interpolate(x, size=(7, 5), mode="nearest")
        return (x, y, F.max_unpool2d(y, indices, 2, output_size=x.shape[-2:]), F.pixel_shuffle(x, 2), self.last(x), w,
                F.interpolate(x, scale_factor=0.5, mode="bilinear"), F.adaptive_avg_pool2d(x, (2, None)),
                F.avg_pool2d(x, 3, padding=1, count_include_pad=False), F.unfold(x, 2), self.fractional(x),
                F.grid_sample(x, torch.tanh(w[:, :2]).permute(0, 2, 3, 1), align_corners=False),
                self.line(x.flatten(2)), F.pad(x, (1, 1, 0, 1), mode="replicate"))


@net(rows(4), (BATCH,), **ONCE)
class RandomNumbers(Parts):
    def forward(self, x):
        z = self.linear(x)
        return (z + torch.randn_like(z), torch.rand(x.shape[0], 2), torch.bernoulli(torch.sigmoid(z)),
                torch.randint(0, 5, (x.shape[0],)), z.detach().clone().uniform_(), torch.normal(0.0, 1.0, (3,)),
                z.new_empty(3).exponential_())


@net(lambda batch: (torch.randn(batch, 4), torch.randint(0, 5, (batch,))), (BATCH, BATCH), **ONCE)
class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2, weight=torch.rand(5))

    def forward(self, x, labels):
        z = self.linear(x)
        square = z.T @ z + torch.eye(5)
        return (self.loss(z, labels), F.binary_cross_entropy_with_logits(z, torch.sigmoid(z).detach()),
                F.kl_div(z.log_softmax(1), z.softmax(1), reduction="batchmean"),
                F.triplet_margin_loss(z, z.flip(0), z.roll(1, 0)), F.huber_loss(z, x[:, :1].expand_as(z)), *z.topk(2),
                *z.sort(descending=True, stable=True), z.cumsum(1), *z.max(1), z.argmax(1), z.var(1, unbiased=False),
                z.norm(dim=1), torch.einsum("bi,bj->bij", z, z), torch.einsum("...i,ij->...j", z, self.linear.weight),
                torch.logsumexp(z, 1), torch.linalg.svdvals(square), torch.linalg.inv(square), *z.chunk(2, 1),
                *torch.meshgrid(z[0], z[1], indexing="ij"), torch.quantile(z, 0.5), z.isnan().any(),
                torch.searchsorted(torch.arange(5.0), z.detach()))


@net(rows(4), (BATCH,), strict=True)
class Strict(Parts):
    """torch.export leaves state that the graph does not use out of the graph, and tied names."""

    def __init__(self):
        super().__init__()
        self.tied = nn.Linear(4, 4, bias=False)
        self.tied.weight = self.linear.weight

    def forward(self, x):
        return self.tied(self.dropout(self.norm(self.linear(x))))
