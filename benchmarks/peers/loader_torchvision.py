"""Images per second of torchvision's DataLoader, doing the work of `lockstep bench loader`.

Usage: loader_torchvision.py --data DIR [--dataset cifar10] [--workers 2] [--batch-size 256] [--rounds 3]
                             [--seconds 3]

cifar10: from its binary files, as tensors in memory: pad 4, crop 32, flip, to float32, normalise, and erase a square
of 8 pixels. trashnet: JPEG files from ImageFolder (PIL), random-resized crop to 128, flip, to float32, normalise.
Prints a JSON object with images_per_second of each round.
"""
import argparse
import json
import pathlib
import time

import torch
import torchvision
from torchvision.transforms import v2

import images as data


class Cutout(torch.nn.Module):
    """Sets a square of `size` pixels around a random pixel to 0 (DeVries, Taylor, 2017)."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, image):
        height, width = image.shape[-2:]
        top = int(torch.randint(height, (1,))) - self.size // 2
        left = int(torch.randint(width, (1,))) - self.size // 2
        image[:, max(top, 0):top + self.size, max(left, 0):left + self.size] = 0
        return image


class Cifar(torch.utils.data.Dataset):
    def __init__(self, folder):
        pixels, self.labels = data.cifar10(folder)
        self.images = torch.from_numpy(pixels.copy())
        self.transform = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(),
                                     v2.ToDtype(torch.float32, scale=True), v2.Normalize(*data.CIFAR10),
                                     Cutout(8)])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def trashnet(folder):
    # The usual order with PIL: geometric operations on the image, numeric ones afterwards.
    return torchvision.datasets.ImageFolder(folder, v2.Compose([
        v2.RandomResizedCrop(128), v2.RandomHorizontalFlip(), v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True), v2.Normalize(*data.IMAGENET)]))


def rate(loader, seconds):
    """Images per second over `seconds` of consecutive epochs, measured once the workers have started."""
    batches = iter(loader)
    next(batches)
    images, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
        else:
            images += len(batch[0])
    return images / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", choices=("cifar10", "trashnet"), default="cifar10")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = {"cifar10": Cifar, "trashnet": trashnet}[options.dataset](options.data)
    loader = torch.utils.data.DataLoader(dataset, options.batch_size, shuffle=True, num_workers=options.workers,
                                         persistent_workers=options.workers > 0)
    rates = [rate(loader, options.seconds) for _ in range(options.rounds)]
    print(json.dumps({"loader": "torchvision", "workers": options.workers, "images_per_second": rates}))


if __name__ == "__main__":
    main()
