"""Runs the Makefile in an empty folder, with stand-ins that only record how they were called."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

MAKEFILE = pathlib.Path(__file__).resolve().parents[2] / "Makefile"
STUBS = {
    "tools/bootstrap.sh": """echo "bootstrap $*" >>calls
[ "$1" != cuda ] || exit ${CUDA_STATUS:-0}
mkdir -p .deps
[ "$(cat .deps/cmake-args 2>/dev/null)" = "$TORCH" ] || echo "$TORCH" >.deps/cmake-args
""",
    ".deps/venv/bin/python": """echo python "$@" >>calls
case "$*" in *" ${PYTHON_CALL:-large}") exit ${PYTHON_STATUS:-0} ;; esac
""",
    "tools/run_tests.py": """echo run_tests "$@" >>calls
[ "$2" != --beside ] || sh -c "$3" || exit 1
exit ${TESTS_STATUS:-0}
""",
    "bin/ctest": """echo ctest "$@" $LOCKSTEP_EXHAUSTIVE >>calls
""",
    "bin/cmake": """echo cmake "$@" >>calls
case "$*" in *"--build build/${BROKEN:-none} "*) echo "$BROKEN is broken"; exit 1 ;; esac
case "$*" in *--preset*) mkdir -p build/release build/debug; touch build/release/build.ninja build/debug/build.ninja ;; esac
case "$*" in *"--build build/cuda "*)
  mkdir -p build/cuda
  printf '#!/bin/sh\\necho build/cuda/tests_gpu_libraries >>calls\\n' >build/cuda/tests_gpu_libraries
  chmod +x build/cuda/tests_gpu_libraries ;; esac
for preset in release debug; do
  for program in lockstep tests_train tests_train_resnets; do
    printf '#!/bin/sh\\necho build/%s/%s "$@" $LOCKSTEP_EXHAUSTIVE >>calls\\n' $preset $program >build/$preset/$program
    chmod +x build/$preset/$program
  done
done
""",
}


class MakefileTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # packages-ahead may still write
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copy(MAKEFILE, self.root)
        for name, body in STUBS.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n" + body)
            path.chmod(0o755)

    def make(self, *words, **variables):
        """Returns the exit status and the recorded calls. self.output is what make printed."""
        (self.root / "calls").write_text("")
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("MAKE", "MFLAGS", "LOCKSTEP_", "PRESET", "ARGS"))}
        result = subprocess.run(["make", *words], cwd=self.root, capture_output=True, text=True, env={
            **kept, "PATH": f"{self.root / 'bin'}:{kept['PATH']}", "TORCH": "-DHERE=1", **variables})
        self.output = result.stdout
        return result.returncode, (self.root / "calls").read_text()

    def test_configures_only_when_libtorch_moved(self):
        for torch, configures in [("-DHERE=1", 1), ("-DHERE=1", 0), ("-DTHERE=1", 1), ("-DTHERE=1", 0)]:
            status, calls = self.make("build", TORCH=torch)
            self.assertEqual(status, 0)
            self.assertEqual(calls.count(f"--preset release {torch}"), configures, calls)
            self.assertEqual(calls.count("--preset"), configures, calls)
            self.assertIn("cmake --build build/release", calls)

    def test_runs_the_preset_that_it_built(self):
        for preset in "release", "debug":
            status, calls = self.make("train", f"PRESET={preset}", "RANKS=3", "ARGS=--seed 7")
            self.assertEqual(status, 0)
            self.assertIn(f"cmake --build build/{preset}", calls)
            self.assertIn(f"\nbuild/{preset}/lockstep train mnist --strategy ddp --nproc-per-node 3 --seed 7", calls)

    def test_exhaustive_tests_have_their_variable_and_no_limit_of_ctest(self):
        status, calls = self.make("test-exhaustive")
        self.assertEqual(status, 0)
        self.assertIn("--target lockstep_cli tests_train tests_train_resnets export_models ddp_steps interrupted_loop "
                      "program_steps\n", calls)
        self.assertIn("-B build/single-files -DLOCKSTEP_UNITY_FILES=1", calls)
        self.assertIn("cmake --build build/debug", calls)
        self.assertIn("run_tests build/debug", calls)
        for program, suite in ("train", "StrategyEquality"), ("train_resnets", "StrategyEqualityResNet"):
            self.assertIn(f"\nbuild/release/tests_{program} --suite={suite} --limit=7200 1\n", calls)
        self.assertTrue(calls.endswith(
            "python tests/oracle/compare.py build/release/ddp_steps --model resnet18 --engines shm,c10d --steps 20\n"
            "ctest --test-dir build/release --output-on-failure --no-tests=error -R ^install.strict_g 1\n"
            "python tests/system/interruptions.py build/release/lockstep build/release/interrupted_loop\n"
            "bootstrap zoo\npython tests/oracle/program_zoo.py build/release/program_steps\n"
            "bootstrap oracles\npython tests/cli/bench/table_peers_test.py build/release/lockstep 1,2\n"
            "python tests/export/onnx_oracle.py build/release/export_models nets\n"
            "python tests/export/onnx_oracle.py build/release/export_models types\n"
            "python tests/export/onnx_oracle.py build/release/export_models large\n"), calls)
        self.assertEqual(self.make("test-exhaustive", PYTHON_STATUS="77")[0], 0)  # skipped, and reports why
        for call in "20", "build/release/interrupted_loop", "build/release/program_steps", "1,2", "nets", "types", "large":
            self.assertNotEqual(self.make("test-exhaustive", PYTHON_STATUS="1", PYTHON_CALL=call)[0], 0)

    def test_checks_the_layers_and_the_counts_with_limits(self):
        self.assertEqual(self.make("-n", "layers")[0], 0)
        for check in ("check_layers.py", "check_definitions.py", "check_exports.py", "check_namespaces.py", "check_format.py",
                      "measure_house.py --check tools/house_limits.json"):
            self.assertIn(f"python3 tools/{check}\n", self.output)

    def test_the_cuda_build_is_skipped_only_by_name(self):
        status, calls = self.make("cuda")
        self.assertEqual(status, 0)
        self.assertIn("cmake --preset cuda", calls)
        self.assertNotEqual(self.make("cuda", CUDA_STATUS="1")[0], 0)
        self.assertEqual(self.make("cuda", CUDA_STATUS="1", LOCKSTEP_SKIP_CUDA="1"), (0, "bootstrap \n"))

    def test_the_gpu_kit_is_taken_unpacked_or_built(self):
        runner = self.root / "tools/gpu/run.py"
        runner.parent.mkdir()
        runner.write_text("import sys\nprint('run', *sys.argv[1:], file=open('calls', 'a'))\n")
        (self.root / "tools/gpu/make_kit.py").write_text(
            "import os\nprint('make_kit', file=open('calls', 'a'))\nos.makedirs('build/gpu-kit')\n"
            "open('build/gpu-kit/kit.json', 'w')\n")
        run = "run --kit build/gpu-kit --output gpu-report --only tests\n"
        status, calls = self.make("gpu", "ARGS=--only tests")
        self.assertEqual(status, 0)
        built = r"cmake --preset gpu [^\n]*\ncmake --build build/gpu [^\n]*\nmake_kit\n"
        self.assertRegex(calls, r"bootstrap kit\n" + built + run)
        self.assertEqual(self.make("gpu", "ARGS=--only tests"), (0, run))  # the kit exists
        subprocess.run(["tar", "-cJf", "gpu-kit.tar.xz", "gpu-kit"], cwd=self.root / "build", check=True)
        shutil.rmtree(self.root / "build/gpu-kit")
        self.assertEqual(self.make("gpu", "ARGS=--only tests"), (0, run))  # nothing is installed or built
        self.assertTrue((self.root / "build/gpu-kit/kit.json").exists())

    def test_the_gpu_kit_is_built_with_a_libtorch_of_the_users(self):
        (self.root / "tools/gpu").mkdir()
        (self.root / "tools/gpu/make_kit.py").write_text("import sys\nprint('make_kit', *sys.argv[1:], file=open('calls', 'a'))\n")
        (self.root / "their/torch").mkdir(parents=True)
        status, calls = self.make("gpu-kit", LOCKSTEP_KIT_TORCH="their/torch")
        self.assertEqual(status, 0, calls)
        self.assertNotIn("bootstrap kit", calls)
        torch = str(self.root.resolve() / "their/torch")
        self.assertIn(f"-DLOCKSTEP_TORCH_ROOT={torch}", calls)
        self.assertIn(f"make_kit --build build/gpu --torch {torch} --kit build/gpu-kit", calls)

    def test_the_cuda_build_compiles_the_tests_of_gpus(self):
        calls = self.make("cuda")[1]
        self.assertIn("-DLOCKSTEP_GPU_KIT=ON", calls)
        self.assertTrue(calls.endswith("build/cuda/tests_gpu_libraries\n"), calls)

    def test_all_builds_for_cuda_beside_the_tests(self):
        for variables, status, text in [({}, 0, ""), ({"TESTS_STATUS": "8"}, 2, ""), ({"BROKEN": "asan"}, 2, "asan is broken"),
                                        ({"BROKEN": "tsan"}, 2, "tsan is broken"),
                                        ({"BROKEN": "cuda"}, 2, "cuda is broken")]:
            with self.subTest(variables=variables):
                ended, calls = self.make("test", "test-all", "TEST_JOBS=3", **variables)
                self.assertEqual(ended, status, calls)
                self.assertIn(text, self.output)
                for preset in "release", "asan", "tsan":
                    self.assertIn(f"cmake --build build/{preset} ", calls)
                sanitized = variables.get("BROKEN") not in ("asan", "tsan")
                for call in " cuda build/cuda.log -j 3\n", "cmake --build build/cuda ":
                    self.assertEqual(calls.count(call), sanitized, calls)
                self.assertEqual(calls.count("build/cuda/tests_gpu_libraries\n"), sanitized and not text, calls)
        self.assertNotIn("cmake --preset cuda", self.make("test-all", LOCKSTEP_SKIP_CUDA="1")[1])

    def test_all_installs_wheels_beside_the_first_build(self):
        for variables, wheels in ({}, "cuda oracles zoo"), ({"LOCKSTEP_SKIP_CUDA": "1"}, "oracles zoo"):
            self.assertEqual(self.make("-n", "test", "test-all", **variables)[0], 0)
            self.assertRegex(self.output, rf"(?s)for what in +{wheels}; do.* &\n.*cmake --build build/release")

    def test_dali_is_installed_before_the_build_is_configured(self):
        for goals, variables, installs in [(["dali"], {}, True), (["test", "test-all"], {}, True),
                                           (["dali"], {"LOCKSTEP_SKIP_CUDA": "1"}, True),
                                           (["test-all"], {"LOCKSTEP_SKIP_CUDA": "1"}, False),
                                           (["build"], {}, False)]:
            with self.subTest(goals=goals, variables=variables):
                calls = self.make(*goals, **variables)[1]
                self.assertEqual(calls.split("\n")[0], "bootstrap dali" if installs else "bootstrap ", calls)


if __name__ == "__main__":
    unittest.main()
