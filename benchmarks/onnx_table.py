"""ONNX models by our exporter and by Python's torch.onnx.export of the same nets, run by onnxruntime in turn.

Usage: onnx_table.py EXPORT_MODELS     (build/release/export_models; Python with torch, onnx, onnxruntime, onnxscript)

Prints a row for each net: bytes of the model with its external data, operators in the graph, and the median time of
a batch of one on one thread.
"""
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
import onnxruntime
import torch

from peers.mnist_step import Net
from peers.resnet50 import ResNet50

REPETITIONS = 60
NETS = {"mnist_net": (Net, (1, 28, 28)), "resnet50": (lambda: ResNet50(100), (3, 64, 64))}


def export_by_python(net, sizes, path):
    batch = torch.export.Dim("batch")
    begin = time.perf_counter()
    torch.onnx.export(net.eval(), (torch.randn(2, *sizes),), path, dynamic_shapes=({0: batch},), opset_version=20,
                      dynamo=True, verbose=False)
    return time.perf_counter() - begin


class Candidate:
    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.bytes = sum(each.stat().st_size for each in path.parent.glob(path.name + "*"))
        self.nodes = len(onnx.load(str(path), load_external_data=False).graph.node)
        self.seconds = []

    def run(self, x):
        begin = time.perf_counter()
        self.session.run(None, {self.session.get_inputs()[0].name: x})
        self.seconds.append(time.perf_counter() - begin)

    def row(self):
        return f"{self.bytes:,} | {self.nodes} | {statistics.median(self.seconds) * 1e3:.3f} ms"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([sys.argv[1], folder / "ours", "nets"], check=True, stderr=subprocess.DEVNULL)
        print("| net | exporter | bytes | operators | latency |\n|---|---|---|---|---|")
        for name, (make, sizes) in NETS.items():
            (folder / name).mkdir()
            python = folder / name / "python.onnx"
            seconds = export_by_python(make(), sizes, python)
            candidates = {"ours": Candidate(folder / "ours" / f"{name}.opset20.onnx"),
                          f"torch.onnx.export, in {seconds:.1f} s": Candidate(python)}
            x = numpy.random.default_rng(1).standard_normal((1, *sizes), numpy.float32)
            for _ in range(REPETITIONS):
                for candidate in candidates.values():
                    candidate.run(x)
            for exporter, candidate in candidates.items():
                print(f"| {name} | {exporter} | {candidate.row()} |")


if __name__ == "__main__":
    main()
