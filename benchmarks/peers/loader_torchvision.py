"""Images a second of torchvision's DataLoader, with the work of `lockstep bench loader`.

Usage: loader_torchvision.py --data DIR [--workers 2] [--batch-size 256] [--rounds 3] [--seconds 3]

CIFAR-10 from its binary files, as tensors in memory: pad 4, crop 32, flip, to float32, normalise, and a
square of 8 pixels erased. Prints a JSON object with images_per_second of each round.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import torch
from torchvision.transforms import v2

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class Cutout(torch.nn.Module):
    """A square of `size` pixels around any pixel becomes 0 (DeVries, Taylor, 2017)."""

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
        files = [folder / f"data_batch_{number}.bin" for number in range(1, 6)]
        records = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3073) for file in files])
        self.labels = records[:, 0].astype(np.int64)
        self.images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
        self.transform = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(),
                                     v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION),
                                     Cutout(8)])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Cifar(options.data), options.batch_size, shuffle=True,
                                         num_workers=options.workers, persistent_workers=options.workers > 0)
    rates = []
    for _ in range(options.rounds):
        batches = iter(loader)
        next(batches)  # the workers have started
        images, begin = 0, time.perf_counter()
        for batch, _ in batches:
            images += len(batch)
            if time.perf_counter() - begin > options.seconds:
                break
        rates.append(images / (time.perf_counter() - begin))
    print(json.dumps({"loader": "torchvision", "workers": options.workers, "images_per_second": rates}))


if __name__ == "__main__":
    main()
