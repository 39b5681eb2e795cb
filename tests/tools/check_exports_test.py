"""Runs tools/check_exports.py on small trees, good and bad, and checks its verdict."""
import unittest

from small_tree import run_tool

EXPORT = "#include <lockstep/core/export.h>\n"
GOOD = {
    "lockstep/public_headers.txt": "lockstep/lockstep.h\n",
    "lockstep/lockstep.h": "#include <lockstep/core/range.h>\n",
    "lockstep/core/export.h": "#define LOCKSTEP_API\n",
    "lockstep/core/range.h": EXPORT + "namespace lockstep {\n\nclass LOCKSTEP_API Range final {\n public:\n  int low();\n};\n\n"
                             "class Ahead;\nenum class Kind { kA };\nusing Alias = int;\nTORCH_MODULE(Net);\n"
                             "template <class T>\n  requires Small<T>\nclass Box {\n};\ninline int one() { return 1; }\n"
                             "[[nodiscard]] LOCKSTEP_API int size(\n    Range range);\nextern LOCKSTEP_API int count;\n"
                             "inline constexpr int kMost = 1;\n\n}  // namespace lockstep\n\nclass Elsewhere;\n",
    "lockstep/core/internal.h": "namespace lockstep {\n\nclass Internal;\n\n}  // namespace lockstep\n",
}
BAD = ["class Range {\n};", "struct Range final : Base {\n};", "int size(Range range);", "extern int count;",
       "[[nodiscard]] int size();", "std::vector<int> sizes(\n    Range range);", "template <class T>\nclass Box {\n};\nint size();",
       "}  // namespace lockstep\nnamespace lockstep::plan {\nclass Step {\n};"]


def run(files):
    return run_tool("check_exports.py", files)


class CheckExportsTest(unittest.TestCase):
    def test_accepts_a_tree_in_order(self):
        self.assertEqual(run(GOOD), (0, "exports: 3 declarations are marked\n"))

    def test_rejects_each_declaration_without_the_mark(self):
        for declaration in BAD:
            with self.subTest(declaration=declaration):
                code, output = run({**GOOD, "lockstep/lockstep.h": EXPORT + f"namespace lockstep {{\n{declaration}\n}}  // namespace lockstep\n"})
                self.assertEqual(code, 1)
                self.assertRegex(output, r"^lockstep/lockstep.h:\d+: liblockstep.so does not export this without LOCKSTEP_API: ")
                self.assertIn("error: 1 problem with the exports of the shared library", output)

    def test_rejects_a_header_that_does_not_include_the_mark(self):
        code, output = run({**GOOD, "lockstep/lockstep.h": "namespace lockstep {\nclass LOCKSTEP_API A;\n}  // namespace lockstep\n"})
        self.assertEqual((code, output.splitlines()[0]), (1, "lockstep/lockstep.h: does not include <lockstep/core/export.h>"))

    def test_rejects_a_tree_without_anything_to_export(self):
        code, output = run({"lockstep/public_headers.txt": ""})
        self.assertEqual(code, 1)
        self.assertIn("nothing to export", output)


if __name__ == "__main__":
    unittest.main()
