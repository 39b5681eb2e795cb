#!/usr/bin/env python3
"""The tables of epoch times: `lockstep bench table` for three recipes, alternating with PyTorch's programs.

Usage: tables.py [--tables mnist,cifar10,autoencoder] [--program build/release/lockstep]
                 [--peer-python .deps/peers/bin/python] [--output docs/benchmarks/tables.md]
       with mnist/, cifar10/ and trashnet/ in $LOCKSTEP_DATA

Each recipe runs with 1, 2 and 4 ranks. --tables loaders measures MNIST with each loader, ours and NVIDIA DALI in both
programs; it needs `make dali`, and then tools/bootstrap.sh peers. Writes the tables between the marks of --output,
each with its date and machine, keeps all rows in build/table_NAME.json, and prints which targets hold. --peer-python
needs torchvision, which tools/bootstrap.sh peers installs.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

from pages import around_marks, replace_between
from provenance import ROOT, commit, machine

# The recipe of each table and its options. A rank's batch is small enough for four ranks on two processors, and
# epochs of ResNet-18 are cut short.
TABLES = {
    "mnist": ["mnist", "--ranks", "1,2,4", "--strategies", "single,ddp,dp", "--kernels", "fused,libtorch", "--batch-per-rank", 64, "--epochs", 2, "--rounds", 3],
    "cifar10": ["cifar10", "--ranks", "1,2,4", "--strategies", "single,ddp,zero1,dp,pipeline", "--batch-per-rank", 32, "--epochs", 3, "--max-steps", 6],
    "autoencoder": ["autoencoder", "--ranks", "1,2,4", "--strategies", "single,ddp,dp", "--batch-per-rank", 32, "--epochs", 3],
    "loaders": ["mnist", "--ranks", "1,2", "--strategies", "ddp", "--loaders", "native,dali", "--kernels", "fused,libtorch",
                "--batch-per-rank", 64, "--epochs", 2, "--rounds", 3],
}
USUAL = ["mnist", "cifar10", "autoencoder"]
DATA = {"mnist": "mnist", "cifar10": "cifar10", "autoencoder": "trashnet"}
EPOCH_TARGET, SINGLE_TARGET = 3.0, 0.95


def marks(table):
    return f"<!-- {table}:begin -->", f"<!-- {table}:end -->"


def measure(table, options):
    recipe = TABLES[table][0]
    report = ROOT / "build" / f"table_{table}.json"
    report.parent.mkdir(exist_ok=True)
    command = [options.program, "bench", "table", *TABLES[table], "--threads", 1,
               "--data", pathlib.Path(os.environ["LOCKSTEP_DATA"]).resolve() / DATA[recipe],
               "--format", "markdown", "--json", report]
    if options.peer_python:
        command += ["--with-peers", "--peer-python", options.peer_python]
    words = [str(word) for word in command]
    start = time.monotonic()
    result = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        print(result.stdout)
        raise SystemExit(f"error: ended with {result.returncode}: {' '.join(words)}")
    return result.stdout, json.loads(report.read_text()), time.monotonic() - start, words


def row_of(rows, **wanted):
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return min(found, key=lambda row: row["epoch_s"]) if found else None


def mnist_targets(rows):
    """Returns the two targets of the MNIST table as (sentence, measured, target)."""
    peer = min((row for row in rows if row["peer"] and row["strategy"] == "ddp" and row["ranks"] == 2),
               key=lambda row: row["epoch_s"], default=None)
    targets = []
    for fused in (True, False):
        ours = row_of(rows, strategy="ddp", ranks=2, peer=None, fused_kernels=fused)
        kernels = "with" if fused else "without"
        if peer:
            targets.append((f"DDP with 2 ranks, {kernels} our fused kernel: epochs of PyTorch's DDP to ours",
                            peer["epoch_s"] / ours["epoch_s"], EPOCH_TARGET))
        single = row_of(rows, strategy="single", ranks=1, threads_per_rank=2, peer=None, fused_kernels=fused)
        targets.append((f"DDP with 2 ranks of 1 thread, {kernels} our fused kernel: throughput to that of one process "
                        "with 2 threads", ours["images_per_second"] / single["images_per_second"], SINGLE_TARGET))
    return targets


def targets_text(targets):
    lines = ["| | measured | at least | |", "|---|---:|---:|---|"]
    for sentence, measured, target in targets:
        lines.append(f"| {sentence} | {measured:.2f} | {target:g} | {'holds' if measured >= target else 'MISSED'} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", default=",".join(USUAL))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/lockstep")
    parser.add_argument("--peer-python", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/benchmarks/tables.md")
    options = parser.parse_args()
    tables = options.tables.split(",")
    unknown = [table for table in tables if table not in TABLES]
    if unknown:
        raise SystemExit(f"error: --tables must be among {', '.join(TABLES)}, got {unknown[0]}")
    if "LOCKSTEP_DATA" not in os.environ:
        raise SystemExit("error: set LOCKSTEP_DATA to the folder that holds mnist/, cifar10/ and trashnet/")
    if options.peer_python:
        peers = {**os.environ, "PYTHONPATH": str(ROOT / "benchmarks/peers")}
        probe = subprocess.run([options.peer_python, "-c", "import vision"], env=peers, capture_output=True, text=True)
        if probe.returncode:
            raise SystemExit(f"error: {options.peer_python} has no torchvision; run tools/bootstrap.sh peers")
    for table in tables:
        around_marks(options.output, *marks(table))  # fail before the long measurements, not after them
    for table in tables:
        text, rows, seconds, words = measure(table, options)
        parts = [text.strip()]
        if table == "mnist":
            targets = mnist_targets(rows)
            parts.append(targets_text(targets))
        shown = " ".join(pathlib.Path(word).name if "/" in word else word for word in words)
        parts.append(f"- {datetime.date.today()}, {machine()}; commit {commit()}; {seconds / 60:.1f} minutes.\n"
                     f"- Made by `{shown}`.")
        replace_between(options.output, *marks(table), "\n\n".join(parts))
        print("\n\n".join(parts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
