#!/usr/bin/env python3
"""Predictions of `lockstep simulate`, and the measurements made afterwards.

Usage: simulate_validation.py predict|measure|published [--round 1|2|3|4|5] [--wires FILE] [--inputs FILE]
                              [--output docs/benchmarks] [--program PATH] [--quick]

Two ranks with one thread each on two processors train the MNIST net and ResNet-18 (`lockstep bench step`) with
several batches, bucket sizes, strategies and wires. `predict` first measures the inputs of the predictions, and
nothing else:

  * for each net and batch, traces of some steps over shared memory with small buckets;
  * for each wire, the collectives alone and during computation (`lockstep bench comm --beside-computing`).

It writes simulate_predictions_N.json for round N, with these inputs and an interval for each prediction. Commit the
file, then let `measure` train every configuration. `measure` rejects predictions that are not in git's last commit,
and writes the table of simulate.md. `published` writes that page's table of published scaling. Wires other than shm
and gloo are two network namespaces whose veth pair `tc qdisc ... tbf` limits to a rate, which needs root. --quick
uses a few configurations and writes nothing into docs/.
"""
import argparse
import dataclasses
import datetime
import json
import math
import os
import pathlib
import secrets
import statistics
import subprocess
import sys
import tempfile

import overlap
from pages import around_marks, replace_between
from provenance import ROOT, commit, machine

PUBLISHED_MARKS = ("<!-- published:begin -->", "<!-- published:end -->")
RATES = ("1gbit", "500mbit")  # between the two hosts
WIRES = ("shm", "gloo", *RATES)
CAPS = {"mnist": ("25",), "resnet18": ("1", "5", "10", "25")}  # MiB
SMALL_CAP = "0.02"  # two buckets of a few KiB during a backward of a few milliseconds
ZERO_WIRES = ("shm", "gloo")  # on a slow wire, the time of reduce_scatter jumps between two values
BASE_CAPS = {"mnist": "0.01", "resnet18": "0.5"}  # small, so that the trace shows when gradients are ready
ROUNDS = {"mnist": ("6", "20"), "resnet18": ("2", "2")}  # rounds in each of two passes, and steps per round
SIZES = "4KiB,16KiB,32KiB,64KiB,128KiB,256KiB,1MiB,2MiB,5MiB,10MiB,25MiB,43MiB"
BASE_RUNS = 3
LIMIT_SECONDS = 300  # per launch
CALIBRATIONS = 2  # for each size the faster median counts, because disturbances only add time


@dataclasses.dataclass
class Round:
    """What is predicted, and the width of the intervals: relative errors of the computation and of the communication,
    and the time that waiting for a processor may add per bucket, for up to three buckets."""
    batches: dict
    small_caps: tuple  # (net, batch) that are also predicted with SMALL_CAP
    compute_share: float
    communication_share: dict
    wake_up_ms: float
    passes: int
    # Replaces the three above: the relative errors of earlier rounds, by net and wire, and of SMALL_CAP.
    error_share: dict = dataclasses.field(default_factory=dict)
    of_program: bool = False  # replaces all of the above by the interval that `lockstep simulate` states

    def interval(self, configuration, row, base_spread):
        """The interval of the prediction, in milliseconds."""
        if self.of_program:
            return [round(each, 3) for each in row["interval_ms"]]
        wire, communication = configuration["wire"], row["exposed_ms"] + row["taken_ms"]
        if self.error_share:
            small = configuration["cap"] == SMALL_CAP and wire != "shm"
            share = self.error_share["small caps" if small else (configuration["model"], wire)]
            return [round(row["step_ms"] / (1 + share), 3), round(row["step_ms"] / (1 - share), 3)]
        compute = max(self.compute_share, base_spread) * (row["step_ms"] - communication)
        wake_ups = 0 if wire == "shm" else self.wake_up_ms * min(row["buckets"], 3 if self.passes == 1 else 1)
        half = math.hypot(compute, self.communication_share[wire] * communication, wake_ups)
        return [round(row["step_ms"] - half, 3), round(row["step_ms"] + half, 3)]


# The second round has other batches, and intervals from the errors of the first. The third has other batches again,
# and intervals that would have contained nineteen of twenty rows of both rounds, apart from disturbed rows, and at
# least 8% for drift. The fourth checks the intervals that the program has stated since then, which follow from the
# errors of the first three. The fifth checks intervals that allow for a tick of the scheduler, which the fourth had
# shown to be missing.
ROUND_SETTINGS = {
    1: Round(batches={"mnist": (128, 256, 512), "resnet18": (5, 8)}, small_caps=(("mnist", 256),), compute_share=0.07,
             communication_share={"shm": 0.5, "gloo": 0.35, "1gbit": 0.07, "500mbit": 0.07}, wake_up_ms=0.5, passes=2),
    2: Round(batches={"mnist": (192, 384), "resnet18": (6, 10)}, small_caps=(("mnist", 384),), compute_share=0.11,
             communication_share={"shm": 0.5, "gloo": 0.5, "1gbit": 0.1, "500mbit": 0.1}, wake_up_ms=1, passes=1),
    3: Round(batches={"mnist": (160, 320), "resnet18": (7, 12)}, small_caps=(("mnist", 160),), compute_share=0,
             communication_share={}, wake_up_ms=0, passes=2,
             error_share={("mnist", "shm"): 0.08, ("mnist", "gloo"): 0.18, ("mnist", "1gbit"): 0.13, ("mnist", "500mbit"): 0.11,
                          ("resnet18", "shm"): 0.10, ("resnet18", "gloo"): 0.11, ("resnet18", "1gbit"): 0.09,
                          ("resnet18", "500mbit"): 0.08, "small caps": 0.25}),
    4: Round(batches={"mnist": (224, 448), "resnet18": (9, 11)}, small_caps=(("mnist", 224),), compute_share=0,
             communication_share={}, wake_up_ms=0, passes=2, of_program=True),
    5: Round(batches={"mnist": (176, 416), "resnet18": (13, 15)}, small_caps=(("mnist", 176),), compute_share=0,
             communication_share={}, wake_up_ms=0, passes=2, of_program=True),
}


def configurations(options):
    for model, batches in options.settings.batches.items():
        for batch in batches[:1] if options.quick else batches:
            for wire in WIRES[1:3] if options.quick else WIRES:
                caps = [*CAPS[model], *([SMALL_CAP] if (model, batch) in options.settings.small_caps else [])]
                for cap in caps:
                    yield {"model": model, "batch": batch, "wire": wire, "strategy": "ddp", "cap": cap}
                if wire in ZERO_WIRES:
                    yield {"model": model, "batch": batch, "wire": wire, "strategy": "zero1", "cap": CAPS[model][-1]}


def run_ranks(wire, words, options):
    """Runs `lockstep bench WORDS` on two ranks, started as that wire requires."""
    command = [str(options.program), "bench", *words, "--timeout", "120"]
    if wire in RATES:
        return overlap.run_on_two_hosts(wire, [*command, "--backend", "gloo"], LIMIT_SECONDS)
    ranks = [subprocess.Popen([*command, "--backend", wire, "--nproc-per-node", "2"], stdout=subprocess.DEVNULL)]
    overlap.wait_for(ranks, f"over {wire}", LIMIT_SECONDS)


# --- Predictions

def faster(rows, others):
    """Returns `rows` with the smaller of each time in both lists, whose ranks, sizes and algorithms are the same."""
    times = ("median_us", "min_us", "beside_us", "taken_us")
    return [{**row, **{key: min(row[key], other[key]) for key in times}} for row, other in zip(rows, others, strict=True)]


def calibrate(wire, folder, options):
    """Measures a wire and returns the file with its rows."""
    file = folder / f"{wire}.json"
    rows = None
    for number in range(CALIBRATIONS):
        print(f"calibration {number + 1}: {wire}", flush=True)
        again = calibrate_once(wire, file, options)
        rows = faster(rows, again) if rows else again
    file.write_text(json.dumps(rows))
    return file


def calibrated(wire, folder, options):
    """Returns the file with the rows of a wire: the one given by --wires, or a new one."""
    if not options.wires:
        return calibrate(wire, folder, options)
    file = folder / f"{wire}.json"
    file.write_text(json.dumps(json.loads(options.wires.read_text())["inputs"]["wires"][wire]))
    return file


def calibrate_once(wire, file, options):
    memory = ["--symmetric"] if wire == "shm" else ["--private"]
    run_ranks(wire, ["comm", "--sizes", SIZES, "--beside-computing", "--seconds", "0.3", *memory, "--json", str(file)], options)
    return json.loads(file.read_text())


def trace_base(model, batch, folder, options):
    """Returns a trace of ten steps, and the median of the many steps before them."""
    traces = folder / f"{model}-{batch}-{secrets.token_hex(4)}"
    rows = traces.with_suffix(".json")
    rounds, steps = ROUNDS[model]
    run_ranks("shm", ["step", "--model", model, "--batch-per-rank", str(batch), "--bucket-cap-mb", BASE_CAPS[model],
                      "--alone", "--rounds", rounds, "--steps", steps, "--trace", str(traces), "--json", str(rows)], options)
    (file,) = traces.iterdir()
    return file, json.loads(rows.read_text())[0]["step_ms"] / 1e3


def scaled(profile, seconds):
    """Returns the profile scaled to the median of the timed steps, because ten traced steps are few."""
    factor = seconds / profile["step_seconds"]
    buckets = [{**each, "ready_seconds": each["ready_seconds"] * factor} for each in profile["buckets"]]
    return {**{key: value * factor if key.endswith("_seconds") else value for key, value in profile.items()},
            "buckets": buckets}


def simulate(run, words, options):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "prediction.json"
        command = [str(options.program), "simulate", str(run), *map(str, words), "--json", str(file)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"error: {' '.join(command)}: {result.stderr.strip()}")
        return json.loads(file.read_text())


def middle(profiles):
    """A profile in which every number is the median over `profiles`, which have the same buckets."""
    first = profiles[0]
    if isinstance(first, dict):
        return {key: middle([each[key] for each in profiles]) for key in first}
    if isinstance(first, list):
        return [middle([each[i] for each in profiles]) for i in range(len(first))]
    return statistics.median(profiles) if isinstance(first, (int, float)) else first


def make_inputs(folder, options):
    """Returns the calibration of each wire and, for each net and batch, the profile and the spread of step times
    between runs."""
    chosen = list(configurations(options))
    runs = {(each["model"], each["batch"]): [] for each in chosen}
    for _ in range(BASE_RUNS):
        for model, batch in runs:
            print(f"base: {model}, batch {batch}", flush=True)
            runs[model, batch].append(trace_base(model, batch, folder, options))
    names = dict.fromkeys(["shm", *(each["wire"] for each in chosen)])
    wires = {wire: calibrated(wire, folder, options) for wire in names}
    bases = {}
    for (model, batch), traces in runs.items():
        profiles = [scaled(simulate(trace, ["--ranks", 2, "--run-network", wires["shm"]], options)["run"], seconds)
                    for trace, seconds in traces]
        steps = [seconds for _, seconds in traces]
        bases[f"{model}, batch {batch}"] = {"spread": (max(steps) - min(steps)) / 2 / statistics.median(steps),
                                            "profile": {**middle(profiles), "name": f"{model}, batch {batch}"}}
    return {"bases": bases, "wires": {wire: json.loads(file.read_text()) for wire, file in wires.items()}}


def predictions_of(inputs, folder, options):
    for wire, rows in inputs["wires"].items():
        (folder / f"{wire}.json").write_text(json.dumps(rows))
    predictions = []
    for each in configurations(options):
        base = inputs["bases"][f"{each['model']}, batch {each['batch']}"]
        profile = folder / "profile.json"
        profile.write_text(json.dumps(base["profile"]))
        words = ["--ranks", 2, "--network", folder / f"{each['wire']}.json", "--bucket-cap-mb", each["cap"],
                 "--strategy", each["strategy"]]
        if each["strategy"] == "zero1" and each["wire"] == "shm":
            words.append("--shared-parameters")
        row = simulate(profile, words, options)["rows"][0]
        communication = row["exposed_ms"] + row["taken_ms"]
        predictions.append({**each, "step_ms": round(row["step_ms"], 3), "communication_ms": round(communication, 3),
                            "interval_ms": options.settings.interval(each, row, base["spread"])})
    return predictions


def predict(options):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        inputs = json.loads(options.inputs.read_text())["inputs"] if options.inputs else make_inputs(folder, options)
        predictions = predictions_of(inputs, folder, options)
    content = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "machine": machine(),
               "commit": commit(), "round": options.round, "predictions": predictions, "inputs": inputs}
    file = predictions_file(options)
    file.write_text(one_line_each(content))
    print(f"wrote {file}: {len(predictions)} predictions; commit it before `measure`")


def one_line_each(content):
    """Formats JSON with one line for each element of a list of objects."""
    lists = []

    def flatten(value):
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            lists.append("[\n" + ",\n".join("  " + json.dumps(each) for each in value) + "\n ]")
            return f"@{len(lists) - 1}@"
        if isinstance(value, dict):
            return {key: flatten(each) for key, each in value.items()}
        return value

    text = json.dumps(flatten(content), indent=1)
    for number, lines in enumerate(lists):
        text = text.replace(f'"@{number}@"', lines)
    return text + "\n"


def predictions_file(options):
    folder = ROOT / "build" if options.quick else options.output
    return folder / f"simulate_predictions_{options.round}.json"


# --- Measurements

def commit_of_predictions(file):
    """Returns the commit that contains the file unchanged, and its date."""
    changed = subprocess.run(["git", "-C", str(ROOT), "status", "--porcelain", "--", str(file)], capture_output=True, text=True)
    log = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%h, %cI", "--", str(file)], capture_output=True,
                         text=True)
    if changed.stdout.strip() or not log.stdout.strip():
        raise SystemExit(f"error: commit {file} before it is measured")
    return log.stdout.strip()


def measure_steps(model, batch, wire, strategy, caps, options):
    rounds, steps = ROUNDS[model]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "rows.json"
        run_ranks(wire, ["step", "--model", model, "--batch-per-rank", str(batch), "--strategy", strategy, "--bucket-cap-mb",
                         ",".join(caps), "--alone", "--rounds", rounds, "--steps", steps, "--json", str(file)], options)
        return json.loads(file.read_text())


def measure_all(predictions, options):
    """Returns the rounds of each configuration, by its key."""
    launches = {}
    for each in predictions:
        caps = launches.setdefault((each["model"], each["batch"], each["wire"], each["strategy"]), [])
        caps.append(each["cap"])
    measured = {}
    for number in range(options.settings.passes):
        for (model, batch, wire, strategy), caps in launches.items():
            print(f"pass {number + 1}: {model}, batch {batch}, {wire}, {strategy}", flush=True)
            for cap, row in zip(caps, measure_steps(model, batch, wire, strategy, caps, options)):
                measured.setdefault((model, batch, wire, strategy, cap), []).extend(row["rounds_ms"])
    return measured


def marks_of(number):
    return f"<!-- round {number}:begin -->", f"<!-- round {number}:end -->"


def key_of(each):
    return each["model"], each["batch"], each["wire"], each["strategy"], each["cap"]


class Outcome:
    """A prediction and its measurement."""

    def __init__(self, prediction, rounds):
        self.prediction = prediction
        self.measured = statistics.median(rounds)
        self.error = prediction["step_ms"] / self.measured - 1
        low, high = prediction["interval_ms"]
        self.hit = low <= self.measured <= high

    def line(self):
        each = self.prediction
        low, high = each["interval_ms"]
        return (f"| {each['model']} | {each['batch']} | {each['wire']} | {each['strategy']} | {each['cap']} | "
                f"{each['step_ms']:.2f} | {low:.2f} to {high:.2f} | {each['communication_ms']:.2f} | {self.measured:.2f} | "
                f"{100 * self.error:+.1f}% | {'yes' if self.hit else '**no**'} |")


def summary(outcomes):
    errors = sorted(abs(each.error) for each in outcomes)
    return {"configurations": len(outcomes), "median": statistics.median(errors),
            "within_12": sum(error <= 0.12 for error in errors) / len(errors),
            "ninth_decile": errors[math.ceil(0.9 * len(errors)) - 1],
            "hits": sum(each.hit for each in outcomes) / len(outcomes)}


def summary_line(name, found):
    return (f"| {name} | {found['configurations']} | {100 * found['median']:.1f}% | {100 * found['ninth_decile']:.1f}% | "
            f"{100 * found['within_12']:.0f}% | {100 * found['hits']:.0f}% |")


def validation_text(content, outcomes, origin):
    groups = {"all": outcomes}
    for what in ("model", "wire", "strategy"):
        for each in outcomes:
            groups.setdefault(f"{what} {each.prediction[what]}", []).append(each)
    lines = ["| configurations | number | median error | ninth decile | within 12% | in the interval |",
             "|---|---:|---:|---:|---:|---:|"]
    lines += [summary_line(name, summary(those)) for name, those in groups.items()]
    lines += ["", "| net | batch | wire | strategy | bucket, MiB | predicted, ms | interval, ms | of it communication, ms | "
              "measured, ms | error | in the interval |", "|---|---:|---|---|---:|---:|---:|---:|---:|---:|---|"]
    lines += [each.line() for each in outcomes]
    lines += ["", f"- Predicted {content['date']}, committed as {origin}; measured "
              f"{datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')} with commit {commit()}, {machine()}.",
              f"- Made by `python3 benchmarks/simulate_validation.py predict --round {content['round']}`, a commit, and `... measure "
              f"--round {content['round']}`, as root."]
    return "\n".join(lines)


def measure(options):
    file = predictions_file(options)
    content = json.loads(file.read_text())
    origin = "nothing (--quick)" if options.quick else commit_of_predictions(file)
    page = options.output / "simulate.md"
    if not options.quick:
        around_marks(page, *marks_of(options.round))  # fail before the long measurement, not after it
    measured = measure_all(content["predictions"], options)
    outcomes = [Outcome(each, measured[key_of(each)]) for each in content["predictions"]]
    (ROOT / "build" / f"simulate_measured_{options.round}.json").write_text(
        json.dumps([{**each.prediction, "rounds_ms": measured[key_of(each.prediction)]} for each in outcomes], indent=1))
    text = validation_text(content, outcomes, origin)
    if options.quick:
        print(text)
    else:
        replace_between(page, *marks_of(options.round), text)
    found = summary(outcomes)
    for what, holds, figure in (("median error", found["median"] <= 0.05, found["median"]),
                                ("nine in ten within 12%", found["within_12"] >= 0.9, found["within_12"]),
                                ("nine in ten in their interval", found["hits"] >= 0.9, found["hits"])):
        print(f"{'holds' if holds else 'MISSED':8}{what}: {100 * figure:.1f}%")


# --- Published measurements

# Profile, source, network, ranks, ranks per host, all-reduce, published efficiency.
POINTS = (("vgg16_p100", "Horovod paper and README, 128 hosts of 4 P100, 25 Gbit/s", "10,2.8125", 512, 4, "ring", 0.68),
          ("vgg16_p100", "Horovod README, 32 hosts of 4 P100, 25 Gbit/s", "10,2.8125", 128, 4, "ring", 0.79),
          ("resnet50_p100", "Horovod paper, which has ResNet-101 and Inception V3; 128 hosts of 4 P100, 25 Gbit/s", "10,2.8125",
           512, 4, "ring", 0.90),
          ("resnet50_p100_batch32", "ImageNet in 1 hour, 32 hosts of 8 P100, 50 Gbit/s", "10,5.625", 256, 8, "hierarchical", 0.90))


def published(options):
    lines = ["| net | published | GPUs | network | efficiency published | predicted | exposed, ms |", "|---|---|---:|---|---:|---:|---:|"]
    for profile, source, network, ranks, local, algorithm, efficiency in POINTS:
        file = ROOT / "benchmarks" / "profiles" / f"{profile}.json"
        found = simulate(file, ["--ranks", ranks, "--network", network, "--ranks-per-host", local, "--algorithm", algorithm,
                                "--bucket-cap-mb", 64], options)
        row = found["rows"][0]
        lines.append(f"| {found['run']['name']} | {source} | {ranks} | `{network}` | {100 * efficiency:.0f}% | "
                     f"{100 * row['efficiency']:.1f}% | {row['exposed_ms']:.0f} |")
    replace_between(options.output / "simulate.md", *PUBLISHED_MARKS, "\n".join(lines))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("predict", "measure", "published"))
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/benchmarks")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/lockstep")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--round", type=int, choices=ROUND_SETTINGS, default=max(ROUND_SETTINGS))
    parser.add_argument("--wires", type=pathlib.Path,
                        help="use the wires' calibration in this file of predictions instead of measuring a new one")
    parser.add_argument("--inputs", type=pathlib.Path,
                        help="predict from the measured inputs in this file of predictions instead of measuring new ones")
    options = parser.parse_args()
    options.settings = ROUND_SETTINGS[options.round]
    return options


def main():
    options = parse()
    if options.verb != "published" and os.geteuid() != 0:
        raise SystemExit("error: needs root, to make network namespaces")
    {"predict": predict, "measure": measure, "published": published}[options.verb](options)


if __name__ == "__main__":
    sys.exit(main())
