"""Runs tools/check_documentation.py on small trees, good and bad, and checks its verdict."""
import unittest

from small_tree import run_tool

GOOD = {
    "lockstep/core/log.cpp": 'const auto level = environment_string("LOCKSTEP_LOG_LEVEL");\n',
    "lockstep/comm/rendezvous/slurm.cpp": '#include <lockstep/core/environment.h>\nauto rank = integer("SLURM_PROCID");\n',
    "python/setup.py": 'GIVEN = os.environ.get("LOCKSTEP_BUILD_DIR")\n',
    "docs/environment.md": "| variable |\n|---|\n| `LOCKSTEP_LOG_LEVEL`, `SLURM_PROCID` |\n| `LOCKSTEP_BUILD_DIR` |\n",
    "lockstep/public_headers.txt": "# a comment\nlockstep/lockstep.h\n",
    "lockstep/lockstep.h": "#include <lockstep/core/error.h>\n",
    "lockstep/core/error.h": "",
    "lockstep/core/hidden.h": "",
    "README.md": "[errors](lockstep/core/error.h), `train` and `bench comm`\n```cpp\nfirst();  // one\n...\nlast();\n```\n",
    "tests/install/readme.cpp": "int main() {\n  first();    // one\n  second();\n  last();\n}\n",
    "lockstep/cli/commands.h": "void add_train_command(CLI::App& app);\nvoid add_bench_command(CLI::App& app);\n",
    "lockstep/recipes/resnet.cpp": 'return {.name = "resnet50-split",\n        .summary = "one"};\n',
    "docs/recipes.md": "| `resnet50-split` | images |\n",
    "docs/errors.md": "[all](../lockstep/lockstep.h) and `#include <lockstep/core/error.h>`\n",
    "docs/communication.md": "```cpp\ngroup.barrier();\n\ngroup.send(x, 1);\n```\n```sh\nls\n```\n",
    "examples/02_communication/main.cpp": "int main() {\n  group.barrier();\n\n  group.send(x, 1);\n}\n",
    "docs/distributed_data_parallel.md": "```cpp\nddp.statistics();\n```\n```cpp\nmean.start(valid);\n```\n",
    "examples/03_training_on_many_ranks/main.cpp": "int main() {\n  ddp.statistics();\n}\n",
    "docs/data_parallel.md": "```cpp\ndp.forward(x);\n```\n",
    "tests/parallel/data_parallel/data_parallel_guide_test.cpp": "TEST(A, B) {\n  dp.forward(x);\n}\n",
    "docs/loading_data.md": "```cpp\nloader.next(batch);\n```\n",
    "examples/04_loading_data/main.cpp": "int main() {\n  loader.next(batch);\n}\n",
    "docs/training_loop.md": "```cpp\noptimizer.step();\n```\n",
    "tests/train/trainer/trainer_guide_test.cpp": "",
    "tests/train/tasks/tasks_guide_test.cpp": "",
    "tests/system/interrupted_loop.cpp": "",
    "examples/05_training_loop/main.cpp": "int main() {\n  optimizer.step();\n}\n",
    "docs/pipelines.md": "```cpp\npipe.step(criterion, x, y);\n```\n```cpp\nmesh.all();\n```\n| name | what |\n|---|---|\n| `F` | a forward |\n",
    "examples/08_resnet50_on_two_devices/main.cpp": "int main() {\n  pipe.step(criterion, x, y);\n}\n",
    "examples/10_language_model/main.cpp": "int main() {\n  mean.start(valid);\n}\n",
    "tests/parallel/pipeline/hybrid_by_hand_test.cpp": "TEST(A, B) {\n  mesh.all();\n}\n",
    "docs/checkpoints.md": "```cpp\nload_state_dict_file(path);\n```\n",
    "tests/train/checkpoints/state_dict_file_test.cpp": "TEST(A, B) {\n  load_state_dict_file(path);\n}\n",
    "docs/logging.md": "```cpp\nlogger.flush();\n```\n",
    "tests/report/loggers/loggers_test.cpp": "TEST(A, B) {\n  logger.flush();\n}\n",
    "docs/onnx.md": "```cpp\nexport_onnx(net);\n```\n",
    "tests/export/onnx_guide_test.cpp": "TEST(A, B) {\n  export_onnx(net);\n}\n",
    "docs/from_pytorch.md": "| Python | C++ | |\n|---|---|---|\n| `a` | `one();`<br>`two();` | `c` |\n| `b` | nothing | |\n",
    "tests/install/from_pytorch.cpp": "int main() {\n  one();\n  two();\n}\n",
}
# (file, its contents, what the tool must report)
BAD = [
    ("lockstep/core/new.cpp", 'environment_flag("LOCKSTEP_NEW")', "lockstep/core/new.cpp: names LOCKSTEP_NEW"),
    ("lockstep/core/new.cpp", 'std::getenv("HOME")', "names HOME, which is missing in docs/environment.md"),
    ("lockstep/core/new.h", "#include <lockstep/core/environment.h>\nconst char* name = \"MASTER_PORT\";",
     "names MASTER_PORT"),
    ("python/setup.py", "", "docs/environment.md:4: nothing reads LOCKSTEP_BUILD_DIR"),
    ("docs/errors.md", "one\n[hidden](../lockstep/core/hidden.h)\n",
     "docs/errors.md:2: <lockstep/core/hidden.h> is not installed: add it to lockstep/public_headers.txt"),
    ("examples/02_communication/more.cpp", "#include <lockstep/core/hidden.h>\n", "more.cpp:1: <lockstep/core/hidden.h> is not"),
    ("README.md", "`train` and `bench comm`\n```cpp\nfirst();  // one\nlast();\n```\n", "README.md:2: this code is not in"),
    ("README.md", "`train` and `bench comm`\n```cpp\nfirst();  // one\n...\nother();\n```\n", "README.md:2: this code is not in"),
    ("README.md", "`train` and `bench comm`\n```cpp\nlast();\n...\nfirst();  // one\n```\n", "README.md:2: this code is not in"),
    ("docs/errors.md", "| a | b |\n|---|---|\n| `c|d` | e\\|f |\n| g | h | | i | j |\n",
     "docs/errors.md:4: this row of a table has more cells than its header"),
    ("docs/errors.md", "```\n| a |\n| b\n```\n| c |\n|---|\n| d\ne |\n", "docs/errors.md:7: this row of a table lacks its end"),
    ("docs/communication.md", "text\n```cpp\ngroup.barrier(1);\n```\n",
     "docs/communication.md:2: this code is not in examples"),
    ("docs/communication.md", "```cpp\ngroup.barrier();\ngroup.send(x, 1);\n```\n", "this code is not in examples"),
    ("docs/from_pytorch.md", "| Python | C++ |\n|---|---|\n| `a` | `two();`<br>`one();` |\n",
     "docs/from_pytorch.md:3: this code is not in tests/install/from_pytorch.cpp"),
    ("docs/from_pytorch.md", "| C++ |\n|---|\n| `one();` |\n| `two()` |\n", "docs/from_pytorch.md:4: this code is not in"),
    ("docs/pipelines.md", "```cpp\npipe.step(criterion, x, y);\nmesh.all();\n```\n",
     "this code is not in examples/08_resnet50_on_two_devices/main.cpp or tests/parallel/pipeline/hybrid_by_hand_test.cpp"),
    ("README.md", "`train` and `benchmark`\n", "lockstep/cli/commands.h: README.md does not have `bench`"),
    ("lockstep/recipes/new.cpp", 'return {.name = "split",\n};\n', "lockstep/recipes/new.cpp: docs/recipes.md does not have `split`"),
    ("lockstep/comm/call/backend_names.cpp", 'names = {"shm"};\n', "docs/communication.md does not have `shm`"),
    ("docs/distributed_data_parallel.md", "```cpp\ngroup.barrier();\n```\n",
     "docs/distributed_data_parallel.md:1: this code is not in examples/03_training"),
]


def run(files):
    return run_tool("check_documentation.py", files)


class CheckDocumentationTest(unittest.TestCase):
    def test_accepts_what_is_so(self):
        code, output = run(GOOD)
        self.assertEqual((code, output[: output.index(" variables")]), (0, "documentation: 3"))

    def test_rejects_what_is_not(self):
        for name, content, message in BAD:
            with self.subTest(file=name, content=content):
                code, output = run({**GOOD, name: content})
                self.assertEqual(code, 1)
                self.assertIn(message, output)
                self.assertIn("error: 1 mistake in", output)


if __name__ == "__main__":
    unittest.main()
