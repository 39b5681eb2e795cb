"""Runs the text checks of strict_compilation.py on small trees, good and bad."""
import pathlib
import tempfile
import unittest

import strict_compilation

GOOD = {
    "lockstep/public_headers.txt": "# a comment\nlockstep/lockstep.h\nlockstep/core/ahead.h\nlockstep/core/text.h\n"
                                   "lockstep/data/batch.h\n",
    "lockstep/core/internal.h": "#pragma once\nusing Images = at::Tensor;  // nobody installs it\n",
    "lockstep/lockstep.h": "#pragma once\n#include <lockstep/data/loader/loader.h>\n",
    "lockstep/data/loader/loader.h": "#pragma once\n#include <torch/types.h>\nstruct LoaderOptions {\n"
                              "  torch::Tensor images{};\n};\n",
    "lockstep/data/batch.h": "#pragma once\n#include <lockstep/data/loader/loader.h>\nusing Images = at::Tensor;\n",
    "lockstep/core/text.h": "#pragma once\n// As torch::save() writes it,\n/* not as\n   c10::str() does. */\n"
                            "inline const char* name() { return \"at::Tensor\"; }\nstruct HiddenOptions {};\n",
    "lockstep/core/ahead.h": "#pragma once\nstruct LoaderOptions;\n",
    "tests/install/call_style.cpp": "#include <lockstep/lockstep.h>\n#include <lockstep/core/ahead.h>\n"
                                    "const auto options = LoaderOptions{.images = {}};\n",
}
# (file, its contents, the expected complaint)
BAD = [
    ("lockstep/core/text.h", "#pragma once\n/* two\n   lines */\nvoid save(const torch::Tensor& tensor);\n",
     "lockstep/core/text.h:4: names torch::Tensor"),
    ("lockstep/core/text.h", "#pragma once\n#include <vector>\nusing Sizes = std::vector<at::Tensor>;\n",
     "lockstep/core/text.h:3: names at::Tensor"),
    ("lockstep/core/text.h", "#pragma once\nusing Device = c10::Device;  // a comment\n",
     "lockstep/core/text.h:2: names c10::Device"),
    ("lockstep/data/batch.h", "#pragma once\n// #include <torch/types.h>\nusing Images = at::Tensor;\n",
     "lockstep/data/batch.h:3: names at::Tensor"),
    ("lockstep/lockstep.h", "#pragma once\n#include <lockstep/data/loader/loader.h>\nstruct LOCKSTEP_API NewOptions {\n  int a;\n};\n",
     "lockstep/lockstep.h:3: NewOptions is missing in tests/install/call_style.cpp"),
]


def complaint_about(files):
    """Returns the complaint of check_texts() about a tree of these texts, by path; None if it accepts them."""
    with tempfile.TemporaryDirectory() as root:
        for name, content in files.items():
            path = pathlib.Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        try:
            strict_compilation.check_texts(pathlib.Path(root))
        except SystemExit as error:
            return str(error)
        return None


class StrictCompilationTest(unittest.TestCase):
    def test_accepts_a_tree_in_order(self):
        self.assertIsNone(complaint_about(GOOD))

    def test_rejects_each_violation(self):
        for name, content, message in BAD:
            with self.subTest(file=name, content=content):
                self.assertIn(message, complaint_about({**GOOD, name: content}) or "nothing")


def complaint_about_cost(libtorch, both):
    try:
        strict_compilation.check_cost(libtorch, both, "/ours/lockstep/")
    except SystemExit as error:
        return str(error)
    return None


class CostTest(unittest.TestCase):
    LIBTORCH = '# 1 "/torch.h" 1\n# 1 "/usr/include/vector" 1\nclass vector;\n# 2 "/torch.h" 2\n'
    OURS = '# 1 "/ours/lockstep/lockstep.h" 1\n# 1 "/usr/include/vector" 1 3\n# 2 "/ours/lockstep/lockstep.h" 2\n'

    def test_accepts_what_torch_includes_and_known_headers(self):
        span = '# 1 "/usr/include/c++/12/span" 1 3\n# 1 "/usr/include/c++/12/array" 1 3\n'
        self.assertIsNone(complaint_about_cost(self.LIBTORCH, self.LIBTORCH + self.OURS + "int one;\n\n" + span))

    def test_names_another_header(self):
        regex = '# 1 "/usr/include/c++/12/regex" 1 3\n'
        self.assertIn("lockstep.h includes /usr/include/c++/12/regex,",
                      complaint_about_cost(self.LIBTORCH, self.LIBTORCH + self.OURS + regex) or "nothing")

    def test_counts_lines_of_our_headers(self):
        lines = "int one;\n" * (strict_compilation.MOST_LINES - 1)
        theirs = '# 2 "/torch.h" 2\n' + "int theirs;\n" * 100
        self.assertIsNone(complaint_about_cost(self.LIBTORCH, self.OURS + "int one;\n" + lines + theirs))
        self.assertIn("adds 4001 lines",
                      complaint_about_cost(self.LIBTORCH, self.OURS + "int one;\nint two;\n" + lines + theirs) or "nothing")


if __name__ == "__main__":
    unittest.main()
