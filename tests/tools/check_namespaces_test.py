"""Runs tools/check_namespaces.py on small trees, good and bad, and checks its verdict."""
import sys
import unittest

from small_tree import TOOLS, run_tool

sys.path.insert(0, str(TOOLS))
from check_namespaces import INSTALLED

GOOD = {
    "lockstep/public_headers.txt": "lockstep/lockstep.h\n",
    "lockstep/lockstep.h": "#include <lockstep/comm/group.h>\n\n" + "".join(f"namespace {space} {{\nclass Ahead;\n}}\n" for space in INSTALLED),
    "lockstep/comm/group.h": "namespace lockstep {\n\nclass Group {\n};\n\n}  // namespace lockstep\n",
    "lockstep/comm/work.h": "namespace lockstep {\nclass Group;\nenum class Kind : int;\n}  // namespace lockstep\n\n"
                            "namespace lockstep::comm {\n\nclass Work {\n public:\n  int count();\n};\n\nint count(\n    Work work);\n\n}  // namespace lockstep::comm\n",
    "lockstep/core/text.h": "namespace lockstep {\n\nint length(const char* text);\n\n}  // namespace lockstep\n",
}
BAD = ["class Work {\n};", "struct Work final : Base {\n};", "int count(Work work);", "inline int count() { return 1; }", "using Count = int;",
       "template <class T>\nclass Box {\n};", "[[nodiscard]] int count();", "inline constexpr int kMost = 1;", "enum class Kind { kA };"]


def run(files):
    return run_tool("check_namespaces.py", files)


class CheckNamespacesTest(unittest.TestCase):
    def test_accepts_a_tree_in_order(self):
        self.assertEqual(run(GOOD), (0, "namespaces: 1 internal headers keep out of namespace lockstep, the others open 6 namespaces\n"))

    def test_rejects_each_declaration_in_the_namespace_of_users(self):
        for declaration in BAD:
            with self.subTest(declaration=declaration):
                code, output = run({**GOOD, "lockstep/comm/work.h": f"namespace lockstep {{\n{declaration}\n}}  // namespace lockstep\n"})
                self.assertEqual(code, 1)
                self.assertRegex(output, r"^lockstep/comm/work.h:2: this header is not installed, .* namespace lockstep::comm: ")

    def test_rejects_an_installed_header_that_opens_the_namespace_of_a_room(self):
        ahead = "namespace lockstep::comm {\nclass Work;\n}  // namespace lockstep::comm\n\n"
        code, output = run({**GOOD, "lockstep/comm/group.h": ahead + GOOD["lockstep/comm/group.h"]})
        self.assertEqual(code, 1)
        self.assertIn("lockstep/comm/group.h:2: this header is installed, so that its internal names belong into namespace lockstep::detail, not lockstep::comm", output)

    def test_rejects_a_nested_namespace_that_is_not_in_the_list(self):
        inside = "namespace lockstep {\nnamespace internal {\nclass Work;\n}\n}  // namespace lockstep\n"
        code, output = run({**GOOD, "lockstep/comm/group.h": inside})
        self.assertEqual(code, 1)
        self.assertIn("lockstep/comm/group.h:3: ", output)
        self.assertIn("not lockstep::internal", output)

    def test_rejects_a_list_with_a_namespace_that_no_installed_header_opens(self):
        code, output = run({**GOOD, "lockstep/lockstep.h": "#include <lockstep/comm/group.h>\n"})
        self.assertEqual(code, 1)
        self.assertIn("no installed header opens namespace lockstep::pipeline: ", output)

    def test_the_decision_names_the_namespaces_of_the_list(self):
        decision = (TOOLS.parent / "docs/adr/026-internal-names-in-namespaces-of-rooms.md").read_text(encoding="utf-8")
        for space in INSTALLED:
            self.assertIn(f"`{space}`", decision)

    def test_is_not_confused_by_a_forward_declaration_of_a_library(self):
        ahead = "namespace CLI {\nclass App;\n}\n\n"
        code, output = run({**GOOD, "lockstep/comm/work.h": ahead + "namespace lockstep {\nint count();\n}  // namespace lockstep\n"})
        self.assertEqual(code, 1)
        self.assertIn("lockstep/comm/work.h:6: ", output)

    def test_rejects_a_tree_without_internal_headers(self):
        code, output = run({"lockstep/public_headers.txt": ""})
        self.assertEqual(code, 1)
        self.assertIn("no internal headers", output)


if __name__ == "__main__":
    unittest.main()
