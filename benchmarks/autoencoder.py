#!/usr/bin/env python3
"""The auto-encoder on two processes: PyTorch's script and `lockstep train autoencoder` in turn.

Usage: autoencoder.py [--runs 3] [--peer-python .deps/cuda/bin/python] [--output docs/benchmarks/autoencoder.md]
       with the images in $LOCKSTEP_DATA/trashnet

Runs alternate, because the speed of a machine drifts; ratios are taken round by round. The rate of a run is the median
of its epochs after the first, which warms up and fills caches. The peer runs once in each combination of DataLoader
workers (0, 1) and memory format (NCHW, channels_last); the fastest one goes on, with and without its cache each for
itself. "Compute alone" is build/release/autoencoder_step: both ranks' steps at the same time, without data and
communication. All runs have one thread a rank, float32, global batch 64, Adam with lr 1e-3.

Writes the table between the marks of --output and keeps all figures in build/autoencoder.json.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

from pages import around_marks, replace_between
from provenance import ROOT, commit, machine

MARKS = ("<!-- autoencoder:begin -->", "<!-- autoencoder:end -->")
LIMIT_SECONDS = 300
PLAIN_PEER, CACHED_PEER = "PyTorch's script", "PyTorch's script, images in memory"
PLAIN, CACHED = "Lockstep, `--cache none`", "Lockstep"
SIDES = (PLAIN_PEER, CACHED_PEER, PLAIN, CACHED)
COMPUTE = "compute alone"


def run(command, report):
    report.unlink(missing_ok=True)
    words = [str(word) for word in command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"error: did not end in {LIMIT_SECONDS} s: {' '.join(words)}") from None
    if result.returncode or not report.exists():
        raise SystemExit(f"error: {' '.join(words)} ended with {result.returncode}: {result.stderr[-2000:]}")
    return json.loads(report.read_text())


def figures(report):
    later = report["epochs"][1:] or report["epochs"]
    return {"rate": statistics.median(epoch["images_per_second"] for epoch in later),
            "first": report["epochs"][0]["images_per_second"],
            "data": statistics.median(epoch["phases"]["data"] / epoch["seconds"] for epoch in later),
            "train_loss": report["epochs"][-1]["train_loss"], "test_loss": report["test"]["loss"]}


def compute_rate(program, options):
    output = subprocess.run([program, "--batch", str(options.batch_size // 2), "--seconds", "5"],
                            capture_output=True, text=True, check=True).stdout
    return float(re.search(r"images per second ([0-9.]+)", output).group(1))


def median(rounds, side, key):
    return statistics.median(each[side][key] for each in rounds)


def ratio(rounds, side, other):
    ratios = [each[side]["rate"] / each[other]["rate"] for each in rounds]
    return statistics.median(ratios), min(ratios), max(ratios)


def ratio_text(rounds, side, other):
    return "{:.2f} ({:.2f} to {:.2f})".format(*ratio(rounds, side, other))


def table(rounds, choices, versions, options):
    lines = ["| | images/s | first epoch | waiting for data | of the script | of the script in memory "
             "| of compute alone | train loss | validation loss |", "|---" * 9 + "|"]
    for side in SIDES:
        lines.append(f"| {side} | {median(rounds, side, 'rate'):,.0f} | {median(rounds, side, 'first'):,.0f} "
                     f"| {median(rounds, side, 'data'):.1%} | {ratio_text(rounds, side, PLAIN_PEER)} "
                     f"| {ratio_text(rounds, side, CACHED_PEER)} | {ratio_text(rounds, side, COMPUTE)} "
                     f"| {median(rounds, side, 'train_loss'):.5f} | {median(rounds, side, 'test_loss'):.5f} |")
    lines.append(f"| {COMPUTE} | {median(rounds, COMPUTE, 'rate'):,.0f} | | | | | | | |")
    used = "; ".join(f"{side}: {workers} workers a rank, {'channels_last' if last else 'NCHW'}"
                     for side, (workers, last) in choices.items())
    return "\n".join([
        f"Two ranks with one thread each, global batch {options.batch_size}, float32, 160x160 pixels, Adam lr 1e-3,",
        f"{options.max_epochs} epochs. Images per second in the median of the epochs after the first; medians of "
        f"{len(rounds)} rounds in turn;", "ratios are medians over the rounds, with their range.", "", *lines, "",
        f"- {datetime.date.today()}, {machine()}; commit {commit()}.",
        f"- PyTorch: {versions}, the fastest of 0 and 1 workers, NCHW and channels_last ({used}).",
        f"- Made by `python3 benchmarks/autoencoder.py --runs {options.runs} --max-epochs {options.max_epochs}"
        f"{'' if options.workers is None else f' --workers {options.workers}'}`."])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--max-epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, help="the peer's, in channels_last: no combinations are tried")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--peer-python", type=pathlib.Path, default=ROOT / ".deps/cuda/bin/python")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/benchmarks/autoencoder.md")
    options = parser.parse_args()
    if "LOCKSTEP_DATA" not in os.environ:
        raise SystemExit("error: set LOCKSTEP_DATA to the folder that holds trashnet/")
    around_marks(options.output, *MARKS)  # before the long measurement, not after it
    data = pathlib.Path(os.environ["LOCKSTEP_DATA"]).resolve() / "trashnet"
    report = ROOT / "build" / "autoencoder_run.json"
    shared = ["--data", data, "--batch-size", options.batch_size, "--max-epochs", options.max_epochs, "--json", report]
    peer = [options.peer_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            ROOT / "benchmarks/peers/autoencoder.py", *shared]
    ours = [options.build / "lockstep", "train", "autoencoder", "--nproc-per-node", "2", "--threads", "1", *shared]

    def peer_command(cached, workers, channels_last, *more):
        return [*peer, "--workers", workers, *(["--cache"] if cached else []),
                *(["--channels-last"] if channels_last else []), *more]

    choices = {}
    for side, cached in ((PLAIN_PEER, False), (CACHED_PEER, True)):
        if options.workers is not None:
            choices[side] = (options.workers, True)
            continue
        trials = {(workers, last): figures(run(peer_command(cached, workers, last, "--max-epochs", 2), report))["rate"]
                  for workers in (0, 1) for last in (False, True)}
        choices[side] = max(trials, key=trials.get)
        print(f"{side}: " + ", ".join(f"{key} {rate:.0f} img/s" for key, rate in trials.items()), flush=True)
    rounds = []
    for number in range(options.runs):
        theirs = run(peer_command(False, *choices[PLAIN_PEER]), report)
        each = {PLAIN_PEER: figures(theirs), PLAIN: figures(run([*ours, "--cache", "none"], report)),
                COMPUTE: {"rate": compute_rate(options.build / "autoencoder_step", options)},
                CACHED: figures(run(ours, report)),
                CACHED_PEER: figures(run(peer_command(True, *choices[CACHED_PEER]), report))}
        rounds.append(each)
        print(f"round {number + 1}: " + ", ".join(f"{side} {each[side]['rate']:.0f} img/s"
                                                for side in (*SIDES, COMPUTE)), flush=True)
    (ROOT / "build/autoencoder.json").write_text(json.dumps({"choices": choices, "rounds": rounds}, indent=2) + "\n")
    text = table(rounds, choices, f"torch {theirs['torch']}", options)
    replace_between(options.output, *MARKS, text)
    print(text)
    for name, reached, target in (("of PyTorch's script", ratio(rounds, CACHED, PLAIN_PEER)[0], 1.3),
                                  ("of compute alone", ratio(rounds, CACHED, COMPUTE)[0], 0.9)):
        print(f"{'reached' if reached >= target else 'MISSED'}: {reached:.2f} {name}, target {target}")


if __name__ == "__main__":
    sys.exit(main())
