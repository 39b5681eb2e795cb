"""Programs with a limit of time, which leave no process behind, and the time that all of them share."""
import collections
import os
import signal
import subprocess
import time

# status: "ok", "failed", "hung" (it was ended at its limit) or "absent" (it could not start)
Outcome = collections.namedtuple("Outcome", "status code output seconds")
GRACE_SECONDS = 3  # between SIGTERM and SIGKILL
MOST_OUTPUT = 4 << 20  # bytes of it that are kept


class Budget:
    """The seconds that are left of a whole."""

    def __init__(self, seconds):
        self.begin, self.seconds = time.monotonic(), seconds

    def left(self):
        return max(0.0, self.begin + self.seconds - time.monotonic())

    def used(self):
        return time.monotonic() - self.begin


def _signal_group(process, number):
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        pass


def _end(process):
    """Ends the program and everything that it started in its session."""
    _signal_group(process, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    _signal_group(process, signal.SIGKILL)
    process.wait()


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
            return Outcome("absent", None, str(error), 0.0)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    with open(log, "rb") as file:
        file.seek(start)
        output = file.read(MOST_OUTPUT).decode(errors="replace")
    status = "hung" if code is None else "ok" if code == 0 else "failed"
    return Outcome(status, code, output, time.monotonic() - begin)


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
