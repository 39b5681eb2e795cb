#!/usr/bin/env python3
"""Checks what the documentation says against the sources.

Usage: check_documentation.py [ROOT]     (default: the project that this file belongs to)

  * Every environment variable that lockstep/ and python/ read or set stands in the first column of a table of
    docs/environment.md, and every LOCKSTEP_ variable there occurs in the project.
  * Every C++ block of a guide in docs/ is a part of the example named beside it in GUIDES, line by line,
    whatever its indentation: what is compiled and run is what is shown.

Prints a line for each violation and ends with 1 if there is one.
"""
import pathlib
import re
import sys

TABLE = "docs/environment.md"
GUIDES = {"docs/communication.md": "examples/02_communication/main.cpp",
          "docs/distributed_data_parallel.md": "examples/03_training_on_many_ranks/main.cpp",
          "docs/loading_data.md": "examples/04_loading_data/main.cpp",
          "docs/training_loop.md": "examples/05_training_loop/main.cpp"}
READERS = ["lockstep", "python"]
USERS = [*READERS, "tests", "tools", "cmake", "CMakeLists.txt", "Makefile"]
READ = re.compile(r'(?:environment_(?:string|integer|flag)|\bgetenv|environ\.get)\(\s*"(\w+)"')
# A name that goes through a helper, in a file that reads the environment.
NAME = re.compile(r'"([A-Z]+(?:_[A-Za-z0-9]+)+)"')


def texts(root, places, suffixes):
    """(path, text) of the files under `places`."""
    for place in places:
        paths = [root / place] if (root / place).is_file() else sorted((root / place).rglob("*"))
        for path in paths:
            if path.is_file() and (path == root / place or path.suffix in suffixes):
                yield path.relative_to(root), path.read_text(encoding="utf-8")


def variables_read(root):
    """{variable: the first file that reads it}"""
    found = {}
    for path, text in texts(root, READERS, {".h", ".cpp", ".py"}):
        names = READ.findall(text)
        if "core/environment.h>" in text:
            names += NAME.findall(text)
        for name in names:
            found.setdefault(name, path)
    return found


def variables_documented(root):
    """{variable: its line in the table}"""
    found = {}
    for number, line in enumerate((root / TABLE).read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("|"):
            for name in re.findall(r"`([A-Za-z_0-9]+)`", line.split("|")[1]):
                found.setdefault(name, number)
    return found


def wrong_variables(root):
    read, documented = variables_read(root), variables_documented(root)
    for name, path in sorted(read.items()):
        if name not in documented:
            yield f"{path}: names {name}, which is missing in {TABLE}"
    used = "\n".join(text for _, text in texts(root, USERS, {".h", ".cpp", ".py", ".sh", ".txt", ".cmake"}))
    for name, number in documented.items():
        if name.startswith("LOCKSTEP_") and not re.search(rf"\b{name}\b", used):
            yield f"{TABLE}:{number}: nothing reads {name}"


def wrong_code(root):
    for guide, example in GUIDES.items():
        lines = [line.strip() for line in (root / example).read_text(encoding="utf-8").splitlines()]
        text = (root / guide).read_text(encoding="utf-8")
        for block in re.finditer(r"^```cpp\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            shown = [line.strip() for line in block.group(1).splitlines()]
            if not any(lines[i : i + len(shown)] == shown for i in range(len(lines))):
                number = text.count("\n", 0, block.start()) + 1
                yield f"{guide}:{number}: this code is not in {example}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    failed = 0
    for text in [*wrong_variables(root), *wrong_code(root)]:
        print(text)
        failed += 1
    if failed:
        raise SystemExit(f"error: {failed} thing{'s' if failed > 1 else ''} in the documentation that is not so")
    print(f"documentation: {len(variables_documented(root))} variables and the code of {len(GUIDES)} guides as they are")


if __name__ == "__main__":
    main()
