"""One rank of Python's DistributedDataParallel on Gloo, the oracle for tests/oracle/ddp_steps.

Usage: ddp_oracle.py --model mnist|resnet18 --init FILE --data FILE --steps N --batch B --out FILE
under torchrun's environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). ddp_steps takes the same
options and does the same work; both read and write the files below.

The work
    Model      mnist: conv1 5x5 1->10, max-pool 2, relu, conv2 5x5 10->20, max-pool 2, relu,
               fc1 320->50, relu, fc2 50->10; no dropout. resnet18: torchvision's with the CIFAR stem
               (conv1 3x3 stride 1 padding 1 without bias, no max-pool, 10 classes). Training mode.
    Loss       mean cross-entropy of the local batch (log_softmax and nll_loss with mean).
    Optimizer  SGD, lr 0.01, momentum 0.5, dampening 0, weight decay 0, no Nesterov; float32.
    Batch      --batch is the global batch; a rank takes batch/world samples a step.
    Order      DistributedSampler(n, world, rank, shuffle=True, seed=0, drop_last=True); epoch 0 until
               fewer than batch/world of its indices are left (they are dropped), then epoch 1, ...
    Buffers    DDP's default: before each forward, rank 0's buffers (BatchNorm's running_mean,
               running_var, num_batches_tracked) are broadcast; gradients are averaged over ranks.

Files (safetensors)
    init   every parameter and buffer of the model under its state_dict name, in its own dtype.
    data   images: float32 [n, channels, height, width], already normalised; labels: int64 [n].
    out    written by rank 0. losses: float32 [world, steps], the local loss of each rank before the
           step; and every parameter and buffer of rank 0 after the last step under "model." + name.
"""
import argparse
import os

import safetensors.torch
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data.distributed import DistributedSampler


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
    """torchvision.models.resnet.BasicBlock, for a Python without torchvision."""

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
    """torchvision.models.resnet18 with the CIFAR stem, for a Python without torchvision."""

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


def make_model(name):
    if name == "mnist":
        return MnistNet()
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
    parser.add_argument("--model", choices=["mnist", "resnet18"], required=True)
    for name in ("init", "data", "out"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("steps", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1000 + rank)  # a rank that kept its own weights would show
    model = make_model(args.model)
    if rank == 0:
        model.load_state_dict(safetensors.torch.load_file(args.init))
    ddp = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.5)
    data = safetensors.torch.load_file(args.data)
    batches = endless_batches(data["images"], data["labels"], rank, world, args.batch // world)

    losses = torch.zeros(world, args.steps)
    for step in range(args.steps):
        images, labels = next(batches)
        optimizer.zero_grad()
        loss = F.nll_loss(F.log_softmax(ddp(images), 1), labels)
        loss.backward()
        optimizer.step()
        losses[rank, step] = loss.item()
    dist.all_reduce(losses)
    if rank == 0:
        state = {f"model.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
        safetensors.torch.save_file({"losses": losses, **state}, args.out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
