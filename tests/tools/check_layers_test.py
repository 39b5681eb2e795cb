"""Feeds tools/check_layers.py small trees, good and bad, and reads its verdict."""
import unittest

from small_tree import run_tool

GOOD = {
    "lockstep/core/error.h": "#pragma once\n#include <string>\n",
    "lockstep/comm/group.h": "#pragma once\n#include <lockstep/core/error.h>\n",
    "lockstep/comm/backends/nccl/nccl.cpp": "#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>\n",
    "lockstep/data/gather.cu": "#include <cuda_runtime.h>\n",
    "lockstep/data/gather_cuda.cpp": "#include <c10/cuda/CUDAStream.h>\n",
    "lockstep/cli/main.cpp": "#include <lockstep/comm/group.h>\n",
    "tests/comm/group_test.cpp": "#include <lockstep/comm/group.h>\n",
    "examples/01_first/main.cpp": "#include <lockstep/comm/group.h>\n",
}
# (file, its content, what the tool must say)
BAD = [
    ("lockstep/core/log.cpp", "#include <lockstep/comm/group.h>\n",
     "lockstep/core/log.cpp:1: core must not include comm"),
    ("lockstep/data/loader.cpp", "#include <vector>\n#include <lockstep/comm/group.h>\n",
     "lockstep/data/loader.cpp:2: data must not include comm"),
    ("tests/core/log_test.cpp", "#include <lockstep/comm/group.h>\n",
     "tests/core/log_test.cpp:1: core must not include comm"),
    ("lockstep/core/strings.h", "#include <string>\n", "a header needs #pragma once"),
    ("lockstep/comm/group.cpp", "#include <cuda_runtime.h>\n", "<cuda_runtime.h> belongs in"),
    ("lockstep/comm/group.cpp", "#include <c10/cuda/CUDAStream.h>\n", "belongs in"),
    ("lockstep/comm/group.cpp", "  #  include <nccl.h>\n", "<nccl.h> belongs in"),
    ("lockstep/comm/group.cpp", "#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>\n",
     "belongs in"),
    ("lockstep/comm/group.cpp", "#include <lockstep/core/absent.h>\n", "does not exist"),
    ("lockstep/comm/group.cpp", '#include "lockstep/core/error.h"\n', "write <lockstep/core/error.h>"),
    ("lockstep/comm/group.cpp", '#include "group.h"\n', "are spelled <lockstep/room/file.h>"),
    ("lockstep/attic/old.h", "#pragma once\n#include <string>\n", "is not a room"),
]


def run(files):
    return run_tool("check_layers.py", files)


class CheckLayersTest(unittest.TestCase):
    def test_accepts_a_tree_in_order(self):
        self.assertEqual(run(GOOD), (0, f"layers: {len(GOOD)} files in order\n"))

    def test_rejects_each_violation(self):
        for name, content, message in BAD:
            with self.subTest(file=name, content=content):
                code, output = run({**GOOD, name: content})
                self.assertEqual(code, 1)
                self.assertIn(message, output)

    def test_rejects_a_tree_without_sources(self):
        code, output = run({"README.md": ""})
        self.assertEqual(code, 1)
        self.assertIn("no sources", output)


if __name__ == "__main__":
    unittest.main()
