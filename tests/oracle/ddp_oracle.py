"""One rank of Python's DistributedDataParallel on Gloo, the oracle for tests/oracle/ddp_steps.

Usage: ddp_oracle.py --meeting FILE --model NAME --init FILE --data FILE --steps N --batch B --out FILE [--double]
with RANK and WORLD_SIZE in the environment. ddp_steps takes the same options except --meeting, the
file through which the ranks meet, and does the same work; both read and write the files below.

The work
    Model      mnist: conv1 5x5 1->10, max-pool 2, relu, conv2 5x5 10->20, max-pool 2, relu,
               fc1 320->50, relu, fc2 50->10; no dropout. resnet18: torchvision's with the CIFAR stem
               (conv1 3x3 stride 1 padding 1 without bias, no max-pool, 10 classes). words: the mean
               of an embedding with sparse gradients. branches: rank r takes in step s branch
               (r + s) mod 3, the third of which is none. tied: one weight used twice. Training mode.
    Loss       mean cross-entropy of the local batch (log_softmax and nll_loss with mean).
    Optimizer  SGD, lr 0.01, momentum 0.5 (words: 0), dampening 0, weight decay 0, no Nesterov;
               float32, or float64 with --double;
               zero_grad() leaves no gradients, so that what nobody uses does not move.
    Batch      --batch is the global batch; a rank takes batch/world samples a step.
    Order      DistributedSampler(n, world, rank, shuffle=True, seed=0, drop_last=True); epoch 0 until
               fewer than batch/world of its indices are left (they are dropped), then epoch 1, ...
    Buffers    DDP's default: before each forward, rank 0's buffers (BatchNorm's running_mean,
               running_var, num_batches_tracked) are broadcast; gradients are averaged over ranks.

Files (safetensors)
    init   every parameter and buffer of the model under its state_dict name, in its own dtype.
    data   images: the inputs, [n, ...]; labels: int64 [n].
    out    written by rank 0. losses: float32 [world, steps], the local loss of each rank before the
           step; gradient.STEP.NAME: rank 0's gradients of the first five steps, where there are any;
           and every parameter and buffer of rank 0 after the last step under "model." + name.
"""
import argparse
import os
import pathlib
import sys

import safetensors.torch
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data.distributed import DistributedSampler


GRADIENT_STEPS = 5


class MnistNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BasicBlock(nn.Module):
    """torchvision.models.resnet.BasicBlock, for Python environments without torchvision."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet18(nn.Module):
    """torchvision.models.resnet18 with the CIFAR stem, for Python environments without torchvision."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = [64, 64, 128, 256, 512]
        for stage in range(1, 5):
            self.add_module(f"layer{stage}", nn.Sequential(
                BasicBlock(widths[stage - 1], widths[stage], 1 if stage == 1 else 2),
                BasicBlock(widths[stage], widths[stage], 1)))
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def torchvision_resnet18():
    from torchvision.models import resnet18
    model = resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16, sparse=True)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.embedding(x).mean(1))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.left = nn.Linear(20, 16), nn.Linear(16, 16)
        self.right, self.head = nn.Linear(16, 16), nn.Linear(16, 10)

    def forward(self, x, branch):
        x = torch.tanh(self.trunk(x))
        if branch < 2:
            x = torch.tanh((self.left, self.right)[branch](x))
        return self.head(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(20, 20) / 4)
        self.second = self.first
        self.head = nn.Linear(20, 10)

    def forward(self, x):
        return self.head(torch.tanh(F.linear(torch.tanh(F.linear(x, self.first)), self.second)))


def make_model(name):
    small = {"mnist": MnistNet, "words": Words, "branches": Branches, "tied": Tied}
    if name in small:
        return small[name]()
    try:
        return torchvision_resnet18()
    except ImportError:
        return ResNet18()


def endless_batches(images, labels, rank, world, batch):
    sampler = DistributedSampler(range(len(labels)), world, rank, shuffle=True, seed=0, drop_last=True)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        indices = torch.tensor(list(sampler))
        for chosen in indices[: len(indices) // batch * batch].split(batch):
            yield images[chosen], labels[chosen]
        epoch += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mnist", "resnet18", "words", "branches", "tied"], required=True)
    for name in ("meeting", "init", "data", "out"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("steps", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--double", action="store_true")
    args = parser.parse_args()

    torch.set_num_threads(1)
    if args.double:
        torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo", init_method=pathlib.Path(args.meeting).resolve().as_uri(),
                            rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1000 + rank)  # makes a rank that keeps its own weights noticeable
    model = make_model(args.model)
    if rank == 0:
        model.load_state_dict(safetensors.torch.load_file(args.init))
    ddp = nn.parallel.DistributedDataParallel(model, find_unused_parameters=args.model == "branches")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0 if args.model == "words" else 0.5)
    data = safetensors.torch.load_file(args.data)
    batches = endless_batches(data["images"], data["labels"], rank, world, args.batch // world)

    losses = torch.zeros(world, args.steps)
    gradients = {}
    for step in range(args.steps):
        images, labels = next(batches)
        optimizer.zero_grad()
        path = [(rank + step) % 3] if args.model == "branches" else []
        loss = F.nll_loss(F.log_softmax(ddp(images, *path), 1), labels)
        loss.backward()
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if step < GRADIENT_STEPS and parameter.grad is not None:
                gradients[f"gradient.{step}.{name}"] = parameter.grad.to_dense().clone()
        optimizer.step()
        losses[rank, step] = loss.item()
    dist.all_reduce(losses)
    if rank == 0:
        state = {f"model.{name}": tensor.clone(memory_format=torch.contiguous_format)
                 for name, tensor in model.state_dict().items()}
        safetensors.torch.save_file({"losses": losses, **gradients, **state}, args.out)
    dist.barrier()
    # Gloo's threads sometimes call std::terminate in an interpreter that exits normally.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
