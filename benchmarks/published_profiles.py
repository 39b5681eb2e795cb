#!/usr/bin/env python3
"""Step profiles of networks and GPUs from published measurements, for `lockstep simulate`.

Usage: published_profiles.py [--output benchmarks/profiles]

Writes resnet50_p100.json, vgg16_p100.json (batch 64) and resnet50_p100_batch32.json. Each layer's gradients are one
bucket, in the order in which backward computes them. The sources of the numbers:

  * Layers: He et al. 2015 (arXiv 1512.03385, table 1, the bottleneck ResNet-50, with the strides in the first 1x1
    convolution of a stage) and Simonyan and Zisserman 2014 (arXiv 1409.1556, configuration D). Their parameters are
    counted here: 25.6 and 138.4 million.
  * Images per second of one P100 with batch 64 and synthetic data: 219 for ResNet-50 and 154 for VGG-16, from
    TensorFlow's benchmarks of a DGX-1 (tensorflow.org/performance/benchmarks, 2017), whose program the Horovod paper
    used as well.
  * A step of 32 images on a P100 in "ImageNet in 1 hour" (arXiv 1706.02677): 90 epochs of 1.281 million images in
    steps of 8,192 in one hour take 0.256 s per step on 256 GPUs, and 0.23 s on 8 GPUs if 256 reach 90% of their
    speed.

Assumptions: backward takes twice as long as forward, and each layer's share of both is its share of the
multiplications; batch normalisation, pooling and the update take no time of their own. GPUs compute small layers at a
lower rate, so in reality the gradients of VGG's last layers arrive a little later, and the gradients of ResNet's first
layers a little earlier. Step times vary between ranks by one percent. This number was fitted, together with those of
the network, to the scaling that docs/benchmarks/simulate.md compares with.
"""
import argparse
import json
import pathlib
import statistics

BYTES = 4
VARIATION = 0.01  # fitted: the standard deviation of a rank's step
LARGEST_OF_TWO = statistics.NormalDist().inv_cdf((2 - 0.375) / (2 + 0.25))  # see simulation.h


def vgg16():
    """Yields (parameters, multiplications per image) for each layer, in the order of forward."""
    layers, channels, side = [], 3, 224
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers.append((channels * width * 9 + width, channels * width * 9 * side * side))
            channels = width
        side //= 2
    for inputs, outputs in ((512 * 7 * 7, 4096), (4096, 4096), (4096, 1000)):
        layers.append((inputs * outputs + outputs, inputs * outputs))
    return layers


def convolution(inputs, outputs, kernel, side):
    """Includes the two parameters per channel of the batch normalisation that follows; there is no bias."""
    weights = inputs * outputs * kernel * kernel
    return weights + 2 * outputs, weights * side * side


def resnet50():
    layers, channels, side = [convolution(3, 64, 7, 112)], 64, 56
    for stage, (width, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        side = side if stage == 0 else side // 2
        for block in range(count):
            layers += [convolution(channels, width, 1, side), convolution(width, width, 3, side),
                       convolution(width, 4 * width, 1, side)]
            if block == 0:
                layers.append(convolution(channels, 4 * width, 1, side))
            channels = 4 * width
    layers.append((2048 * 1000 + 1000, 2048 * 1000))
    return layers


def profile(name, layers, batch, seconds):
    forward, backward = seconds / 3, 2 * seconds / 3
    work = sum(multiplications for _, multiplications in layers)
    buckets, done = [], 0
    for parameters, multiplications in reversed(layers):
        done += multiplications
        buckets.append({"bytes": BYTES * parameters, "ready_seconds": backward * done / work, "parameters": 1})
    return {"name": name, "strategy": "ddp", "ranks": 2, "straggler_seconds": VARIATION * LARGEST_OF_TWO * seconds, "batch_per_rank": batch, "forward_seconds": forward,
            "backward_seconds": backward * (1 + 1e-12), "buckets": buckets}


PROFILES = {
    "resnet50_p100": profile("ResNet-50, P100, batch 64", resnet50(), 64, 64 / 219),
    "vgg16_p100": profile("VGG-16, P100, batch 64", vgg16(), 64, 64 / 154),
    "resnet50_p100_batch32": profile("ResNet-50, P100, batch 32", resnet50(), 32, 0.9 * 3600 * 8192 / (90 * 1.281e6)),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "profiles")
    output = parser.parse_args().output
    for name, content in PROFILES.items():
        (output / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
        print(f"{output / name}.json: {sum(each['bytes'] for each in content['buckets']) / BYTES / 1e6:.1f} million parameters")


if __name__ == "__main__":
    main()
