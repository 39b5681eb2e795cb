"""Compiles the headers and the kind of code that a user's project has, with strict warnings as errors.

Usage: strict_compilation.py COMPILER SOURCE_DIR WORK_DIR INCLUDE_DIR_OF_LIBTORCH...

Each header that the ENTRANCES lead to is its own translation unit with clang++, if it needs no more of LibTorch than
tensors, and with LOCKSTEP_EXHAUSTIVE also with g++, if it needs no LibTorch. Both compilers have the same standard
library, so that both find the same missing #include. A unit with all of LibTorch takes four seconds even when LibTorch
is precompiled, so that the other headers share one unit if they use LibTorch, and another one if they do not.
Then come call_style.cpp (the calls that the guides show), readme.cpp and from_pytorch.cpp (the lines of README.md and
docs/from_pytorch.md), and with clang++ the examples, which build_examples.sh compiles with the same warnings with g++.
Nothing is optimised or linked.

Before that, each of ENTRANCES compiled below C++20 must give a single error, a check of what lockstep.h adds to the
preprocessed torch/torch.h keeps it cheap to compile, and two checks read the texts. A header
that names something in LibTorch must include a header of LibTorch, directly or through others, because the
precompiled header would hide a missing #include. And call_style.cpp must contain every options aggregate of the
headers that it includes.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from public_headers import public_headers, reached_from

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
ALL, TYPES = "torch/torch.h", "torch/types.h"  # precompiled headers of LibTorch
ENTRANCES = ("lockstep/lockstep.h", "lockstep/launch/launcher.h", "lockstep/train/trainer.h")
CALL_STYLE = "tests/install/call_style.cpp"
EXHAUSTIVE = os.environ.get("LOCKSTEP_EXHAUSTIVE") == "1"
# What lockstep.h may add to a file that includes torch/torch.h: lines of our headers without blank lines and comments, and
# headers of others that torch.h does not include. It has 3,400 lines, and takes a twentieth of torch.h's compilation time.
MOST_LINES = 4000
ADDED = {"any", "filesystem", "ranges", "span"}
MARKER = re.compile(r'# \d+ "([^"]+)"(.*)')  # the flag 1 marks the beginning of an included file
SHOWN = (CALL_STYLE, "tests/install/readme.cpp", "tests/install/from_pytorch.cpp")


def includes(source, name):
    """Returns all headers that a file includes, ours and others."""
    text = (source / name).read_text()
    return re.findall(r'^#include [<"]([^>"]+)[>"]', text, re.M)


def uses_libtorch(source, name, known):
    """Whether a header includes one of LibTorch's, directly or through our headers."""
    if name not in known:
        known[name] = False  # there are no include cycles
        known[name] = any(
            each.startswith(("torch/", "ATen/", "c10/")) or
            ((source / each).is_file() and uses_libtorch(source, each, known))
            for each in includes(source, name))
    return known[name]


def code_of(text):
    """Returns `text` without comments and string literals. Line numbers do not change."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', lambda match: re.sub(r"[^\n]+", " ", match[0]), text,
                  flags=re.S)


def without_libtorch(source):
    """Yields `file:line: what` for each header that names something in LibTorch but includes none of its headers."""
    known = {}
    for name in sorted(public_headers(source)):
        if uses_libtorch(source, name, known):
            continue
        for number, line in enumerate(code_of((source / name).read_text()).splitlines(), 1):
            used = re.search(r"\b(?:torch|at|c10)::\w*", line)
            if used:
                yield f"{name}:{number}: names {used[0]}, but the header includes nothing of LibTorch"


def missing_in_call_style(source):
    """Yields `file:line: what` for each options aggregate that call_style.cpp includes but does not use."""
    style = source / CALL_STYLE
    written = set(re.findall(r"(\w+)\{\.", code_of(style.read_text())))
    for name in sorted(reached_from(source, [CALL_STYLE]) & public_headers(source)):
        for number, line in enumerate(code_of((source / name).read_text()).splitlines(), 1):
            found = re.match(r"struct (?:LOCKSTEP_API )?(\w*Options)\b(?!;)", line)
            if found and found[1] not in written:
                yield f"{name}:{number}: {found[1]} is missing in {CALL_STYLE}"


def needs_types_only(source, name):
    """Whether a header uses only tensors of LibTorch, which are most of what TYPES includes."""
    theirs = {each for header in reached_from(source, [name]) for each in includes(source, header)
              if each.startswith("torch/")}
    return theirs <= {TYPES}


class Compiler:
    def __init__(self, program, source, work, torch):
        self.work = work
        self.command = [program, "-std=c++20", *WARNINGS, f"-I{source}", *(f"-isystem{path}" for path in torch)]
        self.clang = "clang" in subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        self.with_header = {None: []}
        work.mkdir(parents=True, exist_ok=True)

    def precompile(self, name):
        """Compiles LibTorch's header `name`, and gives units the option to use it."""
        header = self.work / name.replace("/", "_")
        header.write_text(f"#include <{name}>\n")
        output = header.with_name(header.name + (".pch" if self.clang else ".gch"))
        # Without this, clang++ would instantiate the header's templates again in each unit.
        more = ["-fpch-instantiate-templates"] if self.clang else []
        self.check([*self.command, *more, "-x", "c++-header", str(header), "-o", str(output)], name)
        self.with_header[name] = ["-include-pch", str(output)] if self.clang else ["-include", str(header)]

    def check(self, command, what):
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"{what} does not compile with {' '.join(WARNINGS)}:\n{result.stderr[:4000]}")

    def compile(self, what, path, precompiled):
        self.check([*self.command, *self.with_header[precompiled], "-fsyntax-only", str(path)], what)

    def preprocess(self, headers):
        command = [*self.command, "-E", str(self.unit(f"preprocess {len(headers)}", headers))]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def unit(self, name, headers):
        path = self.work / (re.sub(r"\W", "_", name) + ".cpp")
        path.write_text("".join(f"#include <{header}>\n" for header in headers))
        return path


def units(compiler, source):
    """Yields (what it is, file, the precompiled header that it needs or None) for everything to compile."""
    known = {}
    reached = reached_from(source, ENTRANCES)
    shared = {ALL: [], None: []}
    for name in sorted(public_headers(source)):
        libtorch = uses_libtorch(source, name, known)
        alone = needs_types_only(source, name) if compiler.clang else EXHAUSTIVE and not libtorch
        if name in reached and alone:
            yield name, compiler.unit(name, [name, name]), TYPES if libtorch else None  # included twice, to test its guard
        else:
            shared[ALL if libtorch else None].append(name)
    yield "the headers with LibTorch", compiler.unit("with LibTorch", shared[ALL]), ALL
    yield "the other headers", compiler.unit("others", shared[None]), None
    examples = sorted((source / "examples").rglob("*.cpp")) if compiler.clang else []
    for path in [*examples, *(source / name for name in SHOWN)]:
        yield path.relative_to(source).as_posix(), path, ALL


def check_older_standard(compiler):
    for header in ENTRANCES:
        unit = compiler.unit(f"older standard {header}", [header])
        command = [*compiler.command, "-std=c++17", "-fsyntax-only", str(unit)]
        errors = re.findall(r"error: .*", subprocess.run(command, capture_output=True, text=True).stderr)
        if len(errors) != 1 or "C++20" not in errors[0]:
            raise SystemExit(f"{header} below C++20: expected one error that says so, got {errors[:5]}")


def preprocessed(text, ours):
    """Returns what a preprocessed file consists of: (all files, those that a file below `ours` includes, lines below `ours`)."""
    file, files, included, lines = "", set(), set(), 0
    for line in text.splitlines():
        marker = MARKER.match(line)
        if marker:
            if "1" in marker[2].split() and file.startswith(ours):
                included.add(marker[1])
            file = marker[1]
            files.add(file)
        elif file.startswith(ours) and line.strip():
            lines += 1
    return files, included, lines


def check_cost(libtorch, both, ours):
    """Compares the preprocessed torch/torch.h with the same and lockstep.h; our headers are below the folder `ours`."""
    known, _, _ = preprocessed(libtorch, ours)
    _, included, lines = preprocessed(both, ours)
    added = {name for name in included - known if not name.startswith(ours)}
    wrong = sorted(name for name in added if pathlib.Path(name).name not in ADDED)
    if wrong:
        raise SystemExit(f"lockstep.h includes {', '.join(wrong)}, which torch/torch.h does not: include it in a source instead")
    if lines > MOST_LINES:
        raise SystemExit(f"lockstep.h adds {lines} lines of our headers to a file, more than {MOST_LINES}: "
                         "declare classes that only members use, and include their headers in sources")


def check_texts(source):
    wrong = [*without_libtorch(source), *missing_in_call_style(source)]
    if wrong:
        raise SystemExit("\n".join(wrong))


def main():
    program, source, work, *torch = sys.argv[1:]
    if shutil.which(program) is None:
        print(f"skipped: there is no {program}")
        sys.exit(77)
    source = pathlib.Path(source)
    compiler = Compiler(program, source, pathlib.Path(work), torch)
    check_texts(source)
    check_older_standard(compiler)
    if not compiler.clang:
        check_cost(compiler.preprocess([ALL]), compiler.preprocess([ALL, ENTRANCES[0]]), f"{source}/lockstep/")
    everything = list(units(compiler, source))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(compiler.precompile, {precompiled for _, _, precompiled in everything} - {None}))
        for _ in pool.map(lambda unit: compiler.compile(*unit), everything):
            pass
    print(f"{len(everything)} units compile with {program}")


if __name__ == "__main__":
    main()
