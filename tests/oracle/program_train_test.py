"""Nets that Python exports are trained by the program: with all strategies alike, and back in Python.

Usage: program_train_test.py LOCKSTEP, the program. Exits with 77 (skipped) and the reason if Python lacks torch or
safetensors.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zlib

try:
    import safetensors.torch
    import torch
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
SIDE = 20


class Net(nn.Module):
    """Group normalization, whose results do not depend on the number of ranks, or batch normalization."""
    def __init__(self, norm, outputs=3):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2)
        self.norm1 = nn.GroupNorm(2, 8) if norm == "group" else nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(8, outputs)

    def forward(self, images):
        x = torch.relu_(self.norm1(self.conv1(images)))
        x = self.pool(torch.relu(self.conv2(x))).flatten(1)
        return {"features": x, "logits": self.head(x)}


class Copy(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return torch.sigmoid(self.conv(x))


def write_png(path, shade):
    rows = b"".join(b"\0" + bytes((shade * 70 + x * (shade + 2) + y * 5 + c * 30) % 256
                                  for x in range(SIDE) for c in range(3)) for y in range(SIDE))
    chunk = lambda kind, data: (len(data).to_bytes(4, "big") + kind + data +  # noqa: E731
                                zlib.crc32(kind + data).to_bytes(4, "big"))
    header = SIDE.to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
                     chunk(b"IEND", b""))


class TrainedPrograms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for label in range(3):
            (cls.folder / f"images/{label}").mkdir(parents=True)
            for image in range(10):
                write_png(cls.folder / f"images/{label}/{image}.png", label + 3 * image)
        torch.manual_seed(0)
        cls.nets = {"group": Net("group"), "batch": Net("batch"), "wide": Net("group", 4), "copy": Copy()}
        for name, net in cls.nets.items():
            example = (torch.randn(4, 3, 16, 16),)
            exported = torch.export.export(net.train(), example, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
            torch.export.save(exported, cls.folder / f"{name}.pt2")

    def run_program(self, *words):
        return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=240,
                              stdin=subprocess.DEVNULL, env={**os.environ, "OMP_WAIT_POLICY": "passive"})

    def train(self, net, out, *options, recipe="classify"):
        result = self.run_program("train", recipe, "--program", self.folder / f"{net}.pt2", "--data",
                                  self.folder / "images", "--batch-size", 8, "--max-steps", 4, "--threads", 1,
                                  "--accelerator", "cpu", "--out", self.folder / out, *options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return safetensors.torch.load_file(self.folder / out / "checkpoint.safetensors")

    def test_all_strategies_train_alike(self):
        alone = self.train("group", "single")
        before = self.nets["group"].state_dict()
        self.assertEqual(set(alone), set(before))
        for name, tensor in before.items():
            self.assertGreater((alone[name] - tensor).abs().max().item(), 1e-4, f"{name} has not been trained")
        ways = {"ddp": ["--nproc-per-node", 2], "zero1": ["--nproc-per-node", 2, "--strategy", "zero1"],
                "dp": ["--strategy", "dp", "--devices", 2],
                "threads": ["--strategy", "pipeline", "--stages", 2, "--micro-batches", 2],
                "ranks": ["--nproc-per-node", 2, "--strategy", "pipeline", "--stages", 2, "--micro-batches", 2]}
        for way, options in ways.items():
            state = self.train("group", way, *options)
            self.assertEqual(list(state), list(alone), way)
            for name, tensor in alone.items():
                torch.testing.assert_close(state[name], tensor, rtol=1e-4, atol=1e-6, msg=f"{way}: {name}")

    def test_python_loads_the_weights(self):
        state = self.train("batch", "batch")
        net = Net("batch")
        net.load_state_dict(state, strict=True)
        self.assertEqual(net.norm1.num_batches_tracked.item(), 4)
        table = self.folder / "predictions.csv"
        result = self.run_program("predict", self.folder / "batch/checkpoint.safetensors", self.folder / "images/1",
                                  "--csv", table, "--threads", 1, "--accelerator", "cpu")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(table.read_text().splitlines()), 11)
        result = self.run_program("evaluate", self.folder / "batch/checkpoint.safetensors", "--data",
                                  self.folder / "images", "--json", self.folder / "evaluation.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads((self.folder / "evaluation.json").read_text())["recipe_options"]["program"],
                         str(self.folder / "batch.pt2"))

    def test_a_run_goes_on_exactly(self):
        whole = self.train("batch", "whole")
        self.train("batch", "parts", "--max-steps", 2)
        resumed = self.train("batch", "parts", "--resume")
        for name, tensor in whole.items():
            self.assertTrue(torch.equal(resumed[name], tensor), name)

    def test_statistics_of_the_whole_batch(self):
        alone = self.train("batch", "alone")
        state = self.train("batch", "together", "--nproc-per-node", 2, "--sync-batchnorm")
        for name in ("norm1.running_mean", "norm1.running_var"):
            torch.testing.assert_close(state[name], alone[name], rtol=1e-4, atol=1e-6)

    def test_an_autoencoder(self):
        state = self.train("copy", "copy", recipe="autoencoder")
        Copy().load_state_dict(state, strict=True)

    def test_what_cannot_be_trained_is_refused(self):
        def refusal(*words):
            result = self.run_program("train", *words, "--data", self.folder / "images", "--out", self.folder / "no")
            self.assertEqual(result.returncode, 2, result.stderr)
            return result.stderr
        wide, group = self.folder / "wide.pt2", self.folder / "group.pt2"
        self.assertIn("wide.pt2 was exported with 4 classes, but the data has 3",
                      refusal("classify", "--program", wide))
        self.assertIn("was exported for images of 16x16 pixels, but the image size is 64",
                      refusal("classify", "--program", group, "--image-size", 64))
        self.assertIn("--model and --program cannot be combined",
                      refusal("classify", "--program", group, "--model", "resnet18"))
        self.assertIn("--program has no effect on mnist", refusal("mnist", "--program", group))
        self.assertIn("no.pt2 does not exist", refusal("classify", "--program", self.folder / "no.pt2"))

    def test_info(self):
        result = self.run_program("program", "info", self.folder / "group.pt2", "--json", self.folder / "info.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        info = json.loads((self.folder / "info.json").read_text())
        self.assertEqual(info["inputs"], [{"name": "images", "dtype": "float32", "sizes": [None, 3, 16, 16]}])
        self.assertEqual([output["name"] for output in info["outputs"]], ["features", "logits"])
        parameters = sum(each.numel() for each in self.nets["group"].parameters())
        self.assertEqual(info["parameters"], {"tensors": 8, "elements": parameters, "bytes": 4 * parameters})
        self.assertEqual(info["operators"]["aten.conv2d.default"], 2)
        self.assertGreater(len(info["cuts"]), 3)
        self.assertIn("images: float32 [any, 3, 16, 16]", result.stdout)


if __name__ == "__main__":
    unittest.main()
