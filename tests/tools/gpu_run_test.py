"""Tests `make gpu` (tools/gpu/run.py) on a kit of programs that pass, fail, crash and hang."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest
import unittest.mock

from gpu_support import ROOT, Folder, executable

import benchmarks
import gpu_tests
import kit as gpu_kit
import make_kit
import measure
import processes
import report

GPU = {"name": "Pretended GPU", "memory_bytes": 80 << 30, "multiprocessors": 1, "capability": "9.0"}
TORCH = {"torch": "2.11.0+cu130", "cuda": "13.0", "cudnn": 1, "nccl": "2.28.9", "folder": "/nowhere/torch"}

# A test program that lists its tests, then prints the output of GoogleTest and suite_main.cpp for them.
TEST_PROGRAM = """#!/bin/sh
case "$*" in *--gtest_list_tests*) printf '{listing}'; exit 0 ;; esac
cat <<'END'
{output}
END
{end}
"""
LISTING = "Suite.\\n  Passes\\n  Skips\\n  Fails\\n  DISABLED_Not\\nOf/Values.\\n  Are/0  # GetParam() = 3\\n  Crash/1\\n"
OUTPUT = """[ RUN      ] Suite.Passes
[       OK ] Suite.Passes (12 ms)
[ RUN      ] Suite.Skips
a_test.cpp:7: Skipped
needs a GPU

[  SKIPPED ] Suite.Skips (0 ms)
[ RUN      ] Suite.Fails
a_test.cpp:9: Failure
Expected | got
[  FAILED  ] Suite.Fails (30 ms)
[  FAILED  ] 1 test, listed below:
[  FAILED  ] Suite.Fails
[ RUN      ] Of/Values.Are/0
[  FAILED  ] Of/Values.Are/0, where GetParam() = 3 (1500 ms)
[ RUN      ] Of/Values.Crash/1
Of/Values.Crash/1 was killed by signal 11"""

# Stands in for `lockstep` and Python's programs: writes the figures that are requested.
PROGRAM = """#!%(python)s
import json, os, pathlib, struct, sys
words = sys.argv[1:]
if "--help" in words:
    print("--matmul-precision --cuda-graph")
    sys.exit()
if words[:1] == ["-c"]:
    print(json.dumps(%(probe)r))
    sys.exit()
with open(%(calls)r, "a") as file:
    print(*words, file=file)
if os.environ.get("LOCKSTEP_CUDA_CALLS"):
    steps = int(words[words.index("--limit-train-batches" if "train" in words else "--max-steps") + 1])
    pathlib.Path(os.environ["LOCKSTEP_CUDA_CALLS"]).write_bytes(struct.pack("=5Q", 5 + steps, 0, 7, 2 * steps, 9 * steps))
if "--backend" in words and words[words.index("--backend") + 1] == "gloo":
    sys.exit("error: no such group")
rate = 300 if %(ours)r else 100
epochs = [dict(images_per_second=i * rate, seconds=1, phases=dict(data=0.1), gpu=dict(utilisation=0.5)) for i in (1, 2, 4)]
comm = [dict(bytes=4096, symmetric=s, median_us=300 / rate + s) for s in (False, True)]
if "--json" in words:
    text = json.dumps(comm if "comm" in words else [dict(threads=1, images_per_second=rate)] if "loader" in words
                      else dict(epochs=epochs, seconds_to_first_step=2))
    pathlib.Path(words[words.index("--json") + 1]).write_text(text)
elif any(word.endswith("comm_gloo.py") for word in words):
    print(json.dumps(comm))
elif any(word.endswith("loader_torchvision.py") for word in words):
    print(json.dumps(dict(images_per_second=[rate])))
else:
    one, other = ("flat", "single tensors") if %(ours)r else ("fused", "default")
    print(f"mnist     sgd    step: {one}     {900 / rate} us, {other}    30.5 us   zero_grad: 3.1, 4.0   launch: 2.5, 3.5")
"""


class TestPrograms(Folder):
    def run_all(self, *programs, seconds=20):
        return {(test.program, test.name): test
                for test in gpu_tests.run_all(programs, seconds, 60, self.log, {})}

    def program(self, name, listing=LISTING, output=OUTPUT, end="exit 1"):
        return executable(self.root / name, TEST_PROGRAM.format(listing=listing, output=output, end=end))

    def test_every_test_has_its_result(self):
        tests = self.run_all(self.program("tests_one"))
        self.assertEqual([test.result for test in tests.values()], ["passed", "skipped", "failed", "failed", "crashed"])
        self.assertEqual(tests["tests_one", "Suite.Skips"].message, "needs a GPU")
        self.assertIn("Expected | got", tests["tests_one", "Suite.Fails"].message)
        self.assertEqual(tests["tests_one", "Of/Values.Are/0"].seconds, 1.5)
        self.assertEqual(tests["tests_one", "Of/Values.Crash/1"].message, "killed by signal 11")

    def test_a_program_that_dies_or_cannot_start_stops_no_other(self):
        dies = self.program("dies", output="[ RUN      ] Suite.Fails\nabout to", end="kill -9 $$")
        tests = self.run_all(dies, self.root / "absent", self.program("lists", end="kill -9 $$", listing=""),
                             self.program("last"))
        self.assertEqual(tests["dies", "Suite.Fails"].result, "crashed")
        self.assertIn("killed by signal 9", tests["dies", "Suite.Fails"].message)
        self.assertEqual(tests["dies", "Suite.Passes"].result, "not run")
        self.assertEqual(tests["absent", "(all)"].result, "not run")
        self.assertEqual(tests["lists", "(all)"].result, "not run")
        self.assertEqual(tests["last", "Suite.Passes"].result, "passed")

    def test_a_program_that_hangs_is_ended_with_all_that_it_started(self):
        marker = self.root / "marker"
        # The second sleep is a separate process, which must not survive.
        hangs = self.program("hangs", output="[ RUN      ] Suite.Passes", end=f"(sleep 600; echo >{marker}) & sleep 600")
        begin = time.monotonic()
        tests = self.run_all(hangs, self.program("last"), seconds=16)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(tests["hangs", "Suite.Passes"].result, "hung")
        self.assertEqual(tests["last", "Suite.Passes"].result, "passed")  # the program that hangs left it a quarter of the time

    def test_what_a_test_leaves_of_its_line_hides_no_result(self):
        output = ("[ RUN      ] Suite.Passes\nhalf a line[ RUN      ] Suite.Skips\nand halfSuite.Skips was killed by signal 9\n"
                  "[ RUN      ] Suite.Fails\nhalfSuite.Fails ran longer than its limit of 60 s\n[ RUN      ] Of/Values.Are/0\n"
                  "[       OK ] Of/Values.Are/0 (1 ms)")
        tests = self.run_all(self.program("tests_one", output=output))
        found = {name: (test.result, test.message) for (_, name), test in tests.items()}
        self.assertEqual(found["Suite.Passes"], ("crashed", "it ended without a result"))
        self.assertEqual(found["Suite.Skips"], ("crashed", "killed by signal 9"))
        self.assertEqual(found["Suite.Fails"], ("hung", "longer than 60 s"))
        self.assertEqual(found["Of/Values.Are/0"], ("passed", ""))

    def test_results_behind_much_output_count(self):
        much = "head -c 6000000 /dev/zero | tr '\\0' 'x' | fold -w 100; echo; echo '[       OK ] Suite.Passes (12 ms)'"
        tests = self.run_all(self.program("loud", output="[ RUN      ] Suite.Passes", end=much))
        self.assertEqual(tests["loud", "Suite.Passes"].result, "passed")

    def test_the_first_program_has_most_of_the_time(self):
        given = []

        def run_program(program, seconds, *_):
            given.append(round(seconds))
            return []
        with unittest.mock.patch.object(gpu_tests, "run_program", run_program):
            gpu_tests.run_all([pathlib.Path(name) for name in ("ranks", "comm", "train")], 100, 60, self.log, {})
        self.assertEqual(given, [75, 50, 100])  # the stand-ins take no time

    def test_a_program_without_tests_is_named(self):
        tests = self.run_all(self.program("empty", listing="", end="exit 0"))
        self.assertEqual(tests["empty", "(all)"].message, "it lists no tests")


class Measuring(Folder):
    def side(self, label, *outcomes, is_peer=False):
        left = list(outcomes)

        def run(seconds):
            outcome = left.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return [("", {"images/s": outcome})]
        return measure.Side(label, run, is_peer)

    def test_medians_over_rounds_in_turn_and_ratios(self):
        benchmark = measure.Benchmark("a", "A", "", [self.side("ours", 10, 30, 20), self.side("theirs", 5, 4, 6, is_peer=True)],
                                      100, 3, "images/s")
        found, = measure.measure_all([benchmark], processes.Budget(100))
        self.assertEqual(found["status"], "ok")
        self.assertEqual(found["rows"][0]["figures"], {"images/s": 20, "times the peer": 4})
        self.assertEqual(found["rows"][1]["figures"], {"images/s": 5})

    def test_what_fails_leaves_the_others_their_figures(self):
        benchmark = measure.Benchmark("a", "A", "", [self.side("ours", measure.Failed("it did not end in 3 s")),
                                                    self.side("other", ValueError("no number")), self.side("theirs", 5)], 100)
        found, = measure.measure_all([benchmark], processes.Budget(100))
        self.assertEqual(found["status"], "incomplete")
        self.assertEqual([row["label"] for row in found["rows"]], ["theirs"])
        self.assertEqual(found["problems"][0], "ours: it did not end in 3 s")
        self.assertIn("other: its figures cannot be read", found["problems"][1])

    def test_another_round_begins_only_where_it_can_end(self):
        calls = []

        def run(seconds):
            calls.append(seconds)
            time.sleep(0.5)
            return [("", {"images/s": 1})]
        benchmark = measure.Benchmark("a", "A", "", [measure.Side("ours", run)], 5.6, 9)
        found, = measure.measure_all([benchmark], processes.Budget(100))
        self.assertEqual((found["status"], found["problems"]), ("ok", []))
        self.assertEqual(found["rows"][0]["rounds"], len(calls))
        self.assertGreater(min(calls), 0.6)

    def test_nothing_begins_without_time(self):
        benchmark = measure.Benchmark("a", "A", "", [self.side("ours")], 100)
        self.assertEqual(measure.measure_all([benchmark], processes.Budget(1))[0]["reason"], "no time was left")

    def test_a_program_beyond_its_limit_is_named(self):
        outcome = processes.run(["sleep", "600"], 0.5, self.log)
        self.assertEqual((outcome.status, processes.why(outcome, 0.5)), ("hung", "it did not end in 0 s"))
        outcome = processes.run(["sh", "-c", "echo error: this; echo more; exit 3"], 60, self.log)
        self.assertEqual(processes.why(outcome, 60), "it ended with 3: error: this")

    def test_of_long_output_the_beginning_and_the_end_are_kept(self):
        outcome = processes.run(["sh", "-c", "echo first; head -c 6000000 /dev/zero | tr '\\0' x; echo; echo last"], 60, self.log)
        self.assertTrue(outcome.output.startswith("first\n"))
        self.assertTrue(outcome.output.endswith("x\nlast\n"))
        self.assertLess(len(outcome.output), processes.MOST_OUTPUT + 100)

    def test_all_that_a_program_started_has_time_to_end(self):
        tidied, ready = self.root / "tidied", self.root / "ready"
        child = f"trap 'sleep 0.5; echo >{tidied}; exit' TERM; echo >{ready}; while :; do sleep 0.1; done"
        program = f'sh -c "$0" & while [ ! -e {ready} ]; do sleep 0.1; done'
        with unittest.mock.patch.object(processes, "GRACE_SECONDS", 30):
            outcome = processes.run(["sh", "-c", program, child], 60, self.log)
        self.assertEqual(outcome.status, "ok")
        self.assertTrue(tidied.exists())  # although the program itself ended at once

    def test_the_faster_way_of_an_optimizer_counts(self):
        rows = dict(benchmarks.optimizer_rows(
            "mnist     adamw  step: flat     20.0 us, single tensors     10.5 us   zero_grad: 3.1, 4.0   launch: 2.5, 3.5\n"
            "else\nresnet18  sgd    step: fused     20.0 us, default     30.5 us\n"))
        self.assertEqual(rows["mnist, adamw"], {"step, us": 10.5, "launch, us": 3.5, "way": "single tensors"})
        self.assertEqual(rows["resnet18, sgd"], {"step, us": 20, "launch, us": None, "way": "fused"})


class WholeRun(Folder):
    """Runs run.py from inside a kit with stand-ins for the programs and for Python."""

    def setUp(self):
        super().setUp()
        self.kit = self.root / "kit"
        for name in make_kit.SCRIPTS:
            shutil.copytree(ROOT / name, self.kit / name, ignore=shutil.ignore_patterns("__pycache__", "*.c*", "*.h"))
        (self.kit / "kit.json").write_text(json.dumps({"commit": "abc", "torch": TORCH["torch"], "tests": ["tests_gpu_one"],
                                                       "libraries": []}))
        executable(self.kit / "bin/tests_gpu_one", TEST_PROGRAM.format(listing=LISTING, output=OUTPUT, end="exit 1"))
        self.data = self.root / "data"
        for name, file in (("mnist", "train-images-idx3-ubyte.gz"), ("cifar10", "data_batch_1.bin")):
            (self.data / name).mkdir(parents=True)
            (self.data / name / file).write_bytes(b"")

    def make_programs(self, gpus, torch=TORCH):
        self.calls = self.root / "calls"
        self.calls.write_text("")
        for ours, path in ((True, self.kit / "bin/lockstep"), (False, self.root / "python")):
            executable(path, PROGRAM % {"python": sys.executable, "probe": {**torch, "gpus": gpus}, "ours": ours,
                                        "calls": str(self.calls)})
        executable(self.kit / "bin/optimizer_step", (self.kit / "bin/lockstep").read_text())
        self.command = [sys.executable, self.kit / "tools/gpu/run.py", "--python", self.root / "python", "--output",
                        self.root / "report"]
        self.environment = {**os.environ, "LOCKSTEP_DATA": str(self.data), "PYTHONDONTWRITEBYTECODE": "1"}

    def run_kit(self, gpus, *more, torch=TORCH):
        self.make_programs(gpus, torch)
        output = self.root / "report"
        result = subprocess.run([*self.command, *more], capture_output=True, text=True, env=self.environment)
        self.text = result.stdout + result.stderr
        if not (output / "report.json").exists():
            return result.returncode, None, ""
        return result.returncode, json.loads((output / "report.json").read_text()), (output / "report.md").read_text()

    def test_a_pattern_selects_benchmarks(self):
        _, found, _ = self.run_kit([GPU], "--only", "benchmarks", "--match", "^mnist$|optimizer")
        self.assertEqual([each["name"] for each in found["benchmarks"]], ["mnist", "optimizer step"], self.text)
        status, _, _ = self.run_kit([GPU], "--only", "benchmarks", "--match", "mnits")
        self.assertEqual(status, 1)
        self.assertIn("--match 'mnits' matches none of the benchmarks: cifar10 bf16, ", self.text)
        status, _, _ = self.run_kit([GPU], "--match", "(")
        self.assertEqual(status, 2)
        self.assertIn("--match '(' is not a regular expression", self.text)

    def test_tests_of_dali_skip_where_it_is_missing(self):
        program = self.kit / "bin/tests_gpu_one"
        said = self.root / "said"
        program.write_text(program.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\necho $LOCKSTEP_TEST_WITHOUT_DALI >{said}\n", 1))
        self.run_kit([GPU], "--only", "tests")
        self.assertEqual(said.read_text(), "1\n")
        packages = self.root / "packages"
        (packages / "nvidia/dali").mkdir(parents=True)
        (packages / "nvidia/dali/libdali.so").touch()
        (self.kit / "bin/lockstep_dali.so").touch()
        self.run_kit([GPU], "--only", "tests", torch={**TORCH, "folder": str(packages / "torch")})
        self.assertEqual(said.read_text(), "\n")

    def test_with_a_gpu_everything_runs(self):
        status, found, page = self.run_kit([GPU])
        self.assertEqual(status, 1, self.text)  # a test failed, and so did one of Python's programs
        by_name = {each["name"]: each for each in found["benchmarks"]}
        graph = by_name["cifar10 bf16 graph"]
        self.assertEqual(graph["status"], "ok", self.text)
        self.assertEqual(graph["rows"][0]["figures"]["images/s"], 900)
        self.assertEqual(graph["rows"][0]["figures"]["GPU busy, %"], 50)
        self.assertEqual(graph["rows"][0]["figures"]["times the peer"], 3)
        waits = by_name["host synchronisations"]["rows"][0]["figures"]
        self.assertEqual((waits["waits per step"], waits["cudaMemcpy"], waits["on other threads"]), (3, 2, 9))
        self.assertEqual(by_name["optimizer step"]["rows"][0]["figures"]["times the peer"], 3)
        shared = by_name["two ranks on a GPU"]
        self.assertEqual((shared["status"], len(shared["rows"])), ("incomplete", 1))
        self.assertIn("error: no such group", shared["problems"][0])
        self.assertEqual(by_name["dali"]["status"], "skipped")
        self.assertEqual(os.readlink(self.kit / "site"), "/nowhere")  # where the programs look for torch
        calls = self.calls.read_text()
        self.assertIn("--precision bf16 --matmul-precision high --cuda-graph", calls)
        self.assertRegex(calls, r"train cifar10 .*--strategy ddp --backend nccl")
        for words in ("Pretended GPU (80 GiB", "torch | 2.11.0+cu130, CUDA 13.0", "commit abc", "Suite.Fails | failed",
                      "1 passed, 2 failed, 1 crashed, 1 skipped", "Expected \\| got", "skipped 1: needs a GPU",
                      "error: no such group"):
            self.assertIn(words, page)
        self.assertNotIn("are random", page)
        self.assertTrue(found["complete"])
        self.assertNotIn("had not ended", page)
        self.assertIn("killed by signal 11", (self.root / "report/log.txt").read_text())

    def test_without_a_gpu_the_cores_are_measured_and_the_rest_says_why_not(self):
        status, found, page = self.run_kit([])
        for each in found["benchmarks"]:
            on_cores = each["name"].endswith(("ranks", "core", "cores"))
            self.assertEqual(each["status"], "ok" if on_cores else "skipped", each)
            if not on_cores:
                self.assertEqual(each["reason"], "torch sees no GPU")
        self.assertIn("Skipped: torch sees no GPU.", page)
        self.assertIn("- skipped 1: torch sees no GPU\n", page)  # the test said that it needs a GPU
        self.assertIn("\ntorch sees no GPU: the tests and benchmarks that need one are skipped\n", self.text)
        self.assertIn("| GPUs | none |", page)

    def test_a_kit_of_another_commit_runs_with_a_warning(self):
        tree = self.root / "tree"
        shutil.copytree(self.kit / "tools", tree / "tools")
        git = ["git", "-C", tree, "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
        for words in (["init", "--quiet"], ["add", "tools"], ["commit", "--quiet", "-m", "m"]):
            subprocess.run([*git, *words], check=True)
        commit = gpu_kit.commit_of(tree)
        self.assertRegex(commit, "^[0-9a-f]{12}$")
        self.make_programs([])
        command = [sys.executable, tree / "tools/gpu/run.py", "--kit", self.kit, *self.command[2:], "--only", "tests"]
        run = lambda: subprocess.run(command, capture_output=True, text=True, env=self.environment).stdout  # noqa: E731
        self.assertIn(f"\nkit: commit abc; checkout: commit {commit}\nwarning: the kit was made from commit abc, not from this "
                      f"checkout's {commit}; `make gpu-kit` makes a new one\n", run())
        (self.kit / "kit.json").write_text((self.kit / "kit.json").read_text().replace('"abc"', f'"{commit}"'))
        text = run()
        self.assertIn(f"\nkit: commit {commit}; checkout: commit {commit}\n", text)
        self.assertNotIn("warning", text)
        found = []
        for text in ("one", "two"):
            (tree / "tools/gpu/run.py").write_text(text)
            found.append(gpu_kit.commit_of(tree))
            self.assertRegex(found[-1], f"^{commit}-dirty-[0-9a-f]{{8}}$")
        self.assertNotEqual(*found)

    def test_a_folder_that_lies_in_a_checkout_has_no_commit(self):
        self.assertEqual(gpu_kit.commit_of(ROOT / "tools"), "")

    def test_a_missing_folder_of_data_is_named_at_once_and_everything_runs(self):
        for name, warns in (("absent", True), ("data", False)):
            self.make_programs([])
            self.environment["LOCKSTEP_DATA"] = str(self.root / name)
            result = subprocess.run([*self.command, "--only", "tests"], capture_output=True, text=True, env=self.environment)
            warning = f"\nkit: commit abc\nwarning: LOCKSTEP_DATA is {self.root}/{name}, which is not a folder; "
            self.assertEqual(warning in result.stdout, warns, result.stdout)
            self.assertIn("1 passed, 2 failed, 1 crashed, 1 skipped", result.stdout)

    def test_a_kit_for_another_torch_is_refused_in_one_line(self):
        status, found, _ = self.run_kit([GPU], torch={**TORCH, "torch": "2.12.0+cu130"})
        self.assertEqual((status, found), (1, None))
        self.assertRegex(self.text, r"^error: the kit is for torch 2\.11\.0\+cu130, .* has 2\.12\.0\+cu130; [^\n]*\n$")

    def test_a_python_without_torch_is_named(self):
        result = subprocess.run([sys.executable, self.kit / "tools/gpu/run.py", "--python", "/bin/false"],
                                capture_output=True, text=True, cwd=self.root)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "error: no torch for CUDA in /bin/false; name a Python that has one with --python\n")

    def test_sigterm_leaves_the_report_of_what_has_run_and_no_process(self):
        self.make_programs([GPU])
        number = self.root / "number"
        hangs = f"#!{sys.executable}\nimport os, pathlib, time\npathlib.Path({str(number) + '.new'!r}).write_text(str(os.getpid()))\n" \
                f"os.rename({str(number) + '.new'!r}, {str(number)!r})\ntime.sleep(600)\n"
        executable(self.kit / "bin/optimizer_step", hangs)
        process = subprocess.Popen([*self.command, "--seconds", "500"], stdout=subprocess.DEVNULL, env=self.environment)
        self.addCleanup(process.kill)
        while not number.exists():
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 143)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(number.read_text()), 0)
        found = json.loads((self.root / "report/report.json").read_text())
        self.assertFalse(found["complete"])
        self.assertEqual(len(found["tests"]), 5)
        self.assertIn("cifar10 bf16", [each["name"] for each in found["benchmarks"]])
        self.assertIn("had not ended", (self.root / "report/report.md").read_text())

    def test_an_earlier_report_stays_until_a_run_can_begin_and_is_then_replaced(self):
        self.make_programs([GPU])
        report = self.root / "report"
        report.mkdir()
        for name in ("report.md", "report.json", "log.txt"):
            (report / name).write_text("earlier")
        refused = subprocess.run([*self.command, "--python", "/bin/false"], capture_output=True, env=self.environment)
        self.assertEqual(refused.returncode, 1)
        self.assertEqual({(report / name).read_text() for name in ("report.md", "report.json", "log.txt")}, {"earlier"})
        executable(self.kit / "bin/optimizer_step", f"#!{sys.executable}\nimport time\ntime.sleep(600)\n")
        process = subprocess.Popen([*self.command, "--seconds", "500"], stdout=subprocess.PIPE, text=True, env=self.environment)
        self.addCleanup(process.kill)
        while (report / "report.md").read_text() == "earlier":
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertIn("ended; the report on what has run is", said)
        self.assertIn("had not ended", (report / "report.md").read_text())

    def test_a_time_in_which_nothing_can_run_is_refused(self):
        for seconds in ("0", "-1", "3", "nan"):
            status, found, _ = self.run_kit([GPU], f"--seconds={seconds}")
            self.assertEqual((status, found), (2, None))
            self.assertIn("--seconds must be at least 20, got", self.text)


class FindPython(Folder):
    def test_one_that_does_not_answer_is_said_to_be_silent(self):
        silent = executable(self.root / "silent", "#!/bin/sh\nexec sleep 600\n")
        with unittest.mock.patch.object(gpu_kit, "PROBE_SECONDS", 1):
            with self.assertRaisesRegex(gpu_kit.KitProblem, r"silent \(did not answer in 1 s\); name a Python"):
                gpu_kit.find_python(str(silent))

    def test_all_together_have_a_limit(self):
        silent = executable(self.root / "silent", "#!/bin/sh\nexec sleep 600\n")
        executable(self.root / "bin/python3", silent.read_text())
        with unittest.mock.patch.multiple(gpu_kit, PROBE_SECONDS=2, ALL_PROBES_SECONDS=2, ROOT=self.root), \
                unittest.mock.patch.object(sys, "executable", str(silent)), \
                unittest.mock.patch.dict(os.environ, {"PATH": f"{self.root}/bin:{os.environ['PATH']}"}):
            with self.assertRaisesRegex(gpu_kit.KitProblem, r"silent \(did not answer in 2 s\), python3 \(did not answer in 0 s\)"):
                gpu_kit.find_python(None)

    def test_help_that_does_not_come_names_no_option(self):
        executable(self.root / "bin/lockstep", "#!/bin/sh\nexec sleep 600\n")
        (self.root / "kit.json").write_text("{}")
        kit = gpu_kit.Kit(self.root, "python3", {**TORCH, "gpus": []}, self.root)
        with unittest.mock.patch.object(gpu_kit, "HELP_SECONDS", 1), contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(kit.option("--cuda-graph"), [])
        self.assertIn("newer options are left out", said.getvalue())


class MadeUpData(Folder):
    def test_the_report_says_that_images_are_random(self):
        text = report.markdown({"begun": "now", "seconds": 1, "machine": {"driver": None, "cores": 1, "processor": "p", "sockets": 1,
                                "memory_gib": 1, "system": "s", "python": "3"}, "torch": {**TORCH, "gpus": []},
                                "kit": {"commit": "c"}, "made_up_data": ["mnist"], "benchmarks": []}, [])
        self.assertIn("The images of mnist are random", text)

if __name__ == "__main__":
    unittest.main()
