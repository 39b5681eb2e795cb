"""What DistributedDataParallel adds to a training step in Python, on Gloo and on Lockstep.

Usage: python benchmarks/peers/ddp_step.py [--package FOLDER] [--rounds 41] [--steps 30] [--malloc keep|default] [--json FILE]

Two ranks, each pinned to a processor of its own with one thread, train the MNIST net (batch 64 a rank) in
four ways in turn, in many short rounds: alone ("uncoupled", two processes that do not know of each other but
share the machine as the ranks do); alone, but waiting for each other after backward ("in step", by one number
through shared memory, a microsecond: what ranks that are not equally fast lose in any case); with DDP on Gloo;
with DDP on Lockstep. A round's step is the median of
the slower rank, since whatever couples them waits for it; its overhead is that minus the uncoupled one of the
same round. The figures are medians over the rounds.

glibc's allocator gives memory back to the kernel in some steps and not in others, by what else the program
holds: up to 2 ms a step that have nothing to do with communication. All three ways run with that switched
off (--malloc default leaves it on). Where other programs run, `chrt -r 10 python ...` keeps them away.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from mnist_step import Net  # noqa: E402

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
               "MALLOC_TOP_PAD_": str(64 << 20)}


class Trained:
    """A net in training, alone or wrapped; with a group, its ranks wait for each other in each step."""

    def __init__(self, net, batch, group=None):
        self.net, self.group, self.number = net, group, torch.zeros(1)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
        self.images, self.labels = torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))

    def median_step_ms(self, steps):
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            F.nll_loss(self.net(self.images), self.labels).backward()
            if self.group:
                dist.all_reduce(self.number, group=self.group)
            self.optimizer.step()
            times.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(times)


def rank_main(rank, arguments, store, together, results):
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[rank % len(processors)]})
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    ways = {"uncoupled": Trained(Net(), arguments.batch),
            "in step": Trained(Net(), arguments.batch, dist.new_group(backend="lockstep"))}
    for backend in ("gloo", "lockstep"):
        group = dist.new_group(backend=backend)
        ways[backend] = Trained(DistributedDataParallel(Net(), process_group=group), arguments.batch)
    for each in ways.values():
        each.median_step_ms(20)  # DDP makes its buckets anew after the first step
    names = list(ways)
    for number in range(arguments.rounds):
        steps = {}
        for i in range(len(names)):
            way = names[(number + i) % len(names)]
            together.wait()  # both begin at once
            steps[way] = ways[way].median_step_ms(arguments.steps)
            together.wait()
        results.put((number, steps))
    together.wait()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", help="folder that holds lockstep_c10d, where it is not installed")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64, help="of each rank")
    parser.add_argument("--malloc", choices=["keep", "default"], default="keep")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.malloc == "keep" and not KEEP_MEMORY.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    if arguments.package:
        sys.path.insert(0, arguments.package)
    import lockstep_c10d  # noqa: F401 (registers the backend)

    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    together, results = context.Barrier(2), context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(rank, arguments, f"{folder}/store", together, results))
                 for rank in range(2)]
        for each in ranks:
            each.start()
        measured = [results.get() for _ in range(2 * arguments.rounds)]
        for each in ranks:
            each.join()
    pairs = [[steps for number, steps in measured if number == wanted] for wanted in range(arguments.rounds)]
    rounds = [{way: max(steps[way] for steps in pair) for way in pair[0]} for pair in pairs]
    report = {"torch": torch.__version__, "batch_per_rank": arguments.batch, "malloc": arguments.malloc,
              "rounds": arguments.rounds,
              "step_ms": {way: statistics.median(steps[way] for steps in rounds)
                          for way in ("uncoupled", "in step", "gloo", "lockstep")},
              "overhead_ms": {way: statistics.median(steps[way] - steps["uncoupled"] for steps in rounds)
                              for way in ("in step", "gloo", "lockstep")}}
    for way, milliseconds in report["step_ms"].items():
        added = f", {report['overhead_ms'][way]:+.3f} ms" if way in report["overhead_ms"] else ""
        print(f"{way:10} step {milliseconds:.3f} ms{added}")
    if report["overhead_ms"]["lockstep"] > 0:
        print(f"Gloo's overhead is {report['overhead_ms']['gloo'] / report['overhead_ms']['lockstep']:.1f} times "
              "Lockstep's")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
