"""Collectives of float32 through PyTorch on Gloo: a peer of `lockstep bench comm`.

Usage: comm_gloo.py [--ranks 2] [--collectives all_reduce,...] [--sizes 4096,...] [--calls 200]
                    [--seconds 2]

Starts its ranks itself, with one thread each, rank r on core r modulo the number of cores. Each call is timed
separately: the send buffer is rewritten, the ranks meet, every rank times the call, and the slowest rank's time
counts; for send_recv (rank 0 to rank 1) the receiver's time counts. A size is in bytes of the larger buffer, as in
nccl-tests. A row ends after --calls or --seconds, but not before 5 calls. Results are checked after each call. Prints
JSON rows {"collective", "algorithm", "backend", "ranks", "dtype", "bytes", "in_place", "symmetric", "median_us",
"min_us", "max_us", "algbw_gbps", "busbw_gbps"}.

Gloo's medians jump between 0.2 and 4 ms, depending on how the ranks meet: its event thread spins in epoll_wait
(535,000 times per second, for 7,000 reads and writes), and the other threads of its rank seem to wait a time slice
for their core. Therefore each row is measured with two ways to meet, and the better one counts.
"""
import argparse
import json
import mmap
import os
import statistics
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing

WARM_UP_CALLS = 3
MINIMUM_CALLS = 5
STARTS = ("flags", "barrier")
LINE = 8  # 64-bit words per cache line
# Factors from algorithm bandwidth to bus bandwidth, from nccl-tests' PERFORMANCE.md.
BUS_FACTORS = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "send_recv": lambda ranks: 1,
}


class Board:
    """Memory shared by all ranks: arrivals at the start line, when to stop, and the ranks' times."""

    def __init__(self, ranks, calls):
        self.ranks, self.calls = ranks, calls
        words = memoryview(mmap.mmap(-1, 8 * ((ranks + 1) * LINE + ranks * calls)))
        self.arrivals = words[:8 * ranks * LINE].cast("q")
        self.stop = words[8 * ranks * LINE:8 * (ranks + 1) * LINE].cast("q")
        self.nanoseconds = words[8 * (ranks + 1) * LINE:].cast("q")
        self.yields = ranks > len(os.sched_getaffinity(0))
        self.meetings = 0

    def meet(self, rank, start):
        """Ranks meet through flags and start a microsecond apart. "barrier" runs Gloo's own barrier before the flags.

        With more ranks than cores, a waiting rank must not hold a core that others need.
        """
        if start == "barrier":
            dist.barrier()
        self.meetings += 1
        arrivals, meetings, yields = self.arrivals, self.meetings, self.yields
        arrivals[rank * LINE] = meetings
        for other in range(self.ranks):
            while arrivals[other * LINE] < meetings:
                if yields:
                    os.sched_yield()

    def slowest(self, collective, calls):
        ranks = [1] if collective == "send_recv" else range(self.ranks)
        return [max(self.nanoseconds[rank * self.calls + call] for rank in ranks) / 1e3
                for call in range(calls)]


def operation(collective, rank, ranks, elements):
    """Returns the tensor that a call sends, the tensor that it fills, and the call."""
    whole, part = torch.zeros(elements), torch.zeros(elements // ranks)
    other = torch.zeros(elements)
    if collective == "all_reduce":
        return whole, whole, lambda: dist.all_reduce(whole)
    if collective == "broadcast":
        return whole, whole, lambda: dist.broadcast(whole, src=0)
    if collective == "reduce_scatter":
        return whole, part, lambda: dist.reduce_scatter_tensor(part, whole)
    if collective == "all_gather":
        return part, whole, lambda: dist.all_gather_into_tensor(whole, part)
    if collective == "all_to_all":
        return whole, other, lambda: dist.all_to_all_single(other, whole)
    transfer = {0: lambda: dist.send(whole, dst=1), 1: lambda: dist.recv(whole, src=0)}
    return whole, whole, transfer.get(rank, lambda: None)


def expected(collective, rank, ranks, call):
    """The last element of the filled tensor, if every rank sends its rank plus the number of the call."""
    return {"all_reduce": ranks * call + ranks * (ranks - 1) // 2,
            "reduce_scatter": ranks * call + ranks * (ranks - 1) // 2,
            "broadcast": call,
            "send_recv": call if rank == 1 else call + rank,
            }.get(collective, call + ranks - 1)


def measure(collective, elements, board, rank, seconds, start):
    """Returns the number of timed calls, whose times are on the board."""
    ranks = board.ranks
    sent, filled, call_it = operation(collective, rank, ranks, elements)
    board.stop[0] = board.calls
    deadline = time.monotonic() + seconds
    for call in range(-WARM_UP_CALLS, board.calls):
        sent.fill_(call + rank)
        if rank == 0 and call >= MINIMUM_CALLS and time.monotonic() > deadline:
            board.stop[0] = call  # the other ranks read it after they have met rank 0
        board.meet(rank, start)
        if call >= board.stop[0]:
            return call
        begin = time.perf_counter_ns()
        call_it()
        end = time.perf_counter_ns()
        if call >= 0:
            board.nanoseconds[rank * board.calls + call] = end - begin
        got, want = filled[-1].item(), expected(collective, rank, ranks, call)
        if got != want:
            raise SystemExit(f"error: {collective} of {elements} elements, rank {rank}, call {call}: "
                             f"got {got}, expected {want}")
    return board.calls


def row(collective, size, ranks, times):
    median = statistics.median(times)
    bandwidth = size / median / 1e3
    return {"collective": collective, "algorithm": "default", "backend": "gloo", "ranks": ranks,
            "dtype": "float32", "bytes": size, "in_place": collective in ("all_reduce", "broadcast"),
            "symmetric": False, "median_us": median, "min_us": min(times), "max_us": max(times),
            "algbw_gbps": bandwidth, "busbw_gbps": bandwidth * BUS_FACTORS[collective](ranks)}


def run_rank(rank, options, board, store):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    rows = []
    for collective in options.collectives:
        for size in options.sizes:
            elements = max(1, size // 4 // options.ranks) * options.ranks
            if collective in ("all_reduce", "broadcast", "send_recv"):
                elements = size // 4
            times = []
            for start in STARTS:
                calls = measure(collective, elements, board, rank, options.seconds / len(STARTS), start)
                dist.barrier()  # until all times are on the board
                times.append(board.slowest(collective, calls))
                dist.barrier()  # until they are read, before the next ones are written
            rows.append(row(collective, elements * 4, options.ranks, min(times, key=statistics.median)))
    if rank == 0:
        print(json.dumps(rows, indent=2), flush=True)
    dist.destroy_process_group()


def names(text):
    for name in text.split(","):
        if name not in BUS_FACTORS:
            raise argparse.ArgumentTypeError(f"unknown collective '{name}'; known: {', '.join(BUS_FACTORS)}")
    return text.split(",")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--collectives", type=names, default=list(BUS_FACTORS))
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")],
                        default=[4 << 10, 1 << 20, 25 << 20])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2)
    options = parser.parse_args()
    if options.ranks < 2 or options.calls < MINIMUM_CALLS or min(options.sizes) < 4:
        parser.error(f"at least 2 ranks, {MINIMUM_CALLS} calls and 4 bytes are needed")
    warnings.simplefilter("ignore", FutureWarning)  # for names that older versions of torch also have
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        # Forked, so that the ranks share the board and torch is loaded once.
        torch.multiprocessing.start_processes(
            run_rank, (options, Board(options.ranks, options.calls), os.path.join(folder, "store")),
            nprocs=options.ranks, start_method="fork")


if __name__ == "__main__":
    sys.exit(main())
