"""Prints what torch.utils.data.DistributedSampler yields, one line a case:

n world rank seed epoch shuffle drop_last : index index ...
"""

import itertools

from torch.utils.data import DistributedSampler


def main():
    sizes_and_worlds = [
        (0, 1), (1, 1), (1, 2), (1, 5), (2, 3), (2, 5), (3, 8), (7, 1), (7, 2), (8, 2), (9, 4), (10, 3),
        (100, 7), (101, 2), (1000, 16), (4097, 3),
    ]
    seeds_and_epochs = [(0, 0), (0, 1), (0, 9), (42, 0), (42, 3), (2**31, 5), (2**40 + 3, 2)]
    for (n, world), (seed, epoch), shuffle, drop_last in itertools.product(
        sizes_and_worlds, seeds_and_epochs, (True, False), (False, True)
    ):
        for rank in sorted({0, world // 2, world - 1}):
            sampler = DistributedSampler(range(n), world, rank, shuffle, seed, drop_last)
            sampler.set_epoch(epoch)
            indices = " ".join(map(str, sampler))
            print(n, world, rank, seed, epoch, int(shuffle), int(drop_last), ":", indices)


if __name__ == "__main__":
    main()
