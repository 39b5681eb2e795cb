"""lockstep::Autoencoder in Python."""
from torch import nn


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(4),
                                     nn.Conv2d(8, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(5))
        self.decoder = nn.Sequential(nn.ConvTranspose2d(16, 8, 5, stride=5), nn.ReLU(),
                                     nn.ConvTranspose2d(8, 3, 5, stride=4, padding=1, output_padding=1))

    def forward(self, x):
        return self.decoder(self.encoder(x))
