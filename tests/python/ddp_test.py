"""DistributedDataParallel as a user writes it gives the weights that it gives on Gloo."""
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


def mnist_net():
    sys.path.insert(0, PEERS)
    from mnist_step import Net
    return Net()


NETS = {
    "mnist": (mnist_net, (16, 1, 28, 28), 10, {}),
    "small": (SmallNet, (16, 20), 3, {"bucket_cap_mb": 0.05, "find_unused_parameters": True}),
}


def train(rank, world, name):
    make, shape, classes, options = NETS[name]
    torch.manual_seed(1 + rank)  # DDP takes rank 0's weights
    model = DistributedDataParallel(make(), **options)
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
    def test_weights_are_those_of_gloo(self):
        for name in NETS:
            for world in (2, 3):
                with self.subTest(net=name, world=world):
                    ours = self.run_ranks(train, world, name)
                    gloo = self.run_ranks(train, world, name, backend="gloo")
                    for rank in range(world):
                        self.assertEqual(len(ours[rank][0]), 10)
                        torch.testing.assert_close(torch.tensor(ours[rank][0]), torch.tensor(gloo[rank][0]),
                                                   rtol=1e-6, atol=1e-6)
                        for key, value in gloo[rank][1].items():
                            torch.testing.assert_close(torch.tensor(ours[rank][1][key]), torch.tensor(value),
                                                       rtol=1e-6, atol=1e-6, msg=f"rank {rank}: {key}")
                        # All ranks hold the same, bit for bit. Statistics of BatchNorm are each rank's own.
                        for key, value in ours[rank][1].items():
                            if not key.startswith("norm.running"):
                                self.assertEqual(value, ours[0][1][key], key)


if __name__ == "__main__":
    unittest.main()
