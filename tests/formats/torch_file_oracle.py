"""Our code reads files of Python's torch.save, and torch.load(weights_only=True) loads files of ours.

Usage: torch_file_oracle.py TORCH_FILE_COPY. That program reads a file and writes its tensors to another one.
torch.load must find the same in both, bit for bit. Exits with 77 (skipped) and the reason when Python lacks torch.
"""
import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings
import zipfile

try:
    import torch
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.float8_e4m3fn,
          torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8,
          torch.bool]


def bytes_of(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def random_bytes(dtype, elements):
    size = torch.empty(0, dtype=dtype).element_size()
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (elements * size,), dtype=torch.uint8)
    return bits.view(dtype)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 4))


def joined(value, path=""):
    """The tensors in `value` by the keys that lead to them, as parse_torch_file() names them."""
    if isinstance(value, torch.Tensor):
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    return {name: tensor for key, item in items
            for name, tensor in joined(item, f"{path}.{key}" if path else str(key)).items()}


class Evil:
    def __init__(self, function, *arguments):
        self.reduced = (function, arguments)

    def __reduce__(self):
        return self.reduced


class TorchFile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.theirs, self.ours = self.folder / "theirs.pt", self.folder / "ours.pt"

    def run_copy(self):
        return subprocess.run([PROGRAM, str(self.theirs), str(self.ours)], capture_output=True, text=True, timeout=60)

    def copy(self):
        result = self.run_copy()
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def expect_equal(self, content, **options):
        """Saves `content`, copies it with our program and compares. Returns the copy, loaded with and without mmap."""
        torch.save(content, self.theirs, **options)
        result = self.copy()
        expected = joined(content)
        self.assertEqual(result.stdout.splitlines(), list(expected))
        ways = [torch.load(self.ours, weights_only=True, mmap=mmap) for mmap in (True, False)]
        for loaded in ways:
            self.assertIs(type(loaded), collections.OrderedDict)
            self.assertEqual(list(loaded), list(expected))
            for name, tensor in loaded.items():
                self.assertEqual(tensor.dtype, expected[name].dtype, name)
                self.assertEqual(tensor.shape, expected[name].shape, name)
                self.assertEqual(tensor.stride(), expected[name].stride(), name)
                self.assertEqual(bytes_of(tensor), bytes_of(expected[name]), name)
        return ways

    def expect_refused(self, content, *words, **options):
        torch.save(content, self.theirs, **options)
        result = self.run_copy()
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertFalse(self.ours.exists())

    def test_every_type(self):
        torch.manual_seed(0)
        self.expect_equal({str(dtype): random_bytes(dtype, 24).reshape(2, 3, 4) for dtype in DTYPES})

    def test_shapes(self):
        self.expect_equal({"scalar": torch.tensor(3.5), "empty": torch.empty(0), "empty 3": torch.empty(2, 0, 5),
                           "one": torch.ones(1), "deep": torch.randn([1] * 20), "": torch.zeros(2), "ü/ñ": torch.ones(2)})

    def test_a_tensor_alone(self):
        self.expect_equal(torch.arange(6.0).reshape(2, 3))

    def test_views_and_tied_tensors(self):
        base = torch.arange(60.0).reshape(3, 4, 5)
        content = {"base": base, "tied": base, "transposed": base.permute(2, 0, 1), "slice": base[1:, ::2, 3],
                   "expanded": base[0, 0].expand(7, 5), "alone": torch.randn(4, 6).t(),
                   "channels": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)}
        for loaded in self.expect_equal(content):
            pointers = {loaded[name].untyped_storage().data_ptr()
                        for name in ("base", "tied", "transposed", "slice", "expanded")}
            self.assertEqual(len(pointers), 1)
            self.assertNotIn(loaded["alone"].untyped_storage().data_ptr(), pointers)
        # The base is written once: three copies of it would be larger than this.
        self.assertLess(self.ours.stat().st_size, self.theirs.stat().st_size + 1000)

    def test_a_module_with_attributes_and_parameters(self):
        self.expect_equal(net().state_dict())
        self.expect_equal(dict(net().named_parameters()))
        self.expect_equal({"buffer": nn.Buffer(torch.ones(2)).data, "parameter": nn.Parameter(torch.ones(2), False)})

    def test_a_checkpoint_of_everything(self):
        model = net()
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
        model(torch.randn(2, 3, 3, 3)).sum().backward()
        optimizer.step()
        self.expect_equal({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
                           "schedule": schedule.state_dict(), "best": 0.5, "name": "ü", "tags": ["a", None, True, b"\x00\xff"],
                           "size": torch.Size([2, 3]), "type": torch.bfloat16, "device": torch.device("cuda:1"),
                           "seen": {1, 2}, "large": 1 << 40, "negative": -(1 << 62), "ranks": (0, (1, torch.ones(3)))})

    def test_more_tensors_than_a_batch_of_pickle(self):
        self.expect_equal({f"layer{i}.weight": torch.full((i % 7, 3), float(i)) for i in range(2500)})
        self.expect_equal([torch.full((2,), float(i)) for i in range(1001)])

    def test_the_format_before_pytorch_1_6(self):
        base = torch.arange(12.0)
        content = {"a": base[2:8].reshape(2, 3), "b": base, "c": torch.ones(3, dtype=torch.int64), "d": net().state_dict()}
        self.expect_equal(content, _use_new_zipfile_serialization=False)
        self.assertIn("no checksums", self.copy().stderr)
        whole = self.theirs.read_bytes()
        for size in range(0, len(whole), 31):
            self.theirs.write_bytes(whole[:size])
            self.assertEqual(self.run_copy().returncode, 1, size)

    def test_options_of_torch_save(self):
        self.addCleanup(torch.serialization.set_crc32_options, True)
        torch.save({"a": torch.ones(3)}, self.theirs)
        self.assertEqual(self.copy().stderr, "checksums\n")
        torch.serialization.set_crc32_options(False)
        self.expect_equal({"a": torch.ones(3)})
        self.assertEqual(self.copy().stderr, "no checksums\n")
        self.expect_equal({"a": torch.ones(3)}, _disable_byteorder_record=True)

    def test_ours_as_others_look_at_it(self):
        torch.save({"a": torch.ones(3), "b": torch.ones(5000), "c": torch.ones(2)}, self.theirs)
        self.copy()
        loaded = torch.load(self.ours, weights_only=True, map_location="meta")
        self.assertEqual([tensor.shape[0] for tensor in loaded.values()], [3, 5000, 2])
        with torch.utils.serialization.config.patch("load.calculate_storage_offsets", True):
            loaded = torch.load(self.ours, weights_only=True, mmap=True)
        self.assertEqual([float(tensor.sum()) for tensor in loaded.values()], [3, 5000, 2])
        self.assertEqual(torch.serialization.get_unsafe_globals_in_checkpoint(self.ours), [])
        with zipfile.ZipFile(self.ours) as file:
            self.assertIsNone(file.testzip())
            self.assertEqual({entry.compress_type for entry in file.infolist()}, {zipfile.ZIP_STORED})

    def test_a_file_that_was_packed_again(self):
        content = {"a": torch.arange(10.0), "b": torch.ones(3, dtype=torch.bool)}
        torch.save(content, self.folder / "saved.pt")
        for method, code in ((zipfile.ZIP_STORED, 0), (zipfile.ZIP_DEFLATED, 1)):
            with zipfile.ZipFile(self.folder / "saved.pt") as saved, \
                    zipfile.ZipFile(self.theirs, "w", method) as packed:
                for entry in saved.namelist():
                    packed.writestr(entry, saved.read(entry))
            result = self.run_copy()
            self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn("is compressed, expected it as it is", result.stderr)
        self.assertEqual(bytes_of(torch.load(self.ours, weights_only=True)["a"]), bytes_of(content["a"]))

    def test_nothing_is_run(self):
        marker = self.folder / "marker"
        self.expect_refused({"a": Evil(os.system, f"touch {marker}")}, "system", "none of its code was run")
        self.expect_refused({"a": Evil(eval, f"open({str(marker)!r}, 'w')")}, "builtins.eval")
        self.expect_refused({"a": Evil(getattr, "text", "upper")}, "builtins.getattr")
        # Protocol 2 writes the name that the module had in Python 2.
        self.expect_refused({"a": Evil(subprocess.check_call, ["touch", str(marker)])}, "commands.check_call")
        self.expect_refused({"a": Evil(torch.load, str(marker))}, "torch.serialization.load")
        self.expect_refused([torch.ones(2), Evil(os.system, "true")], "system", _use_new_zipfile_serialization=False)
        self.expect_refused(nn.Linear(2, 2), "torch.nn.modules.linear.Linear")
        self.expect_refused({"args": argparse.Namespace(lr=1)}, "argparse.Namespace")
        self.assertFalse(marker.exists())

    def test_what_is_refused(self):
        self.expect_refused({"a": torch.ones(2, dtype=torch.complex64)}, "ComplexFloatStorage")
        self.expect_refused({"a": torch.eye(3).to_sparse()}, "torch._utils._rebuild_sparse_tensor")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.expect_refused({"a": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)},
                                "torch._utils._rebuild_qtensor")
        self.expect_refused({"a": torch.empty(2, device="meta")}, "_rebuild_meta_tensor_no_storage")
        self.expect_refused({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}, "two tensors are called 'a.b'")
        cycle = [torch.ones(1)]
        cycle.append(cycle)
        self.expect_refused(cycle, "a value would contain itself")
        self.expect_refused({"a": 1 << 80}, "an integer of 11 bytes")
        self.expect_refused({"a": torch.ones(1)}, "pickle protocol 4", pickle_protocol=4)
        torch.jit.script(nn.Linear(2, 2)).save(self.theirs)
        result = self.run_copy()
        self.assertIn("TorchScript", result.stderr)


if __name__ == "__main__":
    unittest.main()
