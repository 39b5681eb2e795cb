"""ResNet-18 and ResNet-34 as in torchvision and Lockstep, with either stem of lockstep::ResNetStem."""
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                            nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class BasicResNet(nn.Module):
    """Has `blocks` blocks in each of the four layers. Without `imagenet_stem` it starts with a 3x3 convolution and no
    max-pool, for images of 32x32."""

    def __init__(self, blocks, classes, imagenet_stem):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False) if imagenet_stem else nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if imagenet_stem else nn.Identity()
        inputs, layers = 64, []
        for number, (outputs, count) in enumerate(zip((64, 128, 256, 512), blocks)):
            layer = []
            for block in range(count):
                layer.append(Block(inputs, outputs, 2 if number > 0 and block == 0 else 1))
                inputs = outputs
            layers.append(nn.Sequential(*layer))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class ResNet18(BasicResNet):
    def __init__(self, classes=10, imagenet_stem=False):
        super().__init__((2, 2, 2, 2), classes, imagenet_stem)


class ResNet34(BasicResNet):
    def __init__(self, classes=1000, imagenet_stem=True):
        super().__init__((3, 4, 6, 3), classes, imagenet_stem)
