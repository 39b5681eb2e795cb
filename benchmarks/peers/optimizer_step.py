"""The cost of a step of torch.optim: the peer of benchmarks/ours/optimizer_step.cpp.

Usage: optimizer_step.py [--device cuda] [--threads 1]

The MNIST net and ResNet-18 for 32x32 images, SGD with momentum and AdamW, alternating between the fused kernel and
the default implementation. Prints medians in microseconds. On a GPU, a step's time ends when the device has finished
it; the time for its launch is printed as well.
"""
import argparse
import statistics
import time

import torch

from mnist_net import MnistNet
from resnet18 import ResNet18

STEPS = {"mnist": 1000, "resnet18": 300}
OPTIMIZERS = {"sgd": lambda parameters, fused: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=fused),
              "adamw": lambda parameters, fused: torch.optim.AdamW(parameters, fused=fused)}


def parameters_of(net, device):
    copies = [parameter.detach().clone().to(device).requires_grad_() for parameter in net.parameters()]
    for copy in copies:
        copy.grad = torch.zeros_like(copy)
    return copies


def time_once(optimizer, wait):
    """Returns (time until launched, time until finished) in microseconds."""
    wait()
    begin = time.perf_counter()
    optimizer.step()
    launched = time.perf_counter()
    wait()
    return (launched - begin) * 1e6, (time.perf_counter() - begin) * 1e6


def measure(name, net, kind, options):
    device = torch.device(options.device)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    ways = [OPTIMIZERS[kind](parameters_of(net, device), fused) for fused in (True, None)]
    times = [[time_once(way, wait) for way in ways] for _ in range(STEPS[name])]
    steps = [statistics.median(each[way][1] for each in times) for way in range(2)]
    text = f"{name:9} {kind:6} step: fused {steps[0]:8.1f} us, default {steps[1]:8.1f} us"
    if device.type == "cuda":
        launch = [statistics.median(each[way][0] for each in times) for way in range(2)]
        text += f"   launch: {launch[0]:7.1f}, {launch[1]:7.1f}"
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for kind in OPTIMIZERS:
        for name, net in (("mnist", MnistNet()), ("resnet18", ResNet18())):
            measure(name, net, kind, options)


if __name__ == "__main__":
    main()
