"""Loads the weights that train.cpp has saved, and compares the outputs of both models.

Usage: check.py OUTPUT [MODEL], with the OUTPUT of train.cpp and the MODEL of export.py. Exits with 1 if they differ.
"""
import sys

import torch

from export import make_model

TOLERANCE = 1e-4  # of another version of PyTorch, or another number of threads


def main():
    output, name = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "small"
    torch.set_num_threads(1)  # as train.cpp
    model = make_model(name).eval()
    model.load_state_dict(torch.load(f"{output}.pt"), strict=True)
    seen = torch.load(f"{output}-seen.pt")
    with torch.no_grad():
        difference = (model(seen["images"]) - seen["logits"]).abs().max().item()
    print(f"the outputs differ by at most {difference:.1e}")
    sys.exit(0 if difference < TOLERANCE else 1)


if __name__ == "__main__":
    main()
