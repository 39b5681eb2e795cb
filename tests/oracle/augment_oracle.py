"""Compares the native augmentation with torchvision.transforms on photographs.

Usage: augment_oracle.py PROGRAM

PROGRAM is augment_image, which applies the list of operators that CASES names. torchvision gets the parameters that
our random operators drew. Needs $LOCKSTEP_DATA/trashnet and a Python with torchvision; otherwise exits with 77
(skipped) and the reason.
"""
import os
import pathlib
import subprocess
import sys

try:
    import numpy as np
    import torch
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
    "grayscale": v2.Grayscale(),
    "grayscale_3": v2.Compose([v2.Pad(2, fill=77), v2.Grayscale(3), v2.RandomHorizontalFlip(1), v2.Resize((70, 80))]),
    "random_grayscale": v2.RandomGrayscale(1),
    "brightness": v2.ColorJitter(brightness=(1.7, 1.7)),
    "contrast_of_padded": v2.Compose([v2.Pad(9, fill=250), v2.CenterCrop((100, 141)),
                                      v2.ColorJitter(contrast=(0.3, 0.3))]),
    "saturation_of_crop": v2.Compose([v2.CenterCrop((31, 45)), v2.ColorJitter(saturation=(2.5, 2.5)),
                                      v2.Pad(3, fill=9)]),
    "hue": v2.ColorJitter(hue=(-0.31, -0.31)),
    "hue_by_nothing": v2.ColorJitter(hue=(0.001, 0.001)),
    "rotate_0": v2.RandomRotation((720, 720)),
    "rotate_90": v2.RandomRotation((90, 90), BILINEAR),
    "rotate_180": v2.RandomRotation((-180, -180)),
    "rotate_90_expand": v2.Compose([v2.RandomRotation((90, 90), expand=True), v2.Resize((50, 60))]),
    "rotate_30_expand": v2.Compose([v2.RandomRotation((30, 30), BILINEAR, expand=True, fill=33),
                                    v2.CenterCrop((190, 200))]),
    "rotate_flipped": v2.Compose([v2.RandomHorizontalFlip(1), v2.CenterCrop((99, 120)),
                                  v2.RandomRotation((-71.5, -71.5))]),
}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
ADJUST = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)


def jittered(image, *drawn):
    for adjust, factor in zip(drawn[::2], drawn[1::2]):
        image = ADJUST[int(adjust)](image, factor)
    return image


def tensor(image):
    return F.to_dtype(F.pil_to_tensor(image), torch.float32, scale=True)


def normalized(image):
    return F.normalize(image, MEAN[:len(image)], STD[:len(image)])


def erased(image, box, value):
    return F.erase(image, *map(int, box), torch.tensor(value))


def recipe(image, *drawn):
    image = F.crop(F.pad(image, [4], fill=30), *map(int, drawn[:4]))
    return erased(normalized(tensor(F.hflip(image) if drawn[4] else image)), drawn[5:], 0.0)


# Cases whose parameters our program draws. If a case returns a tensor, our list has a Normalize as well.
RANDOM_CASES = {
    "random_crop": lambda image, *box: F.crop(image, *map(int, box)),
    "random_resized_crop": lambda image, *box: F.resized_crop(image, *map(int, box), [128, 128], BILINEAR),
    "random_resized_crop_of_ratio": lambda image, *box: F.resized_crop(image, *map(int, box), [90, 128], BILINEAR),
    "color_jitter": jittered,
    "random_rotation": lambda image, angle: F.rotate(image, angle, fill=200),
    "random_rotation_bilinear": lambda image, angle: F.rotate(image, angle, BILINEAR),
    "normalize": lambda image: normalized(tensor(image)),
    "cutout": lambda image, *box: normalized(erased(tensor(image), box, 0.0)),
    "normalize_cutout": lambda image, *box: erased(normalized(tensor(image)), box, 0.0),
    "random_erasing": lambda image, *box: normalized(erased(tensor(image), box, 0.4)),
    "random_erasing_flip": lambda image, *drawn: normalized(F.vflip(erased(tensor(image), drawn[:4], 0.2))),
    "normalize_random_erasing": lambda image, *box: erased(normalized(tensor(image)), box, -1.3),
    "recipe": recipe,
}
# With ranges of a single value, only the position is random. The parts must have the same height and width as
# torchvision's.
PARTS = {
    "random_resized_crop_of_ratio": v2.RandomResizedCrop((90, 128), (0.2, 0.2), (1.3, 1.3)),
    "normalize_random_erasing": v2.RandomErasing(1, (0.2, 0.2), (2.5, 2.5)),
}
SAMPLES = 40  # per random case
NORMALIZED_TOLERANCE = 1e-6  # in float32, we multiply and add, while torchvision divides, subtracts and divides
# From Pillow 13 on, columns are resized first if the height shrinks much more than the width.
OTHER_ORDER = {"resize_twice"}
# Neighbouring pixels of a JPEG are similar. These are not, and include the extremes of all colours.
NOISE = np.random.default_rng(0).choice(np.r_[0:256, [0] * 40, [255] * 40], (138, 149, 3)).astype(np.uint8)


def ours(program, case, image, samples=1):
    pixels = np.asarray(image)
    height, width = pixels.shape[:2]
    channels = pixels.size // (height * width)
    result = subprocess.run([program, case, *map(str, (channels, height, width, samples))],
                            input=pixels.tobytes(), capture_output=True, check=True, timeout=60)
    drawn = [tuple(map(float, line.split())) for line in result.stderr.decode().splitlines()]
    return np.frombuffer(result.stdout, np.float32), drawn


def compare(name, case, got, image):
    in_bytes = not isinstance(image, torch.Tensor)
    expected = (np.atleast_3d(np.asarray(image)).transpose(2, 0, 1).astype(np.float32) if in_bytes
                else image.numpy())
    difference = np.abs(got.reshape(expected.shape) - expected)
    worst = float(difference.max())
    if not in_bytes:  # normalised values up to about 2.6
        print(f"{name}: largest difference {worst:.2g}")
        return worst < NORMALIZED_TOLERANCE
    equal = float((difference < 0.01).mean())
    print(f"{name}: largest difference {worst:.3f} of 255, {100 * equal:.3f}% of the pixels equal")
    if "resize" in case:  # ties may be rounded differently
        return worst <= 1.001 and equal > (0.75 if case in OTHER_ORDER else 0.99)
    return worst < 0.01


def parts_agree(name, drawn, image, transform):
    expected = transform.make_params([image])
    expected = (expected.get("height", expected.get("h")), expected.get("width", expected.get("w")))
    got = {box[2:] for box in drawn}
    print(f"{name}: parts of {got}, torchvision's are of {expected}")
    return got == {expected}


def main():
    program, = sys.argv[1:]
    data = os.environ.get("LOCKSTEP_DATA")
    folder = pathlib.Path(data or "") / "trashnet"
    if not data or not folder.is_dir():
        print("skipped: $LOCKSTEP_DATA has no trashnet/")
        sys.exit(77)
    box = (0, 0, 149, 138)  # odd, and not square
    images = {name: Image.open(folder / name).convert("RGB").crop(box) for name in PHOTOGRAPHS}
    images["noise"] = Image.fromarray(NOISE)
    images["grey"] = images[PHOTOGRAPHS[0]].convert("L")
    good = True
    for name, image in images.items():
        for case, transform in CASES.items():
            got, _ = ours(program, case, image)
            good &= compare(f"{name} {case}", case, got, transform(image))
        for case, transform in RANDOM_CASES.items():
            got, drawn = ours(program, case, image, SAMPLES)
            assert len(drawn) == SAMPLES
            for number, (parameters, numbers) in enumerate(zip(drawn, got.reshape(SAMPLES, -1))):
                good &= compare(f"{name} {case} {number} {parameters}", case, numbers, transform(image, *parameters))
            if case in PARTS:
                good &= parts_agree(f"{name} {case}", drawn, image, PARTS[case])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
