"""Makes torchvision's data sets and transforms usable with the CPU build of PyTorch.

The wheels of torchvision are compiled for CUDA builds. Its data sets and transforms need none of its compiled
operators, but its import requires their names, which this module defines if they are missing.
"""
import torch

OPERATORS = ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
             "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

try:
    from torchvision import datasets, transforms
except RuntimeError:
    library = torch.library.Library("torchvision", "DEF")  # the names exist as long as this object
    for operator in OPERATORS:
        library.define(operator)
    from torchvision import datasets, transforms

__all__ = ["datasets", "transforms"]
