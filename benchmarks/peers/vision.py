"""torchvision's data sets and transforms, also beside the CPU build of PyTorch.

The wheels of torchvision are compiled for CUDA builds. Its data sets and transforms need none of its compiled operators,
but its import asks for their names, which this module gives where they are missing.
"""
import torch

OPERATORS = ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
             "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

try:
    from torchvision import datasets, transforms
except RuntimeError:
    library = torch.library.Library("torchvision", "DEF")  # the names live as long as it does
    for operator in OPERATORS:
        library.define(operator)
    from torchvision import datasets, transforms

__all__ = ["datasets", "transforms"]
