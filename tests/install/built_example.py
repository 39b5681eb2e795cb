"""Runs an example as build_examples.sh has built it, for the tests that compare examples with Python."""
import subprocess
import sys


def run_example(work, name, *arguments, ranks=1):
    """Runs the program of example `name` in the folder `work` on `ranks` ranks. Returns what rank 0 prints."""
    command = [f"{work}/{name}/{name}", *map(str, arguments)]
    if ranks > 1:
        command = [f"{work}/prefix/bin/lockstep", "run", "--nproc-per-node", str(ranks), *command]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} exited with {result.returncode}: {result.stderr}")
    return result.stdout
