"""Runs tools/check_format.py on small trees, good and bad, and checks its verdict. The trees have no clang-format."""
import unittest

from small_tree import run_tool

LONG = "x" * 101
GOOD = {
    "lockstep/core/log.h": "// Writes lines.\n// Of these the last is empty.\nint size;  ///< Bytes.\n"
                           "           ///< Of all lines together.\n",
    "lockstep/core/raw.cpp": f'const char* text = R"(\n// Of a raw string: {LONG}\n)";\nconst char* url = "https://Of all";\n',
    "lockstep/core/CMakeLists.txt": "# A line.\n# of it\n#\nset(a 1)  # of a\n",
    "scripts/a.sh": "#!/bin/sh\n# The size\n# of a. Is so much that it counts.\n",
    "scripts/a.py": '#!/usr/bin/env python3\n"""Writes:\n# of a docstring\n"""\n# noqa: of\n# The size\n# of a.\n',
    "lockstep/core/off.cpp": f"// clang-format off\nint {LONG};\n// clang-format on\n",
}
# (file, its contents, what the tool must report)
BAD = [
    ("lockstep/core/log.cpp", f"int a;\nint {LONG};\n", "lockstep/core/log.cpp:2: 106 columns, of at most 100"),
    ("lockstep/core/log.cpp", f"// clang-format off\n// clang-format on\nint {LONG};\n", "log.cpp:3: 106 columns"),
    ("tests/core/log_test.cpp", "int a;\n\n  // Of all lines.\n", "log_test.cpp:3: a comment begins with 'Of'"),
    ("lockstep/core/log.cpp", "/// Who waits is woken.\n", "begins with 'Who': name the subject"),
    ("lockstep/core/log.cpp", "int a;  // The same for a.\n", "begins with 'The same'"),
    ("lockstep/core/log.cpp", 'int a = f("//");  ///< Those of a.\n', "begins with 'Those'"),
    ("lockstep/core/log.cpp", "int a;  ///< of the data set\n", "log.cpp:1: a comment begins with 'of'"),
    ("lockstep/core/log.cpp", "int a = 12'000;  // of all ranks\n", "begins with 'of'"),
    ("lockstep/core/log.cpp", "// not of a\n", "begins with 'not of'"),
    ("lockstep/core/log.cpp", "int a;  // the same for a\n", "begins with 'the same'"),
    ("lockstep/core/log.cpp", "// Reads so many bytes.\n", "'so many': name the number"),
    ("lockstep/core/CMakeLists.txt", "set(a 1)\n  # Of a.\n", "CMakeLists.txt:2: a comment begins with 'Of'"),
    ("cmake/a.cmake", "# those of a\n", "a.cmake:1: a comment begins with 'those'"),
    ("scripts/a.sh", "#!/bin/sh\n# Who waits is woken.\n", "a.sh:2: a comment begins with 'Who'"),
    ("tools/a.py", '"""Writes."""\nif a:\n    # whose a\n    pass\n', "a.py:3: a comment begins with 'whose'"),
    ("tools/a.py", "# Reads so much.\n", "a.py:1: 'so much': name the number"),
]


def run(files):
    return run_tool("check_format.py", files)


class CheckFormatTest(unittest.TestCase):
    def test_accepts_a_tree_in_order(self):
        code, output = run(GOOD)
        sources = sum(name.endswith((".h", ".cpp")) for name in GOOD)
        self.assertEqual((code, output.split(",")[0]), (0, f"format: {sources} files"))
        self.assertIn(f"read in {len(GOOD) - sources} scripts", output)

    def test_rejects_each_violation(self):
        for name, content, message in BAD:
            with self.subTest(file=name, content=content):
                code, output = run({**GOOD, name: content})
                self.assertEqual(code, 1)
                self.assertIn(message, output)


if __name__ == "__main__":
    unittest.main()
