#!/usr/bin/env python3
"""Checks the layering of the rooms, and of the folders inside a room: which may include which.

Usage: check_layers.py [ROOT]     (default: the project that this file belongs to)

  * A room of lockstep/ includes only the rooms listed for it in ROOMS. A room's tests may include the room and
    all rooms that come earlier in ROOMS. Programs of tests/, examples/ and benchmarks/ outside a room may include everything.
  * The table of folders in a room's README has each folder of FOLDERS above those that it may include.
  * No folder has more than MOST_SOURCES sources. A header and the source of the same name count as one.
  * CUDA and NCCL headers appear only in *.cu, *_cuda.cpp, *_cuda.h and backends/nccl/.
  * Only what users compile (examples/ and tests/install/) includes LibTorch's collections of headers, such as
    <torch/nn.h>, which takes 4 s longer to compile than the headers of single modules.
  * Options of the command line (--name) stand only in messages of the rooms in KNOW_THE_PROGRAM, or inside a whole
    command that a message quotes in backticks. Errors of the others name fields, as C++ users know them, and
    lockstep/cli/flag_names.cpp translates these.
  * Every header has `#pragma once`. Our includes are spelled <lockstep/room/file.h>, and the files exist.

Prints a line for each violation, `file:line: what`, and exits with 1 if there is one.
"""
import pathlib
import re
import sys

# A room may include itself and the rooms named here, all of which come earlier in this list.
ROOMS = {
    "core": [],
    "formats": ["core"],
    "simulate": ["core"],
    "comm": ["core"],
    "data": ["core", "formats"],
    "models": ["core"],
    "optim": ["core"],
    "program": ["core", "formats"],
    "parallel": ["core", "comm", "data", "optim", "program"],
    "train": ["core", "formats", "comm", "data", "optim", "program", "parallel"],
    "report": ["core", "formats", "train"],
    "export": ["core", "formats"],
    "recipes": ["core", "formats", "comm", "data", "models", "optim", "program", "parallel", "train", "report"],
    "launch": ["core", "comm"],
    "bench": ["core", "formats", "comm", "data", "models", "optim", "parallel", "train", "report", "recipes", "launch"],
    "cli": ["core", "formats", "simulate", "comm", "data", "models", "optim", "program", "parallel", "train", "report", "export",
            "recipes", "launch", "bench"],
}
# The folders inside rooms. A folder may include itself and the folders that come earlier in its list. The table in the
# room's README has the reverse order: there a folder may include the rows below it.
FOLDERS = {
    "core": [".", "declarations", "encoding", "measuring", "trace"],
    "formats": [".", "torch_file"],
    "comm": ["waiting", "store", "rendezvous", "call", "kernels", "diagnostics", "backends", "algorithms", "backends/single",
             "backends/shm", "backends/c10d", "backends/gloo", "backends/nccl", "backends/hierarchical", "group"],
    "data": ["files", "images", "samplers", "augment", "augment/cuda", "augment/dali", "augment/dali/cuda_handles", "datasets",
             "loader", "loader/cuda", "preparation"],
    "models": ["kernels", "."],
    "program": ["graph", "."],
    "parallel": ["base", "ddp", "comm_hooks", "zero", "pipeline/schedule", "pipeline", "data_parallel", "."],
    "train": ["task", "checkpoints", "measuring", "optimization", "strategies", "."],
    "report": [".", "advice", "html", "loggers"],
    "export": ["onnx", "trace", "lowering", "."],
    "bench": [".", "loader", "pipeline", "collectives", "step", "strategies", "table"],
    "cli": [".", "run", "data", "explain", "simulate", "train", "trained", "export", "exported", "bench"],
}
# Transports include nothing of each other, except what c10d shares.
TRANSPORTS = {"backends/single", "backends/shm", "backends/gloo", "backends/nccl", "backends/hierarchical"}
# cli has the options. What recipes and report say is for its users.
KNOW_THE_PROGRAM = {"report", "recipes", "cli"}
MOST_SOURCES = 25  # per folder
TREES = ["lockstep", "tests", "examples", "benchmarks"]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
COUNTED = SUFFIXES | {".c", ".py", ".sh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Adjacent string literals, which the compiler joins; a comment, so that its quotation marks do not count.
LITERALS = re.compile(r'//[^\n]*|(?:"(?:[^"\\\n]|\\.)*"\s*)+')
# A row of the table of folders in a room's README.
ROW = re.compile(r"^\| (?:`([\w/]+)/`|(\(top level\)))", re.MULTILINE)
OPTION = re.compile(r"--[a-z][a-z-]*")
ACCELERATOR = re.compile(r"(cuda|cub|cublas|cudnn|nccl|nvml|thrust)[\w.]*(/|\.h|\b)|c10/cuda/|ATen/cuda/|"
                         r"torch/csrc/cuda/|.*ProcessGroupNCCL")
COLLECTIONS = {f"torch/{name}.h" for name in ("torch", "all", "nn", "nn/modules", "nn/functional", "optim", "data")}


def allowed_rooms(path):
    """Returns the rooms that the file may include; None if it may include all."""
    parts = path.parts
    if parts[0] == "lockstep" and len(parts) > 2:
        if parts[1] not in ROOMS:
            raise SystemExit(f"error: lockstep/{parts[1]} is not a room of tools/check_layers.py")
        return {parts[1], *ROOMS[parts[1]]}
    if parts[0] == "tests" and parts[1] in ROOMS:
        # A test may use every room that comes earlier in the list, for example as an oracle.
        order = list(ROOMS)
        return set(order[: order.index(parts[1]) + 1]) | set(ROOMS[parts[1]])
    return None


def folder_of(path):
    """The folder of a file inside its room; "." for a file that is in no folder."""
    return pathlib.PurePath(*path.parts[2:-1]).as_posix()


def allowed_folders(path):
    """Returns the folders of its own room that the file may include; None if it may include all."""
    if path.parts[0] != "lockstep" or path.parts[1] not in FOLDERS:
        return None
    order = FOLDERS[path.parts[1]]
    folder = folder_of(path)
    if folder not in order:
        raise SystemExit(f"error: {path.parent.as_posix()} is not a folder of tools/check_layers.py")
    others = TRANSPORTS - {folder} if folder.startswith("backends/") else set()
    return set(order[: order.index(folder) + 1]) - others


def full_folders(root):
    """Yields (folder, sources) for each folder with too many sources. A header and its source count as one."""
    sources = {}
    for tree in (*TREES, "python", "scripts", "tools"):
        for path in (root / tree).rglob("*"):
            if path.suffix in COUNTED:
                sources.setdefault(path.parent.relative_to(root), set()).add(path.stem)
    for folder, stems in sorted(sources.items()):
        if len(stems) > MOST_SOURCES:
            yield folder, len(stems)


def disorder(room, readme):
    """Returns what is wrong with the table in the README of `room`: it has all folders, each above those that it includes."""
    order = FOLDERS[room]
    named = [folder or "." for folder, _ in ROW.findall(readme)]
    name = lambda folder: "the row (top level)" if folder == "." else folder  # noqa: E731
    missing = {folder.split("/")[0] for folder in order} - {folder.split("/")[0] for folder in named}
    if missing:
        return f"the table of folders lacks {', '.join(map(name, sorted(missing)))}"
    if wrong := [folder for folder in named if folder not in order]:
        return f"{wrong[0]} is not a folder of tools/check_layers.py"
    for above, below in zip(named, named[1:]):
        if order.index(above) < order.index(below):
            return f"{name(below)} stands below {name(above)}, but may include it: swap them"
    return None


def messages(text):
    """Yields (line number, string) for each string of a source, as the compiler joins it."""
    for literals in LITERALS.finditer(text):
        if not literals[0].startswith("//"):
            yield text.count("\n", 0, literals.start()) + 1, re.sub(r'"\s*"', "", literals[0].rstrip())


def options_in_messages(text):
    """Yields (line number, option) for each option of the command line in a string outside quoted commands."""
    for number, message in messages(text):
        for option in OPTION.findall(re.sub(r"`[^`]*`", "", message)):
            yield number, option


def may_see_accelerator(path):
    return (path.suffix in {".cu", ".cuh"} or path.stem.endswith("_cuda") or
            path.parts[:4] == ("lockstep", "comm", "backends", "nccl"))


def may_include_collections(path):
    return path.parts[0] == "examples" or path.parts[:2] == ("tests", "install")


def violations(root, path):
    """Yields (line number, text) for the file `path`, relative to `root`."""
    text = (root / path).read_text(encoding="utf-8")
    lines = text.splitlines()
    if path.parts[0] == "lockstep" and path.parts[1] not in KNOW_THE_PROGRAM:
        for number, option in options_in_messages(text):
            yield number, (f"{option} is an option of the program; name the field, as in LoaderOptions::engine, and "
                           "translate it in lockstep/cli/flag_names.cpp")
    # Highway includes NAME-inl.h once per instruction set.
    if path.suffix in {".h", ".cuh"} and not path.stem.endswith("-inl") and "#pragma once" not in lines:
        yield 1, "a header needs #pragma once"
    allowed, folders = allowed_rooms(path), allowed_folders(path)
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        if ACCELERATOR.match(name) and not may_see_accelerator(path):
            yield number, f"<{name}> belongs in *.cu, *_cuda.cpp or backends/nccl/"
        if name in COLLECTIONS and not may_include_collections(path):
            yield number, f"<{name}> takes seconds to compile: include what is used, as in <torch/nn/modules/linear.h>"
        if name.startswith("lockstep/"):
            room = name.split("/")[1]
            if quote != "<":
                yield number, f'write <{name}> instead of "{name}"'
            if not (root / name).is_file():
                yield number, f"<{name}> does not exist"
            elif allowed is not None and room in ROOMS and room not in allowed:
                yield number, f"{path.parts[1]} must not include {room} (<{name}>)"
            elif folders is not None and room == path.parts[1] and folder_of(pathlib.PurePath(name)) not in folders:
                yield number, f"{folder_of(path)} of {room} must not include {folder_of(pathlib.PurePath(name))} (<{name}>)"
        elif quote == '"' and path.parts[0] == "lockstep":
            yield number, f'includes are spelled <lockstep/room/file.h>, got "{name}"'


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    files = sorted(path.relative_to(root) for tree in TREES for path in (root / tree).rglob("*")
                   if path.suffix in SUFFIXES)
    if not files:
        raise SystemExit(f"error: no sources under {root}")
    failed = 0
    for path in files:
        for number, text in violations(root, path):
            print(f"{path}:{number}: {text}")
            failed += 1
    for folder, number in full_folders(root):
        print(f"{folder}: {number} sources, of at most {MOST_SOURCES}")
        failed += 1
    for room in FOLDERS:
        readme = root / "lockstep" / room / "README.md"
        if readme.is_file() and (text := disorder(room, readme.read_text(encoding="utf-8"))):
            print(f"{readme.relative_to(root)}: {text}")
            failed += 1
    if failed:
        raise SystemExit(f"error: {failed} layering violation{'s' if failed > 1 else ''}")
    print(f"layers: {len(files)} files in order")


if __name__ == "__main__":
    main()
