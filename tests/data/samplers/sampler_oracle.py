"""Prints what the samplers of torch.utils.data yield, one line per case:

    distributed n world rank seed epoch shuffle drop_last : index index ...
    random n num_samples replacement seed epoch : index ...
    subset n seed epoch : index ...                              of the indices 2, 5, 8, ...
    weighted n num_samples replacement seed epoch : index ...    of the weights in weights()
    batch n batch_size drop_last seed epoch : index ... | index ... |

Each generator is seeded with seed + epoch, as in DistributedSampler.
"""

import itertools

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

SEEDS_AND_EPOCHS = [(0, 0), (0, 1), (0, 9), (42, 0), (42, 3), (2**31, 5), (2**40 + 3, 2)]
FLAGS = (False, True)


def generator(seed, epoch):
    return torch.Generator().manual_seed(seed + epoch)


def show(kind, *words_and_indices):
    *words, indices = words_and_indices
    print(kind, *(int(word) for word in words), ":", " ".join(map(str, indices)))


def distributed():
    sizes_and_worlds = [
        (0, 1), (1, 1), (1, 2), (1, 5), (2, 3), (2, 5), (3, 8), (7, 1), (7, 2), (8, 2), (9, 4), (10, 3),
        (100, 7), (101, 2), (1000, 16), (4097, 3),
    ]
    for (n, world), (seed, epoch), shuffle, drop_last in itertools.product(
        sizes_and_worlds, SEEDS_AND_EPOCHS, (True, False), FLAGS
    ):
        for rank in sorted({0, world // 2, world - 1}):
            sampler = DistributedSampler(range(n), world, rank, shuffle, seed, drop_last)
            sampler.set_epoch(epoch)
            show("distributed", n, world, rank, seed, epoch, shuffle, drop_last, sampler)


def random():
    # PyTorch draws with replacement in chunks of 32. From 2^28 or 2^32 on, its generator gives 64
    # bits.
    cases = [(n, k) for n in (1, 2, 31, 32, 33, 1000) for k in (1, 31, 32, 33, 64, 100, 1000, 2500)]
    cases = [(n, k, replacement) for (n, k) in cases for replacement in FLAGS]
    cases += [(n, 70, True) for n in (2**28 - 1, 2**28, 2**32 - 1, 2**32, 2**33 + 1, 2**40)]
    cases += [(60000, 60000, False), (60000, 100, False)]
    for (n, num_samples, replacement), (seed, epoch) in itertools.product(cases, SEEDS_AND_EPOCHS[::2]):
        sampler = RandomSampler(range(n), replacement, num_samples, generator(seed, epoch))
        show("random", n, num_samples, replacement, seed, epoch, sampler)


def subset():
    for n, (seed, epoch) in itertools.product((0, 1, 2, 100, 1001), SEEDS_AND_EPOCHS):
        sampler = SubsetRandomSampler(range(2, 2 + 3 * n, 3), generator(seed, epoch))
        show("subset", n, seed, epoch, sampler)


def weights(n):
    """Some weights are zero, but not the one at index 0."""
    return [((i * 37 + 11) % 101 if i % 5 != 4 else 0) / 7 for i in range(n)]


def weighted():
    # With 50000 weights LibTorch works on several threads.
    cases = [(n, k, True) for n in (1, 3, 10, 1000, 50000) for k in (1, 2, 10, 1000)]
    cases += [(1, 1, False), (3, 1, False), (3, 3, False), (10, 1, False), (10, 8, False), (1000, 1, False)]
    cases += [(1000, 100, False), (1000, 700, False), (50000, 1000, False), (50000, 30000, False)]
    for (n, num_samples, replacement), (seed, epoch) in itertools.product(cases, SEEDS_AND_EPOCHS[::2]):
        sampler = WeightedRandomSampler(weights(n), num_samples, replacement, generator(seed, epoch))
        show("weighted", n, num_samples, replacement, seed, epoch, sampler)


def batch():
    cases = itertools.product((1, 2, 7, 64, 100), (1, 3, 32, 64), FLAGS, SEEDS_AND_EPOCHS[::3])
    for n, batch_size, drop_last, (seed, epoch) in cases:
        sampler = BatchSampler(RandomSampler(range(n), generator=generator(seed, epoch)), batch_size, drop_last)
        indices = (word for indices in sampler for word in (*indices, "|"))
        show("batch", n, batch_size, drop_last, seed, epoch, indices)


if __name__ == "__main__":
    for kind in (distributed, random, subset, weighted, batch):
        kind()
