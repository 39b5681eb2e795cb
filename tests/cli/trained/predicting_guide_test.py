"""Runs the Python program of docs/predicting.md on the ONNX model of a small classifier. It must predict what `lockstep
predict` predicts.

Usage: predicting_guide_test.py PROGRAM SOURCE_DIR
"""
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
from PIL import Image

GUIDE = "docs/predicting.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
CLASSES = ("cat", "dog")
PROBABILITY = 0.01  # by how much it may differ: a resized byte may differ by 1


def write_photos(folder, random):
    for number in range(16):
        path = folder / CLASSES[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (9, 12, 3), numpy.uint8) // (1 + number % 2)
        Image.fromarray(pixels).resize((120, 90), Image.BICUBIC).save(path)


def run(program, *words):
    result = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {result.stderr}")


def main():
    program, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    code = BLOCK.search((source / GUIDE).read_text(encoding="utf-8"))[1]
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        write_photos(pathlib.Path("photos"), numpy.random.default_rng(3))
        run(program, "train", "classify", "--data", "photos", "--image-size", 64, "--batch-size", 4, "--max-epochs", 2,
            "--accelerator", "cpu", "--out", "run")
        run(program, "export", "run", "--onnx", "photos.onnx", "--dynamic-batch")
        for path in ("photos/cat/0.png", "photos/dog/1.png"):
            run(program, "predict", "run", path, "--accelerator", "cpu", "--json", "predicted.json")
            expected = json.loads(pathlib.Path("predicted.json").read_text(encoding="utf-8"))["images"][0]["classes"]
            pathlib.Path("snapshot.jpg").write_bytes(pathlib.Path(path).read_bytes())
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, GUIDE, "exec"), {})
            name, probability = output.getvalue().split()
            wanted = {each["name"]: each["probability"] for each in expected}
            if abs(float(probability) - wanted[name]) > PROBABILITY or wanted[name] < max(wanted.values()) - PROBABILITY:
                raise SystemExit(f"{path}: the guide's program says {name} {probability}, lockstep predict {wanted}")
        os.chdir(source)
    print(f"{GUIDE}: the program predicts what lockstep predict does")


if __name__ == "__main__":
    main()
