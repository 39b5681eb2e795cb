"""Tests run_tests.py on tests that fail always, that fail once, that crash, and that print a sanitizer's report, and as a
background job."""
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from small_tree import run_tool

RUN_TESTS = pathlib.Path(__file__).resolve().parents[2] / "tools/run_tests.py"

ONCE = """add_test({name} sh -c "[ -e {mark} ] || {{ echo {words} >{mark}; cat {mark}; exit 1; }}")\n"""


def once(name, words="unlucky"):
    """A test that fails in its first run only."""
    return ONCE.format(name=name, mark=re.sub("[:/]", "_", name), words=words)


def run(tests, *arguments):
    return run_tool("run_tests.py", {"CTestTestfile.cmake": tests}, *arguments)


def runs(process):
    try:
        state = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "XZ"


class RunTests(unittest.TestCase):
    def test_passes(self):
        status, output = run("add_test(system.a true)\nadd_test(core.b true)\n")
        self.assertEqual(status, 0)
        self.assertNotIn("Second run", output)

    def test_no_tests_are_an_error(self):
        self.assertNotEqual(run("")[0], 0)

    def test_names_what_passed_in_the_second_run(self):
        status, output = run(once("system.a") + once("thread:comm_plain.After/Killed.C/0") +
                             once("comm_backends.Gloo/Stops") + once("pipeline.Ranks/DistributedPipelineDeaths") +
                             once("train.Ranks/TrainerPipelineDeaths") + "add_test(core.d true)\n")
        self.assertEqual(status, 0, output)
        self.assertIn("Second run of 5 ", output)
        for name in ("system.a", "thread:comm_plain.After/Killed.C/0", "comm_backends.Gloo/Stops",
                     "pipeline.Ranks/DistributedPipelineDeaths", "train.Ranks/TrainerPipelineDeaths"):
            self.assertIn(f"  {name} is flaky", output)
        self.assertEqual(output.count("Test #6: core.d"), 1, output)

    def test_gives_what_measures_time_a_second_run(self):
        names = ("parallel.DdpTiming", "parallel_plain.PipelineExecutorFailures.EndTheStep", "report.mlflow_oracle",
                 "report.BrowserTiming", "comm_backends.GlooDeadline")
        status, output = run("".join(once(name) for name in names))
        self.assertEqual(status, 0, output)
        for name in names:
            self.assertIn(f"  {name} is flaky", output)

    def test_gives_the_meeting_of_many_ranks_a_second_run(self):
        status, output = run(once("comm_many.ManyRanksMeeting"))
        self.assertEqual(status, 0, output)
        self.assertIn("  comm_many.ManyRanksMeeting is flaky", output)

    def test_fails_where_a_test_fails_twice(self):
        status, output = run(once("launch.a") + "add_test(system.b false)\n")
        self.assertNotEqual(status, 0)
        self.assertIn("  launch.a is flaky", output)
        self.assertIn("  system.b failed in both", output)

    def test_fails_at_once(self):
        for what, tests in {
            "a test that keeps no deadline": once("system.a") + once("core.b"),
            "a wrong sum": once("comm.All/Collectives.Sums/3"),
            "a suite with a wrong sum": once("comm.All/Collectives"),
            "a wrong statistic": once("parallel.DdpStatistics"),
            "a suite of many ranks with a wrong sum": once("comm_plain.ManyRanks/ShmCollectives"),
            "a pipeline with another gradient": once("pipeline.All/PipelineCourses"),
            "a crash": """add_test(system.a sh -c "kill -SEGV $$")\n""",
            "a crash of a rank": once("system.a", "rank 1 was killed by signal 11: a crash"),
            "a data race": once("thread:comm.Faults.A", "WARNING: ThreadSanitizer: data race"),
            "a crash under a sanitizer": once("thread:comm.Faults.A", "==7==ERROR: ThreadSanitizer: SEGV"),
            "a name that is not understood": once("system.a") + "add_test([=[system.b (c) d]=] false)\n",
            "too many": "".join(once(f"system.{name}") for name in "abcdef"),
        }.items():
            with self.subTest(what):
                status, output = run(tests)
                self.assertNotEqual(status, 0, output)
                self.assertNotIn("Second run", output)

    def test_a_command_beside_the_tests_can_fail_alone(self):
        with tempfile.TemporaryDirectory() as name:
            log = f"{name}/log"
            for command, tests, ends in [("chrt -p $$; echo built", "true", 0), ("echo broken; exit 3", "true", 1),
                                         ("echo built", "false", 8), ("echo broken; exit 3", "false", 8)]:
                with self.subTest(command, tests=tests):
                    status, output = run(f"add_test(core.a {tests})\n", "--beside", command, log)
                    self.assertEqual(status, ends, output)
                    self.assertEqual("\nbroken\n" in output, "broken" in command, output)
                    self.assertNotIn("built", output)
                    written = pathlib.Path(log).read_text(encoding="utf-8")
                    self.assertIn("broken" if "broken" in command else "built", written)
                    if "chrt" in command:
                        self.assertIn("SCHED_IDLE", written)

    # Has a process in ctest's group whose parent is in another group, as `lockstep run` has. It ends when the file `end`
    # exists, and the file `ended` says that it has.
    OUTSIDER = """
import os, pathlib, time
group = os.getpgrp()
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        os.setpgid(0, group)
        pathlib.Path("begun").touch()
        while not pathlib.Path("end").exists():
            time.sleep(0.01)
        os._exit(0)
    os.wait()
    pathlib.Path("ended").touch()
    os._exit(0)
os.wait()
"""
    STOPPED = """
import os, pathlib, signal, time
while not pathlib.Path("begun").exists():
    time.sleep(0.01)
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
os.waitid(os.P_PID, child, os.WSTOPPED)
pathlib.Path("end").touch()
while not pathlib.Path("ended").exists():
    time.sleep(0.01)
os.kill(child, signal.SIGKILL)
"""

    def start(self, folder, scripts, tests, *arguments):
        """Starts run_tests.py in a process group that is orphaned, because its parent is in another session."""
        for name, script in scripts.items():
            (folder / name).write_text(script, encoding="utf-8")
        (folder / "CTestTestfile.cmake").write_text(tests, encoding="utf-8")
        job = subprocess.Popen([sys.executable, str(RUN_TESTS), str(folder), *arguments, "-j", "2"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.addCleanup(job.kill)  # ctest ends with it
        return job

    def wait_until(self, holds):
        deadline = time.monotonic() + 30
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_a_stopped_process_does_not_end_a_background_job(self):
        with tempfile.TemporaryDirectory() as name:
            job = self.start(pathlib.Path(name), {"outsider.py": self.OUTSIDER, "stopped.py": self.STOPPED},
                             f"add_test(system.a {sys.executable} outsider.py)\nadd_test(system.b {sys.executable} stopped.py)\n")
            output, _ = job.communicate(timeout=60)
            self.assertEqual(job.returncode, 0, output)
            self.assertIn("100% tests passed, 0 tests failed out of 2", output)

    def test_signals_end_its_tests_and_what_runs_beside_them(self):
        script = "import os, time\nprint(os.getpid(), file=open('process', 'w'), flush=True)\nos.rename('process', 'ready')\ntime.sleep(60)\n"
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name), tempfile.TemporaryDirectory() as name:
                ready = pathlib.Path(name) / "ready"
                beside = pathlib.Path(name) / "beside"
                job = self.start(pathlib.Path(name), {"sleeps.py": script}, f"add_test(core.a {sys.executable} sleeps.py)\n",
                                 "--beside", f"mkdir {beside} && cd {beside} && {sys.executable} ../sleeps.py", f"{name}/log")
                self.wait_until(lambda: ready.exists() and (beside / "ready").exists() or job.poll() is not None)
                job.send_signal(number)
                job.communicate(timeout=20)
                self.assertNotEqual(job.returncode, 0)
                for each in ready, beside / "ready":
                    process = int(each.read_text(encoding="utf-8"))
                    self.wait_until(lambda: not runs(process))


if __name__ == "__main__":
    unittest.main()
