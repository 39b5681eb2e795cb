"""Images per second of FFCV's loader, doing the work of `lockstep bench loader`.

Usage: loader_ffcv.py --data DIR --beton FILE [--dataset cifar10] [--threads 2] [--batch-size 256] [--rounds 3]
                      [--seconds 3]

FFCV (https://ffcv.io, the loader behind CIFAR-10 speed records) reads files in its own format: --beton is written
from --data once and kept. cifar10: raw pixels, flip, translate by 4 (its form of pad and crop), cutout of 8, to
float32, normalise. trashnet: JPEG, its random-resized crop to 128, flip, to float32, normalise. Its operators are
compiled by numba in a first epoch, which is not counted but printed as seconds_to_first_epoch. Its images are
channels-last, ours are planar. Prints a JSON object with images_per_second of each round.
"""
import argparse
import json
import pathlib
import time

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import (Cutout, NormalizeImage, RandomHorizontalFlip, RandomTranslate, ToTensor,
                             ToTorchImage)
from ffcv.writer import DatasetWriter
from PIL import Image

import images as data


class Cifar:
    def __init__(self, folder):
        pixels, self.labels = data.cifar10(folder)
        self.images = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], int(self.labels[index])


class Folder:
    """Images in the layout of torchvision's ImageFolder."""

    def __init__(self, folder):
        classes = sorted(path for path in folder.iterdir() if path.is_dir())
        self.files = [(file, label) for label, path in enumerate(classes) for file in sorted(path.glob("*.jpg"))]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file, label = self.files[index]
        return Image.open(file).convert("RGB"), label


def write(options):
    dataset, mode = (Cifar(options.data), "raw") if options.dataset == "cifar10" else (Folder(options.data), "jpg")
    half = options.beton.with_suffix(".half")
    DatasetWriter(str(half), {"image": RGBImageField(write_mode=mode), "label": IntField()},
                  num_workers=1).from_indexed_dataset(dataset)
    half.rename(options.beton)


def image_pipeline(dataset):
    mean, deviation = (np.array(values) * 255 for values in
                       (data.CIFAR10 if dataset == "cifar10" else data.IMAGENET))
    numbers = [NormalizeImage(mean, deviation, np.float32), ToTensor(), ToTorchImage()]
    if dataset == "cifar10":
        grey = tuple(int(value) for value in mean)
        return [SimpleRGBImageDecoder(), RandomHorizontalFlip(), RandomTranslate(padding=4, fill=(0, 0, 0)),
                Cutout(8, grey), *numbers]
    return [RandomResizedCropRGBImageDecoder((128, 128)), RandomHorizontalFlip(), *numbers]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--beton", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", choices=("cifar10", "trashnet"), default="cifar10")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    if not options.beton.exists():
        write(options)
    loader = Loader(str(options.beton), batch_size=options.batch_size, num_workers=options.threads,
                    order=OrderOption.RANDOM, os_cache=True, drop_last=True,
                    pipelines={"image": image_pipeline(options.dataset), "label": [IntDecoder(), ToTensor()]})
    begin = time.perf_counter()
    for _ in loader:
        pass
    first = time.perf_counter() - begin
    rates = []
    for _ in range(options.rounds):
        images, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < options.seconds:
            for batch in loader:
                images += len(batch[0])
                if time.perf_counter() - begin >= options.seconds:
                    break
        rates.append(images / (time.perf_counter() - begin))
    print(json.dumps({"loader": "ffcv", "threads": options.threads, "seconds_to_first_epoch": first,
                      "images_per_second": rates}))


if __name__ == "__main__":
    main()
