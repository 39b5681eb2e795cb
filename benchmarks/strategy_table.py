#!/usr/bin/env python3
"""A training step with every strategy: step time, memory and the limiting factor, for three models.

Usage: strategy_table.py [--quick] [--rounds 3] [--models mnist,resnet18,resnet50] [--output docs]
         [--peer-python .deps/venv/bin/python]

In each round `lockstep bench step --strategy all` measures every way once for each model. With --peer-python,
`peers/strategy_step.py` measures the ways that PyTorch supports on CPUs, with the same batch and number of threads,
and with pipelines cut where our two-stage pipelines were cut in that round. Rounds alternate, because the speed of a
machine drifts; figures are medians over the rounds with their range, and ratios are computed within a round.

Writes the tables of benchmarks/strategies.md and which_strategy.md (between their markers) in --output, prints which
targets hold, and keeps all rows in build/strategy_table.json. --quick makes one round of one step and writes no page.
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

MARKS = ("<!-- strategies:begin -->", "<!-- strategies:end -->")
PAGE, GUIDE = "benchmarks/strategies.md", "which_strategy.md"
MODELS = {"mnist": "MNIST net", "resnet18": "ResNet-18", "resnet50": "ResNet-50"}
# ResNet-50 uses the images of PyTorch's pipeline tutorial, with 16 per micro-batch: for fewer images on one thread,
# LibTorch does not use oneDNN's 1x1 convolutions (docs/benchmarks/strategies.md).
WORK = {"resnet50": ["--image-size", 128, "--batch", 128, "--steps", 2]}
PEER_MODELS = ("resnet18", "resnet50")
LIMITS = {"bubble": "bubble", "communication": "exposed communication", "idle": "idle threads",
          "processors": "processors"}
MIB = 1 << 20


def cuts_of_two(row):
    """Where the model of one of our rows is cut into two stages by measured time; None for other rows."""
    return row.get("cuts") if row.get("stages") == 2 else None


class Programs:
    """Each call returns the rows of one round."""

    def __init__(self, options):
        self.options = options
        self.lockstep = options.build / "lockstep"
        for file in (self.lockstep, *([options.peer_python] if options.peer_python else [])):
            if not file.exists():
                raise SystemExit(f"error: {file} does not exist; build it with `make`")

    def rows(self, command):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            run([*command, "--rounds", 1, *(["--steps", 1] if self.options.quick else []), "--json", file],
                self.options.limit)
            return json.loads(file.read_text())

    def ours(self, model):
        return self.rows([self.lockstep, "bench", "step", "--strategy", "all", "--model", model, *WORK.get(model, [])])

    def peers(self, model, ours):
        """PyTorch's rows for the work of the rows in `ours`."""
        if self.options.peer_python is None or model not in PEER_MODELS:
            return []
        like = next(row for row in ours if row["way"] == "single")
        cuts = next((each for row in ours if (each := cuts_of_two(row))), None)
        return self.rows([self.options.peer_python, ROOT / "benchmarks/peers/strategy_step.py", "--model", model,
                          "--batch", like["batch"], "--image-size", like["image_size"],
                          "--threads", like["ranks"] * like["threads_per_rank"],
                          "--micro-batches", max(row.get("micro_batches") or 1 for row in ours),
                          *(["--cuts", ",".join(cuts)] if cuts else [])])


class Figures:
    """The rows of all rounds: {model: {way: [the row of each round]}}."""

    def __init__(self):
        self.rows = collections.defaultdict(lambda: collections.defaultdict(list))

    def add(self, model, rows):
        for row in rows:
            self.rows[model][row["way"]].append(row)

    def ways(self, model):
        return list(self.rows[model])

    def row(self, model, way):
        """Returns the last row, for values that do not change."""
        return self.rows[model][way][-1]

    def measured(self, model, way):
        rows = self.rows[model].get(way, [])
        return bool(rows) and all(row["why_not"] is None for row in rows)

    def of(self, model, way, value):
        """Returns (median, lowest, highest) of a function of a row; None if it has no value."""
        values = [value(row) for row in self.rows[model][way]] if self.measured(model, way) else []
        values = [each for each in values if each is not None]
        return (statistics.median(values), min(values), max(values)) if values else None

    def speed(self, model, way, other):
        """Returns, for each round, how many times as fast as `other` `way` is."""
        if not (self.measured(model, way) and self.measured(model, other)):
            return None
        values = [theirs["step_ms"] / own["step_ms"]
                  for own, theirs in zip(self.rows[model][way], self.rows[model][other])]
        return statistics.median(values), min(values), max(values)

    def fastest(self, model, fits):
        """Returns the way with the shortest step among those whose rows satisfy `fits`; None if there is none."""
        ways = [way for way in self.ways(model) if self.measured(model, way) and fits(self.row(model, way))]
        return min(ways, key=lambda way: self.of(model, way, step)[0], default=None)


def step(row):
    return row["step_ms"]


def mebibytes(name):
    return lambda row: row[name] / MIB


def fullest_device(row):
    """Returns the memory, in MiB, of the device that uses the most; None if the row does not have it."""
    return None if row.get("device_bytes") is None else row["device_bytes"] / MIB


def limit(figures, model, way):
    """The factor that limits one of our ways in most of its rounds, and its share of the step."""
    rows = figures.rows[model][way]
    what = statistics.mode(row["limited_by"] for row in rows)
    if what != "processors":
        share = statistics.median(row["limited_by_share"] for row in rows if row["limited_by"] == what)
        return f"{LIMITS[what]}, {100 * share:.0f}%"
    threads = rows[-1]["ranks"] * rows[-1]["threads_per_rank"]
    shared = f", {rows[-1]['processors']} for {threads} threads" if threads > rows[-1]["processors"] else ""
    return LIMITS[what] + shared


def measure(options):
    programs, figures = Programs(options), Figures()
    for number in range(1, options.rounds + 1):
        for model in options.models:
            print(f"round {number} of {options.rounds}: {model}", flush=True)
            ours = programs.ours(model)
            figures.add(model, ours)
            figures.add(model, programs.peers(model, ours))
    return figures


def is_pipeline_of_two(row):
    """Whether one of our rows is a pipeline of two stages that work at the same time, on threads or on ranks."""
    return row["way"].startswith("pipeline-") and row["stages"] == 2


def kind_of_workers(row):
    return "threads" if row["ranks"] == 1 else "ranks"


def targets(figures):
    """Yields (what, (median, lowest, highest) or None, lower limit). The limit is None for a figure that only
    explains others."""
    if "resnet50" in figures.rows:
        best = figures.fastest("resnet50", is_pipeline_of_two)
        what = "ResNet-50, no pipeline of two stages" if best is None else (
            f"ResNet-50, two stages by {best} on two {kind_of_workers(figures.row('resnet50', best))}, the fastest way")
        yield f"{what}: times as fast as the naive split", best and figures.speed("resnet50", best, "split"), 1.6
        yield (f"{what}: throughput to that of one process with all threads",
               best and figures.speed("resnet50", best, "single"), 0.9)
        yield (f"{what}: throughput to that of one process that accumulates the same micro-batches",
               best and figures.speed("resnet50", best, "single-accumulated"), None)
    for model in ("resnet18", "mnist"):
        if model in figures.rows:
            for way in ("dp-gathered", "dp-on-each"):
                yield f"{MODELS[model]}, {way}: throughput to that of ddp", figures.speed(model, way, "ddp"), 0.95


def verdict(figure, least):
    if figure is not None and least is None:
        return "no target"
    return "not measured" if figure is None else "holds" if figure[0] >= least else "MISSED"


def print_targets(figures):
    for what, figure, least in targets(figures):
        text = "–" if figure is None else f"{figure[0]:.3f} ({figure[1]:.3f} to {figure[2]:.3f})"
        print(f"{verdict(figure, least):12}  {what}: {text}" + ("" if least is None else f", at least {least:g}"))


def cell(figure, digits, unit=""):
    if figure is None:
        return "–"
    texts = [f"{value:.{digits}f}" for value in figure]
    return texts[0] + unit + (f" ({texts[1]} to {texts[2]})" if texts[1] != texts[2] else "")


def one(figure, digits, unit=""):
    return "–" if figure is None else f"{figure[0]:.{digits}f}{unit}"


def digits_of(model):
    return 2 if model == "mnist" else 0


def shape(row):
    return f"{row['ranks']} x {row['threads_per_rank']}"


def work_line(figures, model):
    row = figures.row(model, "single")
    return (f"{row['image_size']}x{row['image_size']} images, batch {row['batch']} over all processes, "
            f"{row['ranks'] * row['threads_per_rank']} threads in all, precision {row['precision']}, {row['optimizer']}")


def page_row(figures, model, way):
    row = figures.row(model, way)
    if not figures.measured(model, way):
        return f"| {way} | {shape(row)} | not possible: {row['why_not'].replace('|', '/')} | | | | | | | | | |"

    def of(value):
        return figures.of(model, way, value)

    bubbles = [one(of(lambda each, name=name: None if each.get(name) is None else 100 * each[name]), 1, "%")
               for name in ("bubble", "bubble_replayed")]
    exposed = of(lambda each: None if each.get("exposed_ms") is None else 100 * each["exposed_ms"] / each["step_ms"])
    return (f"| {way} | {shape(row)} | {cell(of(step), digits_of(model))} | "
            f"{one(of(lambda each: each['samples_per_second']), 1)} | {cell(figures.speed(model, way, 'single'), 2)} | "
            f"{one(of(mebibytes('peak_rss_bytes')), 0)} | {one(of(mebibytes('peak_growth_bytes')), 0)} | "
            f"{one(of(mebibytes('proportional_bytes')), 0)} | {one(of(fullest_device), 1)} | "
            f"{one(of(lambda each: 100 * each['utilisation']), 0, '%')} | "
            f"{one(exposed, 1, '%')} | {bubbles[0]} / {bubbles[1]} |")


def cut_line(figures, model):
    """Describes where the two-stage pipelines were cut."""
    rows = [row for rows in figures.rows[model].values() for row in rows]
    cuts = sorted({",".join(names) for row in rows if (names := cuts_of_two(row))})
    if not cuts:
        return ""
    peers = ", the peer's at the same block" if any("torch" in row for row in rows) else ""
    return f" Two stages are cut after {' or '.join(cuts)}, by the times that each round measured{peers}."


PAGE_HEADING = [
    "| way | processes x threads | step, ms | images/s | throughput to single | peak RSS of a process, MiB | "
    "of these since the model exists | all processes after the steps, MiB | the fullest device, MiB | threads busy | "
    "exposed communication | bubble / on paper |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|"]


def origin(options):
    peers = f" --peer-python {options.peer_python.name}" if options.peer_python else ""
    return [f"- {datetime.date.today()}, {machine()}; commit {commit()}; medians over {options.rounds} round(s) of all "
            "ways in turn, with their range.",
            f"- Made by `python3 benchmarks/strategy_table.py --rounds {options.rounds}{peers}`."]


def page_text(figures, options):
    lines = []
    for model in figures.rows:
        lines += [f"### {MODELS[model]}", "", f"{work_line(figures, model)}.{cut_line(figures, model)}", "",
                  *PAGE_HEADING, *(page_row(figures, model, way) for way in figures.ways(model)), ""]
    lines += ["### Targets", "", "| | measured | at least | |", "|---|---|---|---|"]
    lines += [f"| {what} | {cell(figure, 2)} | {'–' if least is None else f'{least:g}'} | {verdict(figure, least)} |"
              for what, figure, least in targets(figures)]
    torch = next((row["torch"] for ways in figures.rows.values() for rows in ways.values() for row in rows
                  if "torch" in row), None)
    if torch:
        lines += ["", f"- PyTorch: torch {torch} (`benchmarks/peers/strategy_step.py`)."]
    return "\n".join([*lines, "", *origin(options)])


def guide_row(figures, model, way):
    row = figures.row(model, way)
    if not figures.measured(model, way):
        return f"| {way} | {shape(row)} | not possible: {row['why_not'].replace('|', '/')} | | | | | |"
    return (f"| {way} | {shape(row)} | {one(figures.of(model, way, step), digits_of(model))} | "
            f"{one(figures.speed(model, way, 'single'), 2)} | "
            f"{one(figures.of(model, way, mebibytes('peak_growth_bytes')), 0)} | "
            f"{one(figures.of(model, way, mebibytes('proportional_bytes')), 0)} | "
            f"{one(figures.of(model, way, fullest_device), 1)} | {limit(figures, model, way)} |")


def guide_text(figures, options):
    lines = []
    for model in figures.rows:
        ours = [way for way in figures.ways(model) if not way.startswith("torch-")]
        lines += [f"### {MODELS[model]}", "", work_line(figures, model) + ".", "",
                  "| way | processes x threads | step, ms | throughput to single | memory of a process, MiB | "
                  "of all processes, MiB | of the fullest device, MiB | limited by |",
                  "|---|---|---|---|---|---|---|---|",
                  *(guide_row(figures, model, way) for way in ours), ""]
    return "\n".join([*lines, *origin(options)])


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--limit", type=float, default=600, help="seconds that one run may take (default 600)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--peer-python", type=pathlib.Path,
                        help="a Python with PyTorch; without this option no peers are measured")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    for model in options.models:
        if model not in MODELS:
            parser.error(f"--models must be some of {', '.join(MODELS)}, got '{model}'")
    options.rounds = options.rounds or (1 if options.quick else 3)
    if options.output is None and not options.quick:
        options.output = ROOT / "docs"
    return options


def main():
    options = parse()
    if options.output is not None:
        for page in (PAGE, GUIDE):
            around_marks(options.output / page, *MARKS)  # fail before the long measurement, not after it
    figures = measure(options)
    rows = ROOT / "build" / "strategy_table.json"
    rows.write_text(json.dumps(figures.rows, indent=2) + "\n")
    if options.output is not None:
        replace_between(options.output / PAGE, *MARKS, page_text(figures, options))
        replace_between(options.output / GUIDE, *MARKS, guide_text(figures, options))
    print_targets(figures)


if __name__ == "__main__":
    sys.exit(main())
