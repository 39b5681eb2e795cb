"""Compares MixUp and CutMix with torchvision.transforms.v2, given the lambdas and boxes that our program drew.

Usage: augment_mix_oracle.py PROGRAM

PROGRAM is augment_mix. Needs a Python with torchvision; otherwise exits with 77 (skipped) and the reason.
"""
import subprocess
import sys

try:
    import numpy as np
    import torch
    from torchvision.transforms import v2
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SHAPE = (6, 3, 20, 26)
CLASSES = 5
BATCHES = 25


def torchvision(kind, drawn):
    """torchvision's transform with our parameters in place of random ones."""
    if kind == "mixup":
        transform = v2.MixUp(num_classes=CLASSES)
        parameters = {"lam": drawn[0]}
    else:
        top, left, height, width = map(int, drawn[1:])
        transform = v2.CutMix(num_classes=CLASSES)
        parameters = {"box": (left, top, left + width, top + height), "lam_adjusted": drawn[0]}
    transform.make_params = lambda flat_inputs: parameters
    return transform


def main():
    program, = sys.argv[1:]
    images = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(SHAPE[0]) ** 2 % CLASSES
    good = True
    for kind in ("mixup", "cutmix"):
        result = subprocess.run([program, kind, *map(str, SHAPE), str(CLASSES), str(BATCHES)],
                                input=images.numpy().tobytes(), capture_output=True, check=True, timeout=60)
        numbers = np.frombuffer(result.stdout, np.float32).reshape(BATCHES, -1)
        drawn = [tuple(map(float, line.split())) for line in result.stderr.decode().splitlines()]
        assert len(drawn) == BATCHES
        for parameters, got in zip(drawn, numbers):
            expected = torchvision(kind, parameters)(images, labels)
            got_images, got_labels = got[:images.numel()], got[images.numel():]
            equal = (np.array_equal(got_images, expected[0].numpy().ravel())
                     and np.array_equal(got_labels, expected[1].numpy().ravel()))
            print(f"{kind} {parameters}: {'equal' if equal else 'DIFFERENT'}")
            good &= equal
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
