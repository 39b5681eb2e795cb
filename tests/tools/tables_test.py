"""Tests the tables that benchmarks/tables.py makes from the rows of `lockstep bench table`."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks"))
import tables  # noqa: E402


def row(strategy, ranks, threads, epoch, fused=True, peer=None):
    return {"strategy": strategy, "ranks": ranks, "threads_per_rank": threads, "epoch_s": epoch, "fused_kernels": fused,
            "peer": peer, "images_per_second": 60000 / epoch}


ROWS = [row("single", 1, 1, 2.0), row("single", 1, 2, 1.2), row("ddp", 2, 1, 1.0), row("single", 1, 2, 2.4, fused=False),
        row("ddp", 2, 1, 2.0, fused=False), row("ddp", 2, 1, 8.0, False, "torch 2.13.0, dataloader"),
        row("ddp", 2, 1, 7.0, False, "torch 2.13.0, dataloader with 1 worker"),
        row("ddp", 4, 1, 1.0, False, "torch 2.13.0, dataloader")]


class Targets(unittest.TestCase):
    def test_the_fastest_peer_of_two_ranks_counts(self):
        measured = [round(target[1], 6) for target in tables.mnist_targets(ROWS)]
        self.assertEqual(measured, [7.0, 1.2, 3.5, 1.2])

    def test_without_peers_there_is_the_comparison_with_one_process(self):
        ours = [each for each in ROWS if each["peer"] is None]
        self.assertEqual([round(target[1], 6) for target in tables.mnist_targets(ours)], [1.2, 1.2])

    def test_a_missed_target_is_told(self):
        text = tables.targets_text([("a", 2.999, 3.0), ("b", 3.0, 3.0)])
        self.assertIn("| a | 3.00 | 3 | MISSED |", text)
        self.assertIn("| b | 3.00 | 3 | holds |", text)


class Page(unittest.TestCase):
    def test_it_has_a_place_for_each_table(self):
        page = (tables.ROOT / "docs/benchmarks/tables.md").read_text()
        for table in tables.TABLES:
            for mark in tables.marks(table):
                self.assertEqual(page.count(mark), 1, mark)


if __name__ == "__main__":
    unittest.main()
