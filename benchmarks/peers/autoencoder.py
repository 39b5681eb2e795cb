"""The auto-encoder on several processes, as a PyTorch user writes it: the peer of `lockstep train autoencoder`.

Usage: torchrun --nproc-per-node 2 benchmarks/peers/autoencoder.py --data FOLDER --json FILE

torchvision's ImageFolder resized to --image-size, random_split with --seed, DistributedSampler, DataLoader, DDP on
Gloo, one thread per rank, Adam. --cache keeps the resized images as one uint8 tensor in each process, which is filled
before the first epoch ("seconds_to_fill_cache") and indexed once per batch. --channels-last computes in that memory
format. --pin gives each rank its own processors, as Lockstep's launcher does. With --compute-seconds N the ranks
instead train on one batch of random images for N seconds at the same time, without data loading and communication;
the JSON is then {"torch", "compute_images_per_second"}.

The JSON has the same fields as `lockstep train --json`: {"epochs": [{"epoch", "seconds", "train_loss",
"images_per_second", "phases": {"data"}, "metrics": {"loss"}}], "test": {"loss"}}.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Subset, default_collate, random_split
from torch.utils.data.distributed import DistributedSampler

from autoencoder_net import Autoencoder
from vision import datasets, transforms


class Images(Dataset):
    """The images of a folder without their labels; served from memory if there is a cache."""

    def __init__(self, folder, side, cached):
        self.files = datasets.ImageFolder(folder)
        resize = [transforms.Resize((side, side)), transforms.PILToTensor()]
        self.resize = transforms.Compose(resize)
        self.to_float = transforms.ConvertImageDtype(torch.float32)
        self.pixels = None
        if cached:
            self.pixels = torch.stack([self.resize(self.files[i][0]) for i in range(len(self.files))])

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        pixels = self.resize(self.files[index][0]) if self.pixels is None else self.pixels[index]
        return self.to_float(pixels)

    def __getitems__(self, indices):
        return [self[i] for i in indices] if self.pixels is None else self.to_float(self.pixels[indices])


def batch_of(images):
    """Makes a batch of what Images.__getitems__() returned."""
    return images if torch.is_tensor(images) else default_collate(images)


def pin(rank, ranks):
    cpus = sorted(os.sched_getaffinity(0))
    share = len(cpus) // ranks
    os.sched_setaffinity(0, cpus[rank * share:(rank + 1) * share] if share else {cpus[rank % len(cpus)]})


def seconds_in(batches, waited):
    """Yields the batches, and adds to waited[0] the seconds that the caller waited for them."""
    begin = time.perf_counter()
    for batch in batches:
        waited[0] += time.perf_counter() - begin
        yield batch
        begin = time.perf_counter()


def mean_of_ranks(total, count):
    sums = torch.tensor([total, float(count)], dtype=torch.float64)
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def evaluate(model, loader, memory_format):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for images in loader:
            images = images.to(memory_format=memory_format)
            total += F.mse_loss(model(images), images).item() * len(images)
            count += len(images)
    return mean_of_ranks(total, count)


def leave(rank, args, report):
    if rank == 0 and args.json:
        pathlib.Path(args.json).write_text(json.dumps(report, indent=2) + "\n")
    # destroy_process_group() is left out, as in ddp_mnist.py.
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def compute_rate(net, args, world, memory_format):
    """Images per second of all ranks together, from each rank's median step. The first fifth of the time is a
    warm-up."""
    side = args.image_size
    images = torch.rand(args.batch_size // world, 3, side, side).to(memory_format=memory_format)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
    steps = []
    dist.barrier()
    begin = time.perf_counter()
    while (start := time.perf_counter()) < begin + args.compute_seconds:
        optimizer.zero_grad()
        F.mse_loss(net(images), images).backward()
        optimizer.step()
        if time.perf_counter() > begin + args.compute_seconds / 5:
            steps.append(time.perf_counter() - start)
    rate = torch.tensor([len(images) / statistics.median(steps)], dtype=torch.float64)
    dist.all_reduce(rate)
    return rate.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per step of all ranks together")
    parser.add_argument("--max-epochs", type=int, default=2)
    parser.add_argument("--image-size", type=int, default=160)
    parser.add_argument("--val-fraction", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=0, help="worker processes of each rank's DataLoader (default 0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--compute-seconds", type=float, default=0)
    parser.add_argument("--json")
    args = parser.parse_args()

    if args.pin:
        pin(int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"]))
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    memory_format = torch.channels_last if args.channels_last else torch.contiguous_format

    if args.compute_seconds > 0:
        net = Autoencoder().to(memory_format=memory_format)
        leave(rank, args, {"torch": torch.__version__,
                           "compute_images_per_second": compute_rate(net, args, world, memory_format)})

    begin = time.perf_counter()
    images = Images(args.data, args.image_size, args.cache)
    filled = time.perf_counter() - begin
    validated = round(args.val_fraction * len(images))
    train_set, test_set = random_split(images, [len(images) - validated, validated],
                                       torch.Generator().manual_seed(args.seed))
    sampler = DistributedSampler(train_set, seed=args.seed)
    options = {"num_workers": args.workers, "persistent_workers": args.workers > 0, "collate_fn": batch_of}
    train_loader = DataLoader(train_set, args.batch_size // world, sampler=sampler, **options)
    test_share = Subset(test_set, range(rank, len(test_set), world))
    test_loader = DataLoader(test_share, args.batch_size // world, num_workers=args.workers, collate_fn=batch_of)

    net = Autoencoder().to(memory_format=memory_format)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    report = {"world_size": world, "workers": args.workers, "global_batch": args.batch_size,
              "torch": torch.__version__, "cache": args.cache, "channels_last": args.channels_last,
              "seconds_to_fill_cache": filled if args.cache else 0, "epochs": []}
    for epoch in range(1, args.max_epochs + 1):
        model.train()
        sampler.set_epoch(epoch - 1)
        start, total, count, waited = time.perf_counter(), 0.0, 0, [0.0]
        for batch in seconds_in(train_loader, waited):
            batch = batch.to(memory_format=memory_format)
            optimizer.zero_grad()
            loss = F.mse_loss(model(batch), batch)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
            count += len(batch)
        seconds = time.perf_counter() - start
        report["epochs"].append({"epoch": epoch, "seconds": seconds, "train_loss": mean_of_ranks(total, count),
                                 "images_per_second": count * world / seconds, "phases": {"data": waited[0]},
                                 "metrics": {"loss": evaluate(net, test_loader, memory_format)}})
        if rank == 0:
            print(f"epoch {epoch}: {json.dumps(report['epochs'][-1])}", flush=True)
    report["test"] = report["epochs"][-1]["metrics"]
    leave(rank, args, report)


if __name__ == "__main__":
    main()
