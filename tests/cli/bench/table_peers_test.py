"""PyTorch's programs that `lockstep bench table --with-peers` measures must run for each recipe, and do the same work
as ours.

Usage: table_peers_test.py PROGRAM [RANKS]. RANKS, such as 1,2, are the numbers of ranks for each recipe; by default only
mnist is trained on one rank, too. Skipped (77) without torchvision, which tools/bootstrap.sh peers installs.
"""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

PEERS = pathlib.Path(__file__).resolve().parents[3] / "benchmarks/peers"
PYTHON = PEERS.parents[1] / ".deps/peers/bin/python"
IMAGES = 40
CIFAR_RECORDS = 10000


def idx(values):
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">i4").tobytes()
    return gzip.compress(header + values.astype(np.uint8).tobytes())


def write_mnist(folder, random):
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(idx(random.integers(0, 256, (IMAGES, 28, 28))))
        (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(IMAGES) % 10))


def write_cifar10(folder, random):
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        records = np.zeros((CIFAR_RECORDS, 3073), np.uint8)  # CIFAR-10's files have a fixed size
        records[:, 0] = np.arange(CIFAR_RECORDS) % 10
        records[:IMAGES, 1:] = random.integers(0, 256, (IMAGES, 3072))
        (folder / f"{name}.bin").write_bytes(records.tobytes())


def write_photos(folder, random):
    from PIL import Image
    for number in range(IMAGES):
        label = folder / f"class{number % 2}"
        label.mkdir(exist_ok=True)
        Image.fromarray(random.integers(0, 256, (80, 90, 3)).astype(np.uint8)).save(label / f"{number}.png")


RECIPES = {"mnist": (write_mnist, "1,2", []), "cifar10": (write_cifar10, "2", []),
           "autoencoder": (write_photos, "2", ["--image-size", "40"]),
           "classify": (write_photos, "2", ["--image-size", "64"])}


def rows_of(program, recipe, ranks, more, folder):
    report = folder / "rows.json"
    command = [program, "bench", "table", recipe, "--ranks", ranks, "--strategies", "ddp", "--batch-per-rank", "4",
               "--epochs", "2", "--max-steps", "2", "--threads", "1", "--accelerator", "cpu", "--data", folder,
               "--with-peers", "--peer-python", PYTHON, "--peers", PEERS, "--json", report, *more]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert result.returncode == 0, f"{recipe}: {result.stderr}"
    return json.loads(report.read_text())


def check(recipe, ranks, rows):
    ranks = [int(number) for number in ranks.split(",")]
    assert [row["ranks"] for row in rows[::2]] == ranks, (recipe, rows)
    for ours, theirs in zip(rows[::2], rows[1::2], strict=True):
        assert ours["peer"] is None and theirs["peer"].startswith("torch "), (recipe, theirs)
        for same in ("recipe", "strategy", "ranks", "threads_per_rank", "batch_per_rank", "iterations_per_epoch",
                     "device"):
            assert ours[same] == theirs[same], (recipe, same, ours[same], theirs[same])
        for positive in ("epoch_s", "images_per_second", "cpu_utilisation", "setup_loader_s", "setup_model_s",
                         "peak_rss_bytes", "seconds_to_first_step", *(["efficiency"] if 1 in ranks else [])):
            assert theirs[positive] > 0, (recipe, positive, theirs[positive])
        # Both train whole epochs of equal steps, which have the same number of images in the end.
        assert abs(theirs["images_per_second"] * theirs["epoch_s"] - 8 * ours["ranks"]) < 1e-6, (recipe, theirs)
    assert rows[-1]["backend"] == "gloo" and rows[-1]["setup_group_s"] > 0, rows[-1]


def main():
    if not PYTHON.exists():
        print(f"skipped: there is no {PYTHON}, which tools/bootstrap.sh peers makes")
        return 77
    for recipe, (write, ranks, more) in RECIPES.items():
        ranks = sys.argv[2] if len(sys.argv) > 2 else ranks
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder), np.random.default_rng(1))
            rows = rows_of(sys.argv[1], recipe, ranks, more, pathlib.Path(folder))
            check(recipe, ranks, rows)
            print(f"{recipe}: {len(rows)} rows, half of them PyTorch's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
