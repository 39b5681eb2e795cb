#!/usr/bin/env python3
"""Thousands of small concurrent scatters with torch.distributed, alternating between our backend and Gloo.

Usage: .deps/venv/bin/python benchmarks/scatter_stress.py [--package build/release/python] [--ranks 4] [--count 1000]
         [--rounds 5]

Does the work of test_scatter_stress in PyTorch's test_c10d_gloo.py: each rank starts `count` scatters of one number
per rank from each root without waiting, and then waits for all of them. Prints the seconds of each side from the
first scatter until the slowest rank has all numbers, their medians, and the ratio of each round. Checks the received
numbers.
"""
import argparse
import multiprocessing
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

from provenance import ROOT


def rank_main(rank, options, backend, store, results):
    if backend == "lockstep":
        sys.path.insert(0, str(options.package))
        import lockstep_c10d  # noqa: F401 (registers the backend)
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    dist.barrier()
    begin = time.perf_counter()
    works, outputs = [], []
    for number in range(options.count):
        for root in range(options.ranks):
            output = torch.full((1,), -1, dtype=torch.int64)
            inputs = [torch.tensor([number + each]) for each in range(options.ranks)] if rank == root else None
            works.append((dist.scatter(output, inputs, src=root, async_op=True), inputs))
            outputs.append((output, number + rank))
    for work, _ in works:
        work.wait()
    seconds = time.perf_counter() - begin
    for output, expected in outputs:
        assert output.item() == expected, f"rank {rank} got {output.item()} instead of {expected}"
    dist.barrier()
    results.put(seconds)
    results.close()
    results.join_thread()
    os._exit(0)


def seconds_of(options, backend):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(rank, options, backend, f"{folder}/store", results),
                                 daemon=True)
                 for rank in range(options.ranks)]
        for each in ranks:
            each.start()
        slowest = max(results.get(timeout=options.limit) for _ in ranks)
        for each in ranks:
            each.join()
    return slowest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", type=pathlib.Path, default=ROOT / "build/release/python",
                        help="the folder that holds lockstep_c10d")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=300, help="seconds that one side may take (default 300)")
    options = parser.parse_args()
    times = {"lockstep": [], "gloo": []}
    for _ in range(options.rounds):
        for backend, values in times.items():
            values.append(seconds_of(options, backend))
            print(f"{backend:8} {values[-1]:6.2f} s", flush=True)
    for backend, values in times.items():
        print(f"{backend}: median {statistics.median(values):.2f} s of {options.count * options.ranks} scatters among "
              f"{options.ranks} ranks")
    ratios = [theirs / ours for ours, theirs in zip(times["lockstep"], times["gloo"])]
    print(f"Gloo's time divided by ours: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
