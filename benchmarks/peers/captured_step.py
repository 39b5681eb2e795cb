"""Captures a training step as a CUDA graph with torch.cuda.graph."""
import torch

WARM_UP_STEPS = 3  # cuDNN chooses kernels, the allocator settles, and the optimizer creates its state


class CapturedStep:
    """Calls `learn(images, labels)` for the first batches and for batches of another size; replays the graph for the
    others."""

    def __init__(self, learn, batch_size):
        self.learn, self.batch_size = learn, batch_size
        self.stream = torch.cuda.Stream()
        self.steps, self.graph = 0, None

    def __call__(self, images, labels):
        if len(images) != self.batch_size:
            return self.learn(images, labels)
        if self.steps < WARM_UP_STEPS:
            self.steps += 1
            return self.aside(images, labels)
        if self.graph is None:
            self.capture(images, labels)
        self.images.copy_(images)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.loss

    def aside(self, images, labels):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss = self.learn(images, labels)
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss

    def capture(self, images, labels):
        self.images, self.labels = images.clone(), labels.clone()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):  # records the operations without running them
            self.loss = self.learn(self.images, self.labels)
