"""Runs tools/check_definitions.py on small trees, good and bad, and checks its verdict."""
import unittest

from small_tree import run_tool

GOOD = {
    "lockstep/core/range.h": "namespace lockstep {\n\nstruct Range {\n  int low = 0;\n};\n\ninline int size(Range a) { return 1; }\n"
                             "inline int size(int a) { return 1; }\n\n}  // namespace lockstep\n",
    "lockstep/comm/range.h": "namespace lockstep::comm {\n\nstruct Range {\n};\n\n}  // namespace lockstep::comm\n",
    "lockstep/comm/range.cpp": "namespace lockstep {\nnamespace {\n\nstruct Range {\n};\n\n}  // namespace\n}  // namespace lockstep\n",
    "lockstep/comm/box.h": "namespace lockstep {\n\ntemplate <class T>\nvoid fill(T& to) {\n}\ntemplate <class T>\nvoid fill(T& to, int with) {\n}\n"
                           "template <class T>\n  requires requires(T t) { t.size(); }\nint count(const T& of) {\n  return 0;\n}\n"
                           "template <class T>\nint count(const T& of) {\n  return 1;\n}\n"
                           "template <class T>\nvoid Box<T>::open(T& key) {\n}\ntemplate <>\nvoid fill<int>(int& to) {\n}\ntemplate <class T>\nvoid later(T& to);\n"
                           "template <class T>\nclass Box final\n    : public Base {\n};\n\n}  // namespace lockstep\n",
    "lockstep/comm/box.cpp": "namespace lockstep {\n\ntemplate <class T>\nclass Box;\ntemplate <>\nvoid fill<long>(long& to) {\n}\ntemplate <class T>\nvoid later(T& to);\n\n}  // namespace lockstep\n",
    "tests/comm/range_test.cpp": "namespace lockstep {\nnamespace {\n\nstruct Range {\n};\n\n}  // namespace\n}  // namespace lockstep\n",
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
    ("lockstep/data/range.h", "namespace lockstep {\n\nclass Range final\n    : public Base<int> {\n};\n\n}  // namespace lockstep\n",
     "lockstep::Range is defined 2 times: lockstep/core/range.h:3, lockstep/data/range.h:3"),
    ("lockstep/data/size.h", "namespace lockstep {\n\ninline int size(\n    Range a) {\n  return 2;\n}\n\n}  // namespace lockstep\n",
     "is defined 2 times: lockstep/core/range.h:7, lockstep/data/size.h:3"),
    ("lockstep/data/box.h", "namespace lockstep {\n\ntemplate <class T>\nvoid fill(T& to) {\n  to = 1;\n}\n\n}  // namespace lockstep\n",
     "lockstep::fill(T& to) [template <class T> void fill(T& to) ] is defined 2 times: lockstep/comm/box.h:3, lockstep/data/box.h:3"),
    ("lockstep/data/box.h", "namespace lockstep {\n\ntemplate <class T>\nvoid Box<T>::open(T& key) {\n  key = 1;\n}\n\n}  // namespace lockstep\n",
     "lockstep::Box<T>::open(T& key) [template <class T> void Box<T>::open(T& key) ] is defined 2 times"),
    ("lockstep/data/box.h", "namespace lockstep {\n\ntemplate <class T>\n  requires requires(T t) { t.size(); }\nint count(const T& of) {\n  return 2;\n}\n\n}  // namespace lockstep\n",
     "lockstep::count(const T& of) ["),
    ("lockstep/data/range.h", "namespace tool {\nclass Range;\n}\n\nnamespace lockstep {\n\nstruct Range {\n};\n\n}  // namespace lockstep\n",
     "lockstep::Range is defined 2 times"),
    ("tests/data/range.h", "namespace lockstep {\n\nstruct Range {\n};\n\n}  // namespace lockstep\n",
     "lockstep::Range is defined 2 times: lockstep/core/range.h:3, tests/data/range.h:3"),
    ("benchmarks/range.cpp", "namespace lockstep {\n\nstruct Range {\n};\n\n}  // namespace lockstep\n",
     "lockstep::Range is defined 2 times: lockstep/core/range.h:3, benchmarks/range.cpp:3"),
]


def run(files):
    return run_tool("check_definitions.py", files)


class CheckDefinitionsTest(unittest.TestCase):
    def test_accepts_a_tree_in_order(self):
        self.assertEqual(run(GOOD), (0, "definitions: 10 names, each defined once\n"))

    def test_rejects_each_violation(self):
        for name, content, message in BAD:
            with self.subTest(file=name, content=content):
                code, output = run({**GOOD, name: content})
                self.assertEqual(code, 1)
                self.assertIn(message, output)


if __name__ == "__main__":
    unittest.main()
