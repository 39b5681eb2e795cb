#!/usr/bin/env python3
"""Measures how many seconds listing an image folder takes: alternates between load_image_folder() and torchvision's
ImageFolder.

Usage: folder_listing.py [--files 100000] [--classes 10] [--rounds 7] [--program build/release/folder_listing]

Makes a folder of empty files, CLASS/NUMBER.jpg, and lists it in alternating rounds from the file system's cache: only
names are read. Without torchvision, the script contains the functions that its ImageFolder calls (0.26). Exits with 1
if ours takes longer.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from provenance import ROOT

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")

try:
    from torchvision.datasets.folder import find_classes, make_dataset
    PEER = "torchvision"
except ImportError:
    PEER = "torchvision's functions, without torchvision"

    def find_classes(directory):
        classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        return classes, {name: i for i, name in enumerate(classes)}

    def make_dataset(directory, class_to_idx, extensions):
        instances = []
        for target_class in sorted(class_to_idx.keys()):
            class_index = class_to_idx[target_class]
            target_dir = os.path.join(directory, target_class)
            if not os.path.isdir(target_dir):
                continue
            for root, _, names in sorted(os.walk(target_dir, followlinks=True)):
                for name in sorted(names):
                    path = os.path.join(root, name)
                    if path.lower().endswith(extensions):
                        instances.append((path, class_index))
        return instances


def make_folder(folder, files, classes):
    for label in range(classes):
        (folder / f"class{label:03}").mkdir()
    for i in range(files):
        (folder / f"class{i % classes:03}" / f"image_{i:08}.jpg").touch()


def seconds_of_peer(folder):
    begin = time.perf_counter()
    _, class_to_idx = find_classes(folder)
    samples = make_dataset(folder, class_to_idx, extensions=EXTENSIONS)
    return time.perf_counter() - begin, len(samples)


def seconds_of_ours(program, folder):
    seconds, size = subprocess.run([program, folder], check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), int(size)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/folder_listing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        make_folder(pathlib.Path(name), arguments.files, arguments.classes)
        ours, peer = [], []
        for _ in range(arguments.rounds):
            for seconds, lister in ((ours, lambda: seconds_of_ours(arguments.program, name)),
                                    (peer, lambda: seconds_of_peer(name))):
                taken, size = lister()
                assert size == arguments.files, f"listed {size} of {arguments.files} files"
                seconds.append(taken)
    for title, seconds in (("load_image_folder()", ours), (PEER, peer)):
        print(f"{title}: {statistics.median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f})")
    return 0 if statistics.median(ours) <= statistics.median(peer) else 1


if __name__ == "__main__":
    sys.exit(main())
