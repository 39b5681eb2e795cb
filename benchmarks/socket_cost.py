#!/usr/bin/env python3
"""Computes the cost of a barrier and of an all-reduce in shared memory on two sockets, for the tables of
docs/adr/021.

Usage: socket_cost.py [--near-ns 70] [--far-ns 180] [--overlap 8] [--same-line-ns 10] [--link-gbps 60] [--memory-gbps 250]
                      [--core-gbps 10]

Half of the ranks are on each socket, one per core. The flat form is that of our engine: each rank announces itself in
its own cache line, which all others read. In an all-reduce in place, each rank adds its share of all ranks' buffers
and writes the sum to all of them. With a level per socket, the ranks of a socket do this among themselves, and one
rank of each socket (or, for the data, each rank with its partner) exchanges sums with the other socket.
"""
import argparse
import sys

RANKS = (16, 32, 64, 128)
BUCKET_BYTES = 25 << 20


def flat_barrier_us(ranks, costs, overlap):
    """A rank's write takes its line from the readers; then it reads the lines of all others."""
    half = ranks // 2
    return (costs.far_ns + ((half - 1) * costs.near_ns + half * costs.far_ns) / overlap) / 1e3


def leveled_barrier_us(ranks, costs, overlap):
    """The ranks report to the socket's leader, the leaders exchange, and all ranks of a socket read one line."""
    half = ranks // 2
    gather = costs.near_ns + (half - 1) * costs.near_ns / overlap
    release = costs.near_ns + (half - 1) * costs.same_line_ns
    return (gather + costs.far_ns + release) / 1e3


def flat_all_reduce_ms(ranks, costs):
    """Returns (link, memory, core): the time that each alone would need. Each direction of the link carries a quarter
    of all bytes read and a quarter of those written. Each socket's memory serves half of them."""
    every = ranks * BUCKET_BYTES
    return tuple(seconds * 1e3 for seconds in (every / 2 / (costs.link_gbps * 1e9), every / (costs.memory_gbps * 1e9),
                                               2 * BUCKET_BYTES / (costs.core_gbps * 1e9)))


def leveled_all_reduce_ms(ranks, costs):
    """The link carries each share once in each direction; memory and cores do the same work."""
    _, memory, core = flat_all_reduce_ms(ranks, costs)
    return BUCKET_BYTES / (costs.link_gbps * 1e9) * 1e3, memory, core


def barriers(costs):
    lines = ["| ranks | flat, lines fetched one by one | flat, several at once | a level per socket, one by one | several at once |",
             "|---:|---:|---:|---:|---:|"]
    for ranks in RANKS:
        times = [of(ranks, costs, overlap) for of in (flat_barrier_us, leveled_barrier_us) for overlap in (1, costs.overlap)]
        lines.append(f"| {ranks} | " + " | ".join(f"{time:.1f} µs" for time in times) + " |")
    return "\n".join(lines)


def all_reduces(costs):
    lines = ["| ranks | flat: link | memory | core | slowest | a level per socket | times faster |", "|---:|---:|---:|---:|---:|---:|---:|"]
    for ranks in RANKS:
        flat, leveled = flat_all_reduce_ms(ranks, costs), leveled_all_reduce_ms(ranks, costs)
        # The exchange of the level comes between its two parts; the rest overlaps.
        whole, other = max(flat), leveled[0] + max(leveled[1:])
        lines.append(f"| {ranks} | " + " | ".join(f"{time:.1f} ms" for time in (*flat, whole, other)) + f" | {whole / other:.1f} |")
    return "\n".join(lines)


def parse(words=None):
    parser = argparse.ArgumentParser()
    for name, default in (("near-ns", 70), ("far-ns", 180), ("overlap", 8), ("same-line-ns", 10), ("link-gbps", 60),
                          ("memory-gbps", 250), ("core-gbps", 10)):
        parser.add_argument(f"--{name}", type=float, default=default)
    return parser.parse_args(words)


def main():
    costs = parse()
    print(barriers(costs), all_reduces(costs), sep="\n\n")


if __name__ == "__main__":
    sys.exit(main())
