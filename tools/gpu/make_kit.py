#!/usr/bin/env python3
"""Makes the folder that `make gpu` runs on a machine with a GPU: programs, their libraries, and the scripts.

Usage: make_kit.py --build build/gpu --torch FOLDER [--kit build/gpu-kit] [--limit-mib 60]

FOLDER is the torch package that the programs were built with. KIT.tar.xz, beside the kit, is the kit as a single file.
The kit contains no torch, CUDA, NCCL or DALI: run.py finds those of the Python on the machine where it runs. Exits with 1
if the packed kit is larger than the limit, and names its largest files.
"""
import argparse
import json
import lzma
import pathlib
import shutil
import subprocess
import sys
import tarfile

import elf
from kit import commit_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
RPATH = ("$ORIGIN/../lib", "$ORIGIN/../site/torch/lib", "$ORIGIN/../site/nvidia/cu13/lib",
         "$ORIGIN/../site/nvidia/nccl/lib", "$ORIGIN/../site/nvidia/dali")
# The system's C and C++ libraries, which every machine has.
OF_THE_SYSTEM = ("ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libutil.so", "libresolv.so",
                 "libstdc++.so", "libgcc_s.so", "libatomic.so")
OF_DALI = "libdali"  # 300 MiB, from the packages of the Python on the machine with the GPU
PROGRAMS = ("lockstep", "optimizer_step", "tests_gpu_*", "cuda_call_counter.so", "lockstep_dali.so")
SCRIPTS = ("tools/gpu", "benchmarks/peers")
FIRST_TESTS = "tests_gpu_ranks"  # several ranks on GPUs, which nothing else can try


class KitError(Exception):
    pass


def libraries_of_torch(torch):
    """Returns the names of the libraries in torch's wheels."""
    folders = [torch / "lib", *(torch.parent / "nvidia").glob("*/lib")]
    return {file.name for folder in folders for file in folder.glob("*.so*")}


def where(program):
    """Returns {library name: file}, as the dynamic linker finds them."""
    lines = subprocess.run(["ldd", program], capture_output=True, text=True).stdout.splitlines()
    pairs = [line.split(" => ") for line in lines if " => " in line]
    return {name.strip(): pathlib.Path(found.split(" (")[0]) for name, found in pairs if not found.startswith("not found")}


def copy_program(file, folder):
    """Copies and strips the program, and removes this machine's paths from it."""
    copy = folder / file.name
    shutil.copy2(file, copy)
    stripped = subprocess.run(["strip", "--strip-unneeded", copy], capture_output=True, text=True)
    if stripped.returncode:
        raise KitError(f"strip {file}: {stripped.stderr.strip()}")
    elf.set_rpath(copy, ":".join(RPATH))
    return copy


def copy_libraries(programs, torch, folder):
    given = libraries_of_torch(torch)
    waiting, copied = list(programs), set()
    while waiting:
        file = waiting.pop()
        found = where(file)
        for name in elf.needed(file):
            if name in given or name in copied or name.startswith((*OF_THE_SYSTEM, OF_DALI)):
                continue
            if name not in found:
                raise KitError(f"{file.name} needs {name}, which is not on this machine")
            shutil.copy2(found[name].resolve(), folder / name)
            copied.add(name)
            waiting.append(found[name].resolve())
    return sorted(copied)


def version_of(torch):
    names = {}
    exec((torch / "version.py").read_text(), names)
    return names["__version__"]


def make(options):
    programs = sorted({file for pattern in PROGRAMS for file in options.build.glob(pattern) if file.is_file()})
    if options.build / "lockstep" not in programs or not any(file.name.startswith("tests_") for file in programs):
        raise KitError(f"{options.build} has no programs for a kit; `make gpu-kit` builds them")
    shutil.rmtree(options.kit, ignore_errors=True)
    for folder in ("bin", "lib"):
        (options.kit / folder).mkdir(parents=True)
    libraries = copy_libraries(programs, options.torch, options.kit / "lib")
    names = [copy_program(file, options.kit / "bin").name for file in programs]
    tests = sorted((name for name in names if name.startswith("tests_")), key=lambda name: (name != FIRST_TESTS, name))
    for scripts in SCRIPTS:
        shutil.copytree(ROOT / scripts, options.kit / scripts, ignore=shutil.ignore_patterns("__pycache__", "*.c*", "*.h"))
    (options.kit / "kit.json").write_text(json.dumps({
        "commit": commit_of(ROOT) or "unknown", "torch": version_of(options.torch),
        "tests": tests, "libraries": libraries}, indent=2) + "\n")


def pack(kit):
    packed = kit.with_name(kit.name + ".tar.xz")
    half = packed.with_suffix(".half")
    with lzma.open(half, "wb", preset=6) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(kit, kit.name)
    half.replace(packed)
    return packed


def check_size(kit, packed, limit_mib):
    mib = packed.stat().st_size / 2**20
    if mib <= limit_mib:
        print(f"{kit}: {mib:.1f} MiB packed ({packed})")
        return
    largest = sorted((file for file in kit.rglob("*") if file.is_file()), key=lambda file: -file.stat().st_size)[:3]
    names = ", ".join(f"{file.relative_to(kit)} {file.stat().st_size / 2**20:.1f} MiB" for file in largest)
    raise KitError(f"{packed} is {mib:.1f} MiB, more than {limit_mib:g}; its largest files: {names}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--torch", type=pathlib.Path, required=True)
    parser.add_argument("--kit", type=pathlib.Path, default=ROOT / "build/gpu-kit")
    parser.add_argument("--limit-mib", type=float, default=60)
    options = parser.parse_args()
    try:
        make(options)
        check_size(options.kit, pack(options.kit), options.limit_mib)
    except (KitError, elf.ElfError) as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
