"""Reading and normalisation, shared by the peers of the loader."""
import numpy as np

# Mean and standard deviation of each channel, for values from 0 to 1.
CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def cifar10(folder):
    """The 50,000 training images from CIFAR-10's binary files, uint8 [N, 3, 32, 32], and their labels, int64 [N]."""
    files = [folder / f"data_batch_{number}.bin" for number in range(1, 6)]
    records = np.concatenate([np.fromfile(file, np.uint8).reshape(-1, 3073) for file in files])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)
