"""Checks that docs/adr/021 shows the numbers of benchmarks/socket_cost.py."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import socket_cost  # noqa: E402


class SocketCost(unittest.TestCase):
    def test_the_decision_shows_the_tables(self):
        page = (ROOT / "docs/adr/021-no-level-for-sockets.md").read_text()
        costs = socket_cost.parse([])
        for name, table in (("barriers", socket_cost.barriers(costs)), ("all_reduces", socket_cost.all_reduces(costs))):
            self.assertIn(f"<!-- {name}:begin -->\n{table}\n<!-- {name}:end -->", page)

    def test_by_hand(self):
        costs = socket_cost.parse(["--near-ns", "100", "--far-ns", "200", "--overlap", "1", "--same-line-ns", "10"])
        # A rank takes its line back from the readers, then reads one near and two far lines.
        self.assertAlmostEqual(socket_cost.flat_barrier_us(4, costs, 1), 0.2 + 0.1 + 2 * 0.2)
        # The leader reads one line, the leaders exchange theirs, and another rank reads the release.
        self.assertAlmostEqual(socket_cost.leveled_barrier_us(4, costs, 1), (0.1 + 0.1) + 0.2 + (0.1 + 0.01))
        link, memory, _ = socket_cost.flat_all_reduce_ms(4, socket_cost.parse(["--link-gbps", "1", "--memory-gbps", "1"]))
        self.assertAlmostEqual(link, 2 * 25 * 1.048576)
        self.assertAlmostEqual(memory, 4 * 25 * 1.048576)


if __name__ == "__main__":
    unittest.main()
