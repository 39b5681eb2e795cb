"""The target `test_programs`, which `make test` builds, must contain the programs of all tests without the label `all`.

Usage: test_programs_test.py NINJA FOLDER      (exit code 77: the tree is not built by ninja)
"""
import json
import pathlib
import re
import subprocess
import sys


def main(ninja, folder):
    folder = pathlib.Path(folder).resolve()
    commands = subprocess.run([ninja, "-C", folder, "-t", "commands", "test_programs"], capture_output=True, text=True)
    if commands.returncode != 0:
        print(f"skipped: {ninja} -t commands: {(commands.stdout + commands.stderr).strip()}")
        return 77
    built = {(folder / name).resolve() for name in re.findall(r" -o (\S+)", commands.stdout)}
    listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    tests = json.loads(listed.stdout)["tests"]
    programs = {}  # {program of the tree: a test that runs it}
    for test in tests:
        labels = [each["value"] for each in test.get("properties", []) if each["name"] == "LABELS"]
        if labels == [["all"]]:
            continue
        for word in test.get("command", []):
            file = pathlib.Path(word)
            if folder in file.parents and file.is_file() and file.suffix in ("", ".so"):
                programs.setdefault(file.resolve(), test["name"])
    missing = [f"{test} runs {file.relative_to(folder)}" for file, test in programs.items() if file not in built]
    assert len(programs) > 10, f"only {len(programs)} programs were found"
    assert not missing, "`make test` does not build what it runs; use add_dependencies(test_programs ...): " + "; ".join(missing)
    print(f"{len(programs)} programs")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
