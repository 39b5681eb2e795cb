"""Runs a checker of tools/ on a small generated tree."""
import pathlib
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def run_tool(name, files, *arguments):
    """Returns the exit code and the output of the checker on `files`, a dictionary from paths to texts."""
    with tempfile.TemporaryDirectory() as root:
        for file, content in files.items():
            path = pathlib.Path(root) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        result = subprocess.run([sys.executable, TOOLS / name, root, *arguments], capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr
