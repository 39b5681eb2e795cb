"""Writes a model for train.cpp: its graph and its initial weights.

Usage: export.py NET.pt2 [MODEL]

MODEL is "small", the net below, or the name of a model of timm, such as resnet18.
"""
import sys

import torch
from torch import nn

CLASSES = 3


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(4, 32), nn.ReLU())
        self.head = nn.Linear(32, CLASSES)

    def forward(self, images):
        return self.head(self.features(images).mean((2, 3)))


def make_model(name):
    if name == "small":
        return Small()
    import timm
    return timm.create_model(name, num_classes=CLASSES)


def main():
    path, name = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "small"
    torch.manual_seed(0)
    model = make_model(name).train()  # a model that is to be trained is exported in training mode
    pictures = (torch.randn(4, 3, 32, 32),)
    any_batch = ({0: torch.export.Dim.DYNAMIC},)
    torch.export.save(torch.export.export(model, pictures, dynamic_shapes=any_batch), path)


if __name__ == "__main__":
    main()
