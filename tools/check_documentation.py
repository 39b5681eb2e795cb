#!/usr/bin/env python3
"""Checks the documentation against the sources.

Usage: check_documentation.py [ROOT]     (default: the project that this file belongs to)

  * Every environment variable that lockstep/ and python/ read or set is in the first column of a table of
    docs/environment.md, and every LOCKSTEP_ variable there occurs in the project.
  * Every C++ block of a guide in docs/ or of README.md is part of a source that GUIDES names for it, line by line,
    regardless of spacing, so that the code shown is code that is compiled. A line "..." stands for any code. The same
    holds for the code in each cell of a table column called C++, whose lines stand in one row: `one();`<br>`two();`.
  * Every header that a guide, README.md or an example includes or links to is installed: it is in
    lockstep/public_headers.txt, or a header listed there includes it.
  * Each row of a table in README.md, docs/ and the READMEs of rooms is one line, and has no more cells than its header.
  * Everything that users choose by a name, such as a backend, is in the guide that NAMES has for it.

Prints a line for each violation and exits with 1 if there is one.
"""
import pathlib
import re
import sys

from public_headers import LIST, public_headers

TABLE = "docs/environment.md"
GUIDES = {"docs/checkpoints.md": ["tests/train/checkpoints/state_dict_file_test.cpp"],
          "docs/communication.md": ["examples/02_communication/main.cpp"],
          "docs/distributed_data_parallel.md": ["examples/03_training_on_many_ranks/main.cpp",
                                                "examples/10_language_model/main.cpp"],
          "docs/data_parallel.md": ["tests/parallel/data_parallel/data_parallel_guide_test.cpp"],
          "docs/loading_data.md": ["examples/04_loading_data/main.cpp"],
          "docs/training_loop.md": ["examples/05_training_loop/main.cpp", "tests/train/trainer/trainer_guide_test.cpp",
                            "tests/train/tasks/tasks_guide_test.cpp", "tests/system/interrupted_loop.cpp"],
          "docs/pipelines.md": ["examples/08_resnet50_on_two_devices/main.cpp",
                                "tests/parallel/pipeline/hybrid_by_hand_test.cpp",
                                "examples/10_language_model/main.cpp"],
          "docs/logging.md": ["tests/report/loggers/loggers_test.cpp"],
          "docs/onnx.md": ["tests/export/onnx_guide_test.cpp"],
          "README.md": ["tests/install/readme.cpp"],
          "docs/from_pytorch.md": ["tests/install/from_pytorch.cpp"]}
# (sources, a name in them, its guide)
NAMES = [("lockstep/cli/commands.h", r"\badd_(\w+)_command\(", "README.md"),
         ("lockstep/comm/call/backend_names.cpp", r'"(\w+)"', "docs/communication.md"),
         ("lockstep/data/augment/operator_name.h", r'"(\w+)"', "docs/loading_data.md"),
         ("lockstep/data/datasets/known_data.cpp", r'\{"([\w-]+)",', "docs/loading_data.md"),
         ("lockstep/recipes/*.cpp", r'\.name = "([\w-]+)",\n', "docs/recipes.md")]
INCLUDE = re.compile(r"#\s*include <(lockstep/[^>]+)>")
LINK = re.compile(r"\]\((?:\.\./)*(lockstep/[\w/]+\.h)\)")
READERS = ["lockstep", "python"]
USERS = [*READERS, "tests", "tools", "cmake", "CMakeLists.txt", "Makefile"]
READ = re.compile(r'(?:environment_(?:string|integer|flag)|\bgetenv|environ\.get)\(\s*"(\w+)"')
# A name that a file passes to a helper; counts only if the file reads the environment.
NAME = re.compile(r'"([A-Z]+(?:_[A-Za-z0-9]+)+)"')


def texts(root, places, suffixes):
    """Yields (path, text) for the files under `places`."""
    for place in places:
        paths = [root / place] if (root / place).is_file() else sorted((root / place).rglob("*"))
        for path in paths:
            if path.is_file() and (path == root / place or path.suffix in suffixes):
                yield path.relative_to(root), path.read_text(encoding="utf-8")


def variables_read(root):
    """Returns {variable: the first file that reads it}."""
    found = {}
    for path, text in texts(root, READERS, {".h", ".cpp", ".py"}):
        names = READ.findall(text)
        if "core/environment.h>" in text:
            names += NAME.findall(text)
        for name in names:
            found.setdefault(name, path)
    return found


def variables_documented(root):
    """Returns {variable: its line in the table}."""
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


def shown_code(text):
    """Yields (line number, lines of code) for each C++ block, and for each cell in a column called C++."""
    for block in re.finditer(r"^```cpp\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, block.start()) + 1, block.group(1).splitlines()
    column = None  # index of the C++ column in the current table; -1 if the table has none
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            column = None
        elif column is None:
            column = cells.index("C++") if "C++" in cells else -1
        elif 0 <= column < len(cells) and (code := re.findall(r"`([^`]+)`", cells[column])):
            yield number, code


def spaced(lines):
    """The lines without indentation and with single spaces."""
    return [" ".join(line.split()) for line in lines]


def parts_of(code):
    """Yields the consecutive lines of `code` between lines "..."."""
    part = []
    for line in [*spaced(code), "..."]:
        if line != "...":
            part.append(line)
        elif part:
            yield part
            part = []


def has_in_order(lines, parts):
    """Whether `lines` contains the parts, each after the one before."""
    at = 0
    for part in parts:
        found = next((i for i in range(at, len(lines)) if lines[i : i + len(part)] == part), None)
        if found is None:
            return False
        at = found + len(part)
    return True


def wrong_code(root):
    for guide, sources in GUIDES.items():
        texts_of = [spaced((root / source).read_text(encoding="utf-8").splitlines()) for source in sources]
        for number, code in shown_code((root / guide).read_text(encoding="utf-8")):
            if not any(has_in_order(lines, parts_of(code)) for lines in texts_of):
                yield f"{guide}:{number}: this code is not in {' or '.join(sources)}"


def wrong_names(root):
    for sources, pattern, guide in NAMES:
        for path in sorted(root.glob(sources)):
            text = (root / guide).read_text(encoding="utf-8")
            for name in re.findall(pattern, path.read_text(encoding="utf-8")):
                if not re.search(rf"`{re.escape(name)}[` ]", text):
                    yield f"{path.relative_to(root)}: {guide} does not have `{name}`"


def wrong_headers(root):
    public = public_headers(root)
    shown = [root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted((root / "examples").rglob("*.cpp"))]
    for path in (path for path in shown if path.is_file()):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for name in [*INCLUDE.findall(line), *LINK.findall(line)]:
                if name not in public:
                    yield f"{path.relative_to(root)}:{number}: <{name}> is not installed: add it to {LIST}"


def broken_tables(root):
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md")), *sorted((root / "lockstep").glob("*/README.md"))]:
        in_code, columns = False, 0  # columns: those of the current table; 0 outside of tables
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            in_code ^= line.startswith("```")
            if not in_code and line.startswith("|") and not line.rstrip().endswith("|"):
                yield f"{path.relative_to(root)}:{number}: this row of a table lacks its end"
            bars = re.sub(r"`[^`]*`|\\\|", "", line).count("|") if not in_code and line.startswith("|") else 0
            columns = (columns or bars) if bars else 0
            if bars > columns:
                yield f"{path.relative_to(root)}:{number}: this row of a table has more cells than its header"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    failed = 0
    for text in [*wrong_variables(root), *wrong_code(root), *wrong_names(root), *wrong_headers(root), *broken_tables(root)]:
        print(text)
        failed += 1
    if failed:
        raise SystemExit(f"error: {failed} mistake{'s' if failed > 1 else ''} in the documentation")
    print(f"documentation: {len(variables_documented(root))} variables and the code of {len(GUIDES)} guides match the sources")


if __name__ == "__main__":
    main()
