"""Lockstep and Python's safetensors must both read a checkpoint, and notice damage.

Usage: checkpoint_test.py LOCKSTEP, the program. Exits with 77 (skipped) and the reason if Python lacks torch or
safetensors.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import safetensors
    import safetensors.torch
    import torch
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)


class Checkpoint(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "run"
        self.latest = self.out / "checkpoints" / "latest"
        self.train("1")

    def train(self, steps, *options):
        # Without data and without a network: nothing listens on port 1.
        environment = {**os.environ, "LOCKSTEP_DATA": "", "LOCKSTEP_MIRROR": "http://127.0.0.1:1",
                       "XDG_CACHE_HOME": str(self.folder / "cache")}
        command = [PROGRAM, "train", "mnist", "--max-steps", steps, "--batch-size", "8", "--threads", "1",
                   "--limit-test-batches", "0", "--out", str(self.out), *options]
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=100)

    @staticmethod
    def content(path):
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()

    def as_one_file(self, change=None):
        """Replaces the checkpoints with a file of an earlier version, which has no checksums."""
        tensors, metadata = self.content(self.latest / "training.safetensors")
        tensors.update(self.content(self.latest / "model.safetensors")[0])
        if change:
            change(tensors)
        kept = {key: value for key, value in metadata.items() if not key.startswith("lockstep.")}
        shutil.rmtree(self.out / "checkpoints")
        (self.out / "checkpoint.safetensors").unlink()
        safetensors.torch.save_file(tensors, self.out / "checkpoint.safetensors", kept)

    def test_python_reads_it(self):
        weights, metadata = self.content(self.out / "checkpoint.safetensors")
        self.assertEqual(weights["conv1.weight"].shape, (10, 1, 5, 5))
        self.assertEqual(metadata["recipe"], "mnist")
        checksums = {key for key in metadata if key.startswith("lockstep.xxh3_64")}
        self.assertEqual(checksums, {"lockstep.xxh3_64"} | {f"lockstep.xxh3_64:{name}" for name in weights})
        rest, _ = self.content(self.latest / "training.safetensors")
        self.assertTrue(rest)
        for name in rest:
            self.assertRegex(name, r"^optimizer\.")
        manifest = json.loads((self.latest / "manifest.json").read_text())
        self.assertEqual(manifest["step"], 1)
        self.assertEqual({name: entry["bytes"] for name, entry in manifest["files"].items()},
                         {name: (self.latest / name).stat().st_size
                          for name in ("model.safetensors", "training.safetensors")})

    def test_a_file_without_checksums_is_loaded_with_a_warning(self):
        self.as_one_file()
        result = self.train("2", "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"warning: .*checkpoint.safetensors has no checksums.*\n")
        self.assertEqual(os.readlink(self.out / "checkpoint.safetensors"), "checkpoints/latest/model.safetensors")

    def test_other_weights_are_refused_and_the_checkpoint_before_is_used(self):
        self.assertEqual(self.train("2", "--resume").returncode, 0)
        path = self.out / "checkpoints" / "step-00000002" / "model.safetensors"
        expected = path.read_bytes()
        tensors, metadata = self.content(path)
        tensors["fc2.bias"][3] += 1
        safetensors.torch.save_file(tensors, path, metadata)
        result = self.train("2", "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr,
                         r"(?m)^warning: .*step-00000002/model.safetensors is damaged: it.*; the checkpoint before it")
        self.assertEqual(path.read_bytes(), expected)

    def test_damage_to_the_only_one_ends_the_run(self):
        path = self.latest / "training.safetensors"
        content = bytearray(path.read_bytes())
        content[-1] ^= 64
        path.write_bytes(content)
        result = self.train("2", "--resume")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr,
                         r"(?m)^error: .*training.safetensors is damaged: its checksum is \w{16}, expected \w{16};")

    def test_what_has_diverged_is_no_damage(self):
        def diverge(tensors):
            tensors["fc2.bias"][3] = float("nan")

        self.as_one_file(diverge)
        result = self.train("2", "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("fc2.bias holds values that are not finite", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
