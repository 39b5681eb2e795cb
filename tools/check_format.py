#!/usr/bin/env python3
"""Checks the form of the sources: clang-format and line length of C++, and words that comments must not use.

Usage: check_format.py [ROOT]     (default: the project that this file belongs to)

  * Every C++ source is formatted as clang-format 19.1.7 of .deps/venv formats it (`make format`). Without that program
    this check is skipped, and a line says so.
  * No line of C++ has more than 100 columns, except inside raw strings and between `// clang-format off` and `on`.
  * No comment begins with a word in OPENINGS, and none contains a phrase in PHRASES: such comments make readers guess
    the subject (CONTRIBUTING.md, "How code looks here"). In C++ that holds for every comment, also one that follows
    code on its line, and in Python, shell and CMake files for comments that have lines of their own.

Prints a line for each violation, `file:line: what`, and exits with 1 if there is one.
"""
import concurrent.futures
import io
import os
import pathlib
import re
import subprocess
import sys
import tokenize

TREES = ["lockstep", "tests", "examples", "benchmarks", "python"]
SUFFIXES = {".h", ".cpp", ".cu"}
SCRIPT_TREES = [*TREES, "cmake", "scripts", "tools"]
SCRIPT_SUFFIXES = {".py", ".sh", ".cmake"}
COLUMNS = 100
CLANG_FORMAT = ".deps/venv/bin/clang-format"
FILES_AT_ONCE = 100
OPENINGS = re.compile(r"(Of|Who|Whose|Whom|Those|Not of|The same)\b", re.IGNORECASE)
PHRASES = re.compile(r"\bso (?:many|much)\b(?! as| that)")
COMMENT = re.compile(r"^\s*(///?<?)(?: (.*))?$")
TRAILING = re.compile(
    r"""^(?:[^"'/]|/(?!/)|(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*?\S\s+(///?<?) (.*)$""")
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


def script_comments(path, text):
    """Yields (number, text, whether it begins a comment) for the comments that have lines of their own in a script."""
    lines = text.splitlines()
    if path.suffix == ".py":  # a line of a docstring may begin with #, too
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        starts = [token.start for token in tokens if token.type == tokenize.COMMENT]
        numbers = [row for row, column in starts if not lines[row - 1][:column].strip()]
    else:
        numbers = [number for number, line in enumerate(lines, 1) if line.lstrip().startswith("#")]
    last = None
    for number in numbers:
        comment = lines[number - 1].strip()
        if not comment.startswith(("#!", "# noqa")):
            yield number, comment.lstrip("#").lstrip(), last != number - 1
            last = number


def wordings(comments):
    """Yields the violations in the words of `comments`."""
    for number, comment, begins in comments:
        if begins and (match := OPENINGS.match(comment)):
            yield number, f"a comment begins with '{match[0]}': name the subject"
        if match := PHRASES.search(comment):
            yield number, f"'{match[0]}': name the number"


def violations(path, text):
    if path.suffix not in SUFFIXES:
        yield from wordings(script_comments(path, text))
        return
    lines = text.splitlines()
    formatted = True
    for number, line in outside_raw_strings(lines):
        if line.strip().startswith(("// clang-format off", "// clang-format on")):
            formatted = line.strip().startswith("// clang-format on")
        if formatted and len(line) > COLUMNS:
            yield number, f"{len(line)} columns, of at most {COLUMNS}"
    yield from wordings(comments(lines))


def unformatted(root, files):
    """Yields the lines that clang-format reports for `files`."""
    command = [str(root / CLANG_FORMAT), "--dry-run", "-Werror", *map(str, files)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stderr


def paths(root, trees):
    """Yields everything in `trees`, relative to `root`."""
    for tree in trees:
        yield from (path.relative_to(root) for path in (root / tree).rglob("*"))


def is_script(path):
    return path.suffix in SCRIPT_SUFFIXES or path.name == "CMakeLists.txt"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    files = sorted(path for path in paths(root, TREES) if path.suffix in SUFFIXES)
    if not files:
        raise SystemExit(f"error: no sources under {root}")
    scripts = sorted(path for path in paths(root, SCRIPT_TREES) if is_script(path))
    failed = 0
    for path in [*files, *scripts]:
        for number, text in violations(path, (root / path).read_text(encoding="utf-8")):
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
    print(f"format: {len(files)} files, {how}; comments also read in {len(scripts)} scripts")


if __name__ == "__main__":
    main()
