"""MNIST on several processes, as a PyTorch user writes it: the script that `lockstep train mnist` replaces.

Usage: torchrun --nproc-per-node 2 benchmarks/peers/ddp_mnist.py --data ROOT --json FILE

ROOT is in torchvision's layout (ROOT/MNIST/raw/train-images-idx3-ubyte, ...); benchmarks/mnist_epoch.py makes one.

The net and the augmentation are those of PyTorch's classic MNIST example, with DistributedSampler, DDP on Gloo and
one thread per rank. The JSON has the same fields as `lockstep train --json`: {"epochs": [{"epoch", "seconds",
"train_loss", "phases": {"data"}}], "test": {"loss", "accuracy"}, "seconds_to_first_step", "seconds_total"}; the last
two are counted from the start of torchrun. --alone trains the same without DistributedDataParallel, in independent
processes: the difference is the cost of DDP.
"""
import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from command_clock import seconds_since_start
from mnist_net import MnistNet
from vision import datasets, transforms


def evaluate(model, loader):
    model.eval()
    totals = torch.zeros(3)  # loss, correct, samples
    with torch.no_grad():
        for images, labels in loader:
            output = model(images)
            totals += torch.tensor([F.nll_loss(output, labels, reduction="sum").item(),
                                    (output.argmax(1) == labels).sum().item(), len(labels)])
    dist.all_reduce(totals)
    return {"loss": (totals[0] / totals[2]).item(), "accuracy": (totals[1] / totals[2]).item()}


class TimedIterator:
    """Yields a loader's batches, and counts the seconds that the caller waited for them."""

    def __init__(self, loader):
        self.loader, self.seconds = loader, 0.0

    def __iter__(self):
        begin = time.perf_counter()
        for batch in self.loader:
            self.seconds += time.perf_counter() - begin
            yield batch
            begin = time.perf_counter()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--batch-size", type=int, default=128, help="samples per step of all ranks together")
    parser.add_argument("--max-epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=0, help="worker processes of each rank's DataLoader (default 0)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="train without DistributedDataParallel, in independent processes")
    parser.add_argument("--json")
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    train_set, test_set = (datasets.MNIST(args.data, train=train, transform=transform)
                           for train in (True, False))
    sampler = DistributedSampler(train_set, seed=args.seed)
    options = {"num_workers": args.workers, "persistent_workers": args.workers > 0}
    train_loader = DataLoader(train_set, args.batch_size // world, sampler=sampler, **options)
    test_loader = DataLoader(test_set, 500, sampler=DistributedSampler(test_set, shuffle=False), **options)

    model = MnistNet() if args.alone else DistributedDataParallel(MnistNet())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
    report = {"world_size": world, "workers": args.workers, "global_batch": args.batch_size,
              "torch": torch.__version__, "epochs": []}
    for epoch in range(1, args.max_epochs + 1):
        model.train()
        sampler.set_epoch(epoch)
        begin, total = time.perf_counter(), 0.0
        batches = TimedIterator(train_loader)
        for images, labels in batches:
            optimizer.zero_grad()
            loss = F.nll_loss(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
            report.setdefault("seconds_to_first_step", seconds_since_start())
        mean = torch.tensor(total / (len(train_set) / world))
        dist.all_reduce(mean)
        report["epochs"].append({"epoch": epoch, "seconds": time.perf_counter() - begin,
                                 "train_loss": mean.item() / world, "phases": {"data": batches.seconds}})
        if rank == 0:
            print(f"epoch {epoch}: loss {mean.item() / world:.4f}, "
                  f"{report['epochs'][-1]['seconds']:.2f} s", flush=True)
    report["test"] = evaluate(model, test_loader)
    report["seconds_total"] = seconds_since_start()
    if rank == 0:
        print(f"test: loss {report['test']['loss']:.4f}, accuracy {report['test']['accuracy']:.4f}")
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(report, indent=2) + "\n")
    # destroy_process_group() is left out, because the rank might never end: the destructor of Gloo's group joins a
    # thread that may wait for the interpreter's lock, which this thread holds.
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
