"""Runs the lines of docs/logging.md that draw one curve of a resumed run. The curve must be that of a run that was not
interrupted.

Usage: logging_guide_test.py PROGRAM SOURCE_DIR
"""
import glob
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import pandas

GUIDE = "docs/logging.md"
BLOCK = re.compile(r"^```python\n(logs = .*?)^```$", re.M | re.S)
IMAGES = 64
STEPS_PER_EPOCH = 4
SIDE = 28


def write_mnist(folder):
    """Images of one grey each, which give each digit a brightness."""
    for split in ("train", "t10k"):
        labels = bytes(i % 10 for i in range(IMAGES))
        pixels = b"".join(bytes([25 * label]) * SIDE * SIDE for label in labels)
        (folder / f"{split}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, IMAGES, SIDE, SIDE) + pixels)
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, IMAGES) + labels)


def train(program, *words):
    command = [program, "train", "mnist", "--data", "digits", "--batch-size", IMAGES // STEPS_PER_EPOCH, "--max-epochs", 3,
               "--threads", 1, "--accelerator", "cpu", "--logger", "csv", *words]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{command}: {result.stderr}")


def drawn(code):
    """The frame that the lines draw, and all their rows."""
    frames = []
    plot, pandas.DataFrame.plot = pandas.DataFrame.plot, lambda self, **how: frames.append(self[[how["x"], how["y"]]])
    try:
        names = {"glob": glob, "pandas": pandas}
        exec(compile(code, GUIDE, "exec"), names)
    finally:
        pandas.DataFrame.plot = plot
    return frames[0].reset_index(drop=True), names["run"]


def expect(found, expected, what):
    if found != expected:
        raise SystemExit(f"{what}: {found}, expected {expected}")


def rename_in_order(count):
    """Commands that began in the same second have folders in the order of their random identifiers."""
    folders = sorted(pathlib.Path("logs").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)
    expect(len(folders), count, "folders of logs")
    for i, folder in enumerate(folders):
        folder.rename(f"logs/mnist-20261125_13000{i}-{folder.name[-8:]}")


def main():
    program, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    code = BLOCK.search((source / GUIDE).read_text(encoding="utf-8"))[1]
    last = 3 * STEPS_PER_EPOCH
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        pathlib.Path("digits").mkdir()
        write_mnist(pathlib.Path("digits"))
        train(program, "--out", "whole", "--log-dir", "whole-logs")
        whole = pandas.read_csv(glob.glob("whole-logs/mnist-*/metrics.csv")[0])
        common = ("--out", "run", "--log-dir", "logs", "--every-n-train-steps", 2, "--resume", "auto")
        train(program, *common, "--max-steps", 7)
        # The second command finds only the checkpoint of step 6, as if the first one had been killed before step 7.
        newest = pathlib.Path("run/checkpoints/step-00000007/model.safetensors")
        newest.write_bytes(newest.read_bytes()[:100])
        train(program, *common, "--max-steps", 10)
        train(program, *common)
        rename_in_order(3)
        files = [pandas.read_csv(path) for path in sorted(glob.glob("logs/mnist-*/metrics.csv"))]
        steps = [file.dropna(subset=["train/loss"])["step"].tolist() for file in files]
        expect(steps, [list(range(1, 8)), list(range(7, 11)), list(range(11, last + 1))], "steps of the commands")
        curve, run = drawn(code)
        expected = whole.dropna(subset=["train/loss"])[["step", "train/loss"]].reset_index(drop=True)
        expect(curve["step"].tolist(), list(range(1, last + 1)), "steps of the curve")
        expect(curve["train/loss"].tolist(), expected["train/loss"].tolist(), "losses of the curve")
        # The second command's row of epoch 2 replaces that of the first one, whose step 7 it repeats. Epoch 3 has a row of
        # each of the commands that made a part of it.
        expect(run["epoch"].dropna().tolist(), [1, 2, 3, 3], "epochs")
        os.chdir(source)
    print(f"{GUIDE}: the lines draw the curve of a run that was not interrupted")


if __name__ == "__main__":
    main()
