#!/usr/bin/env python3
"""ONNX models from our exporter and from Python's torch.onnx.export of the same nets: size, export time, latency.

Usage: onnx_table.py [--rounds 5] [--build build/release] [--page docs/onnx.md] [--quick]

Both export each net in opset 20 with a dynamic batch, from an example of two samples, with LibTorch's default number
of threads. Programs alternate in --rounds rounds, because the speed of a machine drifts. Python exports each net once
before them, so that no round includes its imports. The models of the last round then run alternately in onnxruntime,
on one thread with a batch of one. Figures are medians; the ratio of latencies is the median over the pairs.

Needs onnx, onnxruntime and onnxscript in addition to torch. Writes the table between the marks of --page and keeps
all figures in build/onnx_table.json. Exits with 1 if a target is missed. --quick makes one round and writes no page.
"""
import argparse
import collections
import datetime
import json
import logging
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import numpy
import onnx
import onnxruntime
import torch

from pages import around_marks, replace_between
from peers.autoencoder_net import Autoencoder
from peers.mnist_net import MnistNet
from peers.resnet18 import ResNet18
from peers.resnet50 import ResNet50
from peers.sequence_nets import SentenceNet, SequenceNet
from provenance import ROOT, commit, machine

MARKS = ("<!-- onnx:begin -->", "<!-- onnx:end -->")
OPSET = 20
EXAMPLE_BATCH = 2  # as in tests/export/export_models.cpp
SIDES = OURS, PYTHON = ("ours", "torch.onnx.export")
SECONDS_OF_RUNS = 4  # for the two models of a net together
LEAST_RUNS, MOST_RUNS = 15, 3000
MOST_SECONDS = {"resnet50": 3}

Net = collections.namedtuple("Net", "title make sizes tokens", defaults=[0])
NETS = {  # with their names in tests/export/net_cases.cpp
    "mnist_net": Net("MNIST net, 28x28", MnistNet, (1, 28, 28)),
    "resnet18": Net("ResNet-18, 224x224", lambda: ResNet18(100, imagenet_stem=True), (3, 224, 224)),
    "resnet50": Net("ResNet-50, 224x224", lambda: ResNet50(100), (3, 224, 224)),
    "auto_encoder": Net("auto-encoder, 160x160", Autoencoder, (3, 160, 160)),
    "transformer_encoder": Net("transformer encoder, 12 tokens", SentenceNet, (12,), tokens=50),
    "lstm_net": Net("LSTM, 9 steps", SequenceNet, (9, 6)),
}


def input_of(net, batch):
    generator = numpy.random.default_rng(1)
    if net.tokens:
        return generator.integers(0, net.tokens, (batch, *net.sizes), numpy.int64)
    return generator.standard_normal((batch, *net.sizes), numpy.float32)


def export_by_python(net, path):
    """Returns the seconds that the export took."""
    module = net.make().eval()
    example = torch.from_numpy(input_of(net, EXAMPLE_BATCH))
    batch = torch.export.Dim("batch")
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (example,), path, dynamic_shapes=({0: batch},), opset_version=OPSET, dynamo=True,
                          verbose=False)
    return time.perf_counter() - begin


def export_by_us(program, folder):
    """Returns the seconds for each net."""
    result = subprocess.run([program, folder, "nets"], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"error: {program} ended with {result.returncode}: {result.stderr.strip()[-800:]}")
    seconds = {}
    for line in result.stdout.splitlines():
        file, elapsed, _ = line.split()
        if file.endswith(f".opset{OPSET}.onnx"):
            seconds[file.split(".")[0]] = float(elapsed)
    return seconds


class Model:
    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name
        self.bytes = sum(each.stat().st_size for each in path.parent.glob(path.name + "*"))
        self.nodes = len(onnx.load(str(path), load_external_data=False).graph.node)

    def run(self, x):
        return self.session.run(None, {self.input: x})[0]


def latencies(net, models):
    """The milliseconds of each run of the two models, which alternate, by side."""
    shapes = {side: model.run(input_of(net, 3)).shape for side, model in models.items()}
    if len(set(shapes.values())) != 1:
        raise SystemExit(f"error: {net.title}: outputs of different shapes: {shapes}")
    x = input_of(net, 1)
    taken = {side: [] for side in models}
    end = time.perf_counter() + SECONDS_OF_RUNS
    while len(taken[OURS]) < LEAST_RUNS or (time.perf_counter() < end and len(taken[OURS]) < MOST_RUNS):
        for side, model in models.items():
            begin = time.perf_counter()
            model.run(x)
            taken[side].append((time.perf_counter() - begin) * 1e3)
    return taken


def measure(options, folder):
    seconds = {name: {side: [] for side in SIDES} for name in NETS}
    python = {name: folder / name / "python.onnx" for name in NETS}
    for name, net in NETS.items():
        python[name].parent.mkdir()
        export_by_python(net, python[name])
    for number in range(1, options.rounds + 1):
        ours = export_by_us(options.build / "export_models", folder / "ours")
        for name, net in NETS.items():
            seconds[name][OURS].append(ours[name])
            seconds[name][PYTHON].append(export_by_python(net, python[name]))
        print(f"round {number} of {options.rounds}: " + ", ".join(
            f"{name} {each[OURS][-1]:.2f} and {each[PYTHON][-1]:.2f} s" for name, each in seconds.items()), flush=True)
    rows = []
    for name, net in NETS.items():
        models = {OURS: Model(folder / "ours" / f"{name}.opset{OPSET}.onnx"), PYTHON: Model(python[name])}
        taken = latencies(net, models)
        rows.append({"net": name, **{side: {"bytes": models[side].bytes, "operators": models[side].nodes,
                                            "export_seconds": seconds[name][side], "latency_ms": taken[side]}
                                     for side in SIDES}})
    return rows


def seconds_text(values):
    digits = 2 if statistics.median(values) >= 0.1 else 4
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def page_text(rows, options):
    lines = ["| net | exporter | bytes | operators | export, s | latency, ms | latency, ours / theirs |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        pairs = zip(row[OURS]["latency_ms"], row[PYTHON]["latency_ms"])
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        for side in SIDES:
            each = row[side]
            lines.append(f"| {NETS[row['net']].title} | {side if side == OURS else f'`{side}`'} | {each['bytes']:,} | "
                         f"{each['operators']} | {seconds_text(each['export_seconds'])} | "
                         f"{statistics.median(each['latency_ms']):.3f} | {f'{ratio:.2f}' if side == OURS else ''} |")
    lines += ["", f"- {datetime.date.today()}, {machine()}; commit {commit()}; torch {torch.__version__}, onnxruntime "
              f"{onnxruntime.__version__}; opset {OPSET}, dynamic batch.",
              f"- Medians of {options.rounds} exports in turn, with their range, and of {LEAST_RUNS} to {MOST_RUNS:,} runs of "
              "both models in turn.",
              f"- Made by `python3 benchmarks/onnx_table.py --rounds {options.rounds}`."]
    return "\n".join(lines)


def missed_targets(rows):
    """Prints the targets and returns how many are missed."""
    missed = 0
    for row in rows:
        limit = MOST_SECONDS.get(row["net"])
        if limit is None:
            continue
        median = statistics.median(row[OURS]["export_seconds"])
        missed += median > limit
        print(f"{'MISSED' if median > limit else 'holds':7} {NETS[row['net']].title}, export: {median:.2f} s, at most {limit}")
    return missed


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    if options.page is None and not options.quick:
        options.page = ROOT / "docs/onnx.md"
    if not (options.build / "export_models").exists():
        parser.error(f"{options.build / 'export_models'} does not exist (make build)")
    return options


def main():
    options = parse()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision is missing
    if options.page is not None:
        around_marks(options.page, *MARKS)  # fail before the measurement, not after it
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options, pathlib.Path(folder))
    (ROOT / "build/onnx_table.json").write_text(json.dumps(rows, indent=2) + "\n")
    text = page_text(rows, options)
    if options.page is not None:
        replace_between(options.page, *MARKS, text)
    else:
        print(text)
    return 1 if missed_targets(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
