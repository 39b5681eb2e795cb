#!/usr/bin/env python3
"""What a barrier and an all-reduce in shared memory cost on two sockets, computed: the tables of docs/adr/021.

Usage: socket_cost.py [--near-ns 70] [--far-ns 180] [--overlap 8] [--same-line-ns 10] [--link-gbps 60] [--memory-gbps 250]
                      [--core-gbps 10]

Half of the ranks are on each socket, one a core. The flat form is the engine's: each rank announces itself in a cache line
of its own, which all others read; of an all-reduce in place each rank adds up its share of all ranks' buffers and writes
the sum into all of them. With a level per socket the ranks of a socket do so among themselves, and one rank of each
socket (or each rank with its partner, for the data) exchanges sums with the other socket.
"""
import argparse
import sys

RANKS = (16, 32, 64, 128)
BUCKET_BYTES = 25 << 20


def flat_barrier_us(ranks, costs, overlap):
    """Writing one's line takes it from its readers, then the lines of all others are read."""
    half = ranks // 2
    return (costs.far_ns + ((half - 1) * costs.near_ns + half * costs.far_ns) / overlap) / 1e3


def leveled_barrier_us(ranks, costs, overlap):
    """Gather to the socket's leader, exchange between the leaders, and one line that all of the socket read."""
    half = ranks // 2
    gather = costs.near_ns + (half - 1) * costs.near_ns / overlap
    release = costs.near_ns + (half - 1) * costs.same_line_ns
    return (gather + costs.far_ns + release) / 1e3


def flat_all_reduce_ms(ranks, costs):
    """(link, memory, core): what each alone would take. A direction of the link carries a quarter of all buffers that are
    read and a quarter that are written; memory reads and writes its half of them."""
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
    lines = ["| ranks | flat: link | memory | core | so | a level per socket | times faster |", "|---:|---:|---:|---:|---:|---:|---:|"]
    for ranks in RANKS:
        flat, leveled = flat_all_reduce_ms(ranks, costs), leveled_all_reduce_ms(ranks, costs)
        # The level's exchange stands between its two parts; the rest overlaps.
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
