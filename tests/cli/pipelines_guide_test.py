"""Runs the commands that docs/pipelines.md shows, whose output and pictures must equal those in the guide.

Usage: pipelines_guide_test.py PROGRAM SOURCE_DIR [--write]

A block of the guide that begins with "$ lockstep explain pipeline" is a command and its output; measurements are left
out. Every picture that the guide shows must exist. A picture of a measured step (measured-NAME.svg, drawn by
benchmarks/pipeline_table.py --pictures) must show the step and its replay, with all actions of its table. If a
command draws a picture, the guide's picture of that name must be byte for byte the same, well-formed XML, with a box
for each action of the table. --write replaces the guide's outputs and pictures with those of the program.
"""
import collections
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

GUIDE = "docs/pipelines.md"
PICTURES = "docs/images/pipelines"
BLOCK = re.compile(r"^```text\n\$ lockstep (explain pipeline .*)\n((?:.*\n)*?)```$", re.M)
TITLE = "{http://www.w3.org/2000/svg}title"
TEXT = "{http://www.w3.org/2000/svg}text"


def run(program, command, folder):
    result = subprocess.run([program, *shlex.split(command)], cwd=folder, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{command}: {result.stderr}")
    return result.stdout


def actions_of(output):
    """The number of actions in the table at the end of a command's output."""
    table = output[output.index("\ntable, "):].split("\n", 2)[2]
    return len(re.findall(r"\b\d+(?:F|B|I|W)\d+\b", table))


def check_measured(picture, name):
    """Checks that a measured step has the actions of the table, and messages, and that its replay has them, too."""
    texts = ["".join(each.itertext()) for each in picture.iter(TEXT)]
    if "measured" not in texts or "replayed" not in texts:
        raise SystemExit(f"{name} does not show a measured step beside its replay")
    actions = collections.Counter(each.text.split(" ")[0] for each in picture.iter(TITLE))
    cells = set(re.findall(r"\b\d+(?:F|B|I|W)\d+\b", " ".join(texts[texts.index("Table"):])))
    if not cells or any(actions[cell] != 2 for cell in cells):
        raise SystemExit(f"{name} does not have two boxes for each action of its table")


def check_pictures(guide, source):
    for name in re.findall(r"\]\((images/pipelines/[^)]+)\)", guide):
        file = source / "docs" / name
        if not file.exists():
            raise SystemExit(f"{GUIDE} shows {name}, which does not exist")
        if file.name.startswith("measured-"):
            check_measured(xml.etree.ElementTree.fromstring(file.read_text(encoding="utf-8")), name)


def main():
    program, source, *options = sys.argv[1:]
    source = pathlib.Path(source)
    guide = (source / GUIDE).read_text(encoding="utf-8")
    blocks = [(command, output) for command, output in BLOCK.findall(guide) if "--measured" not in command]
    if len(blocks) < 5:
        raise SystemExit(f"{GUIDE} shows {len(blocks)} commands, expected one for each schedule")
    check_pictures(guide, source)
    wrong = []
    for command, expected in blocks:
        with tempfile.TemporaryDirectory() as folder:
            output = run(program, command, folder)
            if output != expected:
                wrong.append(f"lockstep {command} prints\n{output}instead of\n{expected}")
                guide = guide.replace(expected, output)
            for drawn in sorted(pathlib.Path(folder).glob("*.svg")):
                picture = drawn.read_text(encoding="utf-8")
                boxes = sum(1 for _ in xml.etree.ElementTree.fromstring(picture).iter(TITLE))
                if boxes != actions_of(output):
                    raise SystemExit(f"{drawn.name} has {boxes} boxes for {actions_of(output)} actions")
                kept = source / PICTURES / drawn.name
                if not kept.exists() or kept.read_text(encoding="utf-8") != picture:
                    wrong.append(f"lockstep {command} draws another picture than {PICTURES}/{drawn.name}")
                    if "--write" in options:
                        kept.write_text(picture, encoding="utf-8")
    if "--write" in options:
        (source / GUIDE).write_text(guide, encoding="utf-8")
    elif wrong:
        raise SystemExit("\n".join(wrong) + f"\nif it is right, run {pathlib.Path(__file__).name} with --write")
    print(f"{len(blocks)} commands of {GUIDE} as they are")


if __name__ == "__main__":
    main()
