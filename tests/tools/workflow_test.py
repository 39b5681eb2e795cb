#!/usr/bin/env python3
"""Checks the GitHub workflows with zizmor: their schema, and whether a pull request could harm the project.

Usage: workflow_test.py     (skipped unless `tools/bootstrap.sh oracles` has installed zizmor)

Workflows run only on GitHub, so before a push only this test notices a misspelt key.
"""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".deps/venv/bin/zizmor"


def check(folder):
    return subprocess.run([PROGRAM, "--offline", "--no-progress", "--strict-collection", folder], capture_output=True,
                          text=True)


def main():
    if not PROGRAM.exists():
        print("skipped: tools/bootstrap.sh oracles installs zizmor")
        sys.exit(77)
    found = check(ROOT / ".github")
    if found.returncode:
        raise SystemExit(found.stdout + found.stderr)
    with tempfile.TemporaryDirectory() as folder:  # a workflow that GitHub would refuse
        workflows = pathlib.Path(folder) / ".github/workflows"
        workflows.mkdir(parents=True)
        text = (ROOT / ".github/workflows/ci.yml").read_text()
        (workflows / "ci.yml").write_text(text.replace("runs-on:", "run-on:", 1))
        if check(workflows.parent).returncode == 0:
            raise SystemExit("zizmor accepts a job without runs-on")
    print("the workflows are sound")


if __name__ == "__main__":
    main()
