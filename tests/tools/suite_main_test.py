"""Tests tests/support/suite_main.cpp, which runs each test of a suite in a fork. Usage: suite_main_test.py SUBJECT"""
import subprocess
import sys
import unittest


def run(*arguments, timeout=None):
    result = subprocess.run([SUBJECT, *arguments], capture_output=True, text=True, timeout=timeout)
    return result.returncode, result.stdout + result.stderr


class SuiteMain(unittest.TestCase):
    def test_every_test_begins_afresh(self):
        status, output = run("--suite=Passes")
        self.assertEqual(status, 0, output)
        self.assertIn("2 tests, 0 failed, 0 skipped", output)

    def test_one_failure_fails_the_suite(self):
        status, output = run("--suite=FailsOnce")
        self.assertEqual(status, 1)
        self.assertIn("3 tests, 1 failed, 0 skipped\n  FailsOnce.Fails failed\n", output)

    def test_a_suite_is_skipped_where_all_its_tests_are(self):
        self.assertEqual(run("--suite=Skips")[0], 77)
        status, output = run("--suite=SkipsOne")
        self.assertEqual(status, 0)
        self.assertIn("  SkipsOne.One was skipped", output)

    def test_a_crash_is_named(self):
        status, output = run("--suite=Crashes")
        self.assertEqual(status, 1)
        self.assertIn("Crashes.InTheMiddle was killed by signal 11", output)
        self.assertIn("2 tests, 1 failed", output)

    def test_a_test_has_a_limit(self):
        status, output = run("--suite=Lasts", "--limit=1")
        self.assertEqual(status, 1)
        self.assertIn("Lasts.TooLong ran longer than its limit of 1 s", output)

    def test_what_a_test_started_ends_with_it(self):
        # The pipe to this process is closed once all that hold it have ended.
        status, output = run("--suite=LeavesProcesses", "--limit=1", timeout=60)
        self.assertEqual(status, 1)
        self.assertIn("LeavesProcesses.WhenItLastsTooLong ran longer than its limit of 1 s", output)

    def test_parameters(self):
        status, output = run("--suite=UpToThree/Numbers")
        self.assertEqual(status, 1)
        self.assertIn("  UpToThree/Numbers.AreSmall/2 failed", output)

    def test_all_suites_can_run_in_one_process(self):
        status, output = run("--suite=*", "--limit=5")
        self.assertEqual(status, 1)
        for sentence in ("Crashes.InTheMiddle was killed by signal 11", "Lasts.TooLong ran longer than",
                         "  FailsOnce.Fails failed", "  Skips.One was skipped"):
            self.assertIn(sentence, output)

    def test_no_such_suite_is_an_error(self):
        self.assertEqual(run("--suite=Nothing")[0], 1)

    def test_without_a_suite_it_is_the_usual_main(self):
        status, output = run("--gtest_filter=Passes.*")
        self.assertIn("Passes.SeesNothingOfTheFirst", output)
        self.assertEqual(status, 1)  # the tests share a process


if __name__ == "__main__":
    SUBJECT = sys.argv.pop(1)
    unittest.main()
