"""The images of each recipe for train_epochs.py, loaded with torchvision's transforms in a DataLoader or with NVIDIA
DALI."""
import gzip

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler

import images as data

MNIST = (0.1307,), (0.3081,)
RANDOM_IMAGES, RANDOM_SIDE, RANDOM_CLASSES = 360, 128, 1000
VALIDATED = 0.2  # validation share of a folder without a split


def read_idx(folder, name):
    """Returns the data of a file in MNIST's format after its header of `4 + 4 * dimensions` bytes, and its
    dimensions."""
    packed = folder / f"{name}.gz"
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()
    dimensions = np.frombuffer(content, ">i4", content[3], 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(dimensions)


def arrays_of(args):
    """The training images of a recipe that keeps them in memory, uint8 [N, H, W, C], and their labels."""
    if args.recipe == "mnist":
        pixels = read_idx(args.data, "train-images-idx3-ubyte")[..., None]
        return pixels, read_idx(args.data, "train-labels-idx1-ubyte").astype(np.int64)
    if args.recipe == "cifar10":
        pixels, labels = data.cifar10(args.data)
        return np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)), labels
    if args.recipe == "resnet50-split" and args.data is None:
        random = np.random.default_rng(args.seed)
        shape = (RANDOM_IMAGES, RANDOM_SIDE, RANDOM_SIDE, 3)
        return random.integers(0, 256, shape, np.uint8), random.integers(0, RANDOM_CLASSES, RANDOM_IMAGES)
    return None


def folder_of(args):
    """Returns the folder of the training images, and whether the validation images are already separate."""
    train = args.data / "train"
    return (train, True) if train.is_dir() else (args.data, False)


class Arrays(Dataset):
    """Images in memory that are returned as PIL images, as in torchvision's data sets of MNIST and CIFAR-10."""

    def __init__(self, pixels, labels, transform):
        self.pixels, self.labels, self.transform = pixels, labels, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        from PIL import Image
        pixels = self.pixels[index]
        image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        return self.transform(image), int(self.labels[index])


def transform_of(args):
    from vision import transforms as t
    if args.recipe == "mnist":
        return t.Compose([t.ToTensor(), t.Normalize(*MNIST)])
    if args.recipe == "cifar10":
        return t.Compose([t.RandomCrop(32, padding=4), t.RandomHorizontalFlip(), t.ToTensor(),
                          t.Normalize(*data.CIFAR10)])
    if args.recipe == "autoencoder":
        return t.Compose([t.Resize((args.image_size, args.image_size)), t.ToTensor()])
    side = RANDOM_SIDE if args.recipe == "resnet50-split" else args.image_size
    return t.Compose([t.RandomResizedCrop(side), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(*data.IMAGENET)])


class Batches:
    """`steps` batches of a rank's share in each epoch."""

    def __init__(self, classes, steps, epoch):
        self.classes, self.steps, self.epoch = classes, steps, epoch


def limited(args, steps):
    return min(steps, args.max_steps) if args.max_steps else steps


def make_dataset(args):
    """Returns the training images and the number of classes."""
    arrays = arrays_of(args)
    if arrays is not None:
        return Arrays(*arrays, transform_of(args)), int(arrays[1].max()) + 1
    from vision import datasets
    folder, is_split = folder_of(args)
    images = datasets.ImageFolder(folder, transform_of(args))
    if is_split:
        return images, len(images.classes)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(args.seed)).tolist()
    return Subset(images, order[round(VALIDATED * len(images)):]), len(images.classes)


def torchvision_loader(args, rank, world, device):
    dataset, classes = make_dataset(args)
    sampler = DistributedSampler(dataset, world, rank, seed=args.seed)
    loader = DataLoader(dataset, args.batch_size // world, sampler=sampler, num_workers=args.workers,
                        persistent_workers=args.workers > 0, pin_memory=device.type == "cuda")

    def epoch(number):
        sampler.set_epoch(number)
        return loader

    return Batches(classes, limited(args, len(loader)), epoch)


def dali_pipeline(args, rank, world, device, source):
    """The same augmentation with DALI's operators. `source` is a callable for external images, or a folder."""
    from nvidia.dali import fn, pipeline_def, types

    on_gpu = device.type == "cuda"
    mean, deviation = {"mnist": MNIST, "cifar10": data.CIFAR10}.get(args.recipe, data.IMAGENET)
    if args.recipe == "autoencoder":
        mean, deviation = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    side = {"mnist": 28, "cifar10": 32, "resnet50-split": RANDOM_SIDE}.get(args.recipe, args.image_size)

    @pipeline_def(batch_size=args.batch_size // world, num_threads=args.threads, seed=args.seed + rank,
                  device_id=device.index if on_gpu else None)
    def pipeline():
        if callable(source):
            images, labels = fn.external_source(source, num_outputs=2, batch=True, layout=["HWC", ""])
        else:
            files, labels = fn.readers.file(file_root=str(source), random_shuffle=True, shard_id=rank,
                                            num_shards=world, name="files")
            images = fn.decoders.image(files, device="mixed" if on_gpu else "cpu")
        if on_gpu:
            images = images.gpu()
        mirror = fn.random.coin_flip() if args.recipe not in ("mnist", "autoencoder") else 0
        crop = {}
        if args.recipe == "cifar10":  # its images are padded beforehand
            crop = {"crop": (side, side), "crop_pos_x": fn.random.uniform(range=[0.0, 1.0]),
                    "crop_pos_y": fn.random.uniform(range=[0.0, 1.0])}
        elif args.recipe in ("classify", "resnet50-split"):
            images = fn.random_resized_crop(images, size=[side, side], antialias=True)
        elif args.recipe == "autoencoder":
            images = fn.resize(images, size=[side, side], antialias=True)
        images = fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mirror=mirror,
                                          mean=[255 * m for m in mean], std=[255 * d for d in deviation], **crop)
        return images, labels

    made = pipeline()
    made.build()
    return made


class Shuffled:
    """Batches of a rank's share of arrays, reshuffled in each pass, for DALI's external source."""

    def __init__(self, args, rank, world, pixels, labels):
        padding = ((0, 0), (4, 4), (4, 4), (0, 0)) if args.recipe == "cifar10" else ((0, 0),) * 4
        self.pixels, self.labels = np.pad(pixels, padding), labels
        self.rank, self.world, self.size = rank, world, args.batch_size // world
        self.random = np.random.default_rng(args.seed)
        self.order = np.empty(0, np.int64)

    def __call__(self):
        if len(self.order) < self.size:
            self.order = self.random.permutation(len(self.labels))[self.rank::self.world]
        chosen, self.order = self.order[:self.size], self.order[self.size:]
        return self.pixels[chosen], self.labels[chosen]


def dali_loader(args, rank, world, device):
    arrays = arrays_of(args)
    if arrays is not None:
        count, classes = len(arrays[1]), int(arrays[1].max()) + 1
        source = Shuffled(args, rank, world, *arrays)
    else:
        source, is_split = folder_of(args)
        files = [each for each in source.rglob("*") if each.suffix.lower() in (".jpg", ".jpeg", ".png")]
        classes = sum(each.is_dir() for each in source.iterdir())
        count = len(files) if is_split else len(files) - round(VALIDATED * len(files))
    pipeline = dali_pipeline(args, rank, world, device, source)
    steps = limited(args, -(-count // args.batch_size))  # the last batch of an epoch is filled with samples of the next one

    def epoch(_):
        for _ in range(steps):
            images, labels = pipeline.run()
            yield as_tensor(images), as_tensor(labels).flatten().long()

    return Batches(classes, steps, epoch)


def as_tensor(batch):
    batch = batch.as_tensor()
    if hasattr(batch, "__dlpack__"):
        return torch.from_dlpack(batch).clone()  # DALI reuses its buffer, perhaps before the GPU has read it
    return torch.from_numpy(np.array(batch))


def make_loader(args, rank, world, device):
    return (dali_loader if args.loader == "dali" else torchvision_loader)(args, rank, world, device)
