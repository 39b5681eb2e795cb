"""Nets that Python exports are trained by the program: with all strategies alike, and back in Python.

Usage: program_train_test.py LOCKSTEP, the program. Exits with 77 (skipped) and the reason if Python lacks torch,
NumPy or safetensors.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
import zlib

try:
    import numpy
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


class Language(nn.Module):
    """Returns its loss over tokens, as the models of Hugging Face do with labels."""
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(24, 16)
        self.block1 = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.block2 = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 24)

    def forward(self, input_ids, labels):
        x = self.embedding(input_ids)
        x = x + self.block1(x)
        logits = self.head(x + self.block2(x))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        return {"logits": logits, "loss": loss}


class Labelled(nn.Module):
    """Takes images and labels, and returns the loss first."""
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 8, 3, stride=2)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.head = nn.Linear(32, 10)

    def forward(self, pixel_values, labels):
        scores = self.head(self.pool(torch.relu(self.conv(pixel_values))).flatten(1))
        return nn.functional.cross_entropy(scores, labels), scores


def export(net, example, path):
    free = {0: torch.export.Dim.DYNAMIC}
    exported = torch.export.export(net.train(), example, dynamic_shapes=tuple(free for _ in example))
    torch.export.save(exported, path)


def token_samples(count, seed):
    """Whose first token is not predicted, so that all samples have the same number of predicted tokens."""
    tokens = torch.randint(24, (count, 7), generator=torch.Generator().manual_seed(seed))
    labels = tokens[:, 1:].clone()
    labels[:, 0] = -100
    return {"input_ids": tokens[:, :-1].to(torch.int32), "labels": labels}


def trained_in_python(net, batches):
    """A plain loop with SGD."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for batch in batches:
        optimizer.zero_grad()
        output = net(*batch)
        (output["loss"] if isinstance(output, dict) else output[0]).backward()
        optimizer.step()
    return net.state_dict()


def shuffled_batches(tensors, count):
    """The first batches of 8 of an epoch in the order of DistributedSampler with seed 0."""
    order = torch.randperm(len(tensors[0]), generator=torch.Generator().manual_seed(0))
    return [[tensor[order[8 * i:8 * i + 8]] for tensor in tensors] for i in range(count)]


class Tokens(nn.Module):
    """Reads the size of the batch, and makes a constant."""
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.conv(x)
        x = x.view(x.size(0), 8, -1).transpose(1, 2)
        x = torch.cat([self.first.expand(x.size(0), -1, -1), x], 1) * 2.0 + torch.tensor([0.5])
        return self.head(nn.functional.scaled_dot_product_attention(x, x, x)[:, 0])


class Bessel(nn.Module):
    """Has an operator that cannot be exported to ONNX."""
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(torch.special.bessel_j0(x.mean((1, 2))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(3, 1, dropout=0.2, batch_first=True)
        self.head = nn.Linear(3, 3)

    def forward(self, images):
        x = images.flatten(2).transpose(1, 2)
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


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
        cls.nets = {"group": Net("group"), "batch": Net("batch"), "wide": Net("group", 4), "copy": Copy(),
                    "tokens": Tokens(), "bessel": Bessel()}
        for name, net in cls.nets.items():
            example = (torch.randn(4, 3, 16, 16),)
            exported = torch.export.export(net.train(), example, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
            torch.export.save(exported, cls.folder / f"{name}.pt2")
        cls.export_attention()

    @classmethod
    def export_attention(cls):
        """In evaluation mode, in which the graph does not have the probability of its dropout."""
        example = (torch.randn(4, 3, 16, 16),)
        exported = torch.export.export(Attention().eval(), example, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
        torch.export.save(exported, cls.folder / "attention.pt2")

        cls.nets.update(language=Language(), photo=Labelled(3), digit=Labelled(1))
        tokens = torch.zeros(4, 6, dtype=torch.int64)
        export(cls.nets["language"], (tokens, tokens.clone()), cls.folder / "language.pt2")
        export(cls.nets["language"], (tokens, tokens), cls.folder / "one_tensor.pt2")
        classes = torch.zeros(4, dtype=torch.int64)
        export(cls.nets["photo"], (torch.randn(4, 3, 16, 16), classes), cls.folder / "photo.pt2")
        export(cls.nets["digit"], (torch.randn(4, 1, 28, 28), classes), cls.folder / "digit.pt2")
        cls.tokens = cls.folder / "tokens"
        cls.tokens.mkdir()
        for part, count in (("train", 40), ("validation", 10)):
            safetensors.torch.save_file(token_samples(count, count), cls.tokens / f"{part}.safetensors")

    def run_program(self, *words, **variables):
        return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=240,
                              stdin=subprocess.DEVNULL,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive", **variables})

    def train(self, net, out, *options, recipe="classify", **variables):
        result = self.run_program("train", recipe, "--program", self.folder / f"{net}.pt2", "--data",
                                  self.folder / "images", "--batch-size", 8, "--max-steps", 4, "--threads", 1,
                                  "--accelerator", "cpu", "--out", self.folder / out, *options, **variables)
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

    def test_channels_last(self):
        contiguous = self.train("batch", "contiguous")
        state = self.train("batch", "channels_last", "--memory-format", "channels-last")
        self.assertEqual(list(state), list(contiguous))
        for name, tensor in contiguous.items():
            torch.testing.assert_close(state[name], tensor, rtol=1e-3, atol=1e-4, msg=name)
        result = self.run_program("evaluate", self.folder / "channels_last/checkpoint.safetensors", "--data",
                                  self.folder / "images", "--accelerator", "cpu")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_an_autoencoder(self):
        state = self.train("copy", "copy", recipe="autoencoder")
        Copy().load_state_dict(state, strict=True)

    def test_onnx_models_compute_what_python_computes(self):
        try:
            import onnxruntime
        except ImportError as error:
            self.skipTest(f"{error}; `make test-all` installs it")
        cases = (("batch", "classify", "images", "logits"), ("tokens", "classify", "x", "output"),
                 ("copy", "autoencoder", "x", "output"))
        for name, recipe, images, output in cases:
            net = self.nets[name]
            before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
            net.load_state_dict(self.train(name, f"{name}-onnx", recipe=recipe), strict=True)
            net.eval()
            model = self.folder / f"{name}.onnx"
            result = self.run_program("export", self.folder / f"{name}-onnx", "--onnx", model, "--dynamic-batch")
            self.assertEqual(result.returncode, 0, result.stderr)
            session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
            for batch in (1, 2, 5):
                x = torch.randn(batch, 3, 16, 16)
                with torch.no_grad():
                    expected = net(x)
                expected = expected["logits"] if name == "batch" else expected
                got = torch.from_numpy(session.run([output], {images: x.numpy()})[0])
                torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5, msg=f"{name}, batch {batch}")
            notes = session.get_modelmeta().custom_metadata_map
            self.assertEqual(notes["program"], f"{name}.pt2")
            self.assertEqual(json.loads(notes["input"]), [3, 16, 16])
            if recipe == "classify":
                self.assertEqual(json.loads(notes["classes"]), ["0", "1", "2"])
            net.load_state_dict(before)

    def test_onnx_lacks_an_operator(self):
        self.train("bessel", "bessel")
        result = self.run_program("export", self.folder / "bessel", "--onnx", self.folder / "bessel.onnx")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertRegex(result.stderr, r"cannot export 1 operator: aten::special_bessel_j0 \[before the first parameter, "
                                        r"program_train_test.py:\d+: return self.head\(torch.special.bessel_j0")
        self.assertFalse((self.folder / "bessel.onnx").exists())

    def test_drawings(self):
        picture = self.folder / "group.svg"
        result = self.run_program("program", "draw", self.folder / "group.pt2", "--stages", 2, "--out", picture)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"drawn in {picture}", result.stdout)
        texts = [each.text for each in xml.etree.ElementTree.parse(picture).iter() if each.tag.endswith("text")]
        for text in ("images", "conv1", "Conv2d", "[N, 8, 7, 7]", "224 parameters", "features", "logits", "stage 0"):
            self.assertIn(text, texts)
        self.assertEqual(sum(text.startswith("stage 1, ") for text in texts if text), 1)
        tree = self.run_program("program", "draw", self.folder / "group.pt2", "--format", "text").stdout
        self.assertRegex(tree, r"\nconv1 +Conv2d +224 +\[N, 8, 7, 7\]\n")
        self.assertIn("digraph", self.run_program("program", "draw", self.folder / "group.pt2", "--format", "dot").stdout)
        for words, message in ((["--depth", 65], "--depth must be from 0 to 64, got 65"),
                               (["--stages", 1], "--stages must be from 2 to 32, got 1"),
                               (["--stages", 30], "which is too few for 30 stages"),
                               (["--format", "png"], "--format must be one of svg, text, dot"),
                               (["--out", self.folder / "group.pt2"], "--out must not replace the program"),
                               (["--out", self.folder / "none/a.svg"], "does not exist; create it first")):
            result = self.run_program("program", "draw", self.folder / "group.pt2", *words)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(len(result.stderr.splitlines()), 1)
            self.assertIn(message, result.stderr)
        broken = self.folder / "broken.pt2"
        broken.write_bytes((self.folder / "group.pt2").read_bytes()[:1000])
        result = self.run_program("program", "draw", broken)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("broken.pt2", result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1)

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

    SGD = ["--optimizer", "sgd", "--lr", 0.1, "--momentum", 0.9, "--schedule", "constant"]
    WAYS = {"ddp": ["--nproc-per-node", 2], "zero1": ["--nproc-per-node", 2, "--strategy", "zero1"],
            "dp": ["--strategy", "dp", "--devices", 2],
            "dp_on_each": ["--strategy", "dp", "--devices", 2, "--dp-loss", "on-each"],
            "threads": ["--strategy", "pipeline", "--stages", 2, "--micro-batches", 2],
            "ranks": ["--nproc-per-node", 2, "--strategy", "pipeline", "--stages", 2, "--micro-batches", 2],
            "hybrid": ["--nproc-per-node", 4, "--strategy", "hybrid", "--stages", 2, "--micro-batches", 2]}

    def train_on_tokens(self, out, *options):
        return self.train("language", out, "--data", self.tokens, *self.SGD, *options, recipe="program")

    def assert_close(self, got, expected, way):
        self.assertEqual(set(got), set(expected), way)
        for name, tensor in expected.items():
            torch.testing.assert_close(got[name], tensor, rtol=1e-5, atol=1e-6, msg=f"{way}: {name}")

    def validation_loss(self, report):
        return json.loads((self.folder / report).read_text())["validation"]["loss"]

    def test_a_program_that_returns_its_loss_trains_as_in_python(self):
        net = Language()
        net.load_state_dict(self.nets["language"].state_dict())
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        samples = {part: safetensors.torch.load_file(self.tokens / f"{part}.safetensors")
                   for part in ("train", "validation")}
        tensors = [[each["input_ids"].long(), each["labels"]] for each in samples.values()]
        expected = trained_in_python(net, shuffled_batches(tensors[0], 4))
        with torch.no_grad():
            loss = net(*tensors[1])["loss"].item()
        alone = self.train_on_tokens("tokens_alone", "--json", self.folder / "alone.json")
        self.assert_close(alone, expected, "single")
        self.assertAlmostEqual(self.validation_loss("alone.json"), loss, 5)
        for name, tensor in before.items():
            self.assertGreater((alone[name] - tensor).abs().max().item(), 1e-4, f"{name} has not been trained")
        for way, options in self.WAYS.items():
            report = self.folder / f"{way}.json"
            self.assert_close(self.train_on_tokens(f"tokens_{way}", "--json", report, *options), expected, way)
            self.assertAlmostEqual(self.validation_loss(report), loss, 5, way)

    def evaluated(self, out, *words):
        """The loss of the run `out` as `lockstep evaluate` computes it."""
        result = self.run_program("evaluate", self.folder / out, *words, "--threads", 1, "--accelerator", "cpu",
                                  "--json", self.folder / "evaluated.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads((self.folder / "evaluated.json").read_text())["loss"]

    def test_evaluate_computes_the_loss_of_the_run(self):
        self.train_on_tokens("tokens_evaluated", "--json", self.folder / "tokens_evaluated.json")
        self.assertEqual(self.evaluated("tokens_evaluated"), self.validation_loss("tokens_evaluated.json"))
        self.train("photo", "photo_evaluated", "--inputs", "pixel_values=images,labels=labels", *self.SGD,
                   "--json", self.folder / "photo_evaluated.json", recipe="program")
        self.assertEqual(self.evaluated("photo_evaluated"), self.validation_loss("photo_evaluated.json"))

    def test_a_run_on_tensors_goes_on_exactly(self):
        whole = self.train_on_tokens("tokens_whole", "--max-steps", 8)
        self.train_on_tokens("tokens_parts", "--max-steps", 3)
        resumed = self.train_on_tokens("tokens_parts", "--max-steps", 8, "--resume")
        for name, tensor in whole.items():
            self.assertTrue(torch.equal(resumed[name], tensor), name)

    def test_arrays_are_as_good_as_tensors(self):
        samples = safetensors.torch.load_file(self.tokens / "train.safetensors")
        arrays = self.folder / "arrays"
        arrays.mkdir()
        for name, tensor in samples.items():
            numpy.save(arrays / f"{name}.npy", tensor.numpy())
        states = [self.train_on_tokens(out, "--data", data)
                  for out, data in (("from_arrays", arrays), ("from_file", self.tokens / "train.safetensors"))]
        for name, tensor in states[0].items():
            self.assertTrue(torch.equal(states[1][name], tensor), name)
        seed = self.run_program("train", "program", "--program", self.folder / "language.pt2", "--data", arrays,
                                "--out", self.folder / "from_arrays", "--batch-size", 8, "--accelerator", "cpu",
                                *self.SGD, "--resume", "--seed", 1)
        self.assertNotEqual(seed.returncode, 0)
        self.assertIn("another split of the samples", seed.stderr)
        self.assertNotIn("--model", seed.stderr)

    def test_images_with_labels(self):
        data = self.folder / "mnist"
        data.mkdir()
        numbers = torch.Generator().manual_seed(0)
        for part, count in (("train", 40), ("t10k", 10)):
            images = torch.randint(256, (count, 28, 28), dtype=torch.uint8, generator=numbers)
            labels = torch.arange(count, dtype=torch.uint8) % 10
            header = lambda magic, *sizes: b"".join(each.to_bytes(4, "big") for each in (magic, *sizes))  # noqa: E731
            (data / f"{part}-images-idx3-ubyte").write_bytes(header(0x803, count, 28, 28) + images.numpy().tobytes())
            (data / f"{part}-labels-idx1-ubyte").write_bytes(header(0x801, count) + labels.numpy().tobytes())
            if part == "train":
                tensors = [((images[:, None] / 255 - 0.1307) / 0.3081), labels.long()]
        net = Labelled(1)
        net.load_state_dict(self.nets["digit"].state_dict())
        expected = trained_in_python(net, shuffled_batches(tensors, 4))
        inputs = ["--inputs", "pixel_values=images,labels=labels"]
        for way in ("single", "ddp", "dp", "threads"):
            state = self.train("digit", f"digit_{way}", *inputs, "--data", "mnist", *self.SGD, *self.WAYS.get(way, []),
                               recipe="program", LOCKSTEP_DATA=str(data))
            self.assert_close(state, expected, way)
        alone = self.train("photo", "photo", *inputs, *self.SGD, recipe="program")
        together = self.train("photo", "photo_ranks", *inputs, *self.SGD, *self.WAYS["ranks"], recipe="program")
        self.assert_close(together, alone, "photographs")

    def test_what_the_recipe_program_cannot_train_is_refused(self):
        def refusal(net, *words, command=("train", "program")):
            result = self.run_program(*command, *(["--program", self.folder / f"{net}.pt2"] if net else []), *words)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
            return result.stderr
        tokens = self.tokens / "train.safetensors"
        self.assertIn("give --program FILE", refusal(None, "--data", tokens))
        self.assertIn("program: give --data FILE.safetensors", refusal("language"))
        self.assertIn("the output 'features' is float32 [any, 8], expected the loss", refusal("group", "--data", tokens))
        self.assertIn("has the tensor 'input_ids', which is not an input; ", refusal("photo", "--data", tokens))
        self.assertIn("has no .npy files", refusal("photo", "--data", self.folder / "images"))
        self.assertIn("has no input 'images', it takes pixel_values, labels",
                      refusal("photo", "--data", self.folder / "images", "--inputs", "images=images"))
        self.assertIn("expected images, float32 [N, 3, H, W]",
                      refusal("digit", "--data", self.folder / "images", "--inputs",
                              "pixel_values=images,labels=labels"))
        self.assertIn("does not use its input 'input_ids'", refusal("one_tensor", "--data", tokens))
        self.assertIn("--loader cuda is about images", refusal("language", "--data", tokens, "--loader", "cuda"))
        self.train_on_tokens("evaluated")
        self.assertIn("whose model returns a loss and no predictions",
                      refusal(None, self.folder / "images/0/0.png",
                              command=("predict", self.folder / "evaluated/checkpoint.safetensors")))

    def test_calls_that_cannot_follow_the_mode_are_named(self):
        def lines(net):
            result = self.run_program("train", "classify", "--program", self.folder / f"{net}.pt2", "--data",
                                      self.folder / "images", "--batch-size", 8, "--max-steps", 1, "--threads", 1,
                                      "--accelerator", "cpu", "--nproc-per-node", 2, "--out", self.folder / f"fixed_{net}")
            self.assertEqual(result.returncode, 0, result.stderr)
            return [line for line in result.stderr.splitlines() if "the export has fixed the mode of some calls" in line]
        warnings = lines("attention")
        self.assertEqual(len(warnings), 1)
        self.assertIn("aten::scaled_dot_product_attention", warnings[0])
        self.assertEqual(lines("group"), [])

        result = self.run_program("program", "info", self.folder / "attention.pt2", "--json",
                                  self.folder / "attention.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("fixed modes aten::scaled_dot_product_attention", result.stdout)
        info = json.loads((self.folder / "attention.json").read_text())
        self.assertEqual(len(info["fixed_modes"]), 1)

    def test_the_summary_shows_modules_of_python(self):
        result = self.run_program("train", "classify", "--program", self.folder / "group.pt2", "--data",
                                  self.folder / "images", "--batch-size", 8, "--max-steps", 1, "--threads", 1,
                                  "--accelerator", "cpu", "--out", self.folder / "summary", "--model-summary", -1)
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = [line.split(None, 3) for line in (result.stdout + result.stderr).splitlines() if " x " in line]
        shapes = {row[0]: (row[1], row[3]) for row in rows if len(row) == 4}
        inputs = torch.zeros(8, 3, 16, 16)
        net = self.nets["group"].eval()
        hooks = [module.register_forward_hook(lambda module, _, output, name=name: self.assertEqual(
                     shapes[name], (type(module).__name__, " x ".join(map(str, output.shape)))))
                 for name, module in net.named_modules() if name and next(module.parameters(), None) is not None]
        self.assertGreater(len(hooks), 2)
        net(inputs)
        for hook in hooks:
            hook.remove()
        net.train()

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
        self.assertEqual(info["fixed_modes"], [])
        self.assertIn("images: float32 [any, 3, 16, 16]", result.stdout)
        self.assertNotIn("fixed modes", result.stdout)
        self.assertNotIn("unused", result.stdout)
        result = self.run_program("program", "info", self.folder / "one_tensor.pt2", "--json", self.folder / "info.json")
        self.assertIn("input_ids: int64 [any, 6], unused\n", result.stdout)
        inputs = json.loads((self.folder / "info.json").read_text())["inputs"]
        self.assertEqual([each.get("unused") for each in inputs], [True, None])


if __name__ == "__main__":
    unittest.main()
