"""All-reduce of float32 through PyTorch on Gloo: the peer of `lockstep bench comm`.

Usage: torchrun --nproc-per-node 2 benchmarks/peers/allreduce_gloo.py [--json FILE]

Sizes are 4 KiB, 1 MiB and 25 MiB. Each call is timed alone, after a barrier; a row has
the median, minimum and maximum over the calls of the slowest rank. The JSON is a list of rows
{"collective", "algorithm", "backend", "ranks", "dtype", "bytes", "in_place", "symmetric",
 "median_us", "min_us", "max_us", "algbw_gbps", "busbw_gbps"}.
"""
import argparse
import json
import pathlib
import time

import torch
import torch.distributed as dist

SIZES = {4 << 10: 300, 1 << 20: 100, 25 << 20: 30}  # bytes: timed calls


def measure(size, calls):
    tensor = torch.zeros(size // 4)
    times = torch.zeros(calls, dtype=torch.float64)
    for call in range(-max(3, calls // 10), calls):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        if call >= 0:
            times[call] = time.perf_counter() - begin
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times * 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks, rows = dist.get_world_size(), []
    for size, calls in SIZES.items():
        times = measure(size, calls)
        median = times.median().item()
        bandwidth = size / median / 1e3
        rows.append({"collective": "all_reduce", "algorithm": "gloo", "backend": "gloo", "ranks": ranks,
                     "dtype": "float32", "bytes": size, "in_place": True, "symmetric": False,
                     "median_us": median, "min_us": times.min().item(), "max_us": times.max().item(),
                     "algbw_gbps": bandwidth, "busbw_gbps": bandwidth * 2 * (ranks - 1) / ranks})
    if dist.get_rank() == 0:
        for row in rows:
            print(f"{row['bytes']:>10} bytes: median {row['median_us']:.1f} us, {row['algbw_gbps']:.2f} GB/s")
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(rows, indent=2) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
