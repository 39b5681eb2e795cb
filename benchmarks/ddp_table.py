#!/usr/bin/env python3
"""The overhead of DistributedDataParallel in a training step: alternates between ours, LibTorch's reducer and
Python's.

Usage: ddp_table.py [--quick] [--rounds 3] [--output docs/benchmarks] [--peer-python PYTHON]

Two ranks with one thread each on one host train the MNIST net (batch 64 per rank) and ResNet-18 for 32x32 images
(batch 8 per rank). `c10d_reducer_step` compares ours with c10d::Reducer over our backend and over Gloo, in the same
two processes and in alternating rounds. `peers/ddp_step.py` measures Python's DDP in the same way, and `lockstep bench
step --find-unused-parameters` measures that option and the sharded optimizer. Programs alternate in --rounds rounds,
because the speed of a machine drifts; figures are medians over the rounds with their range. Memory is measured in
processes that hold one replica (--alone).

Writes the step tables of ddp.md (between its markers) in --output, prints which targets hold, and keeps all rows in
build/ddp_table.json. --quick makes one short round and writes no page. `overlap.py` writes the other part of that
page.
"""
import argparse
import collections
import datetime
import json
import pathlib
import statistics
import sys
import tempfile

from pages import around_marks, replace_between
from programs import run
from provenance import ROOT, commit, machine

MARKS = ("<!-- steps:begin -->", "<!-- steps:end -->")
OURS, C10D_OURS, C10D_GLOO = "Lockstep", "c10d::Reducer on Lockstep", "c10d::Reducer on Gloo"
PYTHON_OURS, PYTHON_GLOO = "Python on Lockstep", "Python on Gloo"
ENGINES = (OURS, C10D_OURS, C10D_GLOO, PYTHON_OURS, PYTHON_GLOO)
MODELS = {"mnist": "MNIST net, batch 64 a rank", "resnet18": "ResNet-18, batch 8 a rank"}
MIB = 1 << 20


class Programs:
    """Each call returns rows like those of `lockstep bench step --json`, with "engine"."""

    def __init__(self, options):
        self.options = options
        self.ours, self.reducer = (options.build / name for name in ("lockstep", "c10d_reducer_step"))
        for file in (self.ours, self.reducer, options.peer_python):
            if not file.exists():
                raise SystemExit(f"error: {file} does not exist; build it with `make`")

    def rows(self, command):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            run([*command, "--json", file], self.options.limit)
            return json.loads(file.read_text())

    def in_cpp(self, model):
        names = {"ddp": OURS, "c10d on lockstep": C10D_OURS, "c10d on gloo": C10D_GLOO}
        rows = self.rows([self.reducer, "--model", model, *self.lengths(model)])
        return [{**row, "engine": names[row["strategy"]]} for row in rows]

    def in_python(self, model, *more):
        names = {"lockstep": PYTHON_OURS, "gloo": PYTHON_GLOO}
        rows = self.rows([self.options.peer_python, ROOT / "benchmarks/peers/ddp_step.py", "--package",
                          self.options.build / "python", "--model", model, *self.lengths(model), *more])
        return [{**row, "engine": names[row["backend"]]} for row in rows]

    def ours_with(self, model, *more):
        rows = self.rows([self.ours, "bench", "step", "--model", model, *self.lengths(model), *more])
        return [{**row, "engine": OURS} for row in rows]

    def strategies(self, model):
        """DistributedDataParallel and ZeroRedundancyOptimizer with every kind of parameter memory."""
        rows = self.ours_with(model, "--strategy", "ddp,zero1", "--parameter-memory", "auto,flat", "--optimizer", "adamw")
        return [{**row, "engine": f"{row['strategy']}, {row['parameter_memory']}"} for row in rows]

    def memory(self, model):
        """The memory of processes with one replica each. Python runs with the allocator's defaults."""
        length = ["--rounds", 2, "--steps", 3, "--alone"]
        ours = self.rows([self.ours, "bench", "step", "--model", model, *length])
        python = self.rows([self.options.peer_python, ROOT / "benchmarks/peers/ddp_step.py", "--model", model,
                            "--backends", "gloo", "--malloc", "default", *length])
        return [{**ours[0], "engine": OURS}, {**python[0], "engine": PYTHON_GLOO}]

    def lengths(self, model):
        """Rounds and steps of one call, chosen so that both nets take about the same time."""
        few = self.options.quick
        return ["--rounds", 5 if few else 15, "--steps", 20] if model == "mnist" else \
            ["--rounds", 2 if few else 7, "--steps", 2]


class Figures:
    """The rows of all rounds. Figures are medians over the rounds, with their range."""

    def __init__(self):
        self.rows = collections.defaultdict(list)  # (kind, model, engine, find_unused_parameters)

    def add(self, kind, rows):
        for row in rows:
            self.rows[kind, row["model"], row["engine"], row["find_unused_parameters"]].append(row)

    def of(self, value, kind, model, engine, unused=False):
        """Returns (median, lowest, highest) of `value`, a function of a row; None if nothing was measured."""
        values = [value(row) for row in self.rows[kind, model, engine, unused]]
        values = [each for each in values if each is not None]
        return (statistics.median(values), min(values), max(values)) if values else None

    def paired(self, value, kind, model, first, second):
        """The difference between two (engine, find_unused_parameters) within the same runs."""
        pairs = zip(self.rows[kind, model, *first], self.rows[kind, model, *second])
        values = [value(one) - value(other) for one, other in pairs]
        return (statistics.median(values), min(values), max(values)) if values else None


def measure(options):
    programs, figures = Programs(options), Figures()
    for number in range(1, options.rounds + 1):
        for model in MODELS:
            print(f"round {number} of {options.rounds}: {model}", flush=True)
            figures.add("step", programs.in_cpp(model))
            figures.add("step", programs.in_python(model))
        figures.add("unused", programs.ours_with("resnet18", "--find-unused-parameters"))
        figures.add("strategies", programs.strategies("resnet18"))
        for model in MODELS:
            figures.add("memory", programs.memory(model))
    return figures


def share(name):
    """Returns a function that gives a row's value as a percentage of its step."""
    return lambda row: None if row.get(name) is None else 100 * row[name] / row["step_ms"]


def overhead(row):
    return row["overhead_ms"]


def step(row):
    return row["step_ms"]


def mebibytes(name):
    return lambda row: row[name] / MIB


def unused_share(figures):
    extra = figures.paired(step, "unused", "resnet18", (OURS, True), (OURS, False))
    plain = figures.of(step, "unused", "resnet18", OURS)
    return extra and tuple(100 * value / plain[0] for value in extra)


def targets(figures):
    """Yields (what, (median, lowest, highest) or None, limit); smaller is better."""
    yield "MNIST net: overhead, ms", figures.of(overhead, "step", "mnist", OURS), 0.2
    for model, name in (("mnist", "MNIST net"), ("resnet18", "ResNet-18")):
        for other in (C10D_OURS, C10D_GLOO):
            yield (f"{name}: overhead over that of {other}, ms",
                   figures.paired(overhead, "step", model, (OURS, False), (other, False)), 0)
    yield "ResNet-18: exposed communication, % of the step", figures.of(share("exposed_ms"), "step", "resnet18", OURS), 2
    yield ("ResNet-18: all that communication costs, % of the step",
           figures.of(share("over_in_step_ms"), "step", "resnet18", OURS), 2)
    for model, name in (("mnist", "MNIST net"), ("resnet18", "ResNet-18")):
        yield (f"{name}: peak RSS over Python's, MiB",
               figures.paired(mebibytes("peak_rss_bytes"), "memory", model, (OURS, False), (PYTHON_GLOO, False)), 0)
    yield "ResNet-18: find_unused_parameters, % of the step", unused_share(figures), 5


def print_targets(figures):
    for what, figure, limit in targets(figures):
        verdict = "not measured" if figure is None else "holds" if figure[0] <= limit else "MISSED"
        text = "–" if figure is None else f"{figure[0]:.3f} ({figure[1]:.3f} to {figure[2]:.3f})"
        print(f"{verdict:12}  {what}: {text}, at most {limit:g}")


def cell(figure, digits, unit=""):
    if figure is None:
        return "–"
    texts = [f"{value:.{digits}f}" for value in figure]
    return texts[0] + unit + (f" ({texts[1]} to {texts[2]})" if texts[1] != texts[2] else "")


def step_row(figures, kind, model, engine):
    digits = 3 if model == "mnist" else 1

    def of(value, places=digits, unit=""):
        return cell(figures.of(value, kind, model, engine), places, unit)

    return (f"| {engine} | {of(step)} | {of(overhead)} | {of(lambda row: row['over_in_step_ms'])} | "
            f"{of(share('over_in_step_ms'), 2, '%')} | {of(share('exposed_ms'), 2, '%')} | {of(lambda row: row['cpu_ms'])} |")


HEADING = ["| | step, ms | over one process each, ms | over ranks that only wait, ms | of the step | exposed wait | "
           "processor time a step and rank, ms |", "|---|---|---|---|---|---|---|"]


def step_table(figures, model):
    digits = 3 if model == "mnist" else 1
    alone, waiting = (figures.of(lambda row: row[name], "step", model, OURS)
                      for name in ("step_ms_single", "in_step_overhead_ms"))
    return [f"### {MODELS[model]}", "",
            f"One process each: {cell(alone, digits)} ms a step in C++; only waiting for each other adds "
            f"{cell(waiting, digits)} ms.", "", *HEADING,
            *(step_row(figures, "step", model, engine) for engine in ENGINES), ""]


def strategies_table(figures):
    engines = sorted(key[2] for key in figures.rows if key[0] == "strategies")
    return ["### ResNet-18 with AdamW: full or sharded state, and where parameters live", "", *HEADING,
            *(step_row(figures, "strategies", "resnet18", engine) for engine in engines), ""]


def memory_table(figures):
    lines = ["### Memory of a rank that holds one replica", "",
             "| net | | peak RSS, MiB | at the end, shared memory divided, MiB |", "|---|---|---|---|"]
    for model, title in MODELS.items():
        for engine in (OURS, PYTHON_GLOO):
            values = [figures.of(mebibytes(name), "memory", model, engine)
                      for name in ("peak_rss_bytes", "proportional_bytes")]
            lines.append(f"| {title} | {engine} | {cell(values[0], 0)} | {cell(values[1], 0)} |")
    return [*lines, ""]


def page_text(figures, options):
    lines = []
    for model in MODELS:
        lines += step_table(figures, model)
    lines += strategies_table(figures)
    lines += memory_table(figures)
    lines += [f"`find_unused_parameters` adds {cell(unused_share(figures), 2, '%')} to a step of ResNet-18.", "",
              f"- {datetime.date.today()}, {machine()}; commit {commit()}; medians over {options.rounds} round(s) of the "
              "programs in turn, with their range.",
              f"- Made by `python3 benchmarks/ddp_table.py --rounds {options.rounds}`."]
    return "\n".join(lines)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--limit", type=float, default=240, help="seconds that one run may take (default 240)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--peer-python", type=pathlib.Path, default=ROOT / ".deps/venv/bin/python")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    if options.output is None and not options.quick:
        options.output = ROOT / "docs/benchmarks"
    return options


def main():
    options = parse()
    if options.output is not None:
        around_marks(options.output / "ddp.md", *MARKS)  # fail before the long measurement, not after it
    figures = measure(options)
    rows = ROOT / "build" / "ddp_table.json"
    rows.write_text(json.dumps([{**row, "kind": key[0]} for key, group in figures.rows.items() for row in group],
                               indent=2) + "\n")
    if options.output is not None:
        replace_between(options.output / "ddp.md", *MARKS, page_text(figures, options))
    print_targets(figures)


if __name__ == "__main__":
    sys.exit(main())
