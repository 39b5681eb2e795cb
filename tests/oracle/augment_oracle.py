"""Compares the native augmentation with torchvision.transforms on photographs.

Usage: augment_oracle.py PROGRAM

PROGRAM is augment_image, which applies the list that CASES names. Random operators are given to
torchvision with the parameters that we drew. Needs $LOCKSTEP_DATA/trashnet and a Python with torchvision;
exits with 77 (skipped) and the reason without them.
"""
import os
import pathlib
import subprocess
import sys

try:
    import numpy as np
    from PIL import Image
    from torchvision.transforms import InterpolationMode, v2
    from torchvision.transforms.v2 import functional as F
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PHOTOGRAPHS = ("glass/glass115.jpg", "paper/paper100.jpg", "trash/trash42.jpg")
BILINEAR = InterpolationMode.BILINEAR

CASES = {
    "resize_smaller": v2.Resize((48, 64)),
    "resize_larger": v2.Resize((211, 300)),
    "resize_one_axis": v2.Resize((150, 77)),
    "resize_shorter_side": v2.Compose([v2.Resize(96), v2.CenterCrop((80, 96))]),
    "center_crop": v2.CenterCrop((133, 64)),
    "center_crop_of_less": v2.CenterCrop((201, 100)),
    "pad": v2.Pad(3, fill=200),
    "flips": v2.Compose([v2.RandomHorizontalFlip(1), v2.RandomVerticalFlip(1)]),
    "flip_pad_resize": v2.Compose([v2.RandomHorizontalFlip(1), v2.Pad(5, fill=90), v2.Resize((60, 61))]),
    "resize_twice": v2.Compose([v2.Resize((100, 90)), v2.Resize((33, 70))]),
}
SAMPLES = 40  # of the random case
# From Pillow 13 on, columns come first where the height shrinks much more than the width.
OTHER_ORDER = {"resize_twice"}


def ours(program, case, image, samples=1):
    pixels = np.asarray(image)
    height, width, _ = pixels.shape
    result = subprocess.run([program, case, str(height), str(width), str(samples)], input=pixels.tobytes(),
                            capture_output=True, check=True, timeout=60)
    drawn = [tuple(map(int, line.split())) for line in result.stderr.decode().splitlines()]
    return np.frombuffer(result.stdout, np.float32), drawn


def compare(case, got, image):
    expected = np.asarray(image).transpose(2, 0, 1).astype(np.float32)
    got = got.reshape(expected.shape)
    worst = float(np.abs(got - expected).max())
    equal = float((np.abs(got - expected) < 0.01).mean())
    print(f"{case}: largest difference {worst:.3f} of 255, {100 * equal:.3f}% of the pixels equal")
    return worst <= 1.001 and equal > (0.75 if case.split()[1] in OTHER_ORDER else 0.99)


def main():
    program, = sys.argv[1:]
    data = os.environ.get("LOCKSTEP_DATA")
    folder = pathlib.Path(data or "") / "trashnet"
    if not data or not folder.is_dir():
        print("skipped: $LOCKSTEP_DATA has no trashnet/")
        sys.exit(77)
    good = True
    for name in PHOTOGRAPHS:
        image = Image.open(folder / name).convert("RGB").crop((0, 0, 149, 138))  # odd, and no square
        for case, transform in CASES.items():
            got, _ = ours(program, case, image)
            good &= compare(f"{name} {case}", got, transform(image))
        got, boxes = ours(program, "random_resized_crop", image, SAMPLES)
        assert len(boxes) == SAMPLES
        for number, (box, numbers) in enumerate(zip(boxes, got.reshape(SAMPLES, -1))):
            expected = F.resized_crop(image, *box, [128, 128], BILINEAR)
            good &= compare(f"{name} random_resized_crop {number} {box}", numbers, expected)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
