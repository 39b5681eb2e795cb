#!/usr/bin/env python3
"""The time of loading exported programs, and the memory of their training steps, compared with Python's.

Usage: program_load.py [--rounds 5] [--steps 3] [--threads 2] [--limit 600] [--build build/release]
                       [--only NAME]

Loading
    The medians of the seconds in which lockstep::Program, and torch.export.load with and without module(), read a file that
    the system has in memory. Each load has a process of its own, and the sides take turns. Python's time has the modules that
    torch.export imports when it is first used, as a user's has; a Program is ready to run, as what module() returns.

Memory
    By how many bytes a process grows in --steps training steps beyond its memory after loading: `resident` is its largest
    resident memory, and `allocated` what LibTorch's allocator for the CPU has handed out at the same time, which contains
    neither the allocator's reserves nor the kernels of oneDNN. Python runs the eager model. Both sides have the same
    weights, inputs and number of threads; a step is zero_grad, forward, the mean square of the output, backward, and
    torch.optim's SGD with momentum, without foreach, as it is in C++. Each figure is the median of --rounds processes.
"""
import ctypes
import gc
import itertools
import pathlib
import statistics
import sys
import tempfile
import time

import torch

from peers.resnet50 import ResNet50
from program_table import Gpt, export
from programs import add_limit, parser_of, run
from provenance import commit, machine

LARGEST_RATIO = 1.03  # of memory


class Gpt2(Gpt):
    """GPT-2 small: 124 M parameters, and an output that shares its weight with the embedding."""
    def __init__(self):
        super().__init__(width=768, layers=12, heads=12, words=50257, length=1024)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.words(x) + self.places.weight[:x.shape[1]])))


NETS = {  # name: (title, net, inputs, seconds in which it must be loaded)
    "resnet50": ("ResNet-50, 224x224 images, batch 8", ResNet50, lambda: torch.randn(8, 3, 224, 224), 0.3),
    "gpt2": ("GPT-2 small, 128 tokens, batch 1", Gpt2, lambda: torch.randint(0, 50257, (1, 128)), 1.0),
}


def make(name):
    torch.manual_seed(0)
    return NETS[name][1]().train(), NETS[name][2]()


def memory(name):
    """A value of /proc/self/status in bytes."""
    return 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))


def train(net, inputs, steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6, momentum=0.9, foreach=False)
    for _ in range(steps):
        optimizer.zero_grad()
        net(inputs).square().mean().backward()
        optimizer.step()


def child(what, name, *words):
    """What a process of Python measures: see ours() for the same in C++."""
    if what == "load":
        start = time.perf_counter()
        program = torch.export.load(words[0])
        loaded = time.perf_counter()
        program.module()
        print(loaded - start, time.perf_counter() - start)
        return
    steps, threads = map(int, words)
    torch.set_num_threads(threads)
    net, inputs = make(name)
    train(torch.nn.Linear(1, 1), torch.zeros(1, 1), 1)  # imports what the optimizer needs
    if what == "allocated":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            train(net, inputs, steps)
        events = [each for each in profile.profiler.kineto_results.events() if each.name() == "[memory]"]
        events.sort(key=lambda event: event.start_ns())
        print(max(itertools.accumulate(event.nbytes() for event in events)))
        return
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # makes the memory of now the largest so far
    before = memory("VmRSS")
    train(net, inputs, steps)
    print(memory("VmHWM") - before)


def python(options, *words):
    return numbers(run([sys.executable, __file__, "--child", *words], options.limit))


def ours(options, folder, steps, what):
    """The seconds of loading, and the bytes of growth."""
    return numbers(run([options.build / "program_memory", folder / "net.pt2", folder / "inputs.pt", steps, options.threads,
                        what], options.limit))


def numbers(text):
    return [float(word) for word in text.split()]


def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def loading(name, options, folder):
    rows = [(*ours(options, folder, 0, "allocated")[:1], *python(options, "load", name, folder / "net.pt2"))
            for _ in range(options.rounds)]
    program, load, module = medians(rows)
    title, _, _, limit = NETS[name]
    size = (folder / "net.pt2").stat().st_size / 1e6
    return (f"| {title} | {size:.0f} MB | {program:.3f} s | {load:.3f} s | {module:.3f} s | {module / program:.1f} | "
            f"{limit:g} s: {'met' if program <= limit else 'missed'} |")


def growth(name, options, folder, what):
    rows = [(ours(options, folder, options.steps, what)[1], *python(options, what, name, options.steps, options.threads))
            for _ in range(options.rounds)]
    program, eager = medians(rows)
    ratio = program / eager
    return (f"| {NETS[name][0]} | {what} | {eager / 1e6:.1f} MB | {program / 1e6:.1f} MB | {ratio:.3f} | "
            f"{LARGEST_RATIO:g}: {'met' if ratio <= LARGEST_RATIO else 'missed'} |")


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(*sys.argv[2:])
    parser = parser_of(__doc__, rounds=5, steps=3, threads=2)
    add_limit(parser, 600, "a process")
    parser.add_argument("--only", choices=NETS)
    options = parser.parse_args()
    print(f"{machine()}, PyTorch {torch.__version__}, commit {commit()}, {options.threads} threads\n")
    loads, growths = [], []
    for name in [options.only] if options.only else NETS:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            export(*make(name), folder)
            loads.append(loading(name, options, folder))
            growths += [growth(name, options, folder, what) for what in ("resident", "allocated")]
    print("| net | file | program | torch.export.load | with module() | times faster | bar |")
    print("|---|---|---|---|---|---|---|", *loads, sep="\n", end="\n\n")
    print("| net | memory | eager Python | program | ratio | bar |")
    print("|---|---|---|---|---|---|", *growths, sep="\n")


if __name__ == "__main__":
    main()
