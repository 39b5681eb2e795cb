"""Tests benchmarks/peers/resnet_stages.py, which cuts the nets for the peer of `lockstep bench step --strategy all`.

Exits with 77 (skipped) and the reason if Python lacks torch.
"""
import pathlib
import sys
import unittest

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; `make test` installs what is missing into .deps/venv")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "peers"))
from resnet18 import ResNet18  # noqa: E402
from resnet50 import ResNet50  # noqa: E402
from resnet_stages import blocks_of, ends_of, stages_of  # noqa: E402


class ResNetStages(unittest.TestCase):
    def test_compute_what_the_net_computes(self):
        torch.manual_seed(0)
        for make, cuts in ((ResNet18, ["layer2"]), (ResNet18, ["layer1.0", "layer3.1"]), (ResNet50, ["layer3.0"])):
            net = make().eval()
            x = torch.randn(2, 3, 32, 32)
            with torch.no_grad():
                expected, got = net(x), x
                stages = stages_of(net, cuts)
                for stage in stages:
                    got = stage(got)
            self.assertEqual(len(stages), len(cuts) + 1)
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
            whole = {id(parameter) for parameter in net.parameters()}
            self.assertEqual({id(parameter) for stage in stages for parameter in stage.parameters()}, whole)

    def test_send_contiguous_tensors_both_ways(self):
        """Also if a convolution without a stem receives the tensor first, as after layer3."""
        for cut in ("layer2", "layer3", "layer3.0"):
            first, second = stages_of(ResNet18(), [cut])
            sent = first(torch.randn(4, 3, 32, 32)).detach().requires_grad_()
            (back,) = torch.autograd.grad(second(sent).sum(), sent)
            self.assertTrue(sent.is_contiguous() and back.is_contiguous(), cut)

    def test_cuts_are_names_that_stages_end_with(self):
        blocks = blocks_of(ResNet50())
        self.assertEqual(len(blocks), 16)
        self.assertEqual(ends_of(blocks, ["layer2"]), [7])
        self.assertEqual(ends_of(blocks, ["layer2.3"]), [7])
        self.assertEqual(ends_of(blocks, ["layer1.0", "layer3.0"]), [1, 8])

    def test_other_cuts_are_refused(self):
        blocks = blocks_of(ResNet50())
        for cuts in (["layer4"], ["layer4.2"], ["layer5"], ["layer3.9"], [""], ["layer"], ["layer3", "layer2"],
                     ["layer2", "layer2.3"]):
            with self.assertRaisesRegex(SystemExit, "error: --cuts must be layers or blocks"):
                ends_of(blocks, cuts)


if __name__ == "__main__":
    unittest.main()
