"""Compares our communication hooks with Python's (torch.distributed.algorithms.ddp_comm_hooks, on Gloo).

Usage: comm_hooks_oracle.py COMM_HOOKS

COMM_HOOKS is the program tests/oracle/comm_hooks. It runs on each of BACKENDS with two threads as ranks. Python's two
ranks are forked here.

The work
    Two buckets, with the gradients p4, p3 and p2, p1, p0, are passed to each hook of HOOKS in each step, with random
    values for every step and rank. PowerSGD starts in step 2 with error feedback, a warm start and random numbers
    from the seed, unless HOOKS says otherwise.

Files (safetensors, float32)
    data   STEP.RANK.NAME: the rank's gradient.
    out    HOOK.STEP.NAME: the result on rank 0.

Results must agree within the tolerance of HOOKS: the largest difference in a tensor divided by its largest magnitude.
Exits with 0, with 1 and a line for each disagreement, or with 77 (skipped) and the reason.
"""
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy  # noqa: F401  (PowerSGD's)
    import safetensors.torch
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

BACKENDS = ["shm", "gloo"]
RANKS = 2
STEPS = 8
SHAPES = {"p0": (16, 8, 3, 3), "p1": (16,), "p2": (24, 40), "p3": (24, 40), "p4": (24, 40)}
BUCKETS = [["p4", "p3"], ["p2", "p1", "p0"]]


def power_sgd(**options):
    return lambda: (powerSGD_hook, PowerSGDState(None, start_powerSGD_iter=2, **options))


HOOKS = {  # name: (function that makes the hook and its state, tolerance)
    "fp16": (lambda: (default_hooks.fp16_compress_hook, None), 2**-10),
    "bf16": (lambda: (default_hooks.bf16_compress_hook, None), 2**-7),
    "power_sgd_1": (power_sgd(matrix_approximation_rank=1), 1e-4),
    "power_sgd_2": (power_sgd(matrix_approximation_rank=2), 1e-4),
    "power_sgd_3": (power_sgd(matrix_approximation_rank=3, random_seed=5), 1e-4),
    "power_sgd_epsilon": (power_sgd(matrix_approximation_rank=2, orthogonalization_epsilon=1e-8), 1e-4),
    "power_sgd_batched": (power_sgd(matrix_approximation_rank=2, batch_tensors_with_same_shape=True), 1e-4),
    "power_sgd_cold": (power_sgd(matrix_approximation_rank=2, use_error_feedback=False, warm_start=False), 1e-4),
}


class Bucket:
    """The parts of torch.distributed.GradBucket that a hook uses. Python cannot construct a GradBucket."""

    def __init__(self, index, tensors):
        self._index = index
        self._buffer = torch.cat([tensor.flatten() for tensor in tensors])
        pieces = self._buffer.split([tensor.numel() for tensor in tensors])
        self._gradients = [piece.view_as(tensor) for piece, tensor in zip(pieces, tensors)]

    def index(self):
        return self._index

    def is_last(self):
        return self._index == len(BUCKETS) - 1

    def buffer(self):
        return self._buffer

    def gradients(self):
        return self._gradients


def run_rank(rank, data, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    results = {}
    for name, (make, _) in HOOKS.items():
        hook, state = make()
        for step in range(STEPS):
            for index, members in enumerate(BUCKETS):
                bucket = Bucket(index, [data[f"{step}.{rank}.{member}"] for member in members])
                hook(state, bucket).wait()
                for member, gradient in zip(members, bucket.gradients()):
                    results[f"{name}.{step}.{member}"] = gradient.clone()
    if rank == 0:
        safetensors.torch.save_file(results, f"{folder}/theirs")
    dist.barrier()
    os._exit(0)  # Gloo's threads sometimes crash an interpreter that exits normally


def run_python(data, folder):
    fork = multiprocessing.get_context("fork")  # so that torch is loaded once
    ranks = [fork.Process(target=run_rank, args=(rank, data, folder)) for rank in range(RANKS)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(timeout=60)
    failed = any(rank.exitcode != 0 for rank in ranks)
    for rank in ranks:
        rank.kill()
    if failed:
        raise SystemExit("error: the oracle itself failed")


def difference(a, b):
    return ((a.double() - b.double()).abs().max() / b.double().abs().max()).item()


def compare(ours, theirs, backend):
    """Returns lines that say where the results differ, and prints how close the others are."""
    if ours.keys() != theirs.keys():
        yield f"{backend}: other tensors: {sorted(ours.keys() ^ theirs.keys())[:5]}"
        return
    for hook, (_, tolerance) in HOOKS.items():
        worst = 0
        for name in (name for name in theirs if name.startswith(hook + ".")):
            found = difference(ours[name], theirs[name])
            worst = max(worst, found)
            if not found <= tolerance:
                yield f"{backend}: {name}: relative difference {found:.2e}, at most {tolerance:.0e} is allowed"
        print(f"{backend}: {hook}: worst relative difference {worst:.1e}")


def main():
    program, = sys.argv[1:]
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(7)
    data = {f"{step}.{rank}.{name}": torch.randn(shape, generator=generator)
            for step in range(STEPS) for rank in range(RANKS) for name, shape in SHAPES.items()}
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        safetensors.torch.save_file(data, f"{folder}/data")
        run_python(data, folder)
        theirs = safetensors.torch.load_file(f"{folder}/theirs")
        for name in SHAPES:  # a hook that does not compress would agree with any result
            mean = sum(data[f"7.{rank}.{name}"] for rank in range(RANKS)) / RANKS
            compressed = difference(theirs[f"power_sgd_1.7.{name}"], mean) > 0.1
            if compressed != (len(SHAPES[name]) > 1):
                raise SystemExit(f"error: {name} is {'' if compressed else 'not '}compressed")
        for backend in BACKENDS:
            subprocess.run([program, "--data", f"{folder}/data", "--out", f"{folder}/{backend}",
                            "--backend", backend], check=True, timeout=60)
            differences += compare(safetensors.torch.load_file(f"{folder}/{backend}"), theirs, backend)
    for line in differences:
        print(line)
    if differences:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
