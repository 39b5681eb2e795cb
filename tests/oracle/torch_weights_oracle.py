"""Loads weights of Python's ResNets, saved by torch.save and as safetensors, into ours, which must give the same
logits.

Usage: torch_weights_oracle.py TORCH_WEIGHTS [--torchvision]

The nets are torchvision's, or otherwise those of benchmarks/peers, which have torchvision's names and whose ResNet-18
is the variant for CIFAR-10. Exits with 77 (skipped) and the reason if Python lacks torch, safetensors or a required
torchvision.
"""
import pathlib
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import torch
    if "--torchvision" in sys.argv:
        from torchvision.models import resnet18, resnet34, resnet50
    else:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "peers"))
        from resnet18 import ResNet18 as resnet18, ResNet34 as resnet34
        from resnet50 import ResNet50 as resnet50
except ImportError as error:
    print(f"skipped: {error}; `make test` and `make test-all` install what is missing")
    sys.exit(77)


def check(condition, *what):
    if not condition:
        sys.exit(" ".join(str(each) for each in what))


def made(make):
    """A net with batch-normalisation statistics that are not the initial ones."""
    torch.manual_seed(0)
    net = make()
    with torch.no_grad():
        net.train()(torch.randn(4, 3, 64, 64))
    return net.eval()


def ours(model, classes, weights, images, folder):
    command = [sys.argv[1], model, str(classes), str(weights), str(images), str(folder / "out.pt")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200)
    check(result.returncode == 0, model, weights.name, result.stderr)
    content = torch.load(folder / "out.pt", weights_only=True, mmap=True)
    return result.stdout.strip(), content.pop("logits"), {name[4:]: value for name, value in content.items()}


def compare(model, net, folder):
    images = folder / "images.pt"
    torch.manual_seed(2)
    torch.save({"images": torch.randn(2, 3, 64, 64)}, images)
    state = net.state_dict()
    files = [folder / name for name in ("weights.pth", "legacy.pth", "weights.safetensors")]
    torch.save(state, files[0])
    torch.save(state, files[1], _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(state, files[2])
    with torch.no_grad():
        expected = net(torch.load(images)["images"])
    for file in files:
        summary, logits, weights = ours(model, net.fc.out_features, file, images, folder)
        difference = float((logits - expected).abs().max() / expected.abs().max())
        check(difference < 1e-4, model, file.name, "logits differ by", difference)
        check(summary == "", model, file.name, summary)
        check(set(weights) == set(state), model, "has other names than Python's")
        for name, tensor in state.items():
            check(torch.equal(weights[name], tensor), model, file.name, name, "differs")
        print(f"{model} from {file.name}: {len(state)} tensors, logits differ by {difference:.1e}")
    summary, logits, weights = ours(model, 6, files[0], images, folder)
    check(summary == f"fc has 6 outputs here and {net.fc.out_features} in weights: fc.weight, fc.bias keep their initial values",
          summary)
    check(logits.shape == (2, 6) and torch.equal(weights["conv1.weight"], state["conv1.weight"]), model, "with 6 classes")
    # In the other direction, Python's net loads the weights that our program wrote.
    net.load_state_dict({**weights, "fc.weight": state["fc.weight"], "fc.bias": state["fc.bias"]})


with tempfile.TemporaryDirectory() as name:
    compare("resnet18" if "--torchvision" in sys.argv else "resnet18-cifar", made(resnet18), pathlib.Path(name))
    compare("resnet34", made(resnet34), pathlib.Path(name))
    compare("resnet50", made(resnet50), pathlib.Path(name))
