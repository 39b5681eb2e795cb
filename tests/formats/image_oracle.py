"""Compares our decoder with PIL's convert("RGB") and torchvision.io, bit for bit. PNGs of 16-bit grey,
which PIL saturates, are compared with their high bytes.

Usage: image_oracle.py IMAGE_CHECKSUMS

Reads the photographs in LOCKSTEP_DATA/trashnet, if there are any, and images of every kind that PIL
writes. Exits with 77 (skipped) when Python lacks PIL or torchvision.
"""
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

try:
    import numpy as np
    from PIL import Image
    from torchvision.io import ImageReadMode, decode_image, read_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


def picture(width, height):
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    noise = np.random.default_rng(1).integers(0, 40, (height, width, 3))
    return np.stack([x * 3 + y, y * 5, x * y // 9], axis=-1) % 200 + noise


def write_images(folder):
    """Writes a file of every kind that PIL can write."""
    rgb = Image.fromarray(picture(131, 97).astype(np.uint8))
    for mode in ("L", "RGB", "CMYK"):
        for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
            for progressive in (False, True):
                name = f"{mode}_{subsampling.replace(':', '')}_{progressive}.jpg"
                rgb.convert(mode).save(folder / name, subsampling=subsampling, progressive=progressive, quality=83)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees, which no reader applies
    rgb.save(folder / "exif.jpg", exif=exif)
    rgb.save(folder / "profile.jpg", icc_profile=b"no profile at all")
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        rgb.convert(mode).save(folder / f"{mode}.png")
    rgb.convert("P").save(folder / "transparent.png", transparency=bytes(range(256)))
    for colors in (2, 4, 16):
        rgb.quantize(colors).save(folder / f"palette{colors}.png", bits=colors.bit_length() - 1)
    whole = (folder / "RGB.png").read_bytes()
    (folder / "no_end.png").write_bytes(whole[:-12])
    data = whole.index(b"IDAT")
    chunk = whole[data:-16] + b"more"
    (folder / "surplus.png").write_bytes(whole[:data - 4] + struct.pack(">I", len(chunk) - 4) + chunk +
                                         struct.pack(">I", zlib.crc32(chunk)) + whole[-12:])
    Image.fromarray((picture(31, 17)[..., 0] * 257).astype(np.uint16)).save(folder / "grey16.png")


def of_pil(path):
    image = Image.open(path)
    if image.mode == "I;16":  # the only kind that we read differently, see png.h
        grey = np.asarray(image)
        theirs = np.asarray(image.convert("RGB"))
        assert (theirs == np.minimum(grey, 255)[..., None]).all(), "PIL no longer clips 16-bit grey: correct png.h"
        return np.repeat((grey >> 8).astype(np.uint8)[..., None], 3, axis=2)
    return np.asarray(image.convert("RGB"))


def of_torchvision(path):
    return decode_image(read_file(str(path)), ImageReadMode.RGB).permute(1, 2, 0).numpy()


def line_of(pixels):
    return f"{zlib.crc32(np.ascontiguousarray(pixels))} {pixels.shape[1]} {pixels.shape[0]}"


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_images(folder)
        files = sorted(folder.iterdir())
        photographs = pathlib.Path(os.environ.get("LOCKSTEP_DATA", "/nowhere")) / "trashnet"
        files += sorted(photographs.rglob("*.jpg"))
        ours = subprocess.run([sys.argv[1]], input="".join(f"{file}\n" for file in files), text=True,
                              capture_output=True, check=True).stdout.splitlines()
        assert len(ours) == len(files), f"{len(ours)} lines for {len(files)} files"
        wrong = 0
        for file, line in zip(files, ours):
            expected = {"PIL": line_of(of_pil(file))}
            # torchvision differs in transparency and CMYK; otherwise it reads with the libraries that PIL uses.
            if (file.suffix == ".jpg" and not file.name.startswith("CMYK")) or file.stem in ("no_end", "surplus"):
                expected["torchvision"] = line_of(of_torchvision(file))
            for peer, theirs in expected.items():
                if line != theirs:
                    wrong += 1
                    print(f"{file.name}: {peer} reads {theirs}, ours is {line}")
        print(f"{len(files)} files, {wrong} differ")
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
