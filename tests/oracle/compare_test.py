"""Tests the oracle itself: compare.py must notice differences."""
import sys
import unittest

from compare import compare
import torch

THEIRS = {"losses": torch.tensor([[2.0, 1.0]]), "model.weight": torch.tensor([1.0, -4.0])}
# (what differs in our result, what the comparison must report)
DIFFERENT = [
    ({"model.weight": torch.tensor([1.0, -4.0008])}, "model.weight: relative difference 2.00e-04"),
    ({"losses": torch.tensor([[2.0, float("nan")]])}, "losses: relative difference nan"),
    ({"model.weight": torch.tensor([1.0])}, "model.weight: ours torch.float32 [1]"),
    ({"model.weight": torch.tensor([1.0, -4.0]).double()}, "model.weight: ours torch.float64 [2]"),
    ({"model.bias": torch.zeros(1)}, "model.bias: only in ours"),
]


class CompareTest(unittest.TestCase):
    def test_accepts_what_differs_by_rounding(self):
        ours = {name: tensor * (1 + 1e-6) for name, tensor in THEIRS.items()}
        self.assertEqual(list(compare(ours, THEIRS)), [])

    def test_names_each_difference(self):
        for change, text in DIFFERENT:
            with self.subTest(text):
                lines = list(compare({**THEIRS, **change}, THEIRS))
                self.assertEqual(len(lines), 1)
                self.assertIn(text, lines[0])

    def test_names_what_ours_lacks(self):
        self.assertEqual(list(compare({"losses": THEIRS["losses"]}, THEIRS)),
                         ["model.weight: only in theirs"])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
