#!/usr/bin/env python3
"""One epoch of MNIST on two processes: alternates between PyTorch's script and `lockstep train`, with and without our
kernel.

Usage: mnist_epoch.py [--runs 3] [--peer-python .deps/cuda/bin/python] [--output docs/benchmarks/mnist.md]
       with the data in $LOCKSTEP_DATA/mnist

Runs alternate, because the speed of a machine drifts; ratios are computed per pair. The figures of a run are the
median duration of its epochs after the first (which warms up), and the times that the program itself reports, counted
from the start of its command. Peers run once with --workers 0 and once with 1; the faster one takes part in the rounds.
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

from pages import around_marks, replace_between
from provenance import ROOT, commit, machine

SHARED = ["--batch-size", "128", "--lr", "0.01"]
LIMIT_SECONDS = 120  # per run; the peer's data workers can hang at their start
MARKS = ("<!-- epoch:begin -->", "<!-- epoch:end -->")


def torchvision_root(data):
    """Returns a folder in the layout of torchvision.datasets.MNIST, unpacked once from the published files."""
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
    measured = report["epochs"][1:] or report["epochs"]
    return {"epoch": statistics.median(epoch["seconds"] for epoch in measured),
            "data": statistics.median(epoch["phases"]["data"] for epoch in measured),
            "communication": statistics.median(epoch["phases"].get("communication", 0) for epoch in measured),
            "first": report["seconds_to_first_step"], "total": report["seconds_total"],
            "accuracy": report["test"]["accuracy"]}


def step_milliseconds(command):
    """The computation alone of one step: one thread, a rank's batch of 64, no data loading and no communication."""
    output = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
    return float(re.search(r"\bstep +([0-9.]+) ms", output).group(1))


SCRIPT, PLAIN, FUSED = SIDES = ("PyTorch's script", "Lockstep, LibTorch's operations", "Lockstep, fused kernel")
ROWS = [("seconds per epoch", "epoch"), ("of these: waiting for data", "data"),
        ("of these: communication", "communication"), ("one step in compute alone, ms", "step"),
        ("first step after the start of the command, s", "first"), ("whole command, s", "total"),
        ("test accuracy after the last epoch", "accuracy")]
NO_RATIO = {"accuracy", "data", "communication"}  # ratios of numbers near 0 are meaningless


def median(rounds, side, key):
    return statistics.median(each[side][key] for each in rounds)


def ratio_text(rounds, side, key):
    ratios = [each[side][key] / each[SCRIPT][key] for each in rounds]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def contributions(rounds):
    """The contribution of each part to the difference between the script's epoch and ours, in seconds."""
    epochs = [median(rounds, side, "epoch") for side in SIDES]
    kernel = epochs[1] - epochs[2]
    data = median(rounds, SCRIPT, "data") - median(rounds, PLAIN, "data")
    communication = median(rounds, SCRIPT, "communication") - median(rounds, PLAIN, "communication")
    return {"loader": data, "communication": communication, "fused kernel": kernel,
            "rest": epochs[0] - epochs[2] - kernel - data - communication}


def table(rounds, workers, versions, options):
    lines = ["| | " + " | ".join(SIDES) + " | second / first | third / first |", "|---" * 6 + "|"]
    for label, key in ROWS:
        digits = {"accuracy": 4, "step": 3}.get(key, 2)
        cells = [f"{median(rounds, side, key):.{digits}f}" for side in SIDES]
        cells += ["–", "–"] if key in NO_RATIO else [ratio_text(rounds, side, key) for side in (PLAIN, FUSED)]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    parts = contributions(rounds)
    return "\n".join([
        "Two ranks with one thread each, global batch 128, fp32, the same net with dropout, SGD lr 0.01,",
        f"momentum 0.5. Medians of {len(rounds)} rounds in turn; ratios are medians over the rounds, with",
        "their range. Absolute seconds belong to this machine and day.", "", *lines, "",
        f"Our epoch takes {median(rounds, SCRIPT, 'epoch') - median(rounds, FUSED, 'epoch'):.2f} s less. "
        f"The loader saves {parts['loader']:.2f} s, communication {parts['communication']:.2f} s, the fused "
        f"kernel {parts['fused kernel']:.2f} s, and everything else (the optimizer over flat buffers, kept memory, "
        f"no interpreter) {parts['rest']:.2f} s.", "",
        f"- {datetime.date.today()}, {machine()}; commit {commit()}.",
        f"- PyTorch: {versions}, torchvision transforms, DataLoader with {workers} workers a rank,",
        "  DistributedSampler, DDP on Gloo, torchrun (`benchmarks/peers/ddp_mnist.py`). Its communication is the",
        "  difference from the same script without DDP, each process by itself.",
        f"- Made by `python3 benchmarks/mnist_epoch.py --runs {options.runs} --max-epochs "
        f"{options.max_epochs}`."])


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
    around_marks(options.output, *MARKS)  # fail before the long measurement, not after it
    data = pathlib.Path(os.environ["LOCKSTEP_DATA"]).resolve()
    report = ROOT / "build" / "mnist_epoch.json"
    shared = [*SHARED, "--max-epochs", options.max_epochs, "--json", report]
    peer = [options.peer_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            ROOT / "benchmarks/peers/ddp_mnist.py", "--data", torchvision_root(data), *shared]
    ours = [options.program, "train", "mnist", "--strategy", "ddp", "--nproc-per-node", "2",
            "--threads", "1", "--momentum", "0.5", "--schedule", "constant", "--data", data, *shared]
    plain = [*ours, "--no-fused-kernels"]
    step = {SCRIPT: [options.peer_python, ROOT / "benchmarks/peers/mnist_step.py"],
            PLAIN: [options.program.parent / "mnist_step", "--plain"],
            FUSED: [options.program.parent / "mnist_step"]}

    trials = {}
    for workers in (0, 1):
        try:
            trials[workers] = figures(run([*peer, "--workers", workers], report))["epoch"]
        except DidNotEnd as hung:
            print(hung, flush=True)
    workers = min(trials, key=trials.get)
    peer += ["--workers", workers]
    rounds = []
    for number in range(options.runs):
        theirs = run(peer, report)
        each = {SCRIPT: figures(theirs), PLAIN: figures(run(plain, report)), FUSED: figures(run(ours, report))}
        alone = figures(run([*peer, "--alone"], report))
        each[SCRIPT]["communication"] = each[SCRIPT]["epoch"] - alone["epoch"]
        for side in SIDES:
            each[side]["step"] = step_milliseconds(step[side])
        rounds.append(each)
        print(f"round {number + 1}: " + ", ".join(f"{side} {each[side]['epoch']:.2f} s per epoch"
                                                for side in SIDES), flush=True)
    text = table(rounds, workers, f"torch {theirs['torch']}", options)
    replace_between(options.output, *MARKS, text)
    print(text)


if __name__ == "__main__":
    sys.exit(main())
