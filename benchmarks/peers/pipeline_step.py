"""A step of torch.distributed.pipelining on ranks of this host over Gloo: the peer of `lockstep explain pipeline
--measured`.

Usage: python benchmarks/peers/pipeline_step.py --schedule NAME [--ranks 2] [--micro-batches 8] [--width 512]
         [--layers 4] [--samples 256] [--threads 1] [--steps 21] [--json FILE]

NAME is gpipe, 1f1b, interleaved, interleaved-zero-bubble or zbv. The model is that of our command: --layers square
linear layers of --width features on each rank, each followed by a ReLU, and the mean of the outputs as the loss. A
learnt shift before the first layer makes it compute the gradient of its inputs. Ours does so without a shift, through
a node that drops the gradient. With two stages per rank, each stage has half of the rank's layers. --samples is the
size of a micro-batch. As in our command, gradients accumulate from step to step and no optimizer runs.

All ranks start a step together, and the time of a step is that of the slowest rank. The JSON has "schedule", "ranks",
"micro_batches", "step_ms" (the median), "steps_ms" and "torch".
"""
import argparse
import json
import logging
import multiprocessing
import pathlib
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

SCHEDULES = {"gpipe": ("GPipe", 1), "1f1b": ("1F1B", 1), "interleaved": ("Interleaved1F1B", 2),
             "interleaved-zero-bubble": ("InterleavedZeroBubble", 2), "zbv": ("ZBVZeroBubble", 2)}
WARM_UPS = 3


class Shift(torch.nn.Module):
    """Without this, the first layer would not compute the gradient of its inputs."""

    def __init__(self, width):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x + self.shift


def module_of(stage, layers, width):
    modules = [Shift(width)] if stage == 0 else []
    for _ in range(layers):
        modules += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*modules)


def stages_of_rank(rank, each, options):
    if each == 1:
        return [rank]
    if options.schedule == "zbv":
        return [rank, 2 * options.ranks - 1 - rank]
    return [turn * options.ranks + rank for turn in range(each)]


def make_schedule(rank, options):
    name, each = SCHEDULES[options.schedule]
    count = each * options.ranks
    stages = [PipelineStage(module_of(index, options.layers // each, options.width), index, count,
                            torch.device("cpu"))
              for index in stages_of_rank(rank, each, options)]
    schedule = get_schedule_class(name)(stages if each > 1 else stages[0], options.micro_batches,
                                        loss_fn=lambda output, target: output.mean())
    return schedule, any(stage.is_first for stage in stages), any(stage.is_last for stage in stages)


def rank_main(rank, options, store, results):
    logging.disable(logging.WARNING)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    schedule, has_first, has_last = make_schedule(rank, options)
    x = torch.randn(options.samples * options.micro_batches, options.width)
    inputs = (x,) if has_first else ()
    targets = {"target": torch.zeros_like(x), "losses": []} if has_last else {}
    times = []
    for step in range(-WARM_UPS, options.steps):
        dist.barrier()
        begin = time.perf_counter()
        schedule.step(*inputs, **targets)
        if step >= 0:
            times.append((time.perf_counter() - begin) * 1e3)
    results.put(times)
    dist.barrier()
    dist.destroy_process_group()


def measure(options):
    """Returns the step times of the slowest rank, in ms."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(rank, options, f"{folder}/store", results))
                 for rank in range(options.ranks)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join()
        if any(each.exitcode for each in ranks):
            raise SystemExit("error: a rank failed")
        measured = [results.get() for _ in ranks]
    return [max(step) for step in zip(*measured)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", choices=list(SCHEDULES), required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4, help="layers of each rank")
    parser.add_argument("--samples", type=int, default=256, help="samples of a micro-batch")
    parser.add_argument("--threads", type=int, default=1, help="threads of each rank")
    parser.add_argument("--steps", type=int, default=21)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.layers % SCHEDULES[options.schedule][1]:
        raise SystemExit(f"error: --layers {options.layers} do not divide into the stages of a rank")
    steps = measure(options)
    row = {"schedule": options.schedule, "ranks": options.ranks, "micro_batches": options.micro_batches,
           "step_ms": statistics.median(steps), "steps_ms": steps, "torch": torch.__version__}
    print(f"{options.schedule}: {row['step_ms']:.3f} ms a step")
    if options.json:
        options.json.write_text(json.dumps(row, indent=2) + "\n")


if __name__ == "__main__":
    main()
