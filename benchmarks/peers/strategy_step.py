"""A training step of a ResNet in PyTorch: in one process, with DDP, and with torch.distributed.pipelining.

Usage: python benchmarks/peers/strategy_step.py [--model resnet18|resnet50] [--batch N] [--micro-batches 8]
         [--cuts layer2] [--image-size N] [--threads 2] [--rounds 5] [--steps N] [--only WAY,WAY] [--json FILE]

The ways of `lockstep bench step --strategy all` that PyTorch supports on CPUs, with the same total batch and the same
total number of threads, each in its own processes, alternating within each round:

  torch-single            one process with all threads
  torch-ddp               DistributedDataParallel over Gloo, two ranks
  torch-pipelining-gpipe  ScheduleGPipe over Gloo, two ranks, a stage on each
  torch-pipelining-1f1b   Schedule1F1B, likewise

--cuts names the last layer or block of the first stage ("layer3.0"), like "cuts" in the JSON of `lockstep bench
step`. The default is layer2, as in PyTorch's tutorial.

nn.DataParallel computes on GPUs only. It has no row, because on a CPU it would simply call the module. Nets are
channels-last. Between two stages a tensor is contiguous, because Gloo sends only contiguous tensors. glibc's allocator keeps
freed memory, as with Lockstep. The JSON has the same kind of rows as `lockstep bench step --strategy all --json`.
"""
import argparse
import json
import math
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
from ddp_step import KEEP_MEMORY, proportional_bytes  # noqa: E402
from resnet18 import ResNet18  # noqa: E402
from resnet50 import ResNet50  # noqa: E402
from resnet_stages import stages_of  # noqa: E402

WAYS = {"torch-single": 1, "torch-ddp": 2, "torch-pipelining-gpipe": 2, "torch-pipelining-1f1b": 2}  # number of ranks
MODELS = {"resnet18": (ResNet18, 10, 32), "resnet50": (ResNet50, 1000, 64)}  # class, classes, image size
TIMED_SECONDS, FEWEST_STEPS, MOST_STEPS = 1, 3, 1000


def make_data(options, samples):
    classes, size = MODELS[options.model][1], options.image_size
    images = torch.randn(samples, 3, size, size).to(memory_format=torch.channels_last)
    return images, torch.randint(classes, (samples,))


def make_optimizer(module):
    return torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.5)


def replica_step(net, options, samples):
    """Returns a function that runs a step of `net`, which may be a DDP."""
    images, labels = make_data(options, samples)
    optimizer = make_optimizer(net)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()

    return step


def pipeline_step(net, options, rank, name):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    module = stages_of(net, options.cuts)[rank]
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    schedule = (ScheduleGPipe if name.endswith("gpipe") else Schedule1F1B)(
        stage, n_microbatches=options.micro_batches, loss_fn=F.cross_entropy)
    images, labels = make_data(options, options.batch)
    optimizer = make_optimizer(module)

    def step():
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(images)
        else:
            schedule.step(target=labels, losses=[])
        optimizer.step()

    return step


def make_step(way, options, rank):
    torch.manual_seed(0)
    net = MODELS[options.model][0]().to(memory_format=torch.channels_last)
    if way == "torch-single":
        return replica_step(net, options, options.batch)
    if way == "torch-ddp":
        return replica_step(DistributedDataParallel(net), options, options.batch // 2)
    return pipeline_step(net, options, rank, way)


def seconds_of(step):
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def rank_main(rank, way, options, store, results):
    ranks = WAYS[way]
    processors = sorted(os.sched_getaffinity(0))
    if ranks > 1 and len(processors) >= ranks:
        share = len(processors) // ranks
        os.sched_setaffinity(0, processors[rank * share : (rank + 1) * share])
    threads = options.threads // ranks
    torch.set_num_threads(threads)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    start = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    step = make_step(way, options, rank)
    step()
    fitting = min(max(math.ceil(TIMED_SECONDS / seconds_of(step)), FEWEST_STEPS), MOST_STEPS)
    agreed = torch.tensor([options.steps or fitting])
    dist.broadcast(agreed, 0)
    for _ in range(int(agreed) // 5):
        step()
    dist.barrier()
    used = time.process_time()
    times = [seconds_of(step) * 1e3 for _ in range(int(agreed))]
    used = (time.process_time() - used) * 1e3 / len(times)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    dist.barrier()
    proportional = proportional_bytes()
    dist.barrier()
    results.put({"step_ms": statistics.median(times), "mean_ms": statistics.mean(times), "processor_ms": used,
                 "steps": len(times), "peak": peak, "growth": peak - start, "proportional": proportional})
    dist.destroy_process_group()


def run_way(way, options):
    """Returns the measurements of each rank in one round."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(rank, way, options, f"{folder}/store", results))
                 for rank in range(WAYS[way])]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        if any(each.exitcode for each in ranks):
            raise SystemExit(f"error: {way} ended with {[each.exitcode for each in ranks]}")
        return [results.get() for _ in ranks]


def row_of(way, rounds, options):
    """`rounds` has the figures of all ranks in each round."""
    ranks, threads = WAYS[way], options.threads // WAYS[way]
    slowest = [max(rank["step_ms"] for rank in each) for each in rounds]

    def over_rounds(value):
        return statistics.median(value(each) for each in rounds)

    pipelined = "pipelining" in way
    return {"way": way, "model": options.model, "image_size": options.image_size, "ranks": ranks,
            "threads_per_rank": threads, "batch": options.batch, "cuts": options.cuts if pipelined else None,
            "micro_batches": options.micro_batches if pipelined else None, "precision": "32", "optimizer": "sgd",
            "backend": "none" if ranks == 1 else "gloo", "why_not": None, "rounds": len(rounds),
            "steps": rounds[-1][0]["steps"], "step_ms": statistics.median(slowest), "rounds_ms": slowest,
            "samples_per_second": options.batch * 1e3 / statistics.median(slowest),
            "processor_ms": over_rounds(lambda each: sum(rank["processor_ms"] for rank in each)),
            "utilisation": over_rounds(lambda each: sum(rank["processor_ms"] for rank in each) /
                                       (max(rank["mean_ms"] for rank in each) * options.threads)),
            "peak_rss_bytes": over_rounds(lambda each: max(rank["peak"] for rank in each)),
            "peak_growth_bytes": over_rounds(lambda each: max(rank["growth"] for rank in each)),
            "proportional_bytes": over_rounds(lambda each: sum(rank["proportional"] for rank in each)),
            "torch": torch.__version__}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(MODELS), default="resnet18")
    parser.add_argument("--batch", type=int, default=32, help="samples per step of all ranks together, even (default 32)")
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--cuts", type=lambda text: text.split(","), default=["layer2"],
                        help="last layer or block of the first of the two stages")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--threads", type=int, default=2, help="threads of all ranks together, even (default 2)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="timed steps per round (default: as many as take 1 s, at least 3)")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--json")
    options = parser.parse_args()
    options.image_size = options.image_size or MODELS[options.model][2]
    for name, value in (("--batch", options.batch), ("--threads", options.threads)):
        if value < 2 or value % 2:
            parser.error(f"{name} must be even and at least 2, got {value}")
    if len(options.cuts) != 1:
        parser.error(f"--cuts must be one name, because there are two ranks, got {','.join(options.cuts)}")
    for way in options.only:
        if way not in WAYS:
            parser.error(f"--only must be some of {', '.join(WAYS)}, got '{way}'")
    return options


def main():
    options = parse()
    if not KEEP_MEMORY.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    measured = {way: [] for way in options.only}
    for number in range(options.rounds):
        for i in range(len(options.only)):
            way = options.only[(number + i) % len(options.only)]
            measured[way].append(run_way(way, options))
    rows = [row_of(way, rounds, options) for way, rounds in measured.items()]
    for row in rows:
        print(f"{row['way']:24} step {row['step_ms']:.1f} ms, {row['samples_per_second']:.1f} images/s")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
