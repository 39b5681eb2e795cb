"""Tests the options that several benchmarks of programs read with benchmarks/programs.py."""
import contextlib
import io
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
from programs import add_limit, parser_of  # noqa: E402


def parser():
    result = parser_of("Page.\n\nUsage: it", rounds=9, seconds=2.0)
    add_limit(result, 600, "a process")
    return result


class Options(unittest.TestCase):
    def test_have_their_defaults_and_types(self):
        options = parser().parse_args([])
        self.assertEqual((options.rounds, options.seconds, options.limit), (9, 2.0, 600))
        self.assertEqual(options.build, ROOT / "build/release")
        options = parser().parse_args(["--rounds", "3", "--seconds", "0.5", "--limit", "7", "--build", "elsewhere"])
        self.assertEqual((options.rounds, options.seconds, options.limit), (3, 0.5, 7.0))
        self.assertEqual(options.build, pathlib.Path("elsewhere"))
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            parser().parse_args(["--rounds", "0.5"])

    def test_are_explained(self):
        text = parser().format_help()
        for line in ("Page.\n\nUsage: it", "default 9", "seconds of a process, default 600"):
            self.assertIn(line, text)

    def test_no_benchmark_writes_them_again(self):
        for name in ("program_ddp", "program_load", "program_table"):
            self.assertNotIn("ArgumentParser", (ROOT / f"benchmarks/{name}.py").read_text(encoding="utf-8"), name)


if __name__ == "__main__":
    unittest.main()
