"""Epochs of a recipe as a PyTorch user writes them: the programs that `lockstep bench table --with-peers` compares
with ours.

Usage: train_epochs.py RECIPE [--strategy single] [--data DIR] [--json FILE]
       torchrun --nproc-per-node 2 train_epochs.py RECIPE --strategy ddp [--data DIR] [--json FILE]

RECIPE is mnist, cifar10, classify, autoencoder or resnet50-split, with the same net, images, augmentation and
optimizer as Lockstep's recipe of that name. --strategy single uses one process, dp uses torch.nn.DataParallel (on
GPUs), and ddp uses DistributedDataParallel over Gloo or NCCL. --loader dataloader uses torchvision's transforms in a
DataLoader with a DistributedSampler, and dali uses NVIDIA DALI. The batch size is that of all ranks together. --max-steps ends an epoch
early. --cuda-graph captures the step with the first full batch, as in PyTorch's notes on CUDA semantics. --backend
gloo lets ranks share a GPU, which NCCL does not allow.

The JSON has the fields of `lockstep train --json` that a table needs, and "torch". In "setup_seconds",
"synchronization" is the constructor of DistributedDataParallel, which checks and broadcasts the parameters. PyTorch
does not report its exposed communication. Results are not evaluated, as in our rows of the table.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import epoch_data
import gpu_usage
from captured_step import CapturedStep
from autoencoder_net import Autoencoder
from command_clock import seconds_since_start
from mnist_net import MnistNet
from resnet18 import ResNet18, ResNet34
from resnet50 import ResNet50

# As in Lockstep's recipes. Schedules are left out, because they do not change the work of a step.
OPTIMIZERS = {"mnist": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
              "cifar10": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}),
              "classify": (torch.optim.SGD, {"lr": 0.025, "momentum": 0.9, "weight_decay": 1e-4}),
              "resnet50-split": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4}),
              "autoencoder": (torch.optim.Adam, {"lr": 1e-3})}
PRECISIONS = {"32": None, "bf16": torch.bfloat16, "16": torch.float16}


def classifier(model, classes):
    return {"resnet18": lambda: ResNet18(classes, imagenet_stem=True), "resnet34": lambda: ResNet34(classes),
            "resnet50": lambda: ResNet50(classes)}[model]()


def make_net(args, classes):
    return {"mnist": MnistNet, "cifar10": lambda: ResNet18(10), "autoencoder": Autoencoder,
            "resnet50-split": lambda: ResNet50(1000),
            "classify": lambda: classifier(args.model, classes)}[args.recipe]()


def loss_of(args, output, images, labels):
    if args.recipe == "autoencoder":
        return F.mse_loss(output, images)
    return F.nll_loss(output, labels) if args.recipe == "mnist" else F.cross_entropy(output, labels)


def make_optimizer(args, parameters):
    kind, options = OPTIMIZERS[args.recipe]
    return kind(parameters, **options)


def processor_seconds():
    """The processor time of this process and of its DataLoader's workers."""
    seconds = time.process_time()
    for worker in multiprocessing.active_children():
        fields = pathlib.Path(f"/proc/{worker.pid}/stat").read_text().rsplit(")", 1)[1].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def peak_rss_bytes():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


class Phase:
    """Adds the seconds of a block to `seconds[name]`."""

    def __init__(self, seconds, name):
        self.seconds, self.name = seconds, name

    def __enter__(self):
        self.start = time.perf_counter()

    def __exit__(self, *_):
        self.seconds[self.name] = self.seconds.get(self.name, 0.0) + time.perf_counter() - self.start


def mean_of_ranks(value, device):
    if not dist.is_initialized():
        return value
    total = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


class Training:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if args.strategy != "ddp":  # ignore variables left over from a launcher
            self.rank, self.world = 0, 1
        on_gpu = args.accelerator == "cuda" or (args.accelerator == "auto" and torch.cuda.is_available())
        local_rank = int(os.environ.get("LOCAL_RANK", 0)) if self.world > 1 else 0
        self.device = torch.device("cuda", local_rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
        if on_gpu:
            torch.cuda.set_device(self.device)
        self.setup = {}
        with Phase(self.setup, "group"):
            if args.strategy == "ddp":
                backend = "nccl" if on_gpu else "gloo"
                dist.init_process_group(backend if args.backend == "auto" else args.backend)
        devices = args.devices if args.strategy == "dp" else 1
        with Phase(self.setup, "loader"):
            self.data = epoch_data.make_loader(args, self.rank, self.world, self.device)
        with Phase(self.setup, "model"):
            self.memory_format = torch.channels_last if args.channels_last else torch.contiguous_format
            self.model = make_net(args, self.data.classes).to(self.device, memory_format=self.memory_format)
            if args.strategy == "dp":
                self.model = nn.DataParallel(self.model, list(range(devices)))
        with Phase(self.setup, "synchronization"):
            if args.strategy == "ddp":
                self.model = DistributedDataParallel(self.model, [self.device.index] if on_gpu else None)
        with Phase(self.setup, "model"):
            self.optimizer = make_optimizer(args, self.model.parameters())
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=args.precision == "16")
        self.gpus = gpu_usage.Sampler([self.device.index + i for i in range(devices)] if on_gpu else [])
        self.compute = CapturedStep(self.learn, args.batch_size) if args.cuda_graph else self.learn
        self.first_step = 0.0

    def learn(self, images, labels):
        self.optimizer.zero_grad()
        half = PRECISIONS[self.args.precision]
        with torch.autocast(self.device.type, dtype=half, enabled=half is not None):
            loss = loss_of(self.args, self.model(images), images, labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def step(self, images, labels):
        images = images.to(self.device, non_blocking=True, memory_format=self.memory_format)
        labels = labels.to(self.device, non_blocking=True)
        loss = self.compute(images, labels)
        if self.first_step == 0:
            loss.item()
            self.first_step = seconds_since_start()
        return loss

    def epoch(self, number):
        self.model.train()
        phases, count, steps = {"data": 0.0}, 0, 0
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        self.gpus.reset()
        start, busy = time.perf_counter(), processor_seconds()
        with Phase(phases, "data"):
            batches = iter(self.data.epoch(number))
        while steps < self.data.steps:
            with Phase(phases, "data"):
                batch = next(batches, None)
            if batch is None:
                break
            images, labels = batch
            loss = self.step(images, labels)
            if self.device.type == "cpu":
                total += loss.item() * len(images)
            else:
                total += loss.detach() * len(images)
            count, steps = count + len(images), steps + 1
        loss = total.item() / count  # waits for the GPU
        seconds = time.perf_counter() - start
        return {"epoch": number + 1, "seconds": seconds, "train_loss": mean_of_ranks(loss, self.device),
                "images_per_second": count * self.world / seconds, "phases": phases,
                "processor_seconds": mean_of_ranks(processor_seconds() - busy, self.device), "gpu": self.gpus.mean()}

    def report(self):
        args = self.args
        backend = dist.get_backend() if dist.is_initialized() else "none"
        report = {"recipe": args.recipe, "strategy": args.strategy, "backend": backend, "loader": args.loader,
                  "precision": args.precision, "device": self.device.type, "world_size": self.world,
                  "threads_per_rank": args.threads, "global_batch": args.batch_size,
                  "steps_per_epoch": self.data.steps, "setup_seconds": self.setup, "torch": torch.__version__}
        if args.strategy == "dp":
            report["devices"] = args.devices
        report["epochs"] = [self.epoch(number) for number in range(args.max_epochs)]
        return {**report, "seconds_to_first_step": self.first_step, "peak_rss_bytes": peak_rss_bytes()}


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe", choices=tuple(OPTIMIZERS))
    parser.add_argument("--strategy", choices=("single", "dp", "ddp"), default="single")
    parser.add_argument("--loader", choices=("dataloader", "dali"), default="dataloader")
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--batch-size", type=int, default=128, help="samples per step of all ranks together")
    parser.add_argument("--max-epochs", type=int, default=2)
    parser.add_argument("--max-steps", type=int, help="limit on the steps of an epoch (default: none)")
    parser.add_argument("--workers", type=int, default=0, help="worker processes of each process's DataLoader (default 0)")
    parser.add_argument("--threads", type=int, default=1, help="compute threads per process (default 1)")
    parser.add_argument("--accelerator", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--devices", type=int, default=1, help="number of GPUs (--strategy dp only, default 1)")
    parser.add_argument("--precision", choices=tuple(PRECISIONS), default="32")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--matmul-precision", choices=("highest", "high", "medium"), default="highest",
                        help="high uses TF32 in matrix products and convolutions on a GPU")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="let cuDNN measure its algorithms and use the fastest")
    parser.add_argument("--backend", choices=("auto", "gloo", "nccl"), default="auto",
                        help="backend of the process group (--strategy ddp only)")
    parser.add_argument("--cuda-graph", action="store_true", help="capture the step as a CUDA graph (one process on a GPU only)")
    parser.add_argument("--model", default="resnet18", help="name of the network (classify only)")
    parser.add_argument("--image-size", type=int, default=160,
                        help="height and width of the images (classify and autoencoder only)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.set_float32_matmul_precision(args.matmul_precision)
    torch.backends.cudnn.benchmark = args.cudnn_benchmark
    torch.backends.cudnn.allow_tf32 = args.matmul_precision != "highest"
    torch.manual_seed(args.seed)
    training = Training(args)
    report = training.report()
    if training.rank == 0:
        text = json.dumps(report, indent=2) + "\n"
        args.json.write_text(text) if args.json else print(text)
    if dist.is_initialized():
        # destroy_process_group() is left out, as in ddp_mnist.py.
        dist.barrier()
    if dist.is_initialized() or training.device.type == "cuda":
        # Workers of a DataLoader that were forked from a process with CUDA do not end when they are asked to: the
        # DataLoader would wait 5 seconds for each.
        for worker in multiprocessing.active_children():
            worker.kill()
            worker.join()
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
