"""The sequence nets of tests/export/net_cases.cpp in Python."""
from torch import nn


class SentenceNet(nn.Module):
    """Classifies sentences of tokens, [batch, length], into 5 classes with a transformer encoder."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 32)
        layer = nn.TransformerEncoderLayer(32, 4, dim_feedforward=64, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classes = nn.Linear(32, 5)

    def forward(self, tokens):
        return self.classes(self.encoder(self.words(tokens).transpose(0, 1)).mean(0))


class SequenceNet(nn.Module):
    """Classifies sequences of numbers, [batch, length, 6], into 4 classes with a two-layer LSTM."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 16, num_layers=2, batch_first=True, dropout=0.2)
        self.classes = nn.Linear(16, 4)

    def forward(self, x):
        return self.classes(self.lstm(x)[0][:, -1])
