#!/usr/bin/env python3
"""Images per second of our loader, FFCV's, NVIDIA DALI's and torchvision's, which do the same work in alternating
rounds.

Usage: loader_table.py --data DIR [--quick] [--rounds 5] [--output docs/benchmarks]

CIFAR-10 from memory: pad 4, crop 32, flip, cutout, normalise to float32, batches of 256; compared with the speed of a
copy of the same bytes. TrashNet's JPEG files from the page cache: random-resized crop to 128, flip, normalise,
batches of 64; ours also from a pack of decoded 160-pixel images, made here by `lockstep data pack`. Programs
alternate in --rounds rounds, because the speed of a machine drifts. Figures are medians over the rounds with their
range, and ratios are medians of the ratios of each round.

Writes the tables of loader.md (between its markers) in --output, prints which targets hold, and keeps all rates in
build/loader_table.json. --quick makes one short round and writes no page. If FFCV's Python is missing, FFCV is left
out, and the output says so; FFCV is built from PyPI with Debian's libopencv-dev and libturbojpeg0-dev
(benchmarks/README.md).
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from pages import around_marks, replace_between
from provenance import ROOT, commit, machine

MARKS = ("<!-- loader:begin -->", "<!-- loader:end -->")
PEERS = ROOT / "benchmarks/peers"
CIFAR, JPEG, PACK = "CIFAR-10", "TrashNet, JPEG files", "TrashNet, pack of 160 pixels"
Entry = collections.namedtuple("Entry", "work loader threads")
OURS, OURS_DALI = "Lockstep, native engine", "Lockstep, dali engine"
DALI, TORCHVISION, FFCV = "DALI from Python", "torchvision, DataLoader", "FFCV"


def run(command):
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"error: ended with {result.returncode}: {' '.join(words)}: {result.stderr.strip()[-800:]}")
    return result.stdout


class Programs:
    """Each call measures one round of one entry: images per second, and the rate of a copy if that is a bound."""

    def __init__(self, options, pack):
        self.options, self.pack = options, pack
        self.lockstep = options.build / "lockstep"
        self.cifar, self.trashnet = options.data / "cifar10", options.data / "trashnet"

    def ours(self, entry):
        work = {CIFAR: ["cifar10", "crop-flip-cutout", 256, "--data", self.options.data],
                JPEG: [self.trashnet, "random-resized-crop", 64], PACK: [self.pack, "random-resized-crop", 64]}
        dataset, operators, batch, *more = work[entry.work]
        engine = "dali" if entry.loader == OURS_DALI else "native"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            run([self.lockstep, "bench", "loader", "--dataset", dataset, "--operators", operators, "--batch-size",
                 batch, "--loader", engine, "--threads", entry.threads, "--rounds", 1, "--seconds",
                 self.options.seconds, "--json", file, *more])
            row = json.loads(file.read_text())[0]
        return row["images_per_second"], row.get("copy_images_per_second")

    def ffcv(self, entry):
        data, name, batch = (self.cifar, "cifar10", 256) if entry.work == CIFAR else (self.trashnet, "trashnet", 64)
        row = json.loads(run([self.options.ffcv_python, PEERS / "loader_ffcv.py", "--data", data, "--dataset", name,
                              "--beton", self.pack.with_name(f"{name}.beton"), "--threads", entry.threads,
                              "--batch-size", batch, "--rounds", 1, "--seconds", self.options.seconds]))
        return row["images_per_second"][0], None

    def peer(self, entry):
        if entry.loader == FFCV:
            return self.ffcv(entry)
        python = self.options.dali_python if entry.loader == DALI else self.options.torchvision_python
        script = "loader_dali.py" if entry.loader == DALI else "loader_torchvision.py"
        threads = "--threads" if entry.loader == DALI else "--workers"
        data, name, batch = (self.cifar, "cifar10", 256) if entry.work == CIFAR else (self.trashnet, "trashnet", 64)
        row = json.loads(run([python, PEERS / script, "--data", data, "--dataset", name, threads, entry.threads,
                              "--batch-size", batch, "--rounds", 1, "--seconds", self.options.seconds]))
        return row["images_per_second"][0], None

    def warm(self, entry):
        """Reads the entry's files into the page cache, because the disk is not part of the measurement."""
        files = {CIFAR: self.cifar.glob("*.bin"), JPEG: self.trashnet.rglob("*.jpg"), PACK: [self.pack]}
        for file in files[entry.work]:
            file.read_bytes()

    def measure(self, entry):
        self.warm(entry)
        return self.ours(entry) if entry.loader.startswith("Lockstep") else self.peer(entry)


ENTRIES = [Entry(work, loader, threads) for work in (CIFAR, JPEG)
           for loader, counts in ((OURS, (1, 2)), (OURS_DALI, (1, 2)), (FFCV, (1, 2)), (DALI, (1, 2)),
                                  (TORCHVISION, (0, 2)))
           for threads in counts]
ENTRIES += [Entry(PACK, OURS, threads) for threads in (1, 2)]

# (what, ours, peer, target: the smallest ratio, or None)
RATIOS = [
    ("CIFAR-10 over FFCV, 1 thread", Entry(CIFAR, OURS, 1), Entry(CIFAR, FFCV, 1), None),
    ("CIFAR-10 over FFCV, 2 threads", Entry(CIFAR, OURS, 2), Entry(CIFAR, FFCV, 2), None),
    ("TrashNet over FFCV, 2 threads", Entry(JPEG, OURS, 2), Entry(JPEG, FFCV, 2), None),
    ("CIFAR-10 over DALI, 2 threads", Entry(CIFAR, OURS, 2), Entry(CIFAR, DALI, 2), 5),
    ("CIFAR-10 over torchvision, 2 workers", Entry(CIFAR, OURS, 2), Entry(CIFAR, TORCHVISION, 2), 40),
    ("TrashNet over DALI, 1 thread", Entry(JPEG, OURS, 1), Entry(JPEG, DALI, 1), 1.3),
    ("TrashNet over DALI, 2 threads", Entry(JPEG, OURS, 2), Entry(JPEG, DALI, 2), 1.3),
    ("TrashNet over torchvision, 2 workers", Entry(JPEG, OURS, 2), Entry(JPEG, TORCHVISION, 2), 3),
    ("TrashNet from a pack over torchvision, 2 workers", Entry(PACK, OURS, 2), Entry(JPEG, TORCHVISION, 2), 10),
]


def spread(values):
    return statistics.median(values), min(values), max(values)


def targets(rates):
    """Yields (what, (median, lowest, highest), limit); larger is better."""
    yield "CIFAR-10, 2 threads, images/s", spread(rates[Entry(CIFAR, OURS, 2)]), 600_000
    for what, ours, peer, limit in RATIOS:
        if peer in rates:
            yield what, spread([one / other for one, other in zip(rates[ours], rates[peer])]), limit


def print_targets(rates):
    for what, figure, limit in targets(rates):
        verdict = "" if limit is None else "holds" if figure[0] >= limit else "MISSED"
        target = "" if limit is None else f", at least {limit:,}"
        print(f"{verdict:7} {what}: {figure[0]:,.1f} ({figure[1]:,.1f} to {figure[2]:,.1f}){target}")


def count(figure):
    return f"{figure[0]:,.0f} ({figure[1]:,.0f} to {figure[2]:,.0f})"


def page_text(rates, floors, options):
    lines = []
    for work in (CIFAR, JPEG, PACK):
        lines += [f"### {work}", "", "| loader | threads | images a second | of a copy of the same bytes |",
                  "|---|---|---|---|"]
        for entry in (each for each in rates if each.work == work):
            floor = floors.get(entry)
            share = "–" if not floor else \
                f"{100 * statistics.median(one / other for one, other in zip(rates[entry], floor)):.0f}% of " \
                f"{statistics.median(floor):,.0f}"
            lines.append(f"| {entry.loader} | {entry.threads} | {count(spread(rates[entry]))} | {share} |")
        lines.append("")
    lines += ["### Ratios, round by round", "", "| | median (range) | target |", "|---|---|---|"]
    for what, figure, limit in list(targets(rates))[1:]:
        lines.append(f"| {what} | {figure[0]:.1f} ({figure[1]:.1f} to {figure[2]:.1f}) | "
                     f"{'–' if limit is None else format(limit, 'g')} |")
    lines += ["", f"- {datetime.date.today()}, {machine()}; commit {commit()}; medians over {options.rounds} round(s) "
              "of the programs in turn, with their range. Threads are DALI's num_threads and DataLoader's workers.",
              f"- Made by `python3 benchmarks/loader_table.py --rounds {options.rounds}`."]
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("LOCKSTEP_DATA"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--dali-python", type=pathlib.Path, default=ROOT / ".deps/dali/bin/python")
    parser.add_argument("--torchvision-python", type=pathlib.Path, default=ROOT / ".deps/cuda/bin/python")
    parser.add_argument("--ffcv-python", type=pathlib.Path, default=ROOT / ".deps/ffcv/bin/python")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    if options.data is None:
        parser.error("name the folder with cifar10/ and trashnet/: --data DIR, or LOCKSTEP_DATA")
    options.data = pathlib.Path(options.data).resolve()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (0.5 if options.quick else 2)
    if options.output is None and not options.quick:
        options.output = ROOT / "docs/benchmarks"
    for needed in (options.build / "lockstep", options.dali_python, options.torchvision_python,
                   options.data / "cifar10", options.data / "trashnet"):
        if not needed.exists():
            parser.error(f"{needed} does not exist (make build, make dali, tools/bootstrap.sh cuda)")
    return options


def main():
    options = parse()
    if options.output is not None:
        around_marks(options.output / "loader.md", *MARKS)  # fail before the long measurement, not after it
    rates, floors = collections.defaultdict(list), collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        pack = pathlib.Path(folder) / "trashnet.pack"
        run([options.build / "lockstep", "data", "pack", options.data / "trashnet", pack, "--size", "160x160"])
        programs = Programs(options, pack)
        entries = [entry for entry in ENTRIES if entry.loader != FFCV or options.ffcv_python.exists()]
        if len(entries) < len(ENTRIES):
            print(f"without FFCV: {options.ffcv_python} does not exist (benchmarks/README.md)", flush=True)
        for number in range(1, options.rounds + 1):
            for entry in entries:
                rate, floor = programs.measure(entry)
                print(f"round {number} of {options.rounds}: {entry.work}, {entry.loader}, {entry.threads}: "
                      f"{rate:,.0f} images/s", flush=True)
                rates[entry].append(rate)
                if floor:
                    floors[entry].append(floor)
    rows = [{**entry._asdict(), "images_per_second": values} for entry, values in rates.items()]
    (ROOT / "build/loader_table.json").write_text(json.dumps(rows, indent=2) + "\n")
    if options.output is not None:
        replace_between(options.output / "loader.md", *MARKS, page_text(rates, floors, options))
    print_targets(rates)


if __name__ == "__main__":
    sys.exit(main())
