"""The benchmarks of `make gpu`, the most important first. Each compares our program with one that a PyTorch user
would write."""
import json
import os
import pathlib
import re
import statistics
import struct
import tempfile

import processes
from measure import Benchmark, Failed, Side

PARTS = {4 << 10: "4 KiB", 1 << 20: "1 MiB", 25 << 20: "25 MiB"}
# What cuda_call_counter.so counts: calls of the thread that trains, and all calls of other threads.
CALLS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "on other threads")
NO_GPU = "torch sees no GPU"
LEAST_GPU_SECONDS = 0.8
NO_DALI = "DALI is not installed here, or the kit was made without it"


class Runner:
    """Runs programs of the kit and reads their results."""

    def __init__(self, kit, log):
        self.kit, self.log = kit, log

    def run(self, command, seconds, environment=None):
        # Ranks on this machine can meet even if its host name does not resolve.
        inside = {"GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
        outcome = processes.run(command, seconds, self.log, {**inside, **self.kit.environment, **(environment or {})})
        if outcome.status != "ok":
            raise Failed(processes.why(outcome, seconds))
        return outcome.output

    def json(self, command, seconds, environment=None):
        """Runs the command with --json FILE and returns the contents of that file."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "record.json"
            self.run([*command, "--json", file], seconds, environment)
            return json.loads(file.read_text())

    # --- A side of a benchmark ---

    def epochs(self, label, command, is_peer=False):
        return Side(label, lambda seconds: [("", figures_of_epochs(self.json(command, seconds)))], is_peer)

    def text(self, label, command, read, is_peer=False):
        return Side(label, lambda seconds: read(self.run(command, seconds)), is_peer)

    def rows(self, label, command, read, is_peer=False):
        return Side(label, lambda seconds: read(self.json(command, seconds)), is_peer)

    # --- Commands ---

    def train(self, recipe, batch, steps, *more, epochs=3):
        return [self.kit.program("lockstep"), "train", recipe, "--data", self.kit.data(recipe), "--batch-size", batch,
                "--max-epochs", epochs, "--limit-train-batches", steps, "--limit-val-batches", 0, *more]

    def peer_train(self, recipe, batch, steps, *more, ranks=0, epochs=3):
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks] if ranks else []
        return [self.kit.python, *torchrun, self.kit.peer("train_epochs.py"), recipe, "--data", self.kit.data(recipe),
                "--batch-size", batch, "--max-epochs", epochs, "--max-steps", steps, *more]


def figures_of_epochs(record):
    """Figures over the epochs after the first, which also warms up."""
    epochs = record["epochs"][1:] or record["epochs"]
    middle = lambda read: statistics.median(map(read, epochs))  # noqa: E731
    figures = {"images/s": middle(lambda epoch: epoch["images_per_second"]), "epoch, s": middle(lambda epoch: epoch["seconds"]),
               "waiting for data, s": middle(lambda epoch: epoch["phases"]["data"])}
    # NVML's utilisation is that of up to its last second, which must not be longer than the epoch.
    gpus = [epoch["gpu"] for epoch in epochs if epoch.get("gpu") and epoch["seconds"] >= LEAST_GPU_SECONDS]
    for name, key, unit in (("GPU busy, %", "utilisation", 100), ("GPU memory busy, %", "memory_utilisation", 100),
                            ("GPU memory, GiB", "memory_bytes", 2**-30), ("power, W", "power_watts", 1)):
        if gpus and gpus[0].get(key) is not None:
            figures[name] = unit * statistics.median(gpu[key] for gpu in gpus)
    figures["first step, s"] = record["seconds_to_first_step"]
    return figures


# --- On a GPU ---------------------------------------------------------------------------------------

CIFAR_BATCH, CIFAR_STEPS = 512, 97  # full batches of an epoch
ON_GPU = ["--accelerator", "cuda"]


def cifar10(runner, name, title, precision, loaders, more=(), peer_more=(), needs="", seconds=75):
    kit = runner.kit
    threads = min(8, kit.cores)
    tuned = ["--matmul-precision", "high", "--cudnn-benchmark"]  # options of PyTorch's program
    high = [*kit.option(*tuned[:2]), *kit.option(tuned[2])]
    ours = [runner.epochs(f"Lockstep, loader {loader}", runner.train(
        "cifar10", CIFAR_BATCH, CIFAR_STEPS, *ON_GPU, "--strategy", "single", "--loader", loader, "--workers", threads,
        "--precision", precision, *high, *more)) for loader in loaders if loader != "dali" or kit.has_dali]
    theirs = [runner.epochs("PyTorch, DataLoader", runner.peer_train(
        "cifar10", CIFAR_BATCH, CIFAR_STEPS, *ON_GPU, "--workers", threads, "--precision", precision, *tuned, *peer_more),
        is_peer=True)]
    if kit.has_dali and "dali" in loaders:
        theirs.append(runner.epochs("PyTorch, DALI", runner.peer_train(
            "cifar10", CIFAR_BATCH, CIFAR_STEPS, *ON_GPU, "--loader", "dali", "--threads", threads, "--precision", precision,
            *tuned, *peer_more)))
    return Benchmark(name, title, needs, [*ours, *theirs], seconds, 2, "images/s")


def cifar10_epochs(runner, no_gpu):
    graph, contiguous = runner.kit.option("--cuda-graph"), runner.kit.option("--memory-format", "contiguous")
    no_graph = "" if graph else "the kit's `lockstep train` has no --cuda-graph"
    what = f"CIFAR-10, ResNet-18, batch {CIFAR_BATCH}"
    return [cifar10(runner, "cifar10 bf16", f"{what}, bf16", "bf16", ("native", "cuda"), contiguous, needs=no_gpu),
            cifar10(runner, "cifar10 bf16 graph", f"{what}, bf16, channels last, the step as a CUDA graph", "bf16", ("cuda",),
                    graph, ["--channels-last", "--cuda-graph"], needs=no_gpu or no_graph, seconds=50),
            cifar10(runner, "cifar10 tf32", f"{what}, fp32 with TF32", "32", ("native", "cuda", "dali"), contiguous,
                    needs=no_gpu)]


def mnist_epoch(runner, no_gpu):
    threads = min(8, runner.kit.cores)
    shared = ["mnist", 512, 117, *ON_GPU, "--workers", threads]
    graph = runner.kit.option("--cuda-graph")
    return Benchmark("mnist", "MNIST, batch 512, fp32", no_gpu, [
        runner.epochs("Lockstep, loader native", runner.train(*shared)),
        runner.epochs("Lockstep, loader cuda", runner.train(*shared, "--loader", "cuda")),
        runner.epochs("Lockstep, loader cuda, CUDA graph", runner.train(*shared, "--loader", "cuda", *graph)),
        runner.epochs("PyTorch, DataLoader", runner.peer_train(*shared), is_peer=True),
        runner.epochs("PyTorch, DataLoader, CUDA graph", runner.peer_train(*shared, "--cuda-graph"))], 60, 2, "images/s")


def ddp_of_one_rank(runner, no_gpu):
    shared = ["cifar10", CIFAR_BATCH, CIFAR_STEPS, *ON_GPU, "--workers", min(8, runner.kit.cores), "--precision", "bf16"]
    loader = ["--loader", "cuda"]
    return Benchmark("ddp of one rank", "What DDP over NCCL adds with one rank: CIFAR-10, ResNet-18, bf16, channels last", no_gpu, [
        runner.epochs("Lockstep, single", runner.train(*shared, *loader, "--strategy", "single")),
        runner.epochs("Lockstep, ddp over NCCL", runner.train(*shared, *loader, "--strategy", "ddp", "--backend", "nccl")),
        runner.epochs("PyTorch, single", runner.peer_train(*shared, "--channels-last")),
        runner.epochs("PyTorch, DDP over NCCL", runner.peer_train(*shared, "--channels-last", "--strategy", "ddp", ranks=1),
                      is_peer=True)], 70, 2, "images/s")


def two_ranks_on_one_gpu(runner, no_gpu):
    shared = ["cifar10", CIFAR_BATCH, 60, *ON_GPU, "--precision", "bf16", "--strategy", "ddp"]
    threads = max(1, min(4, runner.kit.cores // 2))
    return Benchmark("two ranks on a GPU", "Two ranks that share a GPU: CIFAR-10, ResNet-18, bf16, channels last", no_gpu, [
        runner.epochs("Lockstep, shm", runner.train(*shared, "--nproc-per-node", 2, "--loader", "cuda",
                                                    "--workers", 2 * threads)),
        runner.epochs("PyTorch, DDP over Gloo", runner.peer_train(*shared, "--channels-last", "--backend", "gloo", "--workers",
                                                                  threads, ranks=2), is_peer=True)], 45, 1, "images/s")


def calls_per_step(runner, command_of):
    """Returns a side's run: the additional calls of 40 steps compared with 20, divided by 20."""
    def counted(steps, seconds):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "calls"
            file.write_bytes(bytes(8 * len(CALLS)))
            runner.run(command_of(steps), seconds, {"LOCKSTEP_CUDA_CALLS": str(file),
                                                    "LD_PRELOAD": str(runner.kit.program("cuda_call_counter.so"))})
            return struct.unpack(f"={len(CALLS)}Q", file.read_bytes())

    def run(seconds):
        clock = processes.Budget(seconds)
        few, many = counted(20, clock.left()), counted(40, clock.left())
        each = [(b - a) / 20 for a, b in zip(few, many)]
        return [("", {"waits per step": sum(each[:-1]), **dict(zip(CALLS, each))})]

    return run


def host_synchronisations(runner, no_gpu):
    loader, bf16 = [*ON_GPU, "--loader", "cuda"], ["--precision", "bf16"]
    ways = [("Lockstep, fp32", lambda steps: runner.train("cifar10", 128, steps, *loader, epochs=1), False),
            ("Lockstep, bf16", lambda steps: runner.train("cifar10", 128, steps, *loader, *bf16, epochs=1), False),
            ("Lockstep, bf16, ddp over NCCL", lambda steps: runner.train(
                "cifar10", 128, steps, *loader, *bf16, "--strategy", "ddp", "--backend", "nccl", epochs=1), False),
            ("PyTorch, bf16", lambda steps: runner.peer_train("cifar10", 128, steps, *ON_GPU, *bf16, epochs=1), True)]
    return Benchmark("host synchronisations", "Calls in which the host waits for the GPU, for each step: CIFAR-10, "
                     "ResNet-18", no_gpu, [Side(label, calls_per_step(runner, command), is_peer)
                                           for label, command, is_peer in ways], 75)


OPTIMIZER_LINE = re.compile(r"(?P<net>\w+)\s+(?P<kind>\w+)\s+step: (?P<first>flat|fused)\s+(?P<one>[\d.]+) us, "
                            r"(?P<second>single tensors|default)\s+(?P<other>[\d.]+) us"
                            r"(?:.*launch:\s+(?P<launch_one>[\d.]+),\s+(?P<launch_other>[\d.]+))?")


def optimizer_rows(output):
    """For each net and optimizer, the faster of its two variants, read from the lines that both programs print."""
    for found in filter(None, map(OPTIMIZER_LINE.match, output.splitlines())):
        first = float(found["one"]) <= float(found["other"])
        step, launch, way = found.group(*(("one", "launch_one", "first") if first else ("other", "launch_other", "second")))
        yield (f"{found['net']}, {found['kind']}",
               {"step, us": float(step), "launch, us": float(launch) if launch else None, "way": way})


def optimizer_step(runner, no_gpu):
    device = ["--device", "cuda"]
    return Benchmark("optimizer step", "An optimizer step, in its faster variant", no_gpu, [
        runner.text("Lockstep", [runner.kit.program("optimizer_step"), *device], optimizer_rows),
        runner.text("PyTorch", [runner.kit.python, runner.kit.peer("optimizer_step.py"), *device], optimizer_rows,
                    is_peer=True)], 40, 1, "step, us", False)


def loader_rows(rows):
    return [(str(row["threads"]) + (" thread" if row["threads"] == 1 else " threads"),
             {"images/s": statistics.median(row["images_per_second"]) if isinstance(row["images_per_second"], list)
              else row["images_per_second"]}) for row in rows]


def loader_on_gpu(runner, no_gpu):
    kit = runner.kit
    threads = min(8, kit.cores)
    bench = [kit.program("lockstep"), "bench", "loader", "--dataset", "cifar10", "--operators", "crop-flip-cutout", "--data",
             kit.data("cifar10").parent, "--threads", threads, "--rounds", 3]
    sides = [runner.rows(f"Lockstep, {engine}", [*bench, "--loader", engine], loader_rows)
             for engine in ("cuda", "native", "dali") if engine != "dali" or kit.has_dali]
    peer = [kit.python, kit.peer("loader_torchvision.py"), "--data", kit.data("cifar10"), "--workers", threads, "--rounds", 1]
    sides.append(Side("torchvision, DataLoader", lambda seconds: [
        (f"{threads} thread{'s' * (threads > 1)}", {"images/s": json.loads(runner.run(peer, seconds).splitlines()[-1])
                                                    ["images_per_second"][0]})], True))
    return Benchmark("loader", "Batches of CIFAR-10 (crop, flip, cutout, normalise)", no_gpu, sides, 35, 1, "images/s")


# --- On the processors ------------------------------------------------------------------------------

def powers(most):
    return [count for count in (1, 2, 4, 8, 16) if count <= most]


def comm_rows(rows):
    best = {}
    for row in rows:
        part = PARTS.get(row["bytes"], str(row["bytes"]))
        name = "symmetric, us" if row["symmetric"] else "us"
        best.setdefault(part, {})[name] = row["median_us"]
    for figures in best.values():
        figures["median, us"] = min(value for name, value in figures.items())
    return list(best.items())


def comm(runner, ranks, seconds_of_row):
    kit = runner.kit
    sizes = ",".join(map(str, PARTS))
    ours = [kit.program("lockstep"), "bench", "comm", "--nproc-per-node", ranks, "--sizes", sizes, "--seconds", seconds_of_row]
    peer = [kit.python, kit.peer("comm_gloo.py"), "--ranks", ranks, "--collectives", "all_reduce", "--sizes", sizes,
            "--seconds", seconds_of_row]
    return Benchmark(f"all-reduce, {ranks} ranks", f"All-reduce of float32 between {ranks} ranks on cores of their own", "", [
        runner.rows("Lockstep, shm", ours, comm_rows),
        runner.text("PyTorch, Gloo", peer, lambda output: comm_rows(json.loads(output[output.index("["):output.rindex("]") + 1])),
                    is_peer=True)], 25, 1, "median, us", False)


def ddp_on_cores(runner, recipe, ranks, steps, batch):
    kit = runner.kit
    shared = ["--max-epochs", 2, "--accelerator", "cpu", "--threads", 1, "--batch-size", batch * ranks]
    alone = ranks == 1
    strategy = ["--strategy", "single" if alone else "ddp"]
    ours = [kit.program("lockstep"), "train", recipe, "--data", kit.data(recipe), "--nproc-per-node", ranks,
            "--limit-train-batches", steps, "--limit-val-batches", 0, *shared, *strategy]
    torchrun = [] if alone else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    peer = [kit.python, *torchrun, kit.peer("train_epochs.py"), recipe, "--data", kit.data(recipe), "--max-steps", steps,
            *shared, *strategy, *(["--channels-last"] if recipe == "cifar10" else [])]
    net = {"mnist": "MNIST net", "cifar10": "ResNet-18"}[recipe]
    several = "s" * (ranks > 1)
    return Benchmark(f"{recipe} on {ranks} core{several}", f"{net}, {ranks} single-threaded rank{several}, batch {batch} each", "",
                     [runner.epochs("Lockstep", ours), runner.epochs("PyTorch", peer, is_peer=True)], 40, 1, "images/s")


def loader_on_cores(runner, threads, seconds_of_row):
    kit = runner.kit
    ours = [kit.program("lockstep"), "bench", "loader", "--dataset", "cifar10", "--operators", "crop-flip-cutout", "--data",
            kit.data("cifar10").parent, "--threads", ",".join(map(str, threads)), "--rounds", 3, "--seconds", seconds_of_row]

    def peer(seconds):
        clock, found = processes.Budget(seconds), []
        for count in threads:
            output = runner.run([kit.python, kit.peer("loader_torchvision.py"), "--data", kit.data("cifar10"), "--workers",
                                 count, "--rounds", 1, "--seconds", 2 * seconds_of_row], clock.left())
            found += loader_rows([{"threads": count, **json.loads(output.splitlines()[-1])}])
        return found

    return Benchmark("loader on the cores", "Batches of CIFAR-10 by threads of the CPU", "", [
        runner.rows("Lockstep, native", ours, loader_rows), Side("torchvision, DataLoader", peer, True)], 60, 1, "images/s")


def all_benchmarks(runner):
    kit = runner.kit
    no_gpu = "" if kit.gpus else NO_GPU
    cores = powers(kit.cores)
    several = [count for count in cores if count > 1]
    short = bool(no_gpu)  # two minutes in total
    found = [*cifar10_epochs(runner, no_gpu), ddp_of_one_rank(runner, no_gpu), mnist_epoch(runner, no_gpu),
             host_synchronisations(runner, no_gpu), two_ranks_on_one_gpu(runner, no_gpu), loader_on_gpu(runner, no_gpu),
             optimizer_step(runner, no_gpu)]
    if not kit.has_dali:
        found.append(Benchmark("dali", "Loader dali", no_gpu or NO_DALI, [], 0))
    found += [comm(runner, ranks, 0.2 if short else 0.5) for ranks in reversed(several)]
    found += [ddp_on_cores(runner, "mnist", ranks, 40 if short else 100, 64) for ranks in reversed(cores)]
    found.append(loader_on_cores(runner, cores, 0.3 if short else 0.5))
    found += [ddp_on_cores(runner, "cifar10", ranks, 2 if short else 6, 16) for ranks in reversed(cores)]
    return found
