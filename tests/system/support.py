"""Shared by the tests of the whole program: a small MNIST, and processes that are watched."""
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else None


def write_small_mnist(folder, count=256):
    """Writes the four files of MNIST with `count` images of noise: enough to train on, but not to learn from."""
    folder.mkdir(parents=True, exist_ok=True)
    state = 1
    pixels = bytearray()
    for _ in range(count * 28 * 28):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        pixels.append(state >> 16 & 0xFF)
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 0x803, count, 28, 28) + pixels)
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count)))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_running(pid):
    """Whether the process exists and is not a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def wait_until(condition, what, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s until {what}")
        time.sleep(0.01)


def descendants(pid):
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, open_pids = [], [pid]
    while open_pids:
        for child in children.get(open_pids.pop(), []):
            found.append(child)
            open_pids.append(child)
    return sorted(found)


class Run:
    """A started command, whose output goes to a file, so that it never blocks."""

    def __init__(self, command, folder, environment=None, **options):
        self.output = tempfile.TemporaryFile("w+", dir=folder)
        clean = {key: value for key, value in os.environ.items()
                 if not re.match(r"(RANK|WORLD_SIZE|LOCAL_|MASTER_|SLURM_|OMPI_|PMI|TORCHELASTIC_)", key)}
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=self.output, text=True,
                                        env={**clean, "OMP_NUM_THREADS": "1", **(environment or {})},
                                        **options)
        self.pid = self.process.pid

    def text(self):
        position = os.lseek(self.output.fileno(), 0, os.SEEK_CUR)
        return os.pread(self.output.fileno(), 1 << 20, 0).decode() if position else ""

    def wait(self, seconds=60):
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {seconds} s:\n{self.text()}")

    def wait_for_text(self, text, seconds=30):
        wait_until(lambda: text in self.text() or self.process.poll() is not None, f"{text!r} is printed",
                   seconds)
        if text not in self.text():
            raise AssertionError(f"ended before it printed {text!r}:\n{self.text()}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def errors(self):
        return [line for line in self.text().splitlines() if line.startswith("error:")]


class SystemTest(unittest.TestCase):
    """Gives each test a folder with data, and checks that nothing remains in /dev/shm."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-system-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.data = self.folder / "mnist"
        write_small_mnist(self.data)
        self.runs = []
        self.shared_before = set(os.listdir("/dev/shm"))

    def tearDown(self):
        for run in self.runs:
            run.kill()
            run.output.close()
        left = {name for name in set(os.listdir("/dev/shm")) - self.shared_before
                if not name.startswith(("sem.", "vader_segment", "psm_", "torch_"))}
        self.assertEqual(left, set(), "left in /dev/shm")

    def start(self, command, environment=None, **options):
        run = Run(command, self.folder, environment, **options)
        self.runs.append(run)
        return run

    def train(self, *arguments, prefix=(), environment=None, **options):
        return self.start([*prefix, PROGRAM, "train", "mnist", "--data", self.data, "--batch-size", "24",
                           *arguments], environment, **options)

    def place(self, rank, world_size, port, **more):
        """Returns torchrun's variables for a rank that the test starts itself."""
        place = {"RANK": rank, "WORLD_SIZE": world_size, "LOCAL_RANK": rank,
                 "LOCAL_WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **more}
        return {key: str(value) for key, value in place.items()}


ENDLESS = ("--max-epochs", "1000000")
FIRST_EPOCH = " 1/1000000 "
__all__ = ["ENDLESS", "FIRST_EPOCH", "PROGRAM", "SystemTest", "descendants", "free_port", "is_running", "name_of", "os",
           "pathlib", "shutil", "signal", "subprocess", "time", "unittest", "wait_until"]
