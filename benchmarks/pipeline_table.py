#!/usr/bin/env python3
"""Runs pipelines and compares them with their tables and with Python's pipelines: bubbles, the executor's overhead,
and memory.

Usage: pipeline_table.py [--quick] [--rounds 3] [--output docs/benchmarks] [--pictures] [--peer-python PYTHON]

Runs `lockstep explain pipeline --measured` with every schedule:
  * 2 workers, one thread each, 8 micro-batches, stages that multiply matrices, compared in the same rounds with
    torch.distributed.pipelining on two ranks over Gloo (`peers/pipeline_step.py`);
  * 4 and 8 workers with stages that wait instead of computing, because the machine has only two processors;
  * the memory of gpipe, 1f1b and zbv with 16 micro-batches on 2 and 4 workers, with GELU or ReLU after each layer.
Programs alternate in --rounds rounds, because the speed of a machine drifts; figures are medians over the rounds with
their range. Memory is counted and does not drift, so it is measured only in the first round.

Writes the tables of pipelines.md (between its markers) in --output, prints which targets are reached, and keeps all
rows in build/pipeline_table.json. --pictures also draws, for each schedule, the step of the round with the median
bubble into docs/images/pipelines/measured-NAME.svg, and writes the table of measured bubbles in docs/pipelines.md.
--quick makes one short round and writes no page. --peer-python none leaves out Python's pipelines.
"""
import argparse
import collections
import datetime
import json
import pathlib
import shutil
import statistics
import sys
import tempfile

from pages import around_marks, replace_between
from programs import run
from provenance import ROOT, commit, machine

MARKS = ("<!-- pipelines:begin -->", "<!-- pipelines:end -->")
GUIDE = ROOT / "docs/pipelines.md"
GUIDE_MARKS = ("<!-- measured:begin -->", "<!-- measured:end -->")
PICTURES = ROOT / "docs/images/pipelines"
SCHEDULES = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zb-h1": 1, "zbv": 2}  # stages per worker
WORKERS, MICRO_BATCHES = 2, 8
WIDTH, LAYERS, SAMPLES = 1024, 4, 256  # layers per worker, samples per micro-batch
WAITS = {4: 8, 8: 16}  # workers: micro-batches
# The time that each worker waits in its stage, or in its stages together. A thread may wake a millisecond late in
# each of 8 to 16 consecutive actions, so the waits are chosen much longer than that.
WAIT_US = 48000
MEMORY_SCHEDULES, MEMORY_WORKERS, MEMORY_MICRO_BATCHES = ("gpipe", "1f1b", "zbv"), (2, 4), 16
ACTIVATIONS = ("gelu", "relu")
PEERS = {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved": "interleaved", "zb-h1": "interleaved-zero-bubble",
         "zbv": "zbv"}
POINTS = 0.02
KIB = 1024


class Programs:
    """Each call returns one row, the program's JSON."""

    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.program = options.build / "lockstep"
        for file in (self.program, options.peer_python):
            if file is not None and not file.exists():
                raise SystemExit(f"error: {file} does not exist; build it with `make`")

    def row(self, command):
        file = self.folder / "row.json"
        run([*command, "--json", file], self.options.limit)
        return json.loads(file.read_text())

    def explain(self, schedule, workers, micro_batches, *more):
        stages = workers * SCHEDULES[schedule]
        return self.row([self.program, "explain", "pipeline", "--schedule", schedule, "--stages", stages, "--workers",
                         workers, "--micro-batches", micro_batches, "--measured", *more])

    def computing(self, schedule, svg):
        return self.explain(schedule, WORKERS, MICRO_BATCHES, "--width", WIDTH, "--layers",
                            LAYERS // SCHEDULES[schedule], "--samples", SAMPLES, "--steps", self.steps(), "--svg", svg)

    def waiting(self, schedule, workers):
        return self.explain(schedule, workers, WAITS[workers], "--wait", WAIT_US // SCHEDULES[schedule], "--steps",
                            3 if self.options.quick else 5)

    def memory(self, schedule, workers, activation):
        return self.explain(schedule, workers, MEMORY_MICRO_BATCHES, "--width", 256, "--layers",
                            LAYERS // SCHEDULES[schedule], "--samples", 64, "--activation", activation, "--steps", 1)

    def in_python(self, schedule):
        return self.row([self.options.peer_python, ROOT / "benchmarks/peers/pipeline_step.py", "--schedule",
                         PEERS[schedule], "--ranks", WORKERS, "--micro-batches", MICRO_BATCHES, "--width", WIDTH,
                         "--layers", LAYERS, "--samples", SAMPLES, "--steps", self.steps()])

    def steps(self):
        return 5 if self.options.quick else 11


class Figures:
    """The rows of all rounds. Figures are medians over the rounds, with their range."""

    def __init__(self):
        self.rows = collections.defaultdict(list)  # (kind, schedule, workers, activation or None)

    def add(self, row, kind, schedule, workers, activation=None):
        self.rows[kind, schedule, workers, activation].append(row)

    def of(self, value, kind, schedule, workers, activation=None):
        """Returns (median, lowest, highest) of `value`, a function of a row; None if nothing was measured."""
        values = [value(row) for row in self.rows[kind, schedule, workers, activation]]
        return (statistics.median(values), min(values), max(values)) if values else None


def value_of(name):
    return lambda row: row[name]


def distance(one, other):
    """The difference between two of a row's bubbles, from 0 to 1."""
    return lambda row: abs(row[one] - row[other])


def measure(options, folder):
    programs, figures = Programs(options, folder), Figures()
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", flush=True)
        for schedule in SCHEDULES:
            svg = picture_of_round(folder, schedule, number)
            figures.add(programs.computing(schedule, svg), "computing", schedule, WORKERS)
            if options.peer_python is not None:
                figures.add(programs.in_python(schedule), "python", schedule, WORKERS)
        for workers in WAITS:
            for schedule in SCHEDULES:
                figures.add(programs.waiting(schedule, workers), "waiting", schedule, workers)
    for workers in MEMORY_WORKERS:
        for activation in ACTIVATIONS:
            for schedule in MEMORY_SCHEDULES:
                figures.add(programs.memory(schedule, workers, activation), "memory", schedule, workers, activation)
    return figures


def picture_of_round(folder, schedule, number):
    return pathlib.Path(folder) / f"{schedule}-{number}.svg"


def bubble(figures, schedule):
    return figures.of(value_of("bubble"), "computing", schedule, WORKERS)


def most_bytes(figures, schedule, workers, activation):
    """The bytes of the worker that holds the most."""
    return figures.of(lambda row: max(row["worker_bytes"]), "memory", schedule, workers, activation)[0]


def bytes_of_micro_batch(figures, workers, activation):
    """The size of one micro-batch on the worker that holds the most: GPipe's memory divided by its number of
    micro-batches."""
    return most_bytes(figures, "gpipe", workers, activation) / MEMORY_MICRO_BATCHES


def targets(figures):
    """Yields (what, (median, lowest, highest), limit, unit); smaller is better."""
    for schedule in SCHEDULES:
        yield (f"{schedule}, {WORKERS} workers: measured bubble from its replay",
               figures.of(distance("bubble", "bubble_replayed"), "computing", schedule, WORKERS), POINTS, "share")
    halves = bubble(figures, "1f1b")
    yield f"zb-h1, {WORKERS} workers: bubble below half of 1f1b's", bubble(figures, "zb-h1"), halves[0] / 2, "share"
    for schedule in SCHEDULES:
        yield (f"{schedule}, {WORKERS} workers: executor, of a step",
               figures.of(value_of("executor_share"), "computing", schedule, WORKERS), 0.01, "share")
    for workers in WAITS:
        for schedule in SCHEDULES:
            yield (f"{schedule}, {workers} workers that wait: measured bubble from the formula",
                   figures.of(distance("bubble", "bubble_formula"), "waiting", schedule, workers), POINTS, "share")
    for workers in MEMORY_WORKERS:
        one = bytes_of_micro_batch(figures, workers, "gelu")
        of_1f1b, of_zbv = (most_bytes(figures, name, workers, "gelu") for name in ("1f1b", "zbv"))
        # Compared with the activations, the losses are only a few bytes.
        yield f"1f1b, {workers} workers: memory in micro-batches", (of_1f1b / one,) * 3, workers * 1.01, "number"
        yield f"zbv, {workers} workers: memory beside 1f1b's", (of_zbv / of_1f1b,) * 3, 1.01, "number"


def verdicts(figures):
    """Yields (what, its figure as text, its limit as text, the verdict)."""
    for what, figure, limit, unit in targets(figures):
        *texts, limit_text = [percent(value, 2) if unit == "share" else f"{value:.2f}" for value in (*figure, limit)]
        range_text = f" ({texts[1]} to {texts[2]})" if texts[1] != texts[2] else ""
        yield what, texts[0] + range_text, limit_text, "reached" if figure[0] <= limit else "NOT REACHED"


def print_targets(figures):
    for what, figure, limit, verdict in verdicts(figures):
        print(f"{verdict:12}  {what}: {figure}, at most {limit}")


def targets_table(figures):
    return ["### Targets", "", "| | measured | at most | |", "|---|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in verdicts(figures)), ""]


def percent(value, digits=1):
    return f"{100 * value:.{digits}f}%"


def share_cell(figure, digits=1):
    texts = [percent(value, digits) for value in figure]
    return texts[0] + (f" ({texts[1]} to {texts[2]})" if texts[1] != texts[2] else "")


def ms_cell(figure, digits=1):
    if figure is None:
        return "–"
    texts = [f"{value:.{digits}f}" for value in figure]
    return texts[0] + (f" ({texts[1]} to {texts[2]})" if texts[1] != texts[2] else "")


def computing_row(figures, schedule):
    def of(name):
        return figures.of(value_of(name), "computing", schedule, WORKERS)

    python = figures.of(value_of("step_ms"), "python", schedule, WORKERS)
    python_name = "" if PEERS[schedule] == schedule else " (interleaved)"
    return (f"| {schedule} | {share_cell(of('bubble'))} | {share_cell(of('bubble_replayed'))} | "
            f"{percent(of('bubble_formula')[0])} | {ms_cell(of('step_ms'))} | {ms_cell(of('executor_ms'), 2)} | "
            f"{share_cell(of('executor_share'), 2)} | {ms_cell(of('over_replay_ms'), 2)} | "
            f"{ms_cell(python)}{python_name if python else ''} |")


def computing_table(figures):
    return [f"### {WORKERS} workers, {MICRO_BATCHES} micro-batches, stages that compute", "",
            "| schedule | bubble, measured | replayed | by formula | step, ms | executor, ms | of the step | "
            "over the replay, ms | Python's step, ms |", "|---|---|---|---|---|---|---|---|---|",
            *(computing_row(figures, schedule) for schedule in SCHEDULES), ""]


def waiting_tables(figures):
    lines = []
    for workers, micro_batches in WAITS.items():
        lines += [f"### {workers} workers, {micro_batches} micro-batches, stages that wait instead of computing", "",
                  "| schedule | wait, µs | on average, µs | bubble, measured | replayed | by formula | step, ms |",
                  "|---|---|---|---|---|---|---|"]
        for schedule in SCHEDULES:
            def of(name):
                return figures.of(value_of(name), "waiting", schedule, workers)

            lines.append(f"| {schedule} | {of('wait_us')[0]:.0f} | {ms_cell(of('wait_us_mean'), 0)} | "
                         f"{share_cell(of('bubble'))} | {share_cell(of('bubble_replayed'))} | "
                         f"{percent(of('bubble_formula')[0])} | {ms_cell(of('step_ms'))} |")
        lines.append("")
    return lines


def memory_table(figures):
    lines = [f"### Memory of activations, {MEMORY_MICRO_BATCHES} micro-batches, KiB of each worker", "",
             "| workers | behind a layer | schedule | of each worker, KiB | the most, in micro-batches of GPipe |",
             "|---|---|---|---|---|"]
    for workers in MEMORY_WORKERS:
        for activation in ACTIVATIONS:
            one = bytes_of_micro_batch(figures, workers, activation)
            for schedule in MEMORY_SCHEDULES:
                row = figures.rows["memory", schedule, workers, activation][0]
                each = ", ".join(f"{value / KIB:.0f}" for value in row["worker_bytes"])
                lines.append(f"| {workers} | {activation} | {schedule} | {each} | "
                             f"{most_bytes(figures, schedule, workers, activation) / one:.1f} |")
    return [*lines, ""]


def provenance(options):
    flags = "".join(f" {flag}" for flag, on in (("--pictures", options.pictures),
                                                ("--peer-python none", options.peer_python is None)) if on)
    return [f"- {datetime.date.today()}, {machine()}; commit {commit()}; medians over {options.rounds} round(s) of the "
            "programs in turn, with their range.",
            f"- Made by `python3 benchmarks/pipeline_table.py --rounds {options.rounds}{flags}`."]


def page_text(figures, options):
    return "\n".join([*computing_table(figures), *waiting_tables(figures), *memory_table(figures), *targets_table(figures),
                      *provenance(options)])


def guide_text(figures, options):
    """Each schedule's measured step with its three bubbles."""
    lines = ["| schedule | measured | replayed from measured durations | by formula |", "|---|---|---|---|"]
    for schedule in SCHEDULES:
        measured, replayed, formula = (figures.of(value_of(name), "computing", schedule, WORKERS)[0]
                                       for name in ("bubble", "bubble_replayed", "bubble_formula"))
        lines.append(f"| {schedule} | {percent(measured)} | {percent(replayed)} | {percent(formula)} |")
    lines.append("")
    for schedule in SCHEDULES:
        lines += [f"![A measured step of {schedule} beside its replay](images/pipelines/measured-{schedule}.svg)", ""]
    return "\n".join([*lines, *provenance(options)])


def write_pictures(figures, folder):
    """For each schedule, draws the step of the round with the median bubble."""
    for schedule in SCHEDULES:
        bubbles = [row["bubble"] for row in figures.rows["computing", schedule, WORKERS, None]]
        number = bubbles.index(statistics.median_low(bubbles))
        shutil.copyfile(picture_of_round(folder, schedule, number), PICTURES / f"measured-{schedule}.svg")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--limit", type=float, default=240, help="seconds that one run may take (default 240)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--peer-python", default=str(ROOT / ".deps/venv/bin/python"),
                        help="Python with torch, or 'none' to leave out its pipelines")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--pictures", action="store_true")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.peer_python = None if options.peer_python == "none" else pathlib.Path(options.peer_python)
    if options.output is None and not options.quick:
        options.output = ROOT / "docs/benchmarks"
    return options


def main():
    options = parse()
    if options.output is not None:  # fail before the long measurement, not after it
        around_marks(options.output / "pipelines.md", *MARKS)
    if options.pictures:
        around_marks(GUIDE, *GUIDE_MARKS)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(options, folder)
        if options.pictures:
            write_pictures(figures, folder)
            replace_between(GUIDE, *GUIDE_MARKS, guide_text(figures, options))
    rows = ROOT / "build" / "pipeline_table.json"
    rows.write_text(json.dumps([{**row, "kind": key[0], "activation": key[3]} for key, group in figures.rows.items()
                                for row in group], indent=2) + "\n")
    if options.output is not None:
        replace_between(options.output / "pipelines.md", *MARKS, page_text(figures, options))
    print_targets(figures)


if __name__ == "__main__":
    sys.exit(main())
