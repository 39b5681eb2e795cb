#!/usr/bin/env python3
"""A step of DistributedDataParallel over an exported ResNet-18, compared with one over the ResNet-18 of lockstep/models.

Usage: program_ddp.py [--rounds 9] [--steps 10] [--batch 16] [--build build/release]

Two ranks of one thread each train both nets in the same processes (ours/program_ddp_step.cpp), --steps steps of one after
--steps of the other, --rounds times; --batch is that of a rank. Weights, images, buckets and optimizer are the same: only
the forward differs, and with it the graph that autograd records. The figures are medians over the rounds of the median step
in a round; the ratio is the median of the ratios of the rounds.
"""
import pathlib
import statistics
import tempfile

import torch

from peers.resnet18 import ResNet18
from program_table import export
from programs import add_limit, parser_of, run
from provenance import commit, machine


def main():
    parser = parser_of(__doc__, rounds=9, steps=10, batch=16)
    add_limit(parser, 1800, "the whole measurement")
    options = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        export(ResNet18(10).train(), torch.randn(options.batch, 3, 32, 32), folder)
        printed = run([options.build / "program_ddp_step", folder / "net.pt2", options.rounds, options.steps, options.batch],
                      options.limit)
    rows = [tuple(map(float, line.split())) for line in printed.splitlines()]
    module, program = (statistics.median(column) for column in zip(*rows))
    ratios = sorted(program / module for module, program in rows)
    print(f"{machine()}, PyTorch {torch.__version__}, commit {commit()}\n")
    print("| net | module of C++ | program | program / module | range of the rounds |")
    print("|---|---|---|---|---|")
    print(f"| ResNet-18 for 32x32 images, batch {options.batch} on each of 2 ranks | {module:.2f} ms | {program:.2f} ms | "
          f"{statistics.median(ratios):.3f} | {ratios[0]:.3f} to {ratios[-1]:.3f} |")


if __name__ == "__main__":
    main()
