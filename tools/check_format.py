#!/usr/bin/env python3
"""Checks the form of the C++ sources: clang-format, line length, and words that comments must not use.

Usage: check_format.py [ROOT]     (default: the project that this file belongs to)

  * Every source is formatted as clang-format 19.1.7 of .deps/venv formats it (`make format`). Without that program
    this check is skipped, and a line says so.
  * No line has more than 100 columns, except inside raw strings and between `// clang-format off` and `on`.
  * No comment begins with a word in OPENINGS, in capitals or not, and none contains a phrase in PHRASES: such comments
    make readers guess the subject (CONTRIBUTING.md, "How code looks here").

Prints a line for each violation, `file:line: what`, and exits with 1 if there is one.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

TREES = ["lockstep", "tests", "examples", "benchmarks", "python"]
SUFFIXES = {".h", ".cpp", ".cu"}
COLUMNS = 100
CLANG_FORMAT = ".deps/venv/bin/clang-format"
FILES_AT_ONCE = 100
OPENINGS = re.compile(r"(of|who|whose|whom|those|not of|the same)\b", re.IGNORECASE)
PHRASES = re.compile(r"\bso (?:many|much)\b(?! as| that)")
COMMENT = re.compile(r"^\s*(///?<?)(?: (.*))?$")
TRAILING = re.compile(r"""^(?:[^"'/]|/(?!/)|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*?\S\s+(///?<?) (.*)$""")
RAW = re.compile(r'R"(\w*)\(')


def outside_raw_strings(lines):
    """Yields (number, line) for the lines that are not part of a raw string."""
    end = None
    for number, line in enumerate(lines, 1):
        if end is not None:
            end = None if end in line else end
            continue
        if match := RAW.search(line):
            close = f"){match[1]}\""
            end = None if close in line[match.end():] else close
            continue
        yield number, line


def comments(lines):
    """Yields (number, text, whether it begins a comment) for every line with a comment."""
    inside = False
    for number, line in outside_raw_strings(lines):
        if match := COMMENT.match(line):
            yield number, match[2] or "", not inside
            inside = True
            continue
        inside = False
        if match := TRAILING.match(line):
            yield number, match[2], True
            inside = True  # the next line's comment continues this one


def violations(text):
    lines = text.splitlines()
    formatted = True
    for number, line in outside_raw_strings(lines):
        if line.strip().startswith(("// clang-format off", "// clang-format on")):
            formatted = line.strip().startswith("// clang-format on")
        if formatted and len(line) > COLUMNS:
            yield number, f"{len(line)} columns, of at most {COLUMNS}"
    for number, comment, begins in comments(lines):
        if begins and (match := OPENINGS.match(comment)):
            yield number, f"a comment begins with '{match[0]}': name the subject"
        if match := PHRASES.search(comment):
            yield number, f"'{match[0]}': name the number"


def unformatted(root, files):
    """Yields the lines that clang-format reports for `files`."""
    command = [str(root / CLANG_FORMAT), "--dry-run", "-Werror", *map(str, files)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stderr


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    files = sorted(path.relative_to(root) for tree in TREES for path in (root / tree).rglob("*") if path.suffix in SUFFIXES)
    if not files:
        raise SystemExit(f"error: no sources under {root}")
    failed = 0
    for path in files:
        for number, text in violations((root / path).read_text(encoding="utf-8")):
            print(f"{path}:{number}: {text}")
            failed += 1
    how = "formatted"
    if (root / CLANG_FORMAT).exists():
        parts = [files[at:at + FILES_AT_ONCE] for at in range(0, len(files), FILES_AT_ONCE)]
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            said = "".join(pool.map(lambda part: unformatted(root, part), parts))
        print(said, end="")
        failed += sum(": error:" in line for line in said.splitlines())
    else:
        how = f"not compared with clang-format, which is not in {CLANG_FORMAT}"
    if failed:
        raise SystemExit(f"error: {failed} violation{'s' if failed > 1 else ''} of the format; `make format` fixes most of them")
    print(f"format: {len(files)} files, {how}")


if __name__ == "__main__":
    main()
