"""Runs examples/12_python_model, and compares it with a plain PyTorch program that does not use Lockstep.

Usage: python_model_test.py WORK_DIR

WORK_DIR is where build_examples.sh has built the example and installed Lockstep. The net of export.py is trained on one,
two and three ranks; check.py must accept the weights, and all of them must agree with those of PyTorch, which trains the
same net on the same pictures in one process. Rounding, such as that of another order of additions, changes a weight by up
to 1e-6, and a step that sees only half of its pictures by more than 1e-2; the script requires that WEIGHT tells them apart.

Exits with 0, with 1 and a line for each disagreement, or with 77 (skipped) and the reason.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

from built_example import run_example

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/12_python_model"
sys.path.insert(0, str(EXAMPLE))
from export import make_model  # noqa: E402

WEIGHT = 1e-5  # absolute
MARGIN = 100  # half of the pictures must change a weight by this many tolerances
EPOCHS, BATCH, LR, MOMENTUM = 8, 24, 0.05, 0.9  # as in train.cpp


def python(script, *arguments):
    return subprocess.run([sys.executable, EXAMPLE / script, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def train(seen, every=1):
    """Trains in one process, with each `every`-th picture of a batch. Returns the weights and the mean loss of the epochs."""
    torch.manual_seed(0)
    model = make_model("small").train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    images, labels = (seen[name].split(BATCH) for name in ("images", "labels"))
    losses = []
    for _ in range(EPOCHS):
        sums = 0.0
        for x, y in zip(images, labels):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[::every]), y[::every])
            loss.backward()
            optimizer.step()
            sums += loss.item()
        losses.append(sums / len(images))
    return model.state_dict(), losses


def difference(a, b):
    return max((a[name] - b[name]).abs().max().item() for name in b)


def main():
    work = sys.argv[1]
    torch.set_num_threads(1)  # as train.cpp
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        net = f"{folder}/net.pt2"
        if (done := python("export.py", net)).returncode:
            sys.exit(f"export.py: {done.stderr}")
        for ranks in 1, 2, 3:
            output = f"{folder}/trained-{ranks}"
            printed = run_example(work, "python_model", net, output, ranks=ranks)
            done = python("check.py", output)
            if done.returncode:
                sys.exit(f"{ranks} ranks: check.py: {done.stdout}{done.stderr}")
            seen = torch.load(f"{output}-seen.pt")
            expected, losses = train(seen)
            by = difference(torch.load(f"{output}.pt"), expected)
            print(f"{ranks} ranks: weights differ by at most {by:.1e}; {done.stdout.strip()}")
            if not by <= WEIGHT:
                failed.append(f"{ranks} ranks: weights differ by {by:.1e}, allowed is {WEIGHT:.0e}")
            epochs = [float(loss) for loss in re.findall(r"^epoch +\d+: loss (\S+)$", printed, re.MULTILINE)]
            if len(epochs) != EPOCHS or any(abs(a - b) > WEIGHT for a, b in zip(epochs, losses)):
                failed.append(f"{ranks} ranks: PyTorch has the losses {losses}, expected in: {printed}")
            if "\n96 of 96 pictures are right\n" not in printed:
                failed.append(f"{ranks} ranks: the net does not learn the stripes: {printed}")
        torch.save({**seen, "logits": seen["logits"] + 1e-3}, f"{output}-seen.pt")
        if python("check.py", output).returncode != 1:
            failed.append("check.py does not notice other outputs")
    by = difference(train(seen, every=2)[0], expected)
    print(f"PyTorch with half of the pictures: weights differ by {by:.1e}")
    if not by >= MARGIN * WEIGHT:
        failed.append("training with half of the pictures is too close to rounding to be noticed")
    sys.exit("\n".join(failed) or 0)


if __name__ == "__main__":
    main()
