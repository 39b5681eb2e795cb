"""Tests which rows benchmarks/strategy_table.py compares with the targets, and that its tables have as many cells as
columns."""
import argparse
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import strategy_table  # noqa: E402


def row(way, step_ms, **more):
    return {"way": way, "step_ms": step_ms, "why_not": None, "ranks": 1, "threads_per_rank": 2, "processors": 2,
            "samples_per_second": 1.0, "peak_rss_bytes": 3 << 20, "peak_growth_bytes": 2 << 20,
            "proportional_bytes": 4 << 20, "utilisation": 1.0, "limited_by": "processors", "limited_by_share": 1.0,
            "image_size": 64, "batch": 8, "precision": "32", "optimizer": "sgd", "stages": None, **more}


def figures(*rows):
    all_rows = strategy_table.Figures()
    all_rows.add("resnet50", [row("single", 90.0), row("split", 160.0, stages=2), *rows])
    return all_rows


class StrategyTable(unittest.TestCase):
    def test_bars_are_those_of_two_stages(self):
        faster = row("pipeline-zbv", 50.0, stages=4)
        best = row("pipeline-1f1b", 80.0, stages=2)
        slower = row("pipeline-ranks-1f1b", 85.0, stages=2, ranks=2, threads_per_rank=1)
        alike = row("single-accumulated", 60.0)
        targets = list(strategy_table.targets(figures(faster, best, slower, alike)))
        (what, speed, least), (_, throughput, _), (_, explained, none) = targets
        self.assertIn("two stages by pipeline-1f1b on two threads", what)
        self.assertEqual((speed[0], least), (2.0, 1.6))
        self.assertAlmostEqual(throughput[0], 90 / 80)
        self.assertAlmostEqual(explained[0], 60 / 80)
        self.assertIsNone(none)
        self.assertEqual(strategy_table.verdict(explained, none), "no target")

    def test_bars_name_ranks(self):
        ranks = row("pipeline-ranks-1f1b", 80.0, stages=2, ranks=2, threads_per_rank=1)
        what = next(iter(strategy_table.targets(figures(ranks))))[0]
        self.assertIn("two stages by pipeline-ranks-1f1b on two ranks", what)

    def test_bars_without_two_stages_are_not_measured(self):
        for what, figure, least in strategy_table.targets(figures(row("pipeline-zbv", 50.0, stages=4))):
            self.assertIn("no pipeline of two stages", what)
            self.assertEqual(strategy_table.verdict(figure, least), "not measured")

    def test_tables_are_whole(self):
        known = row("pipeline-1f1b", 80.0, stages=2, device_bytes=3 << 19)
        refused = {**row("hybrid", 0.0), "why_not": "too few ranks"}
        options = argparse.Namespace(rounds=1, peer_python=None)
        some = figures(known, refused)
        for text in (strategy_table.page_text(some, options), strategy_table.guide_text(some, options)):
            lines = [line for line in text.split("### Targets")[0].splitlines() if line.startswith("|")]
            self.assertEqual({line.count("|") for line in lines}, {lines[0].count("|")}, lines)
            self.assertEqual(sum("| 1.5 |" in line for line in lines), 1)  # the fullest device of one strategy
            self.assertIn("device, MiB", lines[0])


if __name__ == "__main__":
    unittest.main()
