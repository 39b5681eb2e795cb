"""Compares exported programs with the Python models that they were exported from, bit for bit.

Usage: program_oracle.py PROGRAM_STEPS [NAME...]

PROGRAM_STEPS is the program tests/oracle/program_steps. Only the nets NAME are compared, if any are named.

The work
    Each net of NETS (program_nets.py) is exported in training and in evaluation mode, for a batch of EXPORT_BATCH, and
    trained for STEPS steps in both modes with a batch of RUN_BATCH: here by eager Python, there by the exported
    program, both with one thread. Nets that do not depend on the mode are exported and run once. The loss is the sum of
    the mean squares of all floating-point outputs; the optimizer is SGD.

Files
    INPUTS.pt   The tensors among the arguments, by the names that Program::inputs() gives them.
    OUTPUT.pt   output.I and grad.NAME of the first step, state.NAME after the last; complex tensors as real ones.

All bits must be equal. DEVIATIONS names the results that differ, with the reason; a result that no longer differs is an
error, too. Exits with 0, with 1 and a line for each disagreement, or with 77 (skipped) and the reason.
"""
import concurrent.futures
import copy
import inspect
import logging
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 9):
    print(f"skipped: torch {torch.__version__} exports some of the nets otherwise, expected 2.9 or later")
    sys.exit(77)

from program_nets import DEVIATIONS, NETS
from torch.utils import _pytree as pytree

STEPS = 3
LEARNING_RATE = 0.01
SEED = 7
EXPORT_BATCH = 6
RUN_BATCH = 9


def real(tensor):
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def tensors(structure):
    return [leaf for leaf in pytree.tree_leaves(structure) if isinstance(leaf, torch.Tensor)]


def loss_of(outputs):
    means = [real(output).float().pow(2).mean()
             for output in outputs if output.is_floating_point() or output.is_complex()]
    return sum(means[1:], means[0])


def gradients(model):
    return {f"grad.{name}": real(parameter.grad).clone()
            for name, parameter in model.named_parameters(remove_duplicate=False) if parameter.grad is not None}


def state(model):
    return {f"state.{name}": real(tensor).clone() for name, tensor in model.state_dict().items()}


@torch.no_grad()
def step_sgd(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.add_(parameter.grad, alpha=-LEARNING_RATE)


def train(model, args, kwargs, steps=STEPS):
    """What program_steps does, with eager Python."""
    results = {}
    torch.manual_seed(SEED)
    for step in range(steps):
        model.zero_grad()
        outputs = tensors(model(*args, **kwargs))
        loss = loss_of(outputs)
        if loss.requires_grad:
            loss.backward()
        if step == 0:
            results.update({f"output.{i}": real(output.detach()).clone() for i, output in enumerate(outputs)})
            results.update(gradients(model))
        step_sgd(model)
    return {**results, **state(model)}


def named(name, value):
    """The tensors in an argument by their names."""
    if isinstance(value, torch.Tensor):
        return {name: value.clone()}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return {key: tensor for i, item in items for key, tensor in named(f"{name}.{i}", item).items()}


def named_inputs(model, args, kwargs):
    names = []
    for parameter in inspect.signature(model.forward).parameters.values():
        is_variable = parameter.kind == parameter.VAR_POSITIONAL
        names += [f"{parameter.name}_{i}" for i in range(len(args))] if is_variable else [parameter.name]
    result = {}
    for name, value in [*zip(names, args), *kwargs.items()]:
        result.update(named(name, value))
    return result


def arguments(case, seed, batch):
    torch.manual_seed(seed)
    args = case.inputs(batch)
    return (args[:-1], args[-1]) if isinstance(args[-1], dict) and "extra" in args[-1] else (args, {})


def same_bits(a, b):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def difference(got, want):
    """The results that differ, as text, and the largest difference relative to the largest magnitude of its tensor."""
    lines, largest = [], 0.0
    for name in sorted({*got, *want}):
        if name not in got or name not in want:
            lines.append(f"{name} is missing in {'Python' if name in got else 'the program'}")
            largest = math.inf
        elif got[name].shape != want[name].shape or got[name].dtype != want[name].dtype:
            lines.append(f"{name} is {got[name].dtype}{list(got[name].shape)}, "
                         f"Python's {want[name].dtype}{list(want[name].shape)}")
            largest = math.inf
        elif not same_bits(got[name], want[name]):
            distance = (got[name].double() - want[name].double()).abs().max().item()
            lines.append(f"{name} by {distance:.3g}")
            largest = max(largest, distance / max(want[name].double().abs().max().item(), 1e-30))
    return f"{len(lines)} of {len(want)} differ: {'; '.join(lines[:3])}" if lines else "", largest


def start(pool, program, name, case, exported, folder):
    """Exports the net, lets the program train it in the pool, and trains it here.

    Returns the runs: what DEVIATIONS calls them, the future of the program and Python's results.
    """
    torch.manual_seed(1)
    model = case.make().train(exported == "train")
    case.prepare(model)
    original = copy.deepcopy(model)
    path = str(folder / f"{name}.{exported}")
    args, kwargs = arguments(case, 2, EXPORT_BATCH)
    export = torch.export.export(model, args, kwargs, dynamic_shapes=case.shapes, strict=case.strict)
    torch.export.save(export, f"{path}.pt2")
    torch.save(named_inputs(model, *arguments(case, 3, RUN_BATCH)), f"{path}.inputs.pt")
    runs = []
    for mode in case.run:
        command = [program, f"{path}.pt2", f"{path}.inputs.pt", f"{path}.{mode}.pt", mode, str(STEPS)]
        future = pool.submit(subprocess.run, command, capture_output=True, text=True, timeout=100)
        eager = copy.deepcopy(original)
        if mode:
            eager.train(mode == "train")
        runs.append(((name, exported, mode), future, train(eager, *arguments(case, 3, RUN_BATCH))))
    return runs


def main():
    program, *chosen = sys.argv[1:]
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if unknown := set(chosen) - set(NETS):
        sys.exit(f"there is no net {', '.join(sorted(unknown))}")
    runs, failures = [], 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(1) as pool:
        for name in chosen or NETS:
            for exported in NETS[name].exported:
                runs += start(pool, program, name, NETS[name], exported, pathlib.Path(folder))
        for (name, exported, mode), future, want in runs:
            done = future.result()
            deviation = DEVIATIONS.get((name, exported, mode))
            if done.returncode:
                problem = done.stderr.strip()
            else:
                problem, largest = difference(torch.load(done.args[3]), want)
                if deviation and not problem:
                    problem = f"equal, but DEVIATIONS says: {deviation.reason}"
                elif deviation and largest <= deviation.tolerance:
                    problem = ""
            if problem:
                failures += 1
                print(f"{name}, exported in {exported} mode, run in {mode or 'the same'} mode: {problem}", flush=True)
    print(f"{len(runs)} runs compared, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
