"""Runs tools/check_definitions.py on small trees, good and bad, and checks its verdict."""
import unittest

from small_tree import run_tool

GOOD = {
    "lockstep/core/range.h": "namespace lockstep {\n\nstruct Range {\n  int low = 0;\n};\n\ninline int size(Range a) { return 1; }\n"
                             "inline int size(int a) { return 1; }\n\n}  // namespace lockstep\n",
    "lockstep/comm/range.h": "namespace lockstep::comm {\n\nstruct Range {\n};\n\n}  // namespace lockstep::comm\n",
    "lockstep/comm/range.cpp": "namespace lockstep {\nnamespace {\n\nstruct Range {\n};\n\n}  // namespace\n}  // namespace lockstep\n",
    "lockstep/comm/ahead.h": "namespace lockstep {\n\nstruct Range;\nclass Group;\n\n}  // namespace lockstep\n",
}
# (file, its contents, what the tool must report)
BAD = [
    ("lockstep/data/range.cpp", "namespace lockstep {\n\nstruct Range final : Base {\n};\n\n}  // namespace lockstep\n",
     "lockstep::Range is defined 2 times: lockstep/core/range.h:3, lockstep/data/range.cpp:3"),
    ("lockstep/data/range.h", "namespace lockstep {\n\nstruct LOCKSTEP_API Range {\n};\n\n}  // namespace lockstep\n",
     "lockstep::Range is defined 2 times: lockstep/core/range.h:3, lockstep/data/range.h:3"),
    ("lockstep/data/range.cpp", "namespace lockstep {\nnamespace {\n}  // namespace\n\nenum class Range { kA };\n\n}  // namespace lockstep\n",
     "lockstep::Range is defined 2 times"),
    ("lockstep/data/size.h", "namespace lockstep {\n\ninline int size(int a) { return 2; }\n\n}  // namespace lockstep\n",
     "is defined 2 times: lockstep/core/range.h:8, lockstep/data/size.h:3"),
]


def run(files):
    return run_tool("check_definitions.py", files)


class CheckDefinitionsTest(unittest.TestCase):
    def test_accepts_a_tree_in_order(self):
        self.assertEqual(run(GOOD), (0, "definitions: 4 names, each defined once\n"))

    def test_rejects_each_violation(self):
        for name, content, message in BAD:
            with self.subTest(file=name, content=content):
                code, output = run({**GOOD, name: content})
                self.assertEqual(code, 1)
                self.assertIn(message, output)


if __name__ == "__main__":
    unittest.main()
