#!/usr/bin/env python3
"""The auto-encoder on two processes: alternates between PyTorch's script and `lockstep train autoencoder`.

Usage: autoencoder.py [--runs 3] [--build build/release] [--peer-python .deps/peers/bin/python]
                      [--output docs/benchmarks/autoencoder.md]
       with the images in $LOCKSTEP_DATA/trashnet

Both sides must use the same version of PyTorch, as build/release and .deps/peers do (tools/bootstrap.sh peers).
--any-torch allows different versions, which the table then states.

Runs alternate, and each round begins with the next program, because the speed of a machine drifts; ratios are
computed per round. The rate of a run is the median of its epochs after the first, which warms up and fills caches.
The peer runs once with each combination of DataLoader workers (0, 1) and memory format (NCHW, channels_last). The
fastest combination takes part in the rounds, separately with and without its cache. "Compute alone" is
build/release/autoencoder_step: the steps of both ranks at the same time, without data and communication; the peer has
such a row as well. All runs have one compute thread per rank, ranks pinned to their share of the processors, float32,
global batch 64, and Adam with lr 1e-3.

Writes the table between the marks of --output and keeps all figures in build/autoencoder.json. Exits with 1 if a
target is missed.
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
COMPUTE, PEER_COMPUTE = "compute alone", "compute alone, Python"
COMPUTE_SECONDS = 5


def output_of(command):
    words = [str(word) for word in command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"error: did not end in {LIMIT_SECONDS} s: {' '.join(words)}") from None
    if result.returncode:
        raise SystemExit(f"error: {' '.join(words)} ended with {result.returncode}: {result.stderr[-2000:]}")
    return result.stdout


def run(command, report):
    report.unlink(missing_ok=True)
    output_of(command)
    if not report.exists():
        raise SystemExit(f"error: {' '.join(str(word) for word in command)} did not write {report}")
    return json.loads(report.read_text())


def versions_of(options):
    """Returns the versions of PyTorch that Lockstep and the peer use."""
    ours = re.search(r"LibTorch ([^)]+)", output_of([options.build / "lockstep", "--version"])).group(1)
    theirs = output_of([options.peer_python, "-c", "import torch; print(torch.__version__)"]).strip()
    if ours.split("+")[0] != theirs.split("+")[0] and not options.any_torch:
        raise SystemExit(f"error: Lockstep has LibTorch {ours} and the peer torch {theirs}; give --build and "
                         "--peer-python of the same version, or --any-torch")
    return ours, theirs


def figures(report):
    later = report["epochs"][1:] or report["epochs"]
    return {"rate": statistics.median(epoch["images_per_second"] for epoch in later),
            "first": report["epochs"][0]["images_per_second"],
            "filled": report.get("seconds_to_fill_cache", 0),
            "data": statistics.median(epoch["phases"]["data"] / epoch["seconds"] for epoch in later),
            "train_loss": report["epochs"][-1]["train_loss"], "test_loss": report["test"]["loss"]}


def compute_rate(program, options):
    output = output_of([program, "--batch", options.batch_size // 2, "--seconds", COMPUTE_SECONDS])
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
    for side in (COMPUTE, PEER_COMPUTE):
        lines.append(f"| {side} | {median(rounds, side, 'rate'):,.0f} | | | | | | | |")
    ours, theirs = versions
    tried = ("the fastest of 0 and 1 workers, NCHW and channels_last" if options.workers is None
             else "without trials of other workers and memory formats")
    used = "; ".join(f"{side}: {workers} workers a rank, {'channels_last' if last else 'NCHW'}"
                     for side, (workers, last) in choices.items())
    return "\n".join([
        f"Two ranks with one compute thread each, global batch {options.batch_size}, float32, 160x160 pixels, "
        "Adam lr 1e-3,", f"{options.max_epochs} epochs. Images per second in the median of the epochs after the first; medians of "
        f"{len(rounds)} rounds in turn;", "ratios are medians over the rounds, with their range.",
        f"Python's images in memory took {median(rounds, CACHED_PEER, 'filled'):.1f} s to load before its first epoch.",
        "", *lines, "",
        f"- {datetime.date.today()}, {machine()}; commit {commit()}.",
        f"- PyTorch: torch {theirs}, {tried} ({used}); Lockstep: LibTorch {ours}, a loader thread a rank.",
        f"- Made by `python3 benchmarks/autoencoder.py --runs {options.runs} --max-epochs {options.max_epochs}"
        f"{'' if options.workers is None else f' --workers {options.workers}'}"
        f"{' --any-torch' if options.any_torch else ''}`."])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--max-epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int,
                        help="DataLoader workers of the peer, which then runs only in channels_last (default: try all)")
    parser.add_argument("--any-torch", action="store_true", help="allow the two sides to use different versions of PyTorch")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--peer-python", type=pathlib.Path, default=ROOT / ".deps/peers/bin/python")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/benchmarks/autoencoder.md")
    options = parser.parse_args()
    if "LOCKSTEP_DATA" not in os.environ:
        raise SystemExit("error: set LOCKSTEP_DATA to the folder that holds trashnet/")
    versions = versions_of(options)
    around_marks(options.output, *MARKS)  # fail before the long measurement, not after it
    data = pathlib.Path(os.environ["LOCKSTEP_DATA"]).resolve() / "trashnet"
    report = ROOT / "build" / "autoencoder_run.json"
    shared = ["--data", data, "--batch-size", options.batch_size, "--max-epochs", options.max_epochs, "--json", report]
    peer = [options.peer_python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            ROOT / "benchmarks/peers/autoencoder.py", "--pin", *shared]
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
    measure = {
        PLAIN_PEER: lambda: figures(run(peer_command(False, *choices[PLAIN_PEER]), report)),
        PLAIN: lambda: figures(run([*ours, "--cache", "none"], report)),
        COMPUTE: lambda: {"rate": compute_rate(options.build / "autoencoder_step", options)},
        CACHED: lambda: figures(run(ours, report)),
        CACHED_PEER: lambda: figures(run(peer_command(True, *choices[CACHED_PEER]), report)),
        PEER_COMPUTE: lambda: {"rate": run(peer_command(
            False, *choices[PLAIN_PEER], "--compute-seconds", COMPUTE_SECONDS), report)["compute_images_per_second"]}}
    rounds = []
    for number in range(options.runs):
        first = number % len(measure)
        order = [*measure][first:] + [*measure][:first]
        rounds.append({side: measure[side]() for side in order})
        print(f"round {number + 1}: " + ", ".join(f"{side} {rounds[-1][side]['rate']:.0f} img/s" for side in measure),
              flush=True)
    (ROOT / "build/autoencoder.json").write_text(json.dumps({"choices": choices, "rounds": rounds}, indent=2) + "\n")
    text = table(rounds, choices, versions, options)
    replace_between(options.output, *MARKS, text)
    print(text)
    missed = False
    for name, reached, target in (("of PyTorch's script", ratio(rounds, CACHED, PLAIN_PEER)[0], 1.3),
                                  ("of compute alone", ratio(rounds, CACHED, COMPUTE)[0], 0.9)):
        missed = missed or reached < target
        print(f"{'reached' if reached >= target else 'MISSED'}: {reached:.2f} {name}, target {target}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
