"""Programs with a limit of time, which leave no process behind, and the time that all of them share."""
import collections
import os
import pathlib
import signal
import subprocess
import time

# status: "ok", "failed", "hung" (it was ended at its limit) or "absent" (it could not start). `place`: where in the log the
# output begins.
Outcome = collections.namedtuple("Outcome", "status code output seconds place")
GRACE_SECONDS = 3  # between SIGTERM and SIGKILL
POLL_SECONDS = 0.05
MOST_OUTPUT = 4 << 20  # bytes that are kept of the output: half from its beginning, half from its end
MOST_LINE = 64 << 10   # bytes of one line


class Budget:
    """The seconds that are left of a whole."""

    def __init__(self, seconds):
        self.begin, self.seconds = time.monotonic(), seconds

    def left(self):
        return max(0.0, self.begin + self.seconds - time.monotonic())

    def used(self):
        return time.monotonic() - self.begin


def _is_alive(group):
    """Whether a process of the group runs. Those that nobody has waited for do not, and would answer killpg()."""
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_process = file.read_text(errors="replace").rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it has ended meanwhile
        if int(of_process) == group and state not in "ZX":
            return True
    return False


def _signal_group(group, number):
    """Whether there was a group to tell. Once it has gone, its number may become another one's."""
    try:
        if _is_alive(group):
            os.killpg(group, number)
            return True
    except (ProcessLookupError, PermissionError):
        pass
    return False


def _end(process):
    """Ends the program and everything that it started in its session, for all of which the grace is."""
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
        pass  # it waits for a driver, and not even SIGKILL reaches it


def _kept(file):
    """What is left to read of the file; of a long rest its beginning and its end."""
    start, half = file.tell(), MOST_OUTPUT // 2
    length = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    if length <= MOST_OUTPUT:
        return file.read(length).decode(errors="replace")
    head = file.read(half).decode(errors="replace")
    file.seek(start + length - half)
    return f"{head}\n[{length - 2 * half} bytes are left out]\n{file.read(half).decode(errors='replace')}"


def lines_of(outcome, log):
    """All lines of the output, however long it is."""
    with open(log, "rb") as file:
        file.seek(outcome.place)
        for line in iter(lambda: file.readline(MOST_LINE), b""):
            yield line.decode(errors="replace").rstrip("\n")


def run(command, seconds, log, environment=None, cwd=None):
    """Runs `command`, whose output goes to the file `log` behind a line that shows it."""
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
    """One line about a program that was not ok."""
    if outcome.status == "hung":
        return f"it did not end in {seconds:.0f} s"
    if outcome.code is not None and outcome.code < 0:
        return f"killed by signal {-outcome.code}"
    lines = [line.strip() for line in outcome.output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:")]
    said = (errors or lines or ["it said nothing"])[-1]
    return said if outcome.status == "absent" else f"it ended with {outcome.code}: {said[:300]}"
