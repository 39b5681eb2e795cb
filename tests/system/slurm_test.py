"""Tests scripts/launch_slurm.sh on a real Slurm: the test starts munged, slurmctld and slurmd on this host.

Usage: slurm_test.py LOCKSTEP. Skipped (77), with the reason, if they cannot be started.
"""
import contextlib
import ctypes
import gzip
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo")
START_SECONDS, JOB_SECONDS = 60, 240
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def end_with_parent():
    """Called in a daemon before exec: the daemon gets SIGTERM when this process ends, however that happens."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def idx(shape, byte):
    count = 1
    for size in shape:
        count *= size
    content = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    return gzip.compress(content + bytes(byte(i) for i in range(count)))


def write_mnist(folder):
    """Writes 64 images for each split."""
    folder.mkdir()
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(idx((64, 28, 28), lambda i: i % 251))
        (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(idx((64,), lambda i: i % 10))


class Slurm:
    """One host that is both controller and node. Its daemons end with it."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "key").write_bytes(os.urandom(1024))
        (self.folder / "key").chmod(0o400)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        host, ports = socket.gethostname().split(".")[0], free_ports(2)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            host=host, folder=self.folder, controller_port=ports[0], node_port=ports[1]))
        self.start("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket",
                   f"--key-file={self.folder}/key", f"--pid-file={self.folder}/munge.pid",
                   f"--log-file={self.folder}/munge.log", f"--seed-file={self.folder}/munge.seed")
        self.wait_until("munged", (self.folder / "munge.socket").exists)
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D", "-N", host)
        self.wait_until("slurmd", lambda: self.run("sinfo", "-h", "-o", "%T").stdout.strip() == "idle")

    def require_jobs(self):
        """Skips the test if Slurm itself cannot run a job on this host."""
        try:
            probe = self.run("sbatch", "--wait", "--output", self.folder / "probe.log", "--wrap", "true")
        except subprocess.TimeoutExpired:
            skip("Slurm has not run a job of nothing within a minute")
        if probe.returncode:
            skip(f"Slurm cannot run a job here: {probe.stderr.strip()[-300:]}")

    def __exit__(self, *_):
        if len(self.daemons) == 3:
            self.end_jobs()
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def end_jobs(self):
        """Ends the jobs' processes, which belong to slurmstepd and outlive slurmd."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.run("scancel", "--full", "--user", "root", timeout=10)
            end = time.monotonic() + 30
            while self.run("squeue", "-h", timeout=10).stdout.strip() and time.monotonic() < end:
                time.sleep(0.2)

    def start(self, name, *words):
        with open(self.folder / f"{name}.output", "w") as log:
            self.daemons.append(subprocess.Popen([name, *words], env=self.environment, stdout=log, stderr=log,
                                                 preexec_fn=end_with_parent))

    def wait_until(self, name, is_ready):
        end = time.monotonic() + START_SECONDS
        while not is_ready():
            if time.monotonic() > end or any(daemon.poll() is not None for daemon in self.daemons):
                last = (self.folder / f"{name}.output").read_text().strip().splitlines()[-1:]
                skip(f"{name} could not be started: {' '.join(last) or 'it was not ready in time'}")
            time.sleep(0.2)

    def run(self, *command, timeout=60, cwd=None):
        """Like subprocess.run(), but ends the whole process group at the timeout."""
        words = [str(word) for word in command]
        with subprocess.Popen(words, env=self.environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, start_new_session=True) as process:
            try:
                output, errors = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(words, process.returncode, output, errors)


def main():
    for program in PROGRAMS:
        if not shutil.which(program):
            skip(f"there is no {program}; tools/bootstrap.sh slurm installs it")
    if os.geteuid() != 0:
        skip("slurmd must be started by root")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        write_mnist(folder / "mnist")
        with Slurm(folder) as slurm:
            slurm.require_jobs()
            slurm.environment.update(LOCKSTEP=str(pathlib.Path(sys.argv[1]).resolve()), WAIT="1", LOCKSTEP_DATA=name)
            result = slurm.run(ROOT / "scripts/launch_slurm.sh", "-r", "1,2", "-b", "16", "-o", folder / "logs", "mnist",
                               "--max-epochs", "1", "--threads", "1", "--accelerator", "cpu", timeout=JOB_SECONDS,
                               cwd=folder)
            logs = {path.name: path.read_text() for path in (folder / "logs").glob("*.log")}
            assert result.returncode == 0, (result.stdout, result.stderr, logs)
            for run, ranks in (("mnist_single_native_1ranks_batch16", 1), ("mnist_ddp_native_2ranks_batch16", 2)):
                record = json.loads((folder / "logs" / f"{run}.json").read_text())
                assert record["world_size"] == ranks, (run, record["world_size"])
                assert record["steps_per_epoch"] == 4, (run, record["steps_per_epoch"])
                left = {path.name for path in (folder / "logs" / run).iterdir()}
                assert {"run.json", "trace.json"} <= left, (run, left)
                assert "epoch 1/1" in logs[f"{run}.log"].replace("epoch  1/1", "epoch 1/1"), logs
            print("Slurm trained with one task and with two")
    return 0


if __name__ == "__main__":
    sys.exit(main())
