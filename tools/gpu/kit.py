"""Finds the kit's programs, the data and a Python with torch."""
import functools
import gzip
import hashlib
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys

import processes

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]  # the kit or the source tree, which have these scripts at the same path
DATA_FILES = {"mnist": "train-images-idx3-ubyte", "cifar10": "data_batch_1.bin"}
PROBE_SECONDS = 60      # per Python
ALL_PROBES_SECONDS = 75
HELP_SECONDS = 60

PROBE = """
import json, torch
gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
nccl = torch.cuda.nccl.version() if torch.distributed.is_nccl_available() else ()
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                  "nccl": ".".join(map(str, nccl)), "folder": torch.__path__[0],
                  "gpus": [{"name": gpu.name, "memory_bytes": gpu.total_memory, "multiprocessors": gpu.multi_processor_count,
                            "capability": f"{gpu.major}.{gpu.minor}"} for gpu in gpus]}))
"""


class KitProblem(Exception):
    """A one-line message: what is missing, and what to do."""


def commit_of(tree):
    """Returns the commit of the Git checkout whose top folder is `tree`, followed by -dirty and a hash of the changes
    if tracked files have changed since; empty if there is no such checkout."""
    def git(*words):
        return subprocess.run(["git", "-C", tree, *words], capture_output=True)
    try:
        top = git("rev-parse", "--show-prefix")
        if top.returncode != 0 or top.stdout.strip():
            return ""
        commit = git("describe", "--always", "--exclude=*", "--abbrev=12").stdout.decode().strip()
        changes = git("diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv").stdout
    except OSError:
        return ""  # Git is not installed
    return f"{commit}-dirty-{hashlib.sha256(changes).hexdigest()[:8]}" if commit and changes else commit


def probe(python, seconds):
    """Returns what the Python's torch reports about itself and the GPUs; None if it has no torch for CUDA. Raises
    TimeoutExpired if it does not answer."""
    try:
        result = subprocess.run([str(python), "-c", PROBE], capture_output=True, text=True, timeout=seconds)
        found = json.loads(result.stdout.splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return None
    return found if found["cuda"] else None


def find_python(given):
    """Returns (Python, what its torch reports) for the given Python, or for the first one with a torch for CUDA."""
    ours = [ROOT / ".deps/kit/bin/python", ROOT / ".deps/cuda/bin/python"]
    candidates = [given] if given else [*ours, sys.executable, "python3"]
    budget, answers = processes.Budget(ALL_PROBES_SECONDS), {}
    for python in candidates:
        path = shutil.which(python) or str(python)
        if path in answers:
            continue
        seconds = min(PROBE_SECONDS, budget.left())
        try:
            found = probe(path, seconds)
        except subprocess.TimeoutExpired:
            answers[path] = f"{python} (did not answer in {seconds:.0f} s)"
            continue
        if found:
            return python, found
        answers[path] = str(python)
    raise KitProblem(f"no torch for CUDA in {', '.join(answers.values())}; name a Python that has one with --python")


def make_mnist(folder):
    """Writes random images in the format of MNIST's files."""
    for name, count in (("train", 60000), ("t10k", 10000)):
        pixels = struct.pack(">4i", 0x803, count, 28, 28) + random.randbytes(count * 784)
        labels = struct.pack(">2i", 0x801, count) + bytes(i % 10 for i in range(count))
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(gzip.compress(pixels, 1))
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels, 1))


def make_cifar10(folder):
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(b"".join(bytes([i % 10]) + random.randbytes(3072) for i in range(10000)))


class Kit:
    def __init__(self, folder, python, torch, output):
        self.folder, self.python, self.torch, self.output = folder, python, torch, output
        self.description = json.loads((folder / "kit.json").read_text())
        self.cores = len(os.sched_getaffinity(0))
        self.gpus = torch["gpus"]
        self.environment = self._environment()
        self.made_up_data = []

    def _environment(self):
        """The environment for the programs, which find torch through the link `site`, or through the environment if
        the link cannot be made."""
        packages = pathlib.Path(self.torch["folder"]).resolve().parent
        link = self.folder / "site"
        try:
            if not link.is_symlink() or link.resolve() != packages:
                link.unlink(missing_ok=True)
                link.symlink_to(packages)
            return {}
        except OSError:
            folders = [packages / "torch/lib", packages / "nvidia/cu13/lib", packages / "nvidia/nccl/lib"]
            return {"LD_LIBRARY_PATH": ":".join(map(str, folders))}

    def check_version(self):
        built, found = self.description["torch"], self.torch["torch"]
        if built != found:
            raise KitProblem(f"the kit is for torch {built}, but {self.python} has {found}; make a kit with that version, or "
                             "name another Python with --python")

    def program(self, name):
        return self.folder / "bin" / name

    def peer(self, name):
        scripts = self.folder / "benchmarks/peers"
        return (scripts if scripts.is_dir() else ROOT / "benchmarks/peers") / name

    def data(self, name):
        """Returns the folder with the files of `name`. If there is none, makes random files in the report's
        folder."""
        roots = [os.environ.get("LOCKSTEP_DATA"), ROOT / "shared/data", ROOT.parent / "shared/data"]
        for root in roots:
            folder = pathlib.Path(root) / name if root else None
            if folder and any(folder.glob(DATA_FILES[name] + "*")):
                return folder
        folder = self.output / "data" / name
        if name not in self.made_up_data:
            folder.mkdir(parents=True, exist_ok=True)
            {"mnist": make_mnist, "cifar10": make_cifar10}[name](folder)
            self.made_up_data.append(name)
        return folder

    @functools.cached_property
    def train_help(self):
        """The text of `lockstep train --help`. If it is not available, it is empty, and no option counts as known."""
        try:
            result = subprocess.run([self.program("lockstep"), "train", "--help"], capture_output=True, text=True,
                                    env={**os.environ, **self.environment}, timeout=HELP_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"`lockstep train --help` did not answer, so newer options are left out: {error}", flush=True)
            return ""
        return result.stdout

    def option(self, *words):
        """Returns these words for `lockstep train` if the kit's program has the option, otherwise no words."""
        return list(words) if words[0] in self.train_help else []

    @functools.cached_property
    def has_dali(self):
        installed = (pathlib.Path(self.torch["folder"]).parent / "nvidia/dali/libdali.so").exists()
        return installed and self.program("lockstep_dali.so").exists()
