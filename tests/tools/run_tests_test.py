"""Tests run_tests.py on tests that fail always, that fail once, that crash, and that print a sanitizer's report."""
import re
import unittest

from small_tree import run_tool

ONCE = """add_test({name} sh -c "[ -e {mark} ] || {{ echo {words} >{mark}; cat {mark}; exit 1; }}")\n"""


def once(name, words="unlucky"):
    """A test that fails in its first run only."""
    return ONCE.format(name=name, mark=re.sub("[:/]", "_", name), words=words)


def run(tests):
    return run_tool("run_tests.py", {"CTestTestfile.cmake": tests})


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


if __name__ == "__main__":
    unittest.main()
