"""Writes torchvision's state dicts as golden text: name, shape, and the sum of the values that
manual_seed(0) gives. Needs torchvision; run by hand when a model is added:

    python tests/train/checkpoints/make_golden.py > tests/train/checkpoints/golden_state_dicts.txt
"""
import torch
import torchvision
from torch import nn


def cifar_stem(model):
    """The usual changes for 32x32 images, made before any weight is initialised again."""
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


class MnistNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(4),
                                     nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(5))
        self.decoder = nn.Sequential(nn.ConvTranspose2d(16, 8, 5, stride=5), nn.ReLU(),
                                     nn.ConvTranspose2d(8, 3, 5, stride=4, padding=1, output_padding=1))


def write(title, make, sums=True):
    torch.manual_seed(0)
    model = make()
    print(f"# {title}")
    for name, tensor in model.state_dict().items():
        shape = "x".join(str(n) for n in tensor.shape) or "scalar"
        print(name, shape, f"{tensor.double().sum().item():.9g}" if sums else "-")


write("mnist", MnistNet)
write("autoencoder", Autoencoder)
write("resnet18", torchvision.models.resnet18)
write("resnet34", torchvision.models.resnet34)
write("resnet50", torchvision.models.resnet50)
write("resnet18-cifar", lambda: cifar_stem(torchvision.models.resnet18(num_classes=10)), sums=False)
