"""Trains the same net on the same data with Python's DDP, with LibTorch's reducer in C++ and with ours, and compares
the results.

Usage: compare.py DDP_STEPS --model NAME [--world 2] [--engines shm,gloo,c10d] [--steps N]
                  [--require-torchvision] [--double]

DDP_STEPS is the program tests/oracle/ddp_steps. It is started once with --nproc-per-node WORLD and spawns its ranks;
this script starts Python's ranks itself. ddp_oracle.py describes the work of both and the files that they exchange.
Losses, the gradients of the first steps, and every parameter and buffer after the last step must agree within
TOLERANCE: the largest difference in a tensor divided by its largest magnitude. Each of the engines is compared with the
same run of Python: our reducer over a backend, or LibTorch's ("c10d").

Data: the first 4,000 images of $LOCKSTEP_DATA/mnist and the first 100 of $LOCKSTEP_DATA/cifar10, otherwise random
images with random labels. They are fewer than the steps need, so that the order of a second epoch is tested as well.
Exits with 0, with 1 and a line for each disagreement, or with 77 (skipped) and the reason.
"""
import argparse
import gzip
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import torch
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

from ddp_oracle import make_model

TOLERANCE = 1e-5
DOUBLE_STEPS = 8  # a step takes several times as long in float64
WORK = {  # model: (steps, global batch)
    "mnist": (20, 128),
    "resnet18": (8, 16),  # an epoch has six steps; `make test-exhaustive` makes 20
    "words": (20, 16),
    "branches": (20, 16),
    "tied": (20, 16),
}
SHAPES = {"mnist": (4000, 1, 28, 28), "resnet18": (100, 3, 32, 32), "words": (100, 6), "branches": (100, 20),
          "tied": (100, 20)}


def mnist_data(folder):
    def body(name, header):
        with gzip.open(folder / f"{name}.gz") as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)
    images = body("train-images-idx3-ubyte", 16).view(-1, 1, 28, 28)[:4000]
    return (images.float() / 255 - 0.1307) / 0.3081, body("train-labels-idx1-ubyte", 8)[:4000].long()


def cifar10_data(folder):
    records = torch.frombuffer(bytearray((folder / "data_batch_1.bin").read_bytes()[: 100 * 3073]),
                               dtype=torch.uint8).view(-1, 3073)
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
    std = torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)
    return (records[:, 1:].reshape(-1, 3, 32, 32).float() / 255 - mean) / std, records[:, 0].long()


def random_data(model):
    generator = torch.Generator().manual_seed(7)
    shape = SHAPES[model]
    inputs = (torch.randint(0, 100, shape, generator=generator) if model == "words" else
              torch.randn(*shape, generator=generator))
    return inputs, torch.randint(0, 10, shape[:1], generator=generator)


def make_data(model):
    root = os.environ.get("LOCKSTEP_DATA")
    reads = {"mnist": (mnist_data, "mnist"), "resnet18": (cifar10_data, "cifar10")}
    if root and model in reads and (pathlib.Path(root) / reads[model][1]).is_dir():
        return reads[model][0](pathlib.Path(root) / reads[model][1])
    return random_data(model)


def run_python(options, world, meeting):
    program = [sys.executable, pathlib.Path(__file__).with_name("ddp_oracle.py"), *options, "--meeting", meeting]
    ranks = [subprocess.Popen(program, env={**os.environ, "WORLD_SIZE": str(world), "RANK": str(rank)})
             for rank in range(world)]
    try:
        if any([rank.wait(timeout=200) for rank in ranks]):
            raise SystemExit("error: the oracle itself failed")
    finally:
        for rank in ranks:
            rank.kill()


def compare(ours, theirs):
    """Returns lines that say where the two results differ."""
    for name in sorted(ours.keys() ^ theirs.keys()):
        yield f"{name}: only in {'ours' if name in ours else 'theirs'}"
    for name in sorted(ours.keys() & theirs.keys()):
        a, b = ours[name], theirs[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            yield f"{name}: ours {a.dtype} {list(a.shape)}, theirs {b.dtype} {list(b.shape)}"
            continue
        difference = (a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-30)
        if not difference <= TOLERANCE:
            yield f"{name}: relative difference {difference:.2e}, at most {TOLERANCE:.0e} is allowed"


def worst(ours, theirs):
    return max((ours[name].double() - theirs[name].double()).abs().max().item() /
               max(theirs[name].double().abs().max().item(), 1e-30) for name in theirs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ddp_steps")
    parser.add_argument("--model", choices=sorted(WORK), required=True)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--steps", type=int, help="instead of those in WORK")
    parser.add_argument("--engines", default="auto", help="our backends and c10d, with commas")
    parser.add_argument("--require-torchvision", action="store_true")
    parser.add_argument("--double", action="store_true", help="train in float64, where the kernels of two versions of "
                        "LibTorch do not put activations on different sides of a ReLU")
    args = parser.parse_args()
    if args.require_torchvision:
        try:
            import torchvision  # noqa: F401
        except ImportError:
            print("skipped: no torchvision; `make test-all` installs it into .deps/cuda")
            sys.exit(77)

    steps, batch = WORK[args.model]
    if args.double:
        torch.set_default_dtype(torch.float64)
        steps = DOUBLE_STEPS
    steps = args.steps or steps
    torch.manual_seed(0)
    model = make_model(args.model)
    images, labels = make_data(args.model)
    if images.is_floating_point():
        images = images.to(torch.get_default_dtype())
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: str(pathlib.Path(folder) / f"{name}.safetensors")
        # Tied weights appear twice, but safetensors rejects tensors that share memory.
        safetensors.torch.save_file({name: tensor.clone() for name, tensor in model.state_dict().items()},
                                    path("init"))
        safetensors.torch.save_file({"images": images.contiguous(), "labels": labels.contiguous()},
                                    path("data"))
        options = ["--model", args.model, "--init", path("init"), "--data", path("data"),
                   "--steps", str(steps), "--batch", str(batch), *(["--double"] if args.double else [])]
        run_python([*options, "--out", path("theirs")], args.world, path("meeting"))
        theirs = safetensors.torch.load_file(path("theirs"))
        results = {}
        for engine in args.engines.split(","):
            chosen = ["--engine", "c10d"] if engine == "c10d" else ["--engine", "lockstep", "--backend", engine]
            subprocess.run([args.ddp_steps, *options, "--out", path(engine), *chosen, "--nproc-per-node",
                            str(args.world)], check=True, timeout=200)
            results[engine] = safetensors.torch.load_file(path(engine))

    first, last = theirs["losses"][:, 0].mean(), theirs["losses"][:, -1].mean()
    print(f"{args.model}: {steps} steps on {args.world} ranks, loss {first:.4f} to {last:.4f}")
    differences = [f"{engine}: {line}" for engine, result in results.items() for line in compare(result, theirs)]
    for line in differences:
        print(line)
    if differences:
        raise SystemExit(1)
    for engine, result in results.items():
        print(f"{engine} and Python: all {len(theirs)} tensors agree, worst relative difference "
              f"{worst(result, theirs):.1e}")


if __name__ == "__main__":
    main()
