"""Programs with a time limit that leave no process behind, and the time that they share."""
import collections
import os
import pathlib
import signal
import subprocess
import time

# status: "ok", "failed", "hung" (killed at its limit) or "absent" (could not start). `place`: offset of the output in
# the log.
Outcome = collections.namedtuple("Outcome", "status code output seconds place")
GRACE_SECONDS = 3  # between SIGTERM and SIGKILL
POLL_SECONDS = 0.05
MOST_OUTPUT = 4 << 20  # bytes of output that are kept: half from its beginning, half from its end
MOST_LINE = 64 << 10   # bytes per line


class Budget:
    """The seconds that are left of a total."""

    def __init__(self, seconds):
        self.begin, self.seconds = time.monotonic(), seconds

    def left(self):
        return max(0.0, self.begin + self.seconds - time.monotonic())

    def used(self):
        return time.monotonic() - self.begin


def _is_alive(group):
    """Whether a process of the group is running. Zombies do not count, although killpg() would succeed for them."""
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_process = file.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it has just ended
        if int(of_process) == group and state not in "ZX":
            return True
    return False


def _signal_group(group, number):
    """Returns whether there was a group to signal. When it is gone, its number may be reused for another group."""
    try:
        if _is_alive(group):
            os.killpg(group, number)
            return True
    except (ProcessLookupError, PermissionError):
        pass
    return False


def _end(process):
    """Ends the program and everything that it started in its session. The grace period is for all of them
    together."""
    grace = Budget(GRACE_SECONDS)
    lives = _signal_group(process.pid, signal.SIGTERM)
    while lives and grace.left() > 0:
        time.sleep(POLL_SECONDS)
        process.poll()
        lives = _is_alive(process.pid)
    if lives:
        _signal_group(process.pid, signal.SIGKILL)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # even SIGKILL does not end a process that waits for a driver


def _kept(file):
    """Returns the rest of the file; if it is long, only its beginning and its end."""
    start, half = file.tell(), MOST_OUTPUT // 2
    length = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    if length <= MOST_OUTPUT:
        return file.read(length).decode(errors="replace")
    head = file.read(half).decode(errors="replace")
    file.seek(start + length - half)
    return f"{head}\n[{length - 2 * half} bytes are left out]\n{file.read(half).decode(errors='replace')}"


def lines_of(outcome, log):
    """Yields all lines of the output, however long it is."""
    with open(log, "rb") as file:
        file.seek(outcome.place)
        for line in iter(lambda: file.readline(MOST_LINE), b""):
            yield line.decode(errors="replace").rstrip("\n")


def run(command, seconds, log, environment=None, cwd=None):
    """Runs `command`, whose output is appended to the file `log` after a line that shows the command."""
    words = [str(word) for word in command]
    begin = time.monotonic()
    with open(log, "ab") as file:
        file.write(f"\n$ {' '.join(words)}\n".encode())
        file.flush()
        start = file.tell()
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, cwd=cwd,
                                       env={**os.environ, **(environment or {})}, start_new_session=True)
        except OSError as error:
            file.write(f"{error}\n".encode())
            return Outcome("absent", None, str(error), 0.0, start)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    with open(log, "rb") as file:
        file.seek(start)
        output = _kept(file)
    status = "hung" if code is None else "ok" if code == 0 else "failed"
    return Outcome(status, code, output, time.monotonic() - begin, start)


def why(outcome, seconds):
    """Describes a program that was not ok in one line."""
    if outcome.status == "hung":
        return f"it did not end in {seconds:.0f} s"
    if outcome.code is not None and outcome.code < 0:
        return f"killed by signal {-outcome.code}"
    lines = [line.strip() for line in outcome.output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:")]
    said = (errors or lines or ["it printed nothing"])[-1]
    return said if outcome.status == "absent" else f"it ended with {outcome.code}: {said[:300]}"
