"""Compares examples/11_two_inputs with the same training in plain PyTorch in one process, which does not use Lockstep.

Usage: two_inputs_test.py WORK_DIR

WORK_DIR is where build_examples.sh has built the example and installed Lockstep. The mean training loss of each epoch
and all values of each evaluation must agree with PyTorch's: for one process, for two ranks with ddp and zero1, for a run
that is started again when it is complete, and for runs that were stopped within an epoch and resumed.

The tolerances are relative. Rounding alone, such as that of another order of additions or another kernel of AdamW,
changes the values by up to 4e-7. Each of MISTAKES, which such a program may contain, changes a value of the first epoch
by at least 1e-2. The script makes each mistake in PyTorch and requires that the tolerances notice it.

Exits with 0, with 1 and a line for each disagreement, or with 77 (skipped) and the reason.
"""
import math
import re
import sys
import tempfile

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

from torch import nn
from torch.nn import functional as F

from built_example import run_example

ONE_PROCESS, TWO_RANKS = 1e-6, 1e-5
MARGIN = 100  # a mistake must change a value by this many tolerances
STOP = 45  # a run that is stopped ends in the middle of the second epoch
MISTAKES = {  # name: arguments of train()
    "without the mask loss": {"mask_weight": 0.0},
    "without the label loss": {"label_weight": 0.0},
    "with equal weights of both losses": {"label_weight": 1.0},
    "without the pose": {"takes_pose": False},
    "without decay": {"weight_decay": 0.0},
    "with decay of norms and biases": {"decay_of_vectors": 0.1},
    "with samples in another order": {"seed": 0},
}

# As in main.cpp.
EPOCHS, BATCH, STEPS = 6, 16, 30
TRAINING_SCENES, VALIDATION_SCENES = BATCH * STEPS, 50


def shape(kind, dx, dy):
    larger = torch.maximum(dx, dy)
    pixels = [dx * dx + dy * dy < 0.1444, larger < 0.33, (larger < 0.4) & (torch.minimum(dx, dy) < 0.12)][kind]
    return pixels.double()


def scene(number):
    right, down = math.cos(2.4 * number), math.sin(2.4 * number)
    kind, other_kind = number % 3, number // 3 % 3
    line = (torch.arange(16, dtype=torch.float64) + 0.5) / 8 - 1
    y, x = torch.meshgrid(line, line, indexing="ij")
    mask = shape(kind, (x - 0.55 * right).abs(), (y - 0.55 * down).abs())[None]
    other = shape(other_kind, (x + 0.55 * right).abs(), (y + 0.55 * down).abs())
    image = 0.1 * (40 * x * y + number).sin() + mask + other
    return image.float(), torch.tensor([right, down]).float(), mask.float(), torch.tensor(kind)


def scenes(first, count):
    """Returns image, pose, mask and label of all scenes."""
    return [torch.stack(column) for column in zip(*(scene(first + index) for index in range(count)))]


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(4, outputs)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.down3 = Block(1, 8), Block(8, 16), Block(16, 32)
        self.pose = nn.Linear(2, 32 * 4 * 4)
        self.fuse, self.up2, self.up1 = Block(32, 32), Block(32 + 16, 16), Block(16 + 8, 8)
        self.mask, self.label = nn.Conv2d(8, 1, 1), nn.Linear(32, 3)

    def forward(self, image, pose):
        def joined(x, skipped):
            return torch.cat([F.interpolate(x, size=skipped.shape[2:]), skipped], 1)

        fine = self.down1(image)
        coarse = self.down2(F.avg_pool2d(fine, 2))
        bottom = self.down3(F.avg_pool2d(coarse, 2))
        fused = self.fuse(bottom * self.pose(pose).view_as(bottom))
        up = self.up1(joined(self.up2(joined(fused, coarse)), fine))
        return self.mask(up), self.label(fused.mean((2, 3)))


@torch.no_grad()
def initialize(module):
    first = 0
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        if parameter.dim() < 2:
            continue
        k = torch.arange(first, first + parameter.numel(), dtype=torch.float64)
        parameter.copy_(((k * k).sin() * math.sqrt(2 / parameter[0].numel())).view_as(parameter))
        first += parameter.numel()


def train(training, validation, epochs=EPOCHS, mask_weight=1.0, label_weight=0.5, weight_decay=0.1,
          decay_of_vectors=0.0, takes_pose=True, seed=1):
    """Trains the first of the EPOCHS. Returns {"epoch 1": {"train_loss": 0.5, ...}, ...}."""
    def losses(image, pose, mask, label):
        outputs = net(image, pose if takes_pose else torch.ones_like(pose))
        each = F.binary_cross_entropy_with_logits(outputs[0], mask), F.cross_entropy(outputs[1], label)
        return *outputs, *each, mask_weight * each[0] + label_weight * each[1]

    net = UNet()
    initialize(net)
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in net.parameters() if p.dim() >= 2], "weight_decay": weight_decay},
         {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": decay_of_vectors}], lr=5e-3,
        fused=True)
    cosine = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: (1 + math.cos(math.pi * step / (EPOCHS * STEPS))) / 2)
    found = {}
    for epoch in range(epochs):
        order = torch.randperm(TRAINING_SCENES, generator=torch.Generator().manual_seed(seed + epoch))
        train_loss = 0
        for batch in order.view(STEPS, BATCH):
            loss = losses(*(column[batch] for column in training))[-1]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cosine.step()
            train_loss += loss.item() / STEPS
        found[f"epoch {epoch + 1}"] = {"train_loss": train_loss, **evaluate(losses, *validation)}
    return found


@torch.no_grad()
def evaluate(losses, image, pose, mask, label):
    mask_logits, label_logits, mask_loss, label_loss, loss = losses(image, pose, mask, label)
    probability = mask_logits.sigmoid()
    dice = 2 * (probability * mask).sum((1, 2, 3)) / (probability + mask).sum((1, 2, 3))
    return {"loss": loss.item(), "mask_loss": mask_loss.item(), "label_loss": label_loss.item(),
            "dice": dice.mean().item(), "accuracy": (label_logits.argmax(1) == label).double().mean().item()}


def run(work, folder, *arguments, ranks=1):
    """Runs the example. Returns the numbers of its lines: {"epoch 1": {"train_loss": 0.5, ...}, ...}."""
    lines = re.findall(r"^([a-z0-9 ]+):((?: \w+=\S+)+)$", run_example(work, "two_inputs", folder, *arguments, ranks=ranks),
                       re.MULTILINE)
    return {title: {name: float(value) for name, value in re.findall(r"(\w+)=(\S+)", values)}
            for title, values in lines}


def flat(lines):
    return {f"{title}: {name}": value for title, values in lines.items() for name, value in values.items()}


def difference(got, expected):
    relative = abs(got - expected) / max(abs(expected), 1e-30)
    return math.inf if math.isnan(relative) else relative


def compare(name, got, expected, tolerance):
    """Prints the largest difference. Returns a line for each value that is missing or differs too much."""
    got, expected = flat(got), flat(expected)
    failed = [f"{name}: {value} is only {'printed' if value in got else 'expected'}"
              for value in sorted(got.keys() ^ expected.keys())]
    found = {value: difference(got[value], expected[value]) for value in got.keys() & expected.keys()}
    print(f"{name}: {len(found)} values differ by at most {max(found.values(), default=0):.1e}")
    return failed + [f"{name}: {value}: {got[value]!r} instead of {expected[value]!r}, relative difference {by:.1e}, "
                     f"allowed is {tolerance:.0e}" for value, by in sorted(found.items()) if by > tolerance]


def resumed(name, work, folder, strategy, ranks, expected, tolerance):
    """Stops a run within the second epoch and resumes it. Returns lines as compare()."""
    begun = run(work, folder, strategy, STOP, ranks=ranks)
    failed = compare(f"{name}, stopped", {"epoch 1": begun.get("epoch 1", {})}, {"epoch 1": expected["epoch 1"]}, tolerance)
    rest = run(work, folder, strategy, ranks=ranks)
    rest.get("epoch 2", {}).pop("train_loss", None)  # the mean over the rest of the epoch
    expected = {title: dict(values) for title, values in expected.items() if title != "epoch 1"}
    del expected["epoch 2"]["train_loss"]
    expected["resumed"] = {"epoch": 2, "step": STOP - STEPS}
    return failed + compare(f"{name}, resumed", rest, expected, tolerance)


def main():
    work = sys.argv[1]
    torch.set_num_threads(1)  # as main.cpp
    training, validation = scenes(0, TRAINING_SCENES), scenes(1000, VALIDATION_SCENES)
    expected = train(training, validation)
    last = expected[f"epoch {EPOCHS}"]
    failed = []
    if last["dice"] < 0.8 or last["accuracy"] < 0.9:
        failed.append(f"the net does not learn the scenes: {last}")
    expected["evaluation"] = {name: value for name, value in last.items() if name != "train_loss"}

    with tempfile.TemporaryDirectory() as folder:
        failed += compare("one process", run(work, f"{folder}/single"), expected, ONE_PROCESS)
        again = run(work, f"{folder}/single")
        again.pop("resumed", None)
        failed += compare("one process, complete", again, {"evaluation": expected["evaluation"]}, ONE_PROCESS)
        for strategy in "ddp", "zero1":
            failed += compare(f"{strategy} on 2 ranks", run(work, f"{folder}/{strategy}", strategy, ranks=2), expected,
                              TWO_RANKS)
        failed += resumed("one process", work, f"{folder}/stopped", "single", 1, expected, ONE_PROCESS)
        failed += resumed("ddp on 2 ranks", work, f"{folder}/stopped-ddp", "ddp", 2, expected, TWO_RANKS)

    for name, arguments in MISTAKES.items():
        wrong = flat(train(training, validation, epochs=1, **arguments))
        largest = max(difference(value, flat(expected)[title]) for title, value in wrong.items())
        print(f"PyTorch {name}: values differ by up to {largest:.1e}")
        if not largest >= MARGIN * TWO_RANKS:
            failed.append(f"{name} is too close to rounding to be noticed")
    sys.exit("\n".join(failed) or 0)


if __name__ == "__main__":
    main()
