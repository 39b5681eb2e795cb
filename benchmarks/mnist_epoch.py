#!/usr/bin/env python3
"""One epoch of MNIST on two processes: PyTorch's script and `lockstep train`, in turn.

Usage: mnist_epoch.py [--runs 3] [--peer-python .deps/cuda/bin/python] [--output docs/benchmarks/mnist.md]
       with the data in $LOCKSTEP_DATA/mnist

Runs alternate, because the speed of a machine drifts; ratios are taken pair by pair. The figures of a
run are the median second of its epochs after the first (the first warms up) and what the program
itself reports from the start of its command. Peers run with --workers 0 and 1 once; the faster goes on.
"""
import argparse
import datetime
import gzip
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

from provenance import ROOT, commit, machine

SHARED = ["--batch-size", "128", "--lr", "0.01"]
LIMIT_SECONDS = 120  # of one run: the peer's data workers can hang at their start
STEPS_PER_EPOCH = 469  # ceil(60,000 / 128)


def torchvision_root(data):
    """A folder as torchvision.datasets.MNIST wants it, unpacked once from the published files."""
    raw = ROOT / "build" / "torchvision" / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for packed in sorted((data / "mnist").glob("*-ubyte.gz")):
        target = raw / packed.stem
        if not target.exists():
            half = target.with_suffix(".half")
            with gzip.open(packed) as source, open(half, "wb") as file:
                shutil.copyfileobj(source, file)
            half.rename(target)
    if len(list(raw.glob("*-ubyte"))) < 4:
        raise SystemExit(f"error: {data}/mnist must hold the four *-ubyte.gz files of MNIST")
    return raw.parent.parent


class DidNotEnd(SystemExit):
    pass


def run(command, report):
    report.unlink(missing_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [str(word) for word in command]
    try:
        result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired as expired:
        raise DidNotEnd(f"error: {' '.join(words)} did not end in {LIMIT_SECONDS} s: "
                        f"{(expired.stderr or b'')[-2000:]!r}")
    if result.returncode or not report.exists():
        raise SystemExit(f"error: {command[0]} ended with {result.returncode}: {result.stderr[-2000:]}")
    return json.loads(report.read_text())


def figures(report):
    epochs = [epoch["seconds"] for epoch in report["epochs"]]
    return {"epoch": statistics.median(epochs[1:] or epochs), "first": report["seconds_to_first_step"],
            "total": report["seconds_total"], "accuracy": report["test"]["accuracy"]}


def step_milliseconds(command):
    """Of one step in compute alone: one thread, a rank's batch of 64, no data and no communication."""
    output = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
    return float(re.search(r"\bstep +([0-9.]+) ms", output).group(1))


def table(pairs, workers, versions, options):
    rows = [("seconds per epoch", "epoch"), ("one step in compute alone, ms", "step"),
            ("that step times 469, s: what is left of an epoch without data and communication", "compute"),
            ("first step after the start of the command, s", "first"),
            ("whole command, s", "total"), ("test accuracy after the last epoch", "accuracy")]
    lines = ["| | PyTorch | Lockstep | Lockstep / PyTorch |", "|---|---|---|---|"]
    for label, key in rows:
        theirs, ours = (statistics.median(pair[side][key] for pair in pairs) for side in (0, 1))
        ratios = [pair[1][key] / pair[0][key] for pair in pairs]
        ratio = "–" if key == "accuracy" else \
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        digits = {"accuracy": 4, "step": 3}.get(key, 2)
        lines.append(f"| {label} | {theirs:.{digits}f} | {ours:.{digits}f} | {ratio} |")
    return "\n".join([
        "# MNIST on two processes", "",
        "Two ranks with one thread each, global batch 128, fp32, the same net with dropout, SGD lr 0.01,",
        f"momentum 0.5. Medians of {len(pairs)} runs in turn; ratios are medians over the pairs of runs, with",
        "their range. Absolute seconds belong to this machine and day.", "", *lines, "",
        f"- {datetime.date.today()}, {machine()}; commit {commit()}.",
        f"- PyTorch: {versions}, torchvision transforms, DataLoader with {workers} workers a rank,",
        "  DistributedSampler, DDP on Gloo, torchrun (`benchmarks/peers/ddp_mnist.py`).",
        f"- Made by `python3 benchmarks/mnist_epoch.py --runs {options.runs} --max-epochs "
        f"{options.max_epochs}`.", ""])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--max-epochs", type=int, default=2)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/lockstep")
    parser.add_argument("--peer-python", type=pathlib.Path, default=ROOT / ".deps/cuda/bin/python")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/benchmarks/mnist.md")
    options = parser.parse_args()
    if "LOCKSTEP_DATA" not in os.environ:
        raise SystemExit("error: set LOCKSTEP_DATA to the folder that holds mnist/")
    data = pathlib.Path(os.environ["LOCKSTEP_DATA"]).resolve()
    report = ROOT / "build" / "mnist_epoch.json"
    shared = [*SHARED, "--max-epochs", options.max_epochs, "--json", report]
    peer = [options.peer_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            ROOT / "benchmarks/peers/ddp_mnist.py", "--data", torchvision_root(data), *shared]
    ours = [options.program, "train", "mnist", "--strategy", "ddp", "--nproc-per-node", "2",
            "--threads", "1", "--momentum", "0.5", "--schedule", "constant", "--data", data, *shared]
    step = {"theirs": [options.peer_python, ROOT / "benchmarks/peers/mnist_step.py"],
            "ours": [options.program.parent / "mnist_step"]}

    trials = {}
    for workers in (0, 1):
        try:
            trials[workers] = figures(run([*peer, "--workers", workers], report))["epoch"]
        except DidNotEnd as hung:
            print(hung, flush=True)
    workers = min(trials, key=trials.get)
    pairs = []
    for number in range(options.runs):
        theirs = run([*peer, "--workers", workers], report)
        pairs.append((figures(theirs), figures(run(ours, report))))
        for side, name in zip(pairs[-1], ("theirs", "ours")):
            side["step"] = step_milliseconds(step[name])
            side["compute"] = side["step"] * STEPS_PER_EPOCH / 1e3
        print("run {}: PyTorch {epoch:.2f} s per epoch, first step {first:.2f} s".format(
            number + 1, **pairs[-1][0]), "| Lockstep {epoch:.2f}, {first:.2f}".format(**pairs[-1][1]),
            "| ratio {:.3f}".format(pairs[-1][1]["epoch"] / pairs[-1][0]["epoch"]), flush=True)
    text = table(pairs, workers, f"torch {theirs['torch']}", options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
