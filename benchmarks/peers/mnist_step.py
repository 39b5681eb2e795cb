"""What one training step of the MNIST net costs in Python on one thread: the peer of mnist_step.

    python benchmarks/peers/mnist_step.py [--channels-last] [--batch 64] [--steps 300]
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.flatten(1))), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Net()
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
