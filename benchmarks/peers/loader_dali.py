"""Images per second of NVIDIA DALI's CPU pipeline, doing the work of `lockstep bench loader`.

Usage: loader_dali.py --data DIR [--dataset cifar10] [--threads 2] [--batch-size 256] [--rounds 3] [--seconds 3]

cifar10: read from its binary files by an external source, padded beforehand: crop 32, flip, to float32 CHW,
normalise, and erase a square of 8 pixels. trashnet: JPEG files from DALI's file reader, decoded only as far as the
random-resized crop needs, resized to 128, flip, to float32 CHW, normalise. Random choices are DALI's own. Prints a
JSON object with images_per_second of each round.
"""
import argparse
import json
import pathlib
import time

import numpy as np
from nvidia.dali import fn, pipeline_def, types

import images as data

BYTES = 255.0


def read(folder):
    pixels = data.cifar10(folder)[0].transpose(0, 2, 3, 1)  # DALI crops HWC
    # Padded once in advance, which saves DALI an operator.
    return np.pad(pixels, ((0, 0), (4, 4), (4, 4), (0, 0)))


def batches(folder, size):
    images = read(folder)
    while True:
        order = np.random.permutation(len(images))
        for begin in range(0, len(order) - size + 1, size):
            yield images[order[begin:begin + size]]


def normalised(images, mean, deviation, **crop):
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(),
                                    mean=[BYTES * m for m in mean], std=[BYTES * d for d in deviation], **crop)


@pipeline_def
def cifar10(folder, size):
    images = fn.external_source(source=batches(folder, size), layout="HWC", no_copy=True)
    place = fn.random.uniform(range=[0.0, 1.0], shape=[2])
    images = normalised(images, *data.CIFAR10, crop=(32, 32), crop_pos_y=place[0], crop_pos_x=place[1])
    corner = fn.random.uniform(range=[-4.0, 28.0], shape=[2])
    return fn.erase(images, anchor=corner, shape=[8.0, 8.0], axis_names="HW", fill_value=0.0)


@pipeline_def
def trashnet(folder, _):
    files, labels = fn.readers.file(file_root=str(folder), random_shuffle=True, name="files")
    images = fn.decoders.image_random_crop(files, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
    images = fn.resize(images, size=[128, 128], antialias=True)
    return normalised(images, *data.IMAGENET), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", choices=("cifar10", "trashnet"), default="cifar10")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    make = {"cifar10": cifar10, "trashnet": trashnet}[options.dataset]
    pipeline = make(options.data, options.batch_size, batch_size=options.batch_size, num_threads=options.threads,
                    device_id=None)
    pipeline.build()
    for _ in range(10):
        pipeline.run()
    rates = []
    for _ in range(options.rounds):
        images, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < options.seconds:
            pipeline.run()
            images += options.batch_size
        rates.append(images / (time.perf_counter() - begin))
    print(json.dumps({"loader": "dali", "threads": options.threads, "images_per_second": rates}))


if __name__ == "__main__":
    main()
