"""Interrupts runs at random moments and resumes them: all must end in the weights of undisturbed runs.

Usage: interruptions.py PROGRAM LOOP [--runs 200] [--seed N] [--only PATTERN]

All recipes of `lockstep train` and a loop written by hand (LOOP, tests/system/interrupted_loop.cpp) get SIGINT, SIGTERM, or
both within 5 ms, sent to the launcher or to its process group, and are started again with --resume auto until they are
complete. A run that has got a signal must end with 128 + the signal and no process left, having saved every step that
it has logged but at most one. This takes some minutes and is part of `make test-exhaustive`.
"""
import argparse
import csv
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib

import support  # takes PROGRAM from the arguments

PATIENCE = 120  # seconds until a process counts as hung
SIGNALS = {"SIGINT": [signal.SIGINT], "SIGTERM": [signal.SIGTERM],
           "SIGINT, SIGTERM": [signal.SIGINT, signal.SIGTERM], "SIGTERM, SIGINT": [signal.SIGTERM, signal.SIGINT]}


def write_png(path, side, shade):
    rows = b"".join(b"\0" + bytes((shade * 3 + x * (shade + 1) + y * 7 + c * 40) % 256 for x in range(side) for c in range(3))
                    for y in range(side))
    chunk = lambda kind, data: (len(data).to_bytes(4, "big") + kind + data +  # noqa: E731
                                zlib.crc32(kind + data).to_bytes(4, "big"))
    header = side.to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_photographs(folder, per_class=40):
    for name in ("cats", "dogs", "owls"):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            write_png(folder / name / f"{i}.png", 40, i + 7 * len(name) + ord(name[0]))


def write_cifar10(folder):
    """Six files of 10,000 images each, of which 100 differ."""
    folder.mkdir(parents=True)
    for k, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        record = lambda i: bytes([i % 10]) + bytes((i * 31 + k * 7 + j * (i % 5 + 1)) % 256 for j in range(3072))  # noqa: E731
        (folder / f"{name}.bin").write_bytes(b"".join(record(i) for i in range(100)) * 100)


class TrainedRun:
    def __init__(self, program, name, *options, ranks=1):
        shown = [option.name if isinstance(option, pathlib.Path) else option for option in options]
        self.name = " ".join(map(str, [name, f"on {ranks} ranks", *shown]))
        self.command = [program, "train", name, "--accelerator", "cpu", "--threads", 1, "--nproc-per-node", ranks,
                        "--logger", "csv", "--resume", "auto", *options]

    def words_in(self, folder):
        return [*self.command, "--out", folder]

    def weights_in(self, folder):
        latest = folder / "checkpoints/latest"
        return [(latest / file).read_bytes() for file in ("model.safetensors", "training.safetensors")]

    def logged_and_saved(self, folder):
        """The last step in the logs, and the step of the newest checkpoint."""
        logged = 0
        for log in folder.glob("*/metrics.csv"):
            with open(log, newline="") as lines:
                logged = max([logged, *(int(row["step"]) for row in csv.DictReader(lines) if row.get("train/loss"))])
        manifest = folder / "checkpoints/latest/manifest.json"
        if not manifest.exists():
            return logged, 0
        return logged, json.loads(manifest.read_text())["step"]


class LoopRun:
    def __init__(self, program, loop, ranks):
        self.name = f"loop written by hand on {ranks} ranks"
        self.command = [program, "run", "--nproc-per-node", ranks, "--threads", 1, "--", loop]

    def words_in(self, folder):
        folder.mkdir(exist_ok=True)
        return [*self.command, folder]

    def weights_in(self, folder):
        return [(folder / "checkpoint.safetensors").read_bytes()]

    def logged_and_saved(self, folder):
        text = (folder / "steps").read_text() if (folder / "steps").exists() else ""
        last = lambda word: max([0, *map(int, re.findall(rf"^{word} (\d+)$", text, re.M))])  # noqa: E731
        return last("step"), last("saved")


class Problem(Exception):
    pass


def start(run, folder):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("RANK", "WORLD_SIZE", "LOCAL_"))}
    output = open(folder.with_suffix(".txt"), "ab")
    return subprocess.Popen(list(map(str, run.words_in(folder))), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                            env=clean, start_new_session=True)


def wait(process, folder):
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise Problem(f"still running {PATIENCE} s later:\n" + folder.with_suffix(".txt").read_text()[-2000:]) from None


def undisturbed(run, folder):
    """Returns the weights of a run without a signal, and its seconds."""
    begin = time.monotonic()
    status = wait(start(run, folder), folder)
    if status != 0:
        raise Problem(f"ends with {status}:\n" + folder.with_suffix(".txt").read_text()[-2000:])
    return run.weights_in(folder), time.monotonic() - begin


def interrupt(run, folder, draws, seconds):
    """Starts or resumes the run and interrupts it once. Returns its exit code and what was done to it."""
    process = start(run, folder)
    time.sleep(draws.uniform(0.02, seconds))
    name = draws.choice(list(SIGNALS))
    to_group = draws.random() < 0.5
    for i, number in enumerate(SIGNALS[name]):
        if i > 0:
            time.sleep(draws.uniform(0, 0.005))
        if process.poll() is None:
            (os.killpg if to_group else os.kill)(process.pid, number)
    status = wait(process, folder)
    left = [pid for pid in support.descendants(1) if support.is_running(pid) and session_of(pid) == process.pid]
    if left:
        raise Problem(f"processes {left} outlive the run")
    what = f"{name} to the {'group' if to_group else 'launcher'}"
    if status not in (0, *(128 + number for number in SIGNALS[name]), *(-number for number in SIGNALS[name])):
        raise Problem(f"ends with {status} after {what}:\n" + folder.with_suffix(".txt").read_text()[-2000:])
    return status, what


def session_of(pid):
    try:
        return os.getsid(pid)
    except OSError:
        return None


def disturbed(run, folder, draws, seconds, most):
    """Interrupts the run until it is complete or has been interrupted `most` times, and then lets it end. Returns the
    number of interruptions."""
    interruptions = 0
    while True:
        if interruptions == most:
            status, what = wait(start(run, folder), folder), "no signal"
        else:
            status, what = interrupt(run, folder, draws, seconds)
        if status == 0:
            return interruptions
        if interruptions == most:
            raise Problem(f"ends with {status} without a signal:\n" + folder.with_suffix(".txt").read_text()[-2000:])
        interruptions += 1
        logged, saved = run.logged_and_saved(folder)
        # A signal that comes before training has begun ends the program at once: there is nothing to save.
        if logged > saved + 1:
            raise Problem(f"after {what}, step {logged} is logged, but the newest checkpoint has step {saved}")


def try_run(run, scratch, draws, most):
    """Interrupts runs of one kind `most` times. Returns the number of interruptions."""
    scratch.mkdir()
    weights, seconds = undisturbed(run, scratch / "whole")
    interruptions = trials = 0
    while interruptions < most:
        folder = scratch / str(trials)
        interruptions += disturbed(run, folder, draws, seconds, min(4, most - interruptions))
        trials += 1
        if run.weights_in(folder) != weights:
            raise Problem("the resumed run ends in other weights")
        shutil.rmtree(folder)
    print(f"{run.name}: {seconds:.1f} s, {interruptions} interruptions of {trials} runs", flush=True)
    return interruptions


def all_runs(program, loop, scratch):
    support.write_small_mnist(scratch / "mnist", 600)
    write_photographs(scratch / "photographs")
    write_cifar10(scratch / "cifar10")
    mnist = ("--data", scratch / "mnist", "--batch-size", 8, "--max-epochs", 20)
    adamw = ("--optimizer", "adamw", "--lr", "0.001", "--schedule", "cosine", "--ema-decay", "0.99")
    photographs = ("--data", scratch / "photographs", "--batch-size", 8)
    trained = lambda *words, ranks=1: TrainedRun(program, *words, ranks=ranks)  # noqa: E731
    return [
        trained("mnist", *mnist, *adamw),
        trained("mnist", *mnist, *adamw, "--every-n-train-steps", 7, ranks=2),
        trained("mnist", *mnist, "--strategy", "zero1", "--optimizer", "adam", ranks=2),
        trained("mnist", *mnist, "--strategy", "dp", "--devices", 2, "--deterministic"),
        trained("mnist", *mnist, "--strategy", "pipeline", "--stages", 2, ranks=2),
        trained("mnist", *mnist, "--strategy", "hybrid", "--stages", 2, ranks=4),
        trained("mnist", *mnist, "--batch-size", 9, "--accumulate-grad-batches", 3, "--val-check-interval", 20, ranks=3),
        trained("cifar10", "--data", scratch / "cifar10", "--batch-size", 20, "--max-epochs", 1, "--limit-train-batches", 8,
                "--limit-val-batches", 1, ranks=2),
        trained("classify", *photographs, "--image-size", 64, "--max-epochs", 2, ranks=2),
        trained("autoencoder", *photographs, "--image-size", 40, "--max-epochs", 12, ranks=2),
        trained("resnet50-split", "--strategy", "pipeline", "--batch-size", 2, "--micro-batches", 2, "--max-epochs", 1,
                "--limit-train-batches", 4, "--limit-val-batches", 1, ranks=2),
        LoopRun(program, loop, 1),
        LoopRun(program, loop, 2),
        LoopRun(program, loop, 3),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("loop", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=200, help="number of interruptions in all")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", default="", help="only runs whose names contain a match of this regular expression")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    draws = random.Random(options.seed)
    done = problems = 0
    with tempfile.TemporaryDirectory(prefix="lockstep-interruptions-") as scratch:
        scratch = pathlib.Path(scratch)
        runs = [run for run in all_runs(pathlib.Path(support.PROGRAM).resolve(), options.loop.resolve(), scratch)
                if re.search(options.only, run.name)]
        for i, run in enumerate(runs):
            try:
                most = (options.runs - done) // (len(runs) - i)
                done += try_run(run, scratch / str(i), draws, most)
            except Problem as problem:
                problems += 1
                print(f"FAILED: {run.name}: {problem}", flush=True)
    print(f"{done} interruptions, {problems} of {len(runs)} kinds of runs failed")
    return 1 if problems or done == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
