"""Compiles what a user's project includes and writes with the warnings that careful projects turn on as errors.

Usage: strict_compilation.py COMPILER SOURCE_DIR WORK_DIR INCLUDE_DIR_OF_LIBTORCH...

With g++ each header that a user's includes lead to and that needs no LibTorch is a translation unit of its own. Those
that need it take seconds each; they share a precompiled header of LibTorch and one unit, the remaining headers another.
With another compiler all headers come in these two. Then come call_style.cpp, the calls that the guides show,
from_pytorch.cpp, the lines of docs/from_pytorch.md, and with another compiler than g++ the examples, which run.sh
compiles with the same warnings by g++. Nothing is optimised or linked.
Before all that, lockstep.h below C++20 must be a single error.
"""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
LIBTORCH = "#include <torch/torch.h>\n"
ENTRANCES = ("lockstep/lockstep.h", "lockstep/launch/launcher.h", "lockstep/train/trainer.h")
# Other packages' headers are not everywhere; -inl.h is the inside of a header.
LEFT_OUT = ("lockstep/cli/", "backends/gloo", "backends/nccl", "augment/cuda", "augment/dali", "-inl.h")


def public_headers(source):
    """What `cmake --install` installs."""
    names = [path.relative_to(source).as_posix() for path in sorted((source / "lockstep").rglob("*.h"))]
    return [name for name in names if not any(part in name for part in LEFT_OUT)]


def includes(source, name):
    text = (source / name).read_text()
    return re.findall(r'^#include [<"]([^>"]+)[>"]', text, re.M)


def uses_libtorch(source, name, known):
    """Whether a header leads to one of LibTorch, directly or through ours."""
    if name not in known:
        known[name] = False  # headers do not include each other in a circle
        known[name] = any(
            each.startswith(("torch/", "ATen/", "c10/")) or
            ((source / each).is_file() and uses_libtorch(source, each, known))
            for each in includes(source, name))
    return known[name]


def reached_from(source, names):
    """`names` and our headers that they lead to."""
    found, open_names = set(), list(names)
    while open_names:
        name = open_names.pop()
        if name not in found and (source / name).is_file():
            found.add(name)
            open_names += includes(source, name)
    return found


class Compiler:
    def __init__(self, program, source, work, torch):
        self.work = work
        self.command = [program, "-std=c++20", *WARNINGS, f"-I{source}", *(f"-isystem{path}" for path in torch)]
        self.clang = "clang" in subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        work.mkdir(parents=True, exist_ok=True)

    def precompile(self):
        header = self.work / "libtorch.h"
        header.write_text(LIBTORCH)
        output = header.with_name(header.name + (".pch" if self.clang else ".gch"))
        self.check([*self.command, "-x", "c++-header", str(header), "-o", str(output)], "LibTorch")
        self.with_libtorch = ["-include-pch", str(output)] if self.clang else ["-include", str(header)]

    def check(self, command, what):
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"{what} does not compile with {' '.join(WARNINGS)}:\n{result.stderr[:4000]}")

    def compile(self, what, path, libtorch):
        self.check([*self.command, *(self.with_libtorch if libtorch else []), "-fsyntax-only", str(path)], what)

    def unit(self, name, headers):
        path = self.work / (re.sub(r"\W", "_", name) + ".cpp")
        path.write_text("".join(f"#include <{header}>\n" for header in headers))
        return path


def units(compiler, source):
    """(what it is, file, whether it needs LibTorch) of everything to compile."""
    known = {}
    headers = public_headers(source)
    plain = [name for name in headers if not uses_libtorch(source, name, known)]
    yield "the headers with LibTorch", compiler.unit("with LibTorch", [h for h in headers if h not in plain]), True
    alone = [] if compiler.clang else [name for name in plain if name in reached_from(source, ENTRANCES)]
    yield "the other headers", compiler.unit("others", [name for name in plain if name not in alone]), False
    for name in alone:
        yield name, compiler.unit(name, [name, name]), False  # twice: it has its guard
    examples = sorted((source / "examples").rglob("*.cpp")) if compiler.clang else []
    for path in [*examples, *(source / "tests/install" / name for name in ("call_style.cpp", "from_pytorch.cpp"))]:
        yield path.relative_to(source).as_posix(), path, True


def check_older_standard(compiler, source):
    unit = compiler.unit("older standard", ["lockstep/lockstep.h"])
    command = [*compiler.command, "-std=c++17", "-fsyntax-only", str(unit)]
    errors = re.findall(r"error: .*", subprocess.run(command, capture_output=True, text=True).stderr)
    if len(errors) != 1 or "C++20" not in errors[0]:
        raise SystemExit(f"lockstep.h below C++20: expected one error that says so, got {errors[:5]}")


def main():
    program, source, work, *torch = sys.argv[1:]
    if shutil.which(program) is None:
        print(f"skipped: there is no {program}")
        sys.exit(77)
    source = pathlib.Path(source)
    compiler = Compiler(program, source, pathlib.Path(work), torch)
    check_older_standard(compiler, source)
    compiler.precompile()
    everything = list(units(compiler, source))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for _ in pool.map(lambda unit: compiler.compile(*unit), everything):
            pass
    print(f"{len(everything)} units compile with {program}")


if __name__ == "__main__":
    main()
