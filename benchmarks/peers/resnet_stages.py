"""Cuts a ResNet of these peers into stages, at the same names as Lockstep's resnet_stages()."""
import torch
import torch.nn.functional as F
from torch import nn

LAYERS = ("layer1", "layer2", "layer3", "layer4")


def blocks_of(net):
    """Returns the names of all blocks, in the order of the forward."""
    return [f"{layer}.{number}" for layer in LAYERS for number in range(len(getattr(net, layer)))]


def ends_of(blocks, cuts):
    """Returns the number of blocks before each cut. A cut is the last layer or block of a stage."""
    ends = [max((number for number, block in enumerate(blocks, 1) if block == cut or block.startswith(f"{cut}.")),
                default=0) for cut in cuts]
    if not all(first < end for first, end in zip([0, *ends], [*ends, len(blocks)])):
        raise SystemExit(f"error: --cuts must be layers or blocks of the net in the order of the forward, without the "
                         f"last one, got {','.join(cuts)}; blocks are {', '.join(blocks)}")
    return ends


class ChannelsLast(torch.autograd.Function):
    """Makes the input channels-last and its gradient contiguous, because Gloo sends only contiguous tensors."""

    @staticmethod
    def forward(context, x):
        return x.contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(context, gradient):
        return gradient.contiguous()


class Stage(nn.Module):
    """The blocks `first` to `end` - 1. The first stage also has the stem, the last one the classifier."""

    def __init__(self, net, first, end):
        super().__init__()
        blocks = blocks_of(net)
        stem = [net.conv1, net.bn1, nn.ReLU(), getattr(net, "maxpool", nn.Identity())]
        self.body = nn.Sequential(*(stem if first == 0 else []),
                                  *(net.get_submodule(name) for name in blocks[first:end]))
        self.fc = net.fc if end == len(blocks) else None

    def forward(self, x):
        x = self.body(ChannelsLast.apply(x))
        if self.fc is None:
            return x.contiguous()  # Gloo sends only contiguous tensors
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def stages_of(net, cuts):
    """Returns one more stage than there are cuts."""
    ends = ends_of(blocks_of(net), cuts)
    return [Stage(net, first, end) for first, end in zip([0, *ends], [*ends, len(blocks_of(net))])]
