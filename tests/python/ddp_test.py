"""Checks that a user's DistributedDataParallel ends with the same weights over our backend and over Gloo."""
from support import *

import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PEERS = str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "peers")


class SmallNet(nn.Module):
    """Several buckets (at bucket_cap_mb=0.05), a buffer, and a branch that not every step uses."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(20, 300)
        self.norm = nn.BatchNorm1d(300)
        self.second = nn.Linear(300, 100)
        self.unused = nn.Linear(300, 100)
        self.last = nn.Linear(100, 3)
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        branch = self.second if self.steps % 2 else self.unused
        return F.log_softmax(self.last(F.relu(branch(F.relu(self.norm(self.first(x)))))), 1)


class SparseNet(nn.Module):
    """An embedding whose gradient is sparse and has different rows on each rank."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16, sparse=True)
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        words = (x * 1000).long() % 50
        return F.log_softmax(self.last(self.embedding(words).mean(1)), 1)


def mnist_net():
    sys.path.insert(0, PEERS)
    from mnist_net import MnistNet
    return MnistNet()


NETS = {
    "mnist": (mnist_net, (16, 1, 28, 28), 10, {}),
    "sparse": (SparseNet, (16, 20), 3, {}),
    "small": (SmallNet, (16, 20), 3, {"bucket_cap_mb": 0.05, "find_unused_parameters": True}),
}


def power_sgd(model):
    """PyTorch's hook, whose callbacks wait for further all-reduces."""
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    model.register_comm_hook(powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)


def train(rank, world, name, prepare=lambda model: None):
    make, shape, classes, options = NETS[name]
    torch.manual_seed(1 + rank)  # DDP takes rank 0's weights
    model = DistributedDataParallel(make(), **options)
    prepare(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    torch.manual_seed(1000 + rank)
    losses = []
    for _ in range(10):
        images, labels = torch.randn(shape), torch.randint(classes, shape[:1])
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {key: value.tolist() for key, value in model.module.state_dict().items()}


class Ddp(Ranks):
    def assert_trains_as_gloo(self, world, *arguments, tolerance=1e-6):
        close = {"rtol": tolerance, "atol": tolerance}
        ours = self.run_ranks(train, world, *arguments)
        gloo = self.run_ranks(train, world, *arguments, backend="gloo")
        for rank in range(world):
            self.assertEqual(len(ours[rank][0]), 10)
            torch.testing.assert_close(torch.tensor(ours[rank][0]), torch.tensor(gloo[rank][0]), **close)
            for key, value in gloo[rank][1].items():
                torch.testing.assert_close(torch.tensor(ours[rank][1][key]), torch.tensor(value), **close,
                                           msg=f"rank {rank}: {key}")
            # All ranks have bitwise equal weights. Only the statistics of BatchNorm differ.
            for key, value in ours[rank][1].items():
                if not key.startswith("norm.running"):
                    self.assertEqual(value, ours[0][1][key], key)

    def test_weights_are_those_of_gloo(self):
        for name in NETS:
            for world in (2, 3):
                with self.subTest(net=name, world=world):
                    self.assert_trains_as_gloo(world, name)

    def test_power_sgd(self):
        self.assert_trains_as_gloo(2, "mnist", power_sgd, tolerance=1e-4)


if __name__ == "__main__":
    unittest.main()
