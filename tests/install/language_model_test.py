"""Compares examples/10_language_model with a plain PyTorch program in one process, which does not use Lockstep.

Usage: language_model_test.py WORK_DIR

WORK_DIR is where build_examples.sh has built the example and installed Lockstep. The example trains in each way of RUNS
and starts with the weights of its own `--steps 0`, which this script reads, too. The loss and the norm of the gradients
of every step, and every weight after the last one, must agree with PyTorch's.

The tolerances. Everything is float32. Rounding alone, such as that of another order of additions (a rank's share of the
sentences, micro-batches) or of float64, changes a loss by up to 2e-7, a norm by up to 1e-6, both relatively, and a
weight by up to 4e-7. Each of MISTAKES, which such a program may contain, changes a norm by at least 2e-3 and a weight by
at least 3e-3. LOSS, NORM and WEIGHT are thus several times what rounding changes, and less than a hundredth of what a
mistake changes. The script itself checks both: it trains in float64, and it makes each mistake, in PyTorch. One process
adds up in the same order as PyTorch and has to meet the smaller WEIGHT_ALONE.

Exits with 0, with 1 and a line for each disagreement, or with 77 (skipped) and the reason.
"""
import math
import pathlib
import re
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

from built_example import run_example

LOSS, NORM = 1e-6, 1e-5  # relative
WEIGHT, WEIGHT_ALONE = 5e-6, 1e-6  # absolute
MARGIN = 100  # a mistake must change a norm and a weight by this many tolerances
STEPS = 10
RUNS = [  # (name, ranks, options, tolerance of weights)
    ("one process", 1, [], WEIGHT_ALONE),
    ("ddp on 2 ranks", 2, [], WEIGHT),
    ("ddp on 3 ranks", 3, [], WEIGHT),
    ("a pipeline of 1 rank", 1, ["--pipeline"], WEIGHT),
    ("a pipeline of 2 ranks", 2, ["--pipeline"], WEIGHT),
    ("a pipeline of 3 ranks", 3, ["--pipeline"], WEIGHT),
]
MISTAKES = {  # name: arguments of train()
    "the mean of the ranks' means": {"ranks": 2, "mean": "rank"},
    "the mean of the accumulated batches' means": {"mean": "batch"},
    "decay of norms and biases": {"decays": lambda parameter: True},
    "a tied weight that counts twice in the norm": {"counted": 2},
    "a weight that is not tied": {"tied": False},
    "no clipping": {"max_norm": math.inf},
}

# As in main.cpp.
WORDS, LONGEST, WIDTH, HEADS, BLOCKS = 29, 24, 32, 4, 4
SENTENCES, BATCHES, PADDING, LR, MAX_NORM = 12, 2, -100, 5e-3, 1.0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        heads = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4).unbind()
        attended = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        for i in range(BLOCKS):
            self.add_module(f"block{i}", Block())
        self.norm = nn.LayerNorm(WIDTH)
        self.output = self.words.weight if tied else nn.Parameter(torch.empty(WORDS, WIDTH))

    def forward(self, x):
        x = self.words(x) + self.positions(torch.arange(x.shape[1]))
        for i in range(BLOCKS):
            x = self.get_submodule(f"block{i}")(x)
        return F.linear(self.norm(x), self.output)


def sentence(number):
    words = torch.arange(3 + number**2 % (LONGEST - 2))
    return (7 * number + (1 + number % 3) * words) % WORDS


def batch(number, rank, ranks):
    """The words of a rank's sentences, and the words that follow them."""
    sentences = [sentence(number * SENTENCES + i) for i in range(rank, SENTENCES, ranks)]
    pad = lambda rows, value: nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)
    return pad([words[:-1] for words in sentences], 0), pad([words[1:] for words in sentences], PADDING)


def rate_factor(step):
    if step < 3:
        return (step + 1) / 3
    return 0.1 + 0.9 * (1 + math.cos(math.pi * (step - 3) / (STEPS - 3))) / 2


def valid(batches):
    return sum(int((y != PADDING).sum()) for _, y in batches)


def divisor(mean, batches_of_ranks, batches, y):
    """What the sum of the losses of one batch is divided by."""
    if mean == "rank":
        return valid(batches) * len(batches_of_ranks)
    if mean == "batch":
        return valid([(None, y)]) * len(batches) * len(batches_of_ranks)
    return sum(map(valid, batches_of_ranks))


def train(initial, dtype=torch.float32, ranks=1, mean="all", decays=lambda parameter: parameter.dim() >= 2, counted=1,
          tied=True, max_norm=MAX_NORM):
    """Trains in one process, on the sentences of each of `ranks` in turn. Returns the losses, the norms and the weights."""
    net = Gpt(tied).to(dtype)
    net.load_state_dict(initial)
    parameters = list(net.parameters())  # a tied weight once
    optimizer = torch.optim.AdamW(
        [{"params": [each for each in parameters if decays(each)], "weight_decay": 0.1},
         {"params": [each for each in parameters if not decays(each)], "weight_decay": 0.0}],
        lr=LR, betas=(0.9, 0.95), eps=1e-5)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = LR * rate_factor(step)
        optimizer.zero_grad()
        batches_of_ranks = [[batch(step * BATCHES + i, rank, ranks) for i in range(BATCHES)] for rank in range(ranks)]
        loss = 0
        for batches in batches_of_ranks:
            for x, y in batches:
                total = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=PADDING, reduction="sum")
                part = total / divisor(mean, batches_of_ranks, batches, y)
                part.backward()
                loss += part.detach()
        counted_gradients = [each.grad for each in parameters] + (counted - 1) * [net.output.grad]
        norm = nn.utils.get_total_norm(counted_gradients)
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
        optimizer.step()
        losses.append(float(loss))
        norms.append(float(norm))
    return losses, norms, net.state_dict()


def run(work, ranks, options, prefix):
    """Runs the example. Returns the losses, the norms and the weights."""
    printed = run_example(work, "language_model", *options, "--save", prefix, ranks=ranks)
    steps = re.findall(r"^step +(\d+): loss (\S+), gradient norm (\S+)$", printed, re.MULTILINE)
    if [int(number) for number, _, _ in steps] != list(range(1, len(steps) + 1)):
        sys.exit(f"language_model {' '.join(options)} on {ranks} ranks printed other steps: {printed}")
    weights = {}
    for file in sorted(prefix.parent.glob(f"{prefix.name}*.pt")):
        weights.update(torch.load(file, weights_only=True))
    return [float(loss) for _, loss, _ in steps], [float(norm) for _, _, norm in steps], weights


def differences(got, expected):
    """The largest differences of losses and norms (relative) and of weights (absolute)."""
    relative = lambda a, b: max((abs(x / y - 1) for x, y in zip(a, b, strict=True)), default=0)
    if got[2].keys() != expected[2].keys():
        sys.exit(f"the weights have other names: {sorted(got[2].keys() ^ expected[2].keys())}")
    weights = max(float((got[2][name] - expected[2][name]).abs().max()) for name in got[2])
    return relative(got[0], expected[0]), relative(got[1], expected[1]), weights


def shown(loss, norm, weight):
    return f"losses differ by {loss:.1e}, norms by {norm:.1e}, weights by {weight:.1e}"


def main():
    work = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        _, _, initial = run(work, 1, ["--steps", "0"], pathlib.Path(folder) / "initial")
        expected = train(initial)
        if not expected[0][-1] < expected[0][0] - 0.3:
            failed.append(f"the loss does not fall: {expected[0]}")
        for number, (name, ranks, options, tolerance) in enumerate(RUNS):
            got = run(work, ranks, [*options, "--steps", str(STEPS)], pathlib.Path(folder) / f"run{number}")
            if not torch.equal(got[2]["words.weight"], got[2]["output"]):
                failed.append(f"{name}: the copies of the tied weight differ")
            loss, norm, weight = differences(got, expected)
            print(f"{name}: {shown(loss, norm, weight)}")
            if not (loss <= LOSS and norm <= NORM and weight <= tolerance):
                failed.append(f"{name}: allowed are {LOSS:.0e}, {NORM:.0e} and {tolerance:.0e}")
    loss, norm, weight = differences(train(initial, dtype=torch.float64), expected)
    print(f"PyTorch in float64: {shown(loss, norm, weight)}")
    if not (loss <= LOSS and norm <= NORM and weight <= WEIGHT_ALONE):
        failed.append("the tolerances are smaller than what rounding changes")
    for name, arguments in MISTAKES.items():
        loss, norm, weight = differences(train(initial, **arguments), expected)
        print(f"PyTorch with {name}: {shown(loss, norm, weight)}")
        if not (norm >= MARGIN * NORM and weight >= MARGIN * WEIGHT):
            failed.append(f"{name} is too close to rounding to be noticed")
    sys.exit("\n".join(failed) or 0)


if __name__ == "__main__":
    main()
