"""Runs tools/measure_house.py on small trees, and checks its counts and its comparison with limits."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from small_tree import TOOLS, run_tool  # noqa: E402

sys.path.insert(0, str(TOOLS))
from measure_house import PATHS  # noqa: E402


def header(lines, *included):
    """A header of `lines` lines, which includes headers named as in "core/error.h"."""
    return "#pragma once\n" + source(*included) + "\n" * (lines - 1 - len(included))


def source(*included):
    return "".join(f"#include <lockstep/{name}>\n" for name in included)


# The sources of PATHS with nothing but their definitions, of a line each.
STEPS = {path: f"{name}\n" for steps in PATHS.values() for path, name in steps}
(ALL_REDUCE, FIRST_STEPS), (START, START_STEPS) = PATHS.items()
GOOD = {
    **STEPS,
    # Both paths are followed through headers: b.h is reached through a.h only.
    FIRST_STEPS[0][0]: source("core/a.h") + STEPS[FIRST_STEPS[0][0]],
    FIRST_STEPS[1][0]: source("core/a.h", "core/c.h") + STEPS[FIRST_STEPS[1][0]],
    START_STEPS[0][0]: source("core/c.h") + STEPS[START_STEPS[0][0]],
    "lockstep/public_headers.txt": "# installed\nlockstep/core/a.h\n",
    "lockstep/core/a.h": header(100, "core/b.h"),  # two users, in comm
    "lockstep/core/b.h": header(39),               # a single user, in its folder
    "lockstep/core/c.h": header(40),               # two users, in comm and cli
    "lockstep/core/d.h": header(10),               # its own source, and a test, but no user
    "lockstep/core/d.cpp": source("core/d.h"),
    "lockstep/data/d.h": header(10),               # a single user: a source of the same name in another folder; and a test
    "lockstep/core/e.cpp": source("core/f.h"),
    "lockstep/core/e.h": header(50),               # two users: f.cpp and f.h
    "lockstep/core/f.cpp": source("core/f.h", "core/e.h"),
    "lockstep/core/f.h": header(60, "core/e.h"),   # two users: e.cpp and g.cu; f.cpp is its own source
    "lockstep/core/g.cu": source("core/f.h"),
    "lockstep/models/d.cpp": source("data/d.h"),
    "lockstep/core/CMakeLists.txt": "not counted\n",
    "tests/core/d_test.cpp": source("core/d.h", "data/d.h") + "\n\n",
    "tests/core/check.py": "# one line\n",
    "tests/core/CMakeLists.txt": "not counted\n",
    "docs/guide.md": "# Three words\nand two\n",
    "docs/adr/first.md": "One more\n",
    "docs/picture.svg": "<svg> no words </svg>\n",
}
EXPECTED = {
    "product files": len(STEPS) + 12,
    "product lines": len(STEPS) + 4 + 309 + 6,  # with their includes; headers; other sources
    "test files": 2,
    "test lines": 5,
    "words of docs/": 7,
    "headers": 7,
    "median of the lines of a header": 40,
    "headers below 40 lines, in percent": 42.9,
    "headers with a single user": 2,  # b.h and data/d.h
    "headers with a single user, and none outside lockstep/": 1,
    "headers used only inside their folder": 3,  # b.h, e.h, f.h
    "installed headers": 2,
    f"{ALL_REDUCE}: sources": len(FIRST_STEPS),
    f"{ALL_REDUCE}: headers that these include directly": 2,
    f"{ALL_REDUCE}: headers reached": 3,
    f"{START}: sources": len(START_STEPS),
    f"{START}: headers that these include directly": 1,
    f"{START}: headers reached": 1,
}
LIMITS = {"product_files": EXPECTED["product files"], "median_header_lines": 40, "single_user_headers": 2,
          "short_headers_percent": 42.9, "installed_headers": 2}


def run(files, *arguments):
    return run_tool("measure_house.py", files, *arguments)


class MeasureHouseTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.limits = pathlib.Path(folder.name) / "limits.json"
        self.limits.write_text(json.dumps(LIMITS))

    def check(self, files):
        return run(files, "--check", self.limits)

    def test_counts_each_thing(self):
        code, output = run(GOOD, "--markdown")
        self.assertEqual(code, 0, output)
        head, line, *rows = output.splitlines()
        self.assertEqual((head, line), ("| count | number |", "|---|---:|"))
        counts = dict(row.strip("| ").split(" | ") for row in rows)
        self.assertEqual(counts, {what: str(number) for what, number in EXPECTED.items()})
        plain = dict(reversed(row.strip().split("  ", 1)) for row in run(GOOD)[1].splitlines())
        self.assertEqual(plain, counts)

    def test_writes_the_counts_as_limits_that_hold(self):
        self.limits.unlink()
        self.assertEqual(run(GOOD, "--write", self.limits), (0, ""))
        self.assertEqual(json.loads(self.limits.read_text()), LIMITS)
        self.assertEqual(self.check(GOOD), (0, "house: 5 counts within their limits\n"))

    def test_each_count_that_became_worse_has_a_line(self):
        used_once = {"lockstep/core/new.h": header(200), "lockstep/core/d.cpp": source("core/d.h", "core/new.h")}
        for files, lines in [
                (used_once, [f"product files: {len(STEPS) + 13}, of at most {len(STEPS) + 12} (product_files)",
                             "headers with a single user: 3, of at most 2 (single_user_headers)"]),
                ({"lockstep/core/c.h": header(38)},
                 ["median of the lines of a header: 39, of at least 40 (median_header_lines)",
                  "headers below 40 lines, in percent: 57.1, of at most 42.9 (short_headers_percent)"]),
                ({"lockstep/public_headers.txt": "lockstep/core/a.h\nlockstep/core/c.h\n"},
                 ["installed headers: 3, of at most 2 (installed_headers)"])]:
            with self.subTest(lines=lines):
                code, output = self.check({**GOOD, **files})
                *failures, error = output.splitlines()
                self.assertEqual((code, failures), (1, lines))
                self.assertIn(f"error: {len(lines)} count", error)
                self.assertIn(str(self.limits), error)

    def test_a_better_count_is_no_failure(self):
        better = {**GOOD, "lockstep/core/c.h": header(45), "lockstep/models/d.cpp": ""}
        self.assertEqual(self.check(better)[0], 0)

    def test_a_path_names_the_sources_that_define_its_calls(self):
        path, name = FIRST_STEPS[1]
        name = name.removesuffix("(")
        missing = {file: text for file, text in GOOD.items() if file != path}
        for files, wrong in [(missing, "does not exist"), ({**GOOD, path: "\n"}, f"does not define {name}"),
                             ({**GOOD, path: f"  return {name}();\n"}, f"does not define {name}"),
                             ({**GOOD, path: f"// {name}()\n"}, f"does not define {name}")]:
            with self.subTest(wrong=wrong):
                code, output = self.check(files)
                self.assertEqual(code, 1)
                self.assertIn(f"{path} {wrong}: in PATHS of tools/measure_house.py, \"{ALL_REDUCE}\" must list", output)
                self.assertIn("error: 1 source of a listed path moved", output)

    def test_refuses_files_that_are_no_limits(self):
        lacking = {name: limit for name, limit in LIMITS.items() if name != "installed_headers"}
        for text, message in [("{", "cannot read limits from"), ("[]", "must have a number for each of product_files, "),
                              (json.dumps(lacking), "must have a number for each of"),
                              (json.dumps({**LIMITS, "rooms": 3}), "must have a number for each of"),
                              (json.dumps({**LIMITS, "product_files": "9"}), "must have a number for each of")]:
            with self.subTest(text=text):
                self.limits.write_text(text)
                code, output = self.check(GOOD)
                self.assertEqual(code, 1)
                self.assertIn(message, output)
        self.limits.unlink()
        self.assertIn("cannot read limits from", self.check(GOOD)[1])

    def test_rejects_a_tree_without_headers(self):
        code, output = run({"README.md": ""})
        self.assertEqual(code, 1)
        self.assertIn("no headers under", output)


if __name__ == "__main__":
    unittest.main()
