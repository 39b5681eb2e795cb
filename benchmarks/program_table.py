#!/usr/bin/env python3
"""Training steps of exported programs, alternating with eager Python on the same nets.

Usage: program_table.py [--rounds 7] [--seconds 2] [--build build/release] [--only NAME] [--no-in-place]
                        [--channels-last] [--compile]

Both sides have the same weights, inputs, LibTorch and number of threads. A step is zero_grad, forward, the mean square of
the output, backward, and SGD with momentum: torch.optim.SGD with fused=True, the fastest that PyTorch has, against
lockstep::Optimizer, which calls the same kernel over flat memory. The column "without optimizer" leaves both out.
With --no-in-place the program writes each result to memory of its own (ProgramOptions::in_place). With --channels-last
both sides have their images and weights in that format; nets without images are left out. With --compile there is a third
side, the net of torch.compile(), whose compilation is not counted; the loss, the optimizer and zero_grad stay as in eager.
The column "prepared" is our side in a process that keeps freed memory, as ranks of `lockstep train` do, against an eager
Python that does not.
Figures are medians over the rounds of the median step in a round; a ratio is the median of the ratios of the rounds.
"""
import inspect
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
from torch import nn

from peers.mnist_net import MnistNet
from peers.resnet18 import ResNet18
from peers.resnet50 import ResNet50
from programs import parser_of
from provenance import commit, machine

WARM_UP = 3


class Mlp(nn.Module):
    def __init__(self, layers=8, width=64):
        super().__init__()
        self.layers = nn.Sequential(*[each for _ in range(layers) for each in (nn.Linear(width, width), nn.ReLU())])

    def forward(self, x):
        return self.layers(x)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(width, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, width=64, layers=4, heads=4, words=256, length=32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.words(x) + self.places.weight)))


NETS = {  # name: (title, net, inputs, threads)
    "mlp": ("MLP, 8 layers of 64, batch 16", Mlp, lambda n: torch.randn(n, 64), 16, 1),
    "mnist": ("MNIST net, batch 16", MnistNet, lambda n: torch.randn(n, 1, 28, 28), 16, 1),
    "gpt": ("GPT, 4 blocks of 64, 32 tokens, batch 1", Gpt, lambda n: torch.randint(0, 256, (n, 32)), 1, 1),
    "resnet18": ("ResNet-18 for 32x32 images, batch 16", lambda: ResNet18(10), lambda n: torch.randn(n, 3, 32, 32), 16, 1),
    "resnet50": ("ResNet-50, 64x64 images, batch 8", lambda: ResNet50(10), lambda n: torch.randn(n, 3, 64, 64), 8, 2),
}
WITH_IMAGES = {"mnist", "resnet18", "resnet50"}


def export(net, inputs, folder):
    """Writes net.pt2 and inputs.pt to `folder`, for our programs."""
    dynamic = None if len(inputs) == 1 else ({0: torch.export.Dim.DYNAMIC},)
    argument = next(iter(inspect.signature(net.forward).parameters))
    torch.export.save(torch.export.export(net, (inputs,), dynamic_shapes=dynamic, strict=False), folder / "net.pt2")
    torch.save({argument: inputs.clone()}, folder / "inputs.pt")


def eager(net, inputs, seconds):
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, fused=True)
    steps, passes = [], []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(steps) < WARM_UP:
        begin = time.perf_counter()
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        passed = time.perf_counter()
        optimizer.step()
        steps.append(1e3 * (time.perf_counter() - begin))
        passes.append(1e3 * (passed - begin))
    return statistics.median(steps[WARM_UP:] or steps), statistics.median(passes[WARM_UP:] or passes)


def our_step(options, folder, threads, words):
    """Returns the milliseconds of a step, those without the optimizer, and the seconds of loading."""
    ours = subprocess.run([options.build / "program_step", folder / "net.pt2", folder / "inputs.pt",
                           str(options.seconds), str(threads), *words], capture_output=True, text=True, check=True)
    return [float(word) for word in ours.stdout.split()]


def measure(name, options, folder):
    title, make, draw, batch, threads = NETS[name]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net, inputs = make().train(), draw(batch)
    export(net, inputs, folder)
    words = ["no-in-place"] * options.no_in_place + ["channels-last"] * options.channels_last
    if options.channels_last:
        net, inputs = (each.to(memory_format=torch.channels_last) for each in (net, inputs))
    compiled = torch.compile(net) if options.compile else None
    rows = []
    for _ in range(options.rounds):
        rows.append({"ours": our_step(options, folder, threads, words),
                     "prepared": our_step(options, folder, threads, [*words, "prepared"]),
                     "eager": eager(net, inputs, options.seconds),
                     "compiled": eager(compiled, inputs, options.seconds) if compiled is not None else None})
    middle = lambda value: statistics.median(map(value, rows))  # noqa: E731
    faster = lambda peer, side, part=0: middle(lambda row: row[peer][part] / row[side][part])  # noqa: E731
    cells = [f"{title}, {threads} thread{'s' if threads > 1 else ''}", f"{middle(lambda row: row['eager'][0]):.3f} ms",
             f"{middle(lambda row: row['ours'][0]):.3f} ms", f"{faster('eager', 'ours'):.2f}",
             f"{faster('eager', 'ours', 1):.2f}", f"{faster('eager', 'prepared'):.2f}",
             f"{middle(lambda row: row['ours'][2]):.3f} s"]
    if compiled is not None:
        cells += [f"{middle(lambda row: row['compiled'][0]):.3f} ms", f"{faster('compiled', 'ours'):.2f}",
                  f"{faster('compiled', 'prepared'):.2f}"]
    return f"| {' | '.join(cells)} |"


def main():
    parser = parser_of(__doc__, rounds=7, seconds=2.0)
    parser.add_argument("--only", choices=NETS)
    parser.add_argument("--no-in-place", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    print(f"{machine()}, PyTorch {torch.__version__}, commit {commit()}\n")
    heads = ["net", "eager Python", "program", "times faster", "without optimizer", "prepared", "loading"]
    if options.compile:
        heads += ["torch.compile", "times faster than that", "prepared"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in [options.only] if options.only else NETS:
            if options.channels_last and name not in WITH_IMAGES:
                continue
            print(measure(name, options, pathlib.Path(folder)), flush=True)


if __name__ == "__main__":
    main()
