"""Runs tools/check_format.py on small trees, good and bad, and checks its verdict. The trees have no clang-format."""
import unittest

from small_tree import run_tool

LONG = "x" * 101
GOOD = {
    "lockstep/core/log.h": "// Writes lines.\n// Of these the last is empty.\nint size;  ///< Bytes.\n"
                           "           ///< Of all lines together.\n",
    "lockstep/core/raw.cpp": f'const char* text = R"(\n// Of a raw string: {LONG}\n)";\nconst char* url = "https://Of all";\n',
    "lockstep/core/off.cpp": f"// clang-format off\nint {LONG};\n// clang-format on\n",
}
# (file, its contents, what the tool must report)
BAD = [
    ("lockstep/core/log.cpp", f"int a;\nint {LONG};\n", "lockstep/core/log.cpp:2: 106 columns, of at most 100"),
    ("lockstep/core/log.cpp", f"// clang-format off\n// clang-format on\nint {LONG};\n", "log.cpp:3: 106 columns"),
    ("tests/core/log_test.cpp", "int a;\n\n  // Of all lines.\n", "log_test.cpp:3: a comment begins with 'Of'"),
    ("tests/core/log_test.cpp", "int a = 0;  ///< of all lines\n", "log_test.cpp:1: a comment begins with 'of'"),
    ("tests/core/log_test.cpp", "int a = 0;  // those of all lines\n", "log_test.cpp:1: a comment begins with 'those'"),
    ("lockstep/core/log.cpp", "/// Who waits is woken.\n", "begins with 'Who': name the subject"),
    ("lockstep/core/log.cpp", "int a;  // The same for a.\n", "begins with 'The same'"),
    ("lockstep/core/log.cpp", 'int a = f("//");  ///< Those of a.\n', "begins with 'Those'"),
    ("lockstep/core/log.cpp", "// Reads so many bytes.\n", "'so many': name the number"),
]


def run(files):
    return run_tool("check_format.py", files)


class CheckFormatTest(unittest.TestCase):
    def test_accepts_a_tree_in_order(self):
        code, output = run(GOOD)
        self.assertEqual((code, output.split(",")[0]), (0, f"format: {len(GOOD)} files"))

    def test_rejects_each_violation(self):
        for name, content, message in BAD:
            with self.subTest(file=name, content=content):
                code, output = run({**GOOD, name: content})
                self.assertEqual(code, 1)
                self.assertIn(message, output)


if __name__ == "__main__":
    unittest.main()
