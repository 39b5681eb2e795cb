"""A checkpoint between Lockstep and Python's safetensors: both read it, whoever wrote it last, and damage is seen.

Usage: checkpoint_test.py LOCKSTEP, the program. Ends with 77 (skipped) and the reason where Python lacks torch or
safetensors.
"""
import os
import pathlib
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
        self.file = self.folder / "run" / "checkpoint.safetensors"
        self.train("1")

    def train(self, steps, *options):
        # Without data and without a network: nobody listens on port 1.
        environment = {**os.environ, "LOCKSTEP_DATA": "", "LOCKSTEP_MIRROR": "http://127.0.0.1:1",
                       "XDG_CACHE_HOME": str(self.folder / "cache")}
        command = [PROGRAM, "train", "mnist", "--max-steps", steps, "--batch-size", "8", "--threads", "1",
                   "--limit-test-batches", "0", "--out", str(self.file.parent), *options]
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=100)

    def content(self):
        with safetensors.safe_open(self.file, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()

    def test_python_reads_it_and_may_write_it_anew(self):
        tensors, metadata = self.content()
        self.assertEqual(tensors["conv1.weight"].shape, (10, 1, 5, 5))
        self.assertEqual(metadata["recipe"], "mnist")
        checksums = {key for key in metadata if key.startswith("lockstep.xxh3_64")}
        self.assertEqual(checksums, {"lockstep.xxh3_64"} | {f"lockstep.xxh3_64:{name}" for name in tensors})
        safetensors.torch.save_file(tensors, self.file, metadata)
        result = self.train("2", "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("warning", result.stderr)

    def test_a_file_without_checksums_is_loaded_with_a_warning(self):
        tensors, metadata = self.content()
        kept = {key: value for key, value in metadata.items() if not key.startswith("lockstep.")}
        safetensors.torch.save_file(tensors, self.file, kept)
        result = self.train("2", "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"warning: .*checkpoint.safetensors has no checksums.*\n")

    def test_other_weights_under_the_old_checksums_are_refused(self):
        tensors, metadata = self.content()
        tensors["fc2.bias"][3] += 1
        safetensors.torch.save_file(tensors, self.file, metadata)
        result = self.train("2", "--resume")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"(?m)^error: .*the tensor 'fc2.bias' is damaged: its checksum is .*$")

    def test_what_has_diverged_is_no_damage(self):
        with torch.no_grad():
            tensors, metadata = self.content()
            tensors["fc2.bias"][3] = float("nan")
        kept = {key: value for key, value in metadata.items() if not key.startswith("lockstep.")}
        safetensors.torch.save_file(tensors, self.file, kept)
        result = self.train("2", "--resume")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("fc2.bias holds values that are not finite", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
