"""Tells how long the command that started this process has been running."""
import os
import pathlib
import time


def seconds_since_start():
    """Counts from the start of the command: torchrun's process, or this one if it was started alone."""
    process = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else os.getpid()
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
