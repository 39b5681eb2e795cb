"""The cost of one training step of the MNIST net in Python on one thread: the peer of mnist_step.

    python benchmarks/peers/mnist_step.py [--channels-last] [--batch 64] [--steps 300]
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F

from mnist_net import MnistNet


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = MnistNet()
    images = torch.randn(args.batch, 1, 28, 28)
    labels = torch.randint(10, (args.batch,))
    if args.channels_last:
        net = net.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
    times = []
    for _ in range(args.steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        F.nll_loss(net(images), labels).backward()
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
    layout = "channels-last" if args.channels_last else "NCHW"
    print(f"Python, torch {torch.__version__}, {layout}, batch {args.batch}: step {statistics.median(times):.3f} ms")


if __name__ == "__main__":
    main()
