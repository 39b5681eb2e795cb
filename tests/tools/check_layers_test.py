"""Runs tools/check_layers.py on small trees, good and bad, and checks its verdict."""
import unittest

from small_tree import run_tool

TABLE = "| folder | holds |\n|---|---|\n"
GOOD = {
    "lockstep/core/README.md": TABLE + "| `trace/` | t |\n| `measuring/` | m |\n| `encoding/` | e |\n| `declarations/` | d |\n| (top level) | n |\n",
    "lockstep/core/error.h": "#pragma once\n#include <string>\n",
    "lockstep/comm/group/group.h": "#pragma once\n#include <lockstep/core/error.h>\n",
    "lockstep/comm/backends/nccl/nccl.h": "#pragma once\n#include <lockstep/comm/backends/c10d/context.h>\n",
    "lockstep/comm/backends/nccl/nccl.cpp": "#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>\n",
    "lockstep/comm/backends/c10d/context.h": "#pragma once\n",
    "lockstep/data/augment/gather.cu": "#include <cuda_runtime.h>\n",
    "lockstep/data/augment/gather_cuda.cpp": "#include <c10/cuda/CUDAStream.h>\n",
    "lockstep/launch/advice.cpp": '// --debug\nthrow ConfigError("write it with `lockstep train --strategy "\n    "ddp --trace`");\n',
    "lockstep/cli/train/options.cpp": 'throw ConfigError("train: --resume needs --out DIR");\n',
    "lockstep/recipes/mnist.cpp": 'throw ConfigError("recipe mnist: remove --data");\n',
    "lockstep/cli/main.cpp": "#include <lockstep/comm/group/group.h>\n",
    "tests/comm/group_test.cpp": "#include <lockstep/comm/group/group.h>\n",
    "tests/data/loader_test.cpp": "#include <torch/nn/modules/linear.h>\n",
    "tests/install/readme.cpp": "#include <torch/torch.h>\n",
    "examples/01_first/main.cpp": "#include <torch/nn.h>\n#include <lockstep/comm/group/group.h>\n",
}
# (file, its contents, what the tool must report)
BAD = [
    ("lockstep/core/log.cpp", "#include <lockstep/comm/group/group.h>\n",
     "lockstep/core/log.cpp:1: core must not include comm"),
    ("lockstep/data/loader/loader.cpp", "#include <vector>\n#include <lockstep/comm/group/group.h>\n",
     "lockstep/data/loader/loader.cpp:2: data must not include comm"),
    ("tests/core/log_test.cpp", "#include <lockstep/comm/group/group.h>\n",
     "tests/core/log_test.cpp:1: core must not include comm"),
    ("lockstep/core/strings.h", "#include <string>\n", "a header needs #pragma once"),
    ("lockstep/comm/group/group.cpp", "#include <cuda_runtime.h>\n", "<cuda_runtime.h> belongs in"),
    ("lockstep/comm/group/group.cpp", "#include <c10/cuda/CUDAStream.h>\n", "belongs in"),
    ("lockstep/comm/group/group.cpp", "  #  include <nccl.h>\n", "<nccl.h> belongs in"),
    ("lockstep/comm/group/group.cpp", "#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>\n",
     "belongs in"),
    ("tests/data/loader_test.cpp", "#include <torch/nn.h>\n", "loader_test.cpp:1: <torch/nn.h> takes seconds to compile"),
    ("benchmarks/ours/step.cpp", "#include <torch/torch.h>\n", "<torch/torch.h> takes seconds to compile"),
    ("lockstep/comm/group/group.cpp", "#include <lockstep/core/absent.h>\n", "does not exist"),
    ("lockstep/comm/group/group.cpp", '#include "lockstep/core/error.h"\n', "write <lockstep/core/error.h>"),
    ("lockstep/comm/group/group.cpp", '#include "group.h"\n', "are spelled <lockstep/room/file.h>"),
    ("lockstep/comm/call/work.cpp", "#include <lockstep/comm/group/group.h>\n",
     "lockstep/comm/call/work.cpp:1: call of comm must not include group"),
    ("lockstep/comm/backends/hierarchical/stage.cpp", "#include <lockstep/comm/backends/nccl/nccl.h>\n",
     "backends/hierarchical of comm must not include backends/nccl"),
    ("lockstep/comm/work.cpp", "#include <string>\n", "lockstep/comm is not a folder"),
    ("lockstep/comm/attic/old.cpp", "#include <string>\n", "lockstep/comm/attic is not a folder"),
    ("lockstep/core/log.cpp", '// "an option"\n#include <string>\nthrow ConfigError("log: "\n    "give --log-dir");\n',
     "lockstep/core/log.cpp:3: --log-dir is an option of the program"),
    ("lockstep/data/loader/loader.cpp", 'throw ConfigError("use --loader native");\n', ":1: --loader is an option of the program"),
    ("lockstep/formats/image.cpp", 'throw DataError("raise --max-image-pixels");\n', "--max-image-pixels is an option"),
    ("lockstep/train/trainer.cpp", 'throw ConfigError("remove --resume");\n', "--resume is an option of the program"),
    ("lockstep/core/README.md", TABLE + "| `trace/` | t |\n| `measuring/` | m |\n| `encoding/` | e |\n| `declarations/` | d |\n", "README.md: the table of folders lacks the row (top level)\n"),
    ("lockstep/core/README.md", TABLE + "| `trace/` | t |\n| `measuring/` | m |\n| `encoding/` | e |\n| `declarations/` | d |\n| `attic/` | a |\n| (top level) | n |\n",
     "README.md: attic is not a folder"),
    ("lockstep/core/README.md", TABLE + "| `measuring/` | m |\n| `trace/` | t |\n| `encoding/` | e |\n| `declarations/` | d |\n| (top level) | n |\n",
     "README.md: trace stands below measuring, but may include it: swap them"),
    ("lockstep/attic/old.h", "#pragma once\n#include <string>\n", "is not a room"),
]


def run(files):
    return run_tool("check_layers.py", files)


class CheckLayersTest(unittest.TestCase):
    def test_accepts_a_tree_in_order(self):
        self.assertEqual(run(GOOD), (0, f"layers: {len(GOOD) - 1} files in order\n"))

    def test_rejects_each_violation(self):
        for name, content, message in BAD:
            with self.subTest(file=name, content=content):
                code, output = run({**GOOD, name: content})
                self.assertEqual(code, 1)
                self.assertIn(message, output)

    def test_a_folder_holds_at_most_25_sources(self):
        files = {f"lockstep/core/file_{number}{suffix}": "#pragma once\n" for number in range(25) for suffix in (".h", ".cpp")}
        code, output = run({**GOOD, **files})
        self.assertEqual(code, 1)
        self.assertIn("lockstep/core: 26 sources, of at most 25", output)
        scripts = {f"benchmarks/peers/file_{number}.py": "" for number in range(26)}
        self.assertIn("benchmarks/peers: 26 sources, of at most 25", run({**GOOD, **scripts})[1])
        del files["lockstep/core/file_0.h"], files["lockstep/core/file_0.cpp"]
        self.assertEqual(run({**GOOD, **files})[0], 0)

    def test_rejects_a_tree_without_sources(self):
        code, output = run({"README.md": ""})
        self.assertEqual(code, 1)
        self.assertIn("no sources", output)


if __name__ == "__main__":
    unittest.main()
