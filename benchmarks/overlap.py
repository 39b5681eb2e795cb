#!/usr/bin/env python3
"""Communication hidden behind backward: ResNet-18 over Gloo between two hosts with a slow wire.

Usage: overlap.py [--rates 1gbit,200mbit] [--caps 1,2,5,10,25,50,100] [--batch 1gbit=16,200mbit=64]
                  [--rounds 5] [--output docs/benchmarks] [--quick]

The hosts are two network namespaces connected by a veth pair, both ends of which `tc qdisc ... tbf` limits to a rate.
This needs root. Each host has one rank with one thread on its own core. In the same two processes, `lockstep bench step
--backend gloo` alternates between training alone, training alone but waiting for each other once per step,
DistributedDataParallel with each bucket size, and no overlap: a single bucket with all gradients, which are reduced
once backward has ended. The namespaces are removed at the end, even after an error. Writes the overlap tables of
ddp.md (between its markers) and ddp.svg in --output, prints which targets hold, and keeps the rows in
build/overlap.json. --quick makes one round of two sizes and writes no page.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile

import overlap_chart
from pages import around_marks, replace_between
from provenance import ROOT, commit, machine

ADDRESSES = ("10.213.78.1", "10.213.78.2")
PORT = 29541
# Batch sizes for which a backward takes about as long as an all-reduce of the 42.7 MiB of gradients.
BATCHES = {"1gbit": 16, "200mbit": 64}
MARKS = ("<!-- overlap:begin -->", "<!-- overlap:end -->")


def ip(*words):
    result = subprocess.run(["ip", *words], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"error: ip {' '.join(words)}: {result.stderr.strip()}")


@contextlib.contextmanager
def two_hosts(rate):
    """Makes two network namespaces connected by a wire of `rate` in each direction, and returns their names."""
    hosts = [f"lockstep-overlap-{os.getpid()}-{i}" for i in (0, 1)]
    wires = [f"lso{os.getpid() % 100000}w{i}" for i in (0, 1)]
    made = []
    try:
        for host in hosts:
            ip("netns", "add", host)
            made.append(host)
        ip("link", "add", wires[0], "netns", hosts[0], "type", "veth", "peer", "name", wires[1], "netns", hosts[1])
        for host, wire, address in zip(hosts, wires, ADDRESSES):
            ip("-n", host, "address", "add", f"{address}/24", "dev", wire)
            ip("-n", host, "link", "set", wire, "up")
            ip("-n", host, "link", "set", "lo", "up")
            shape = ["tc", "-n", host, "qdisc", "add", "dev", wire, "root", "tbf", "rate", rate, "burst", "128kb",
                     "latency", "50ms"]
            result = subprocess.run(shape, capture_output=True, text=True)
            if result.returncode:
                raise SystemExit(f"error: {' '.join(shape)}: {result.stderr.strip()}")
        yield hosts
    finally:
        for host in made:
            ip("netns", "delete", host)  # this also deletes the wire


def wait_for(ranks, where, limit):
    """Waits `limit` seconds for each process and ends the remaining ones. `where` is named in the error."""
    try:
        codes = [each.wait(limit) for each in ranks]
    finally:
        for each in ranks:
            if each.poll() is None:
                each.kill()
                each.wait()
    if any(codes):
        raise SystemExit(f"error: the ranks {where} ended with {codes}")


def run_on_two_hosts(rate, command, limit, shown=False):
    """Runs the command as rank 0 and rank 1, each in its own network namespace and on its own core. If `shown`, rank
    0's output goes to ours."""
    secret = secrets.token_hex(16)
    cores = sorted(os.sched_getaffinity(0))
    with two_hosts(rate) as hosts:
        ranks = []
        for rank, host in enumerate(hosts):
            place = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1,
                     "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, "LOCKSTEP_SECRET": secret,
                     "LOCKSTEP_HOST_ID": host}
            words = ["ip", "netns", "exec", host, "taskset", "-c", cores[rank % len(cores)], *command]
            ranks.append(subprocess.Popen([str(word) for word in words],
                                          env={**os.environ, **{key: str(value) for key, value in place.items()}},
                                          stdout=None if shown and rank == 0 else subprocess.DEVNULL))
        wait_for(ranks, f"at {rate}", limit)


def measure(rate, batch, caps, options):
    """Returns the rows of `lockstep bench step` at one rate."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rows.json"
        run_on_two_hosts(rate, [options.program, "bench", "step", "--model", "resnet18", "--backend", "gloo",
                                "--batch-per-rank", batch, "--bucket-cap-mb", ",".join([*caps, "whole"]),
                                "--rounds", options.rounds, "--steps", options.steps, "--json", file],
                         options.limit, shown=True)
        return json.loads(file.read_text())


class Rate:
    """The results at one rate of the wire."""

    def __init__(self, rate, batch, rows):
        self.rate, self.batch = rate, batch
        self.rows = {row["bucket_cap_mb"]: row for row in rows}
        self.whole = self.rows.pop(None)
        self.in_step_ms = statistics.median(self.whole["in_step_rounds_ms"])
        self.best = max(self.rows, key=self.faster)

    @property
    def communication_ms(self):
        """The communication time of a step without any overlap."""
        return self.whole["over_in_step_ms"]

    def of_rounds(self, cap, value):
        """The median over the rounds of value(without overlap, this bucket size, only waiting)."""
        return statistics.median(map(value, self.whole["rounds_ms"], self.rows[cap]["rounds_ms"],
                                     self.whole["in_step_rounds_ms"]))

    def hidden(self, cap):
        """The fraction of the communication that this bucket size hides."""
        return self.of_rounds(cap, lambda whole, mine, in_step: (whole - mine) / (whole - in_step))

    def faster(self, cap):
        return self.of_rounds(cap, lambda whole, mine, in_step: whole / mine)


def table(found):
    whole = found.whole
    lines = [f"### {found.rate}, batch {found.batch} a rank", "",
             f"A step alone takes {whole['step_ms_single']:.0f} ms, and one in which the ranks wait for each other once takes "
             f"{found.in_step_ms:.0f} ms; communication adds {found.communication_ms:.0f} ms if nothing hides it. A process "
             f"alone uses {whole['cpu_ms_single']:.0f} ms of processor time a step.", "",
             "| bucket, MiB | step, ms | over a step without communication | communication hidden | faster than without "
             "overlap | waited at the end of backward | processor time a step and rank |", "|---|---|---|---|---|---|---|"]
    for cap, row in sorted(found.rows.items()):
        mark = "**" if cap == found.best else ""
        lines.append(f"| {mark}{cap:g}{mark} | {row['step_ms']:.0f} | {row['over_in_step_ms']:+.0f} ms | "
                     f"{100 * found.hidden(cap):.0f}% | {found.faster(cap):.2f} times | {row['exposed_ms']:.0f} ms | "
                     f"{row['cpu_ms']:.0f} ms |")
    lines += [f"| all, after backward | {whole['step_ms']:.0f} | {whole['over_in_step_ms']:+.0f} ms | – | – | "
              f"{whole['exposed_ms']:.0f} ms | {whole['cpu_ms']:.0f} ms |", ""]
    return lines


def print_targets(rates):
    for found in rates:
        for what, figure, limit in (("communication hidden", found.hidden(found.best), 0.5),
                                    ("times faster than without overlap", found.faster(found.best), 1.25)):
            print(f"{'holds' if figure >= limit else 'MISSED':8}{found.rate}, {found.best:g} MiB: {what}: "
                  f"{figure:.2f}, at least {limit}")


def page_text(rates, options):
    lines = ["![Time of a step against the size of a bucket](ddp.svg)", ""]
    for found in rates:
        lines += table(found)
    lines += [f"- {datetime.date.today()}, {machine()}; commit {commit()}; medians of {options.rounds} rounds of "
              f"{options.steps} step(s).", f"- Made by `python3 benchmarks/overlap.py --rounds {options.rounds}`, as root."]
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", type=lambda text: text.split(","), default=list(BATCHES))
    parser.add_argument("--caps", type=lambda text: text.split(","), default="1,2,5,10,25,50,100".split(","))
    parser.add_argument("--batch", default="", help="images per rank at each rate, such as 1gbit=16,200mbit=64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1, help="timed steps of each variant in a round (default 1)")
    parser.add_argument("--limit", type=float, default=600, help="seconds that one rate may take (default 600)")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/lockstep")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.caps, options.rounds = ["5", "25"], 1
    elif options.output is None:
        options.output = ROOT / "docs/benchmarks"
    options.batches = dict(BATCHES)
    for pair in filter(None, options.batch.split(",")):
        rate, _, batch = pair.partition("=")
        options.batches[rate] = int(batch)
    if missing := [rate for rate in options.rates if rate not in options.batches]:
        raise SystemExit(f"error: no batch size is known for {', '.join(missing)}; give it as --batch {missing[0]}=N")
    return options


def main():
    options = parse()
    if os.geteuid() != 0:
        raise SystemExit("error: needs root, to make network namespaces")
    for tool in ("ip", "tc", "taskset"):
        if shutil.which(tool) is None:
            raise SystemExit(f"error: {tool} is missing; install iproute2 and util-linux")
    if options.output is not None:
        around_marks(options.output / "ddp.md", *MARKS)  # fail before the long measurement, not after it
    rates = []
    for rate in options.rates:
        print(f"{rate}, batch {options.batches[rate]} a rank", flush=True)
        rates.append(Rate(rate, options.batches[rate], measure(rate, options.batches[rate], options.caps, options)))
    rows = ROOT / "build" / "overlap.json"
    rows.write_text(json.dumps({found.rate: [*found.rows.values(), found.whole] for found in rates}, indent=2) + "\n")
    if options.output is not None:
        replace_between(options.output / "ddp.md", *MARKS, page_text(rates, options))
        chart = overlap_chart.chart("A step of ResNet-18 on two hosts",
                                    {f"{found.rate}, batch {found.batch}": found for found in rates})
        (options.output / "ddp.svg").write_text(chart)
    print_targets(rates)


if __name__ == "__main__":
    sys.exit(main())
