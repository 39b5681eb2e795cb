"""The overhead of DistributedDataParallel in a training step in Python, on Gloo and on Lockstep.

Usage: python benchmarks/peers/ddp_step.py [--model mnist|resnet18] [--package FOLDER] [--backends gloo,lockstep]
         [--batch N] [--rounds 41] [--steps 30] [--alone] [--find-unused-parameters] [--malloc keep|default] [--json FILE]

Two ranks, each pinned to its own processor with one thread, train the MNIST net (batch 64 per rank) or ResNet-18 for
32x32 images (batch 8 per rank, channels last, as in Lockstep's recipe). Many short rounds alternate between several
ways: alone ("uncoupled": two processes that do not communicate but share the machine as the ranks do); alone, but
waiting for each other after backward ("in step": through one number in shared memory, which takes a microsecond; this
is what ranks of unequal speed lose in any case); and with DDP on each backend. The step time of a round is the median
of the slower rank, because any coupling waits for it. Its overhead is that time minus the uncoupled one of the same
round. The figures are medians over the rounds.

--alone leaves out what DDP is compared with, so that the memory of a process is that of one replica. --backends gloo
needs no package of Lockstep, and leaves out the ranks in step. The JSON has the same rows as `lockstep bench step
--json`.

glibc's allocator returns memory to the kernel in some steps and not in others, depending on what else the program
holds. This takes up to 2 ms per step and has nothing to do with communication. All ways run with it switched off
(--malloc default leaves it on). If other programs are running, `chrt -r 10 python ...` keeps them away.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import resource
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from mnist_net import MnistNet  # noqa: E402
from resnet18 import ResNet18  # noqa: E402

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
               "MALLOC_TOP_PAD_": str(64 << 20)}
DEFAULT_BATCH = {"mnist": 64, "resnet18": 8}


def make_net(model):
    return MnistNet() if model == "mnist" else ResNet18().to(memory_format=torch.channels_last)


class Trained:
    """A net in training, alone or wrapped. With a group, its ranks wait for each other in each step."""

    def __init__(self, net, options, group=None):
        self.net, self.group, self.number = net, group, torch.zeros(1)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
        self.labels = torch.randint(10, (options.batch,))
        if options.model == "mnist":
            self.images, self.loss = torch.randn(options.batch, 1, 28, 28), F.nll_loss
        else:
            images = torch.randn(options.batch, 3, 32, 32)
            self.images, self.loss = images.to(memory_format=torch.channels_last), F.cross_entropy

    def steps(self, count):
        """Returns (median step time, mean processor time of the process), in ms."""
        times, used = [], time.process_time()
        for _ in range(count):
            begin = time.perf_counter()
            self.optimizer.zero_grad()
            self.loss(self.net(self.images), self.labels).backward()
            if self.group:
                dist.all_reduce(self.number, group=self.group)
            self.optimizer.step()
            times.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(times), (time.process_time() - used) * 1e3 / count


def make_ways(options):
    """Returns {name: Trained}. The name of a DDP is (backend, whether it looks for unused parameters)."""
    ways = {}
    if not options.alone:
        ways["uncoupled"] = Trained(make_net(options.model), options)
        if "lockstep" in options.backends:
            ways["in step"] = Trained(make_net(options.model), options, dist.new_group(backend="lockstep"))
    for backend in options.backends:
        for unused in (False, True) if options.find_unused_parameters else (False,):
            group = dist.new_group(backend=backend)
            net = DistributedDataParallel(make_net(options.model), process_group=group, find_unused_parameters=unused)
            ways[backend, unused] = Trained(net, options)
    return ways


def proportional_bytes():
    """The process's current memory; shared memory is divided among the processes that share it."""
    lines = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def rank_main(rank, options, store, together, results):
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[rank % len(processors)]})
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    ways = make_ways(options)
    for each in ways.values():
        each.steps(min(options.steps, 20) + 3)  # DDP rebuilds its buckets after the first step
    names = list(ways)
    for number in range(options.rounds):
        steps = {}
        for i in range(len(names)):
            way = names[(number + i) % len(names)]
            together.wait()  # both ranks start at once
            steps[way] = ways[way].steps(options.steps)
            together.wait()
        results.put((number, steps))
    together.wait()
    results.put((None, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, proportional_bytes())))
    together.wait()
    dist.destroy_process_group()


def measure(options):
    """Returns ([{way: (step ms, processor ms) of the slower rank} for each round], (peak RSS, proportional
    bytes))."""
    context = multiprocessing.get_context("fork")
    together, results = context.Barrier(2), context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(rank, options, f"{folder}/store", together, results))
                 for rank in range(2)]
        for each in ranks:
            each.start()
        measured = [results.get() for _ in range(2 * options.rounds + 2)]
        for each in ranks:
            each.join()
    pairs = [[steps for number, steps in measured if number == wanted] for wanted in range(options.rounds)]
    rounds = [{way: tuple(map(max, *(steps[way] for steps in pair))) for way in pair[0]} for pair in pairs]
    return rounds, tuple(map(max, *(memory for number, memory in measured if number is None)))


def rows_of(rounds, memory, options):
    def median(way, minus=None):
        if way not in rounds[0] or minus is not None and minus not in rounds[0]:
            return None
        return statistics.median(steps[way][0] - (steps[minus][0] if minus else 0) for steps in rounds)

    return [{"model": options.model, "strategy": "ddp", "backend": way[0], "ranks": 2, "threads_per_rank": 1,
             "batch_per_rank": options.batch, "precision": "32", "step_ms": median(way),
             "step_ms_single": median("uncoupled"), "overhead_ms": median(way, "uncoupled"),
             "in_step_overhead_ms": median("in step", "uncoupled"), "over_in_step_ms": median(way, "in step"),
             "cpu_ms": statistics.median(steps[way][1] for steps in rounds), "bucket_cap_mb": 25.0,
             "find_unused_parameters": way[1], "rounds": options.rounds, "steps": options.steps,
             "peak_rss_bytes": memory[0], "proportional_bytes": memory[1], "torch": torch.__version__,
             "malloc": options.malloc}
            for way in rounds[0] if isinstance(way, tuple)]


def print_rows(rows):
    if rows[0]["step_ms_single"] is not None:
        print(f"uncoupled  step {rows[0]['step_ms_single']:.3f} ms")
        if rows[0]["in_step_overhead_ms"] is not None:
            print(f"in step    {rows[0]['in_step_overhead_ms']:+.3f} ms")
    for row in rows:
        name = row["backend"] + (", find unused" if row["find_unused_parameters"] else "")
        added = "" if row["overhead_ms"] is None else f", {row['overhead_ms']:+.3f} ms"
        print(f"{name:10} step {row['step_ms']:.3f} ms{added}")
    overhead = {row["backend"]: row["overhead_ms"] for row in rows if not row["find_unused_parameters"]}
    if overhead.get("gloo") and (overhead.get("lockstep") or 0) > 0:
        print(f"Gloo's overhead is {overhead['gloo'] / overhead['lockstep']:.1f} times Lockstep's")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(DEFAULT_BATCH), default="mnist")
    parser.add_argument("--package", help="folder that holds lockstep_c10d, if the package is not installed")
    parser.add_argument("--backends", type=lambda text: text.split(","), default=["gloo", "lockstep"])
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, help="images per step of each rank (default: 64 for mnist, 8 for resnet18)")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--find-unused-parameters", action="store_true", help="also measure each DDP with this option")
    parser.add_argument("--malloc", choices=["keep", "default"], default="keep")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.batch = options.batch or DEFAULT_BATCH[options.model]
    if options.malloc == "keep" and not KEEP_MEMORY.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    if options.package:
        sys.path.insert(0, options.package)
    if "lockstep" in options.backends:
        import lockstep_c10d  # noqa: F401 (registers the backend)

    torch.set_num_threads(1)
    rows = rows_of(*measure(options), options)
    print_rows(rows)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
