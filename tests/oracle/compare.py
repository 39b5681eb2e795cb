"""Trains the same net on the same data with Python's DDP and with ours, and compares the results.

Usage: compare.py DDP_STEPS --model mnist|resnet18 [--world 2] [--backend shm] [--require-torchvision]

DDP_STEPS is the program tests/oracle/ddp_steps; it is started once with --nproc-per-node WORLD and
spawns its ranks, the script starts Python's ranks itself. What both do and the files they exchange
are described in ddp_oracle.py. Losses and every parameter and buffer must agree to TOLERANCE:
the largest difference of a tensor over the largest magnitude in it.

Data: the first 4,000 images of $LOCKSTEP_DATA/mnist and the first 100 of $LOCKSTEP_DATA/cifar10, else
random images with random labels: fewer than the steps take, so that the order of a second epoch counts
too. Ends with 0, with 1 and a line for each disagreement, or with 77
(skipped) and the reason.
"""
import argparse
import gzip
import os
import pathlib
import socket
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

TOLERANCE = 1e-4
WORK = {  # model: (steps, global batch)
    "mnist": (50, 128),
    "resnet18": (10, 16),
}


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
    count, shape = (4000, (1, 28, 28)) if model == "mnist" else (100, (3, 32, 32))
    return (torch.randn(count, *shape, generator=generator),
            torch.randint(0, 10, (count,), generator=generator))


def make_data(model):
    root = os.environ.get("LOCKSTEP_DATA")
    read, name = (mnist_data, "mnist") if model == "mnist" else (cifar10_data, "cifar10")
    if root and (pathlib.Path(root) / name).is_dir():
        return read(pathlib.Path(root) / name)
    return random_data(model)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_python(options, world):
    program = [sys.executable, pathlib.Path(__file__).with_name("ddp_oracle.py"), *options]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    ranks = [subprocess.Popen(program, env={**os.environ, **meeting, "RANK": str(rank)})
             for rank in range(world)]
    try:
        if any([rank.wait(timeout=200) for rank in ranks]):
            raise SystemExit("error: the oracle itself failed")
    finally:
        for rank in ranks:
            rank.kill()


def compare(ours, theirs):
    """Lines that say where the two results differ."""
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
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--require-torchvision", action="store_true")
    args = parser.parse_args()
    if args.require_torchvision:
        try:
            import torchvision  # noqa: F401
        except ImportError:
            print("skipped: no torchvision; `make test-all` installs it into .deps/cuda")
            sys.exit(77)

    steps, batch = WORK[args.model]
    torch.manual_seed(0)
    model = make_model(args.model)
    images, labels = make_data(args.model)
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: str(pathlib.Path(folder) / f"{name}.safetensors")
        safetensors.torch.save_file(model.state_dict(), path("init"))
        safetensors.torch.save_file({"images": images.contiguous(), "labels": labels.contiguous()},
                                    path("data"))
        options = ["--model", args.model, "--init", path("init"), "--data", path("data"),
                   "--steps", str(steps), "--batch", str(batch)]
        run_python([*options, "--out", path("theirs")], args.world)
        subprocess.run([args.ddp_steps, *options, "--out", path("ours"), "--backend", args.backend,
                        "--nproc-per-node", str(args.world)], check=True, timeout=200)
        ours, theirs = (safetensors.torch.load_file(path(name)) for name in ("ours", "theirs"))

    first, last = theirs["losses"][:, 0].mean(), theirs["losses"][:, -1].mean()
    print(f"{args.model}: {steps} steps on {args.world} ranks, loss {first:.4f} to {last:.4f}")
    differences = list(compare(ours, theirs))
    for line in differences:
        print(line)
    if differences:
        raise SystemExit(1)
    print(f"all {len(theirs)} tensors agree, worst relative difference {worst(ours, theirs):.1e}")


if __name__ == "__main__":
    main()
